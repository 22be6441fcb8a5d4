"""ElectLeaders: preferred leaders lead again, or somebody leads at all.

What: the decision for one partition. PREFERRED gives the leadership to the first replica of the
list, if it is in sync and active; UNCLEAN lets a replica lead that may lack acknowledged records,
and only where nobody leads. Rule kept: what is not needed is said to be not needed, and never done
in passing. Source: KIP-183, KIP-460, Kafka's ReplicationControlManager.electLeader.
"""

from __future__ import annotations

from dataclasses import replace
from enum import IntEnum

from anabranch.core.controller.brokers.membership import Consequences
from anabranch.core.controller.partitions.elections import change_isr, prefer_first
from anabranch.core.controller.reasons import leader_reason
from anabranch.core.controller.result import Reason
from anabranch.core.errors import ClientFault, ErrorCode
from anabranch.core.metadata.image import PartitionImage, TopicImage
from anabranch.core.wire.metadata_records import PartitionChangeRecord


class ElectionType(IntEnum):
    """Which leader is asked for."""

    PREFERRED = 0
    UNCLEAN = 1


ASKED_FOR = {ElectionType.PREFERRED: "a preferred", ElectionType.UNCLEAN: "an unclean"}


def elect(
    consequences: Consequences, topic: TopicImage, index: int, kind: ElectionType
) -> tuple[PartitionChangeRecord, Reason]:
    """The record that changes the leader; raises ClientFault when there is none to write."""
    partition = topic.partitions.get(index)
    if partition is None:
        raise ClientFault(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such partition as {topic.name}-{index}"
        )
    if is_not_needed(partition, kind):
        raise ClientFault(ErrorCode.ELECTION_NOT_NEEDED)
    key = (topic.topic_id, index)
    rules = consequences.rules(key)
    if kind is ElectionType.PREFERRED:
        record = prefer_first(*key, partition, rules)
        missing = ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    else:
        rules = replace(rules, unclean_allowed=True, only_clean=False, added_may_lead=True)
        record = change_isr(*key, partition, partition.isr, rules)
        missing = ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
    if record is None or record.leader < 0:
        raise ClientFault(missing)
    place = f"{topic.name}-{index}"
    because = f"{ASKED_FOR[kind]} election was asked for"
    details = {"partition": place, "kind": kind.name}
    return record, leader_reason(place, partition, record, because, details)


def is_not_needed(partition: PartitionImage, kind: ElectionType) -> bool:
    """Whether the partition has the leader that such an election would look for."""
    if kind is ElectionType.PREFERRED:
        return partition.leader == partition.replicas[0]
    return partition.leader >= 0
