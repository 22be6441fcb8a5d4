"""Reading whole batches from the leaders of their partitions, and finding offsets."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Mapping
from struct import Struct
from typing import Any, NamedTuple

from anabranch.client.cluster import Cluster, check, no_leader
from anabranch.core.errors import ApiError, ErrorCode
from anabranch.core.types import ZERO_TOPIC_ID, Buffer, TopicId
from anabranch.core.wire.batch import BATCH_OVERHEAD, PREFIX
from anabranch.core.wire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from anabranch.core.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

BY_NAME = 12
"""The newest Fetch version that names topics."""
_START = Struct(">qi").unpack_from
_DELTA = Struct(">i").unpack_from
DELTA_AT = 23
NOT_READY = frozenset({ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.OFFSET_NOT_AVAILABLE})
"""A new leader does not know yet where its log ends for readers (KIP-207)."""


class Fetched(NamedTuple):
    """What one partition gave: whole batches, the last one perhaps starting before the offset."""

    partition: int
    records: Buffer
    high_watermark: int
    log_start_offset: int
    aborted: tuple[tuple[int, int], ...]
    """Aborted transactions in range: (producer id, first offset)."""
    last_stable_offset: int
    """Where the first open transaction begins, or the high watermark."""


async def fetch(
    cluster: Cluster,
    topic: str,
    offsets: Mapping[int, int],
    *,
    leaders: Mapping[int, int] | None = None,
    max_wait_ms: int = 500,
    min_bytes: int = 1,
    max_bytes: int = 50 << 20,
    partition_max_bytes: int = 1 << 20,
    isolation_level: int = 0,
    topic_id: bytes = ZERO_TOPIC_ID,
) -> list[Fetched]:
    """Fetch once from each leader of `offsets` (partition -> next offset), all at the same time.

    With `topic_id`, brokers that know ids give nothing of another topic of the same name. Raises
    ApiError with the first partition's error, OFFSET_OUT_OF_RANGE among them.
    """
    leaders = leaders or await cluster.leaders(topic, offsets)
    by_leader: dict[int, list[FetchPartition]] = defaultdict(list)
    for partition, offset in offsets.items():
        if partition not in leaders:
            raise ApiError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"There is no partition {topic}-{partition}."
            )
        by_leader[leaders[partition]].append(
            FetchPartition(
                partition=partition, fetch_offset=offset, partition_max_bytes=partition_max_bytes
            )
        )
    requests = [
        (
            leader,
            FetchRequest(
                max_wait_ms=max_wait_ms, min_bytes=min_bytes, max_bytes=max_bytes,
                isolation_level=isolation_level,
                topics=[
                    FetchTopic(topic=topic, topic_id=TopicId(topic_id), partitions=partitions)
                ],
            ),
        )
        for leader, partitions in by_leader.items()
    ]  # fmt: skip
    answers = await asyncio.gather(*(_fetch_from(cluster, *each) for each in requests))
    return [
        _fetched(topic, each)
        for answer in answers
        for each_topic in answer.responses
        for each in each_topic.partitions
    ]


async def _fetch_from(cluster: Cluster, leader: int, request: FetchRequest) -> FetchResponse:
    connection = await cluster.connection_to(leader)
    version = connection.version_for(FetchRequest.api_key)
    if request.topics[0].topic_id == ZERO_TOPIC_ID:
        version = min(BY_NAME, version)
    response: FetchResponse = await connection.send(request, version)
    check(response.error_code)
    return response


def _fetched(topic: str, answer: PartitionData) -> Fetched:
    if answer.error_code:
        check(answer.error_code, of=f"{topic}-{answer.partition_index}")
    aborted = answer.aborted_transactions or ()
    return Fetched(
        answer.partition_index,
        answer.records if answer.records is not None else b"",
        answer.high_watermark,
        answer.log_start_offset,
        tuple((each.producer_id, each.first_offset) for each in aborted),
        answer.last_stable_offset,
    )


async def list_offsets(
    cluster: Cluster, topic: str, timestamp: int, partitions: Iterable[int] | None = None,
    *, isolation_level: int = 0, ready_only: bool = False,
) -> dict[int, int]:  # fmt: skip
    """Partition -> offset for a timestamp in ms, or for LATEST, EARLIEST or MAX_TIMESTAMP.

    -1 stands for "no such record". With READ_COMMITTED, LATEST is where the first open transaction
    begins. With `ready_only`, partitions without a leader, or whose new leader cannot say yet, are
    left out. Tried again while that can help; raises ApiError.
    """

    async def attempt() -> dict[int, int]:
        known = (await cluster.topic(topic)).partitions
        leaders = {each.partition_index: each.leader_id for each in known}
        wanted = leaders if partitions is None else {each: leaders.get(each) for each in partitions}
        by_leader: dict[Any, list[ListOffsetsPartition]] = defaultdict(list)
        for partition, leader in wanted.items():
            if leader is None:
                raise ApiError(
                    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                    f"There is no partition {topic}-{partition}.",
                )
            if ready_only and leader not in cluster.brokers:
                continue
            if leader < 0:
                raise no_leader(topic, partition)
            by_leader[leader].append(
                ListOffsetsPartition(partition_index=partition, timestamp=timestamp)
            )
        found: dict[int, int] = {}
        for leader, asked in by_leader.items():
            request = ListOffsetsRequest(
                replica_id=-1, isolation_level=isolation_level,
                topics=[ListOffsetsTopic(name=topic, partitions=asked)],
            )  # fmt: skip
            response: ListOffsetsResponse = await cluster.send_to(leader, request)
            for each in response.topics[0].partitions:
                if ready_only and each.error_code in NOT_READY:
                    continue
                check(each.error_code)
                found[each.partition_index] = each.offset
        return dict(sorted(found.items()))

    return await cluster.retrying(attempt)


def whole_batches(records: Buffer) -> tuple[int, int]:
    """(bytes of the whole batches in a fetched record set, the offset that follows the last one).

    (0, -1) when there is none. Only lengths are read; a length that cannot be ends the walk.
    """
    end, position, last = len(records), 0, -1
    while end - position >= BATCH_OVERHEAD:
        length = _START(records, position)[1]
        if length < BATCH_OVERHEAD - PREFIX or position + PREFIX + length > end:
            break
        last, position = position, position + PREFIX + length
    if last < 0:
        return 0, -1
    return position, _START(records, last)[0] + _DELTA(records, last + DELTA_AT)[0] + 1
