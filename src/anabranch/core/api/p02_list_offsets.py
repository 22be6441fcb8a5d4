"""ListOffsets: the offset that a timestamp, or one of the special timestamps, stands for.

KIP: KIP-79 (timestamps), KIP-320 (leader epochs), KIP-734 (maximum timestamp), KIP-405 (earliest
    local), KIP-1005 (latest tiered), KIP-207 (the high watermark may lag after an election).
Versions: 1-10.
Behaviour: -1 latest (high watermark, or last stable offset for read_committed, or the log's end for
    a follower), -2 earliest, -3 the record with the largest timestamp (version 7 on), -4 earliest
    on the local disk (8 on), -5 last one in remote storage (9 on; -1 for none). Specials that a
    version does not know get UNSUPPORTED_VERSION; a partition named twice gets INVALID_REQUEST. A
    timestamp after the last record gets offset -1 without an error. So does -3 where the record
    with the largest timestamp is not to be read yet (above the high watermark or the last stable
    offset). Where DeleteRecords deleted that record, -3 gives its offset until its segment goes.
Skipped: nothing.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterator

from anabranch.core.access.authorize import Operation, ResourceType, topic_allowed
from anabranch.core.api.context import Broker
from anabranch.core.api.handler import Handler
from anabranch.core.broker.gate import Need
from anabranch.core.errors import ApiError, ErrorCode, ProtocolError, StorageFault
from anabranch.core.log.files import Bringer, ColdRead
from anabranch.core.outcome import MOST_READS, Cold, Outcome
from anabranch.core.partition.protocol import Partition
from anabranch.core.request import Request
from anabranch.core.types import (
    EARLIEST,
    EARLIEST_LOCAL,
    LATEST,
    LATEST_TIERED,
    MAX_TIMESTAMP,
)
from anabranch.core.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)

_SINCE = {LATEST: 1, EARLIEST: 1, MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9}
"""The version from which a special timestamp is understood."""

_CONSUMER = -1
_DEBUGGING = -2
_OFFSET_NOT_AVAILABLE_SINCE = 5
_UNKNOWN = (-1, -1, -1)
MOST_FAR_BYTES = 8 << 20
"""From stores that one round brings in, which stay in memory until all are there."""

Found = tuple[int, int, int]
"""Timestamp, offset, leader epoch."""

_PLACES: dict[int, Callable[[Partition], int]] = {
    EARLIEST: lambda partition: partition.start_offset,
    EARLIEST_LOCAL: lambda partition: partition.local_start_offset,
    LATEST_TIERED: lambda partition: partition.remote_end_offset - 1,
}
"""Special timestamps that stand for an offset of which no record need be known; -1 for none."""


def run(broker: Broker, request: Request, now_ms: int) -> Outcome:
    """Look every partition up; where that needs the disk, go on after it was warmed."""
    response = ListOffsetsResponse(topics=[])
    since = broker.partitions.unhosted.count()
    wanted = deque(_lay_out(broker, request, response))

    def go_on(_now_ms: int) -> Outcome:
        missing: list[ColdRead] = []
        asked = []
        far_bytes = 0
        while wanted and len(missing) < MOST_READS and far_bytes < MOST_FAR_BYTES:
            entry = wanted.popleft()
            try:
                _answer(broker, request, since, *entry)
            except ColdRead as cold:
                missing.append(cold)
                asked.append(entry)
                far_bytes += 0 if cold.bringer is Bringer.PAGE_CACHE else cold.length
        wanted.extendleft(reversed(asked))  # the first ones then: what came may not stay for long
        return Cold(tuple(missing), go_on) if missing else response

    return go_on(now_ms)


def _lay_out(
    broker: Broker, request: Request, response: ListOffsetsResponse
) -> Iterator[tuple[str, ListOffsetsPartition, ListOffsetsPartitionResponse]]:
    """Fill the response with empty answers; yields those that have to be looked up."""
    body: ListOffsetsRequest = request.body
    named = Counter(
        (topic.name, part.partition_index) for topic in body.topics for part in topic.partitions
    )
    for topic in body.topics:
        allowed = topic_allowed(broker.authorizer, request, Operation.DESCRIBE, topic.name)
        answers = []
        for partition in {each.partition_index: each for each in topic.partitions}.values():
            answer = ListOffsetsPartitionResponse(partition_index=partition.partition_index)
            answers.append(answer)
            if not allowed:
                answer.error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            elif named[topic.name, partition.partition_index] > 1:
                answer.error_code = ErrorCode.INVALID_REQUEST
            else:
                yield topic.name, partition, answer
        response.topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=answers))


def _answer(
    broker: Broker,
    request: Request,
    since: int,
    topic: str,
    partition: ListOffsetsPartition,
    answer: ListOffsetsPartitionResponse,
) -> None:
    body: ListOffsetsRequest = request.body
    if partition.timestamp < 0 and request.version < _SINCE.get(partition.timestamp, 2**15):
        answer.error_code = ErrorCode.UNSUPPORTED_VERSION
        return
    replica: Partition | None = None
    try:
        replica = broker.partitions.find(broker.image, topic, partition.partition_index)
        replica.check_epoch(partition.current_leader_epoch)
        if body.replica_id != _DEBUGGING:
            replica.check_leader()
        replica.ensure_current(since)
        isolation_level = body.isolation_level if body.replica_id == _CONSUMER else None
        found = _find(replica, partition.timestamp, isolation_level, since)
        answer.timestamp, answer.offset, answer.leader_epoch = found
    except ApiError as error:
        answer.error_code = error.code
        if (
            error.code == ErrorCode.OFFSET_NOT_AVAILABLE
            and request.version < _OFFSET_NOT_AVAILABLE_SINCE
        ):
            answer.error_code = ErrorCode.LEADER_NOT_AVAILABLE
    except ProtocolError:  # a producer wrote records that are none
        answer.error_code = ErrorCode.CORRUPT_MESSAGE
    except StorageFault as fault:
        answer.error_code = ErrorCode.KAFKA_STORAGE_ERROR
        if replica is not None:
            replica.failed(fault, broker.mailbox)


def _find(partition: Partition, timestamp: int, isolation_level: int | None, since: int) -> Found:
    """The offset for one timestamp; `isolation_level` None is a follower's unlimited view."""
    end = partition.read_limit(isolation_level or 0, is_follower=isolation_level is None)
    lagging = isolation_level is not None and partition.high_watermark_lags
    if timestamp == LATEST:
        if lagging:
            raise ApiError(ErrorCode.OFFSET_NOT_AVAILABLE)
        return -1, end, partition.leader_epoch
    if timestamp in _PLACES:
        offset = _PLACES[timestamp](partition)
        return (-1, offset, partition.epoch_of(offset)) if offset >= 0 else _UNKNOWN
    if timestamp == MAX_TIMESTAMP:
        record = partition.max_timestamp_offset(since)
    else:
        record = partition.offset_for_timestamp(timestamp, since)
    if record is not None and record.offset < end:
        return record.timestamp, record.offset, record.leader_epoch
    if lagging:
        raise ApiError(ErrorCode.OFFSET_NOT_AVAILABLE)
    return _UNKNOWN


HANDLER = Handler(
    api_key=2,
    name="ListOffsets",
    versions=range(1, 11),
    broker=run,
    needs=(Need(Operation.DESCRIBE, ResourceType.TOPIC),),
    kips=("KIP-79", "KIP-207", "KIP-320", "KIP-405", "KIP-734", "KIP-1005"),
)
