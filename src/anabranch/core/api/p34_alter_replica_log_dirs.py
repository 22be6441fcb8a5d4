"""AlterReplicaLogDirs: replicas of this broker are to lie in other folders of it.

KIP: KIP-113.
Versions: 1-2.
Behaviour: needs ALTER on the cluster. The answer comes at once; the log is copied in the
    background, paced, and takes the place of the old one when it is complete. DescribeLogDirs shows
    the copy. The folder in which a replica lies already ends a move. A partition of which this
    broker has no replica answers REPLICA_NOT_AVAILABLE, and begins in that folder if one comes.
Skipped: several moves at a time.
"""

from __future__ import annotations

from anabranch.core.access.authorize import Operation, ResourceType, cluster_allowed
from anabranch.core.api.context import Broker
from anabranch.core.api.handler import Handler
from anabranch.core.broker.gate import Need
from anabranch.core.errors import ErrorCode
from anabranch.core.request import Request
from anabranch.core.types import TopicPartition
from anabranch.core.wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)


def run(broker: Broker, request: Request, _now_ms: int) -> AlterReplicaLogDirsResponse:
    """Note what is to move; of a partition that is named twice the last folder counts."""
    body: AlterReplicaLogDirsRequest = request.body
    wanted = {
        TopicPartition(topic.name, index): folder.path
        for folder in body.dirs
        for topic in folder.topics
        for index in topic.partitions
    }
    is_allowed = cluster_allowed(broker.authorizer, request, Operation.ALTER)
    results: dict[str, AlterReplicaLogDirTopicResult] = {}
    for place, path in wanted.items():
        code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        if is_allowed:
            code = _asked(broker, place, path)
        found = results.setdefault(place.topic, AlterReplicaLogDirTopicResult(place.topic))
        found.partitions.append(AlterReplicaLogDirPartitionResult(place.partition, code))
    return AlterReplicaLogDirsResponse(results=list(results.values()))


def _asked(broker: Broker, place: TopicPartition, path: str) -> ErrorCode:
    partitions = broker.partitions
    if path not in partitions.folders:
        return ErrorCode.LOG_DIR_NOT_FOUND
    if path in partitions.offline_folders or place in partitions.offline:
        return ErrorCode.KAFKA_STORAGE_ERROR
    replica = partitions.get(*place)
    if replica is not None:
        partitions.moves.ask(place, path, replica.folder)
        return ErrorCode.NONE
    if broker.image.partition(*place) is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    partitions.moves.ask(place, path, None)
    return ErrorCode.REPLICA_NOT_AVAILABLE


HANDLER = Handler(
    api_key=34,
    name="AlterReplicaLogDirs",
    versions=range(1, 3),
    broker=run,
    needs=(Need(Operation.ALTER, ResourceType.CLUSTER),),
    kips=("KIP-113",),
    skipped=("One replica moves at a time (num.replica.alter.log.dirs.threads has no effect).",),
)
