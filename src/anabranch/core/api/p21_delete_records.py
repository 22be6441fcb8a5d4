"""DeleteRecords: forget a partition's records before an offset.

KIP: KIP-107.
Versions: 0-2.
Behaviour: the log start offset is raised to the given offset (-1: the high watermark), which must
    not lie beyond the high watermark (OFFSET_OUT_OF_RANGE). Internal topics, and topics that are
    only compacted, refuse. The low watermark that is answered is the smallest log start of the
    replicas whose brokers are alive.
Skipped: waiting for followers to raise their log starts.
"""

from __future__ import annotations

from anabranch.core.access.authorize import Operation, topic_allowed
from anabranch.core.api.context import Broker
from anabranch.core.api.handler import Handler, Request
from anabranch.core.api.topic_names import is_internal
from anabranch.core.errors import ApiError, ErrorCode, StorageFault
from anabranch.core.replication.partitions import exists
from anabranch.core.wire.messages.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)

HIGH_WATERMARK = -1


def run(broker: Broker, request: Request, _now_ms: int) -> DeleteRecordsResponse:
    """Raise the log starts, one partition after the other."""
    body: DeleteRecordsRequest = request.body
    response = DeleteRecordsResponse(topics=[])
    for topic in body.topics:
        allowed = topic_allowed(broker.authorizer, request, Operation.DELETE, topic.name)
        results = []
        for partition in topic.partitions:
            index = partition.partition_index
            result = DeleteRecordsPartitionResult(partition_index=index, low_watermark=-1)
            results.append(result)
            try:
                if not allowed:
                    raise ApiError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
                result.low_watermark = _delete(broker, topic.name, index, partition.offset)
            except ApiError as error:
                result.error_code = error.code
            except StorageFault as fault:
                result.error_code = ErrorCode.KAFKA_STORAGE_ERROR
                replica = broker.partitions.get(topic.name, index)
                if replica is not None:
                    broker.faults.append((replica, fault))
        response.topics.append(DeleteRecordsTopicResult(name=topic.name, partitions=results))
    return response


def _delete(broker: Broker, topic: str, index: int, offset: int) -> int:
    """The partition's log start after everything before `offset` is gone."""
    if not exists(broker.image, topic, index):
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if is_internal(topic):
        raise ApiError(
            ErrorCode.INVALID_TOPIC_EXCEPTION, f"Cannot delete records of internal topic {topic}"
        )
    replica = broker.partitions.find_leader(broker.image, topic, index)
    config = replica.log.config
    if config.compacted and not config.deletes:
        raise ApiError(
            ErrorCode.POLICY_VIOLATION,
            f"Records of partition {topic}-{index} can not be deleted due to the configured policy",
        )
    if offset == HIGH_WATERMARK:
        offset = replica.high_watermark
    if offset < 0 or offset > replica.high_watermark:
        raise ApiError(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"The offset {offset} for partition {topic}-{index} is not valid: the high watermark "
            f"is {replica.high_watermark}",
        )
    if offset > replica.log.start_offset:
        replica.log.delete_records_before(offset)
        broker.changed.add(replica.topic_partition)
    return replica.log.start_offset


HANDLER = Handler(
    api_key=21,
    name="DeleteRecords",
    versions=range(3),
    broker=run,
    kips=("KIP-107",),
    skipped=("The answer does not wait for followers.",),
)
