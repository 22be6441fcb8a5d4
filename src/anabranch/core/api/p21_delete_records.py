"""DeleteRecords: forget a partition's records before an offset.

KIP: KIP-107.
Versions: 0-2.
Behaviour: the log start offset is raised to the given offset (-1: the high watermark), which must
    not lie beyond the high watermark (OFFSET_OUT_OF_RANGE). Internal topics, and topics that are
    only compacted, refuse. The low watermark that is answered is the smallest log start of the
    replicas whose brokers are alive; the answer waits until it has come to the offset, at most
    `timeout_ms` (REQUEST_TIMED_OUT). Followers raise theirs with the fetch after they hear of it.
Skipped: nothing
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from anabranch.core.access.authorize import Operation, ResourceType, topic_allowed
from anabranch.core.api.context import Broker
from anabranch.core.api.handler import Handler
from anabranch.core.broker.gate import Need
from anabranch.core.errors import ApiError, ErrorCode, StorageFault
from anabranch.core.log.files import ColdRead
from anabranch.core.metadata.topic_names import is_internal
from anabranch.core.outcome import Cold, Outcome, Wait
from anabranch.core.partition.protocol import Partition
from anabranch.core.replication.partitions import exists
from anabranch.core.request import Request
from anabranch.core.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)

HIGH_WATERMARK = -1


Pending = tuple[DeleteRecordsPartitionResult, Partition, int]
"""A result that waits for followers: of which partition, and the low watermark to be reached."""


def run(broker: Broker, request: Request, now_ms: int) -> Outcome:
    """Raise the log starts, one partition after the other, and wait for the other replicas."""
    body: DeleteRecordsRequest = request.body
    response = DeleteRecordsResponse(topics=[])
    since = broker.partitions.unhosted.count()
    wanted = deque(_lay_out(broker, request, response))
    pending: list[Pending] = []
    deadline_ms = now_ms + body.timeout_ms

    def go_on(_now_ms: int) -> Outcome:
        missing: list[ColdRead] = []
        for _ in range(len(wanted)):
            entry = wanted.popleft()
            try:
                _try(broker, *entry, since, pending)
            except ColdRead as cold:
                missing.append(cold)
                wanted.append(entry)
        if missing:
            return Cold(tuple(missing), go_on)
        return _wait(broker, response, pending, deadline_ms) if pending else response

    return go_on(now_ms)


def _lay_out(
    broker: Broker, request: Request, response: DeleteRecordsResponse
) -> Iterator[tuple[str, DeleteRecordsPartition, DeleteRecordsPartitionResult]]:
    """Fill the response with empty results; yields those of partitions that may be shortened."""
    body: DeleteRecordsRequest = request.body
    for topic in body.topics:
        allowed = topic_allowed(broker.authorizer, request, Operation.DELETE, topic.name)
        results = []
        for partition in topic.partitions:
            index = partition.partition_index
            result = DeleteRecordsPartitionResult(partition_index=index, low_watermark=-1)
            results.append(result)
            if allowed:
                yield topic.name, partition, result
            else:
                result.error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        response.topics.append(DeleteRecordsTopicResult(name=topic.name, partitions=results))


def _try(
    broker: Broker,
    topic: str,
    partition: DeleteRecordsPartition,
    result: DeleteRecordsPartitionResult,
    since: int,
    pending: list[Pending],
) -> None:
    """Shorten one partition, or say why not. Raises ColdRead."""
    index = partition.partition_index
    try:
        entry = (result, *_delete(broker, topic, index, partition.offset, since))
        if not _settled(broker, entry):
            pending.append(entry)
    except ApiError as error:
        result.error_code = error.code
    except StorageFault as fault:
        result.error_code = ErrorCode.KAFKA_STORAGE_ERROR
        failed = broker.partitions.served(topic, index)
        if failed is not None:
            failed.failed(fault, broker.mailbox)


def _wait(
    broker: Broker, response: DeleteRecordsResponse, pending: list[Pending], deadline_ms: int
) -> Wait:
    """Answer when every replica has followed, or time is up."""

    def poll(_now_ms: int, expired: bool) -> Outcome | None:
        pending[:] = [entry for entry in pending if not _settled(broker, entry)]
        if pending and not expired:
            return None
        for result, _, _ in pending:
            result.error_code = ErrorCode.REQUEST_TIMED_OUT
        return response

    return Wait(tuple(entry[1].topic_partition for entry in pending), deadline_ms, poll)


def _settled(broker: Broker, entry: Pending) -> bool:
    """Whether one partition's result is known; writes it down."""
    result, partition, wanted = entry
    if not partition.is_leader:
        result.error_code, result.low_watermark = ErrorCode.NOT_LEADER_OR_FOLLOWER, -1
        return True
    result.low_watermark = partition.low_watermark(broker.image.brokers)
    return result.low_watermark >= wanted


def _delete(
    broker: Broker, topic: str, index: int, offset: int, since: int
) -> tuple[Partition, int]:
    """The partition and the offset meant, when everything before it is gone there."""
    if not exists(broker.image, topic, index):
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if is_internal(topic):
        raise ApiError(
            ErrorCode.INVALID_TOPIC_EXCEPTION, f"Cannot delete records of internal topic {topic}"
        )
    partition = broker.partitions.find_leader(broker.image, topic, index)
    partition.ensure_current(since)
    if not partition.may_shorten:
        raise ApiError(
            ErrorCode.POLICY_VIOLATION,
            f"Records of partition {topic}-{index} can not be deleted due to the configured policy",
        )
    if offset == HIGH_WATERMARK:
        offset = partition.high_watermark
    if offset < 0 or offset > partition.high_watermark:
        raise ApiError(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"The offset {offset} for partition {topic}-{index} is not valid: the high watermark "
            f"is {partition.high_watermark}",
        )
    if offset > partition.start_offset:
        partition.delete_before(offset)
        broker.changed[partition.topic_partition] = None
    return partition, offset


HANDLER = Handler(
    api_key=21,
    name="DeleteRecords",
    versions=range(3),
    broker=run,
    needs=(Need(Operation.DELETE, ResourceType.TOPIC),),
    kips=("KIP-107",),
)
