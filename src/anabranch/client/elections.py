"""Asking for leaders: the preferred ones, or any at all where nobody leads (ElectLeaders).

The rule it keeps: each partition has its own outcome; that no election was needed is none of the
failures. Source: KIP-183, KIP-460. Not here: who may lead, which the controller decides.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import NamedTuple

from anabranch.client.cluster import Cluster, check
from anabranch.core.errors import ERRORS, ErrorCode
from anabranch.core.wire.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    TopicPartitions,
)

TIMEOUT_MS = 30_000


class Election(IntEnum):
    """Which leader is asked for."""

    PREFERRED = 0
    UNCLEAN = 1


class Elected(NamedTuple):
    """What came of one partition's election."""

    topic: str
    partition: int
    code: ErrorCode
    sentence: str

    @property
    def is_failure(self) -> bool:
        """Whether the partition does not have the leader that was asked for."""
        return self.code not in (ErrorCode.NONE, ErrorCode.ELECTION_NOT_NEEDED)


async def elect_leaders(
    cluster: Cluster, kind: Election, places: Mapping[str, Sequence[int]] | None
) -> list[Elected]:
    """Elect for these partitions, or (None) wherever it is needed; in order of topic and index.

    Raises ApiError when the request as a whole was refused.
    """
    asked = None
    if places is not None:
        asked = [
            TopicPartitions(topic=topic, partitions=list(indexes))
            for topic, indexes in places.items()
        ]
    request = ElectLeadersRequest(election_type=kind, topic_partitions=asked, timeout_ms=TIMEOUT_MS)
    response: ElectLeadersResponse = await cluster.send(request)
    check(response.error_code)
    outcomes = []
    for topic in response.replica_election_results:
        for each in topic.partition_result:
            code = ErrorCode(each.error_code)
            sentence = each.error_message or ("" if not code else ERRORS[code].sentence)
            outcomes.append(Elected(topic.topic, each.partition_id, code, sentence))
    return sorted(outcomes)
