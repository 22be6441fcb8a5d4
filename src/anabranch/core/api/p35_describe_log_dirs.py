"""DescribeLogDirs: the log folders of this broker, the logs in them, and the free space.

KIP: KIP-113, KIP-827 (sizes of volumes).
Versions: 1-4.
Behaviour: every folder, also one without logs; an offline one with KAFKA_STORAGE_ERROR. With topics
    given only their logs are listed. A copy that is to take a log's place (AlterReplicaLogDirs) is
    listed in its folder, as a future one. A tagged field of Anabranch returns which folders have no
    space for records; another one what a log waits for whose topic becomes diskless. Needs DESCRIBE
    on the cluster.
Skipped: nothing
"""

from __future__ import annotations

from collections.abc import Iterator

from anabranch.core.access.authorize import Operation, ResourceType, cluster_allowed
from anabranch.core.api.context import Broker
from anabranch.core.api.handler import Handler
from anabranch.core.broker.gate import Need
from anabranch.core.errors import ErrorCode
from anabranch.core.request import Request
from anabranch.core.wire.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from anabranch.core.wire.own_fields import FullFolders, WaitsFor, has_own, tagged

_ERROR_SINCE = 3


def run(broker: Broker, request: Request, _now_ms: int) -> DescribeLogDirsResponse:
    """List folders and logs."""
    body: DescribeLogDirsRequest = request.body
    if not cluster_allowed(broker.authorizer, request, Operation.DESCRIBE):
        refused = request.version >= _ERROR_SINCE
        code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED if refused else ErrorCode.NONE
        return DescribeLogDirsResponse(error_code=code, results=[])
    wanted = None
    if body.topics is not None:
        wanted = {(topic.topic, index) for topic in body.topics for index in topic.partitions}
    topics = _topics_by_folder(broker, wanted, tells_waits=has_own(body))
    full = FullFolders(paths=sorted(broker.partitions.full_folders))
    return DescribeLogDirsResponse(
        unknown_tagged_fields=tagged(full) if has_own(body) else None,
        results=[
            _folder(broker, folder, topics.get(folder, {})) for folder in broker.partitions.folders
        ],
    )


def _topics_by_folder(
    broker: Broker, wanted: set[tuple[str, int]] | None, *, tells_waits: bool
) -> dict[str, dict[str, list[DescribeLogDirsPartition]]]:
    folders: dict[str, dict[str, list[DescribeLogDirsPartition]]] = {}
    for replica in broker.partitions:
        topic, index = replica.topic_partition
        if wanted is not None and (topic, index) not in wanted:
            continue
        log = replica.log
        partition = DescribeLogDirsPartition(
            partition_index=index,
            partition_size=log.size_bytes,
            offset_lag=max(0, replica.high_watermark - log.end_offset),
        )
        if tells_waits and replica.is_leader and replica.waits_for:
            partition.unknown_tagged_fields = tagged(WaitsFor(sentence=replica.waits_for))
        folders.setdefault(replica.folder, {}).setdefault(topic, []).append(partition)
    for path, topic, future in _futures(broker):
        if wanted is None or (topic, future.partition_index) in wanted:
            folders.setdefault(path, {}).setdefault(topic, []).append(future)
    return folders


def _futures(broker: Broker) -> Iterator[tuple[str, str, DescribeLogDirsPartition]]:
    """(folder, topic, log) of what moves; one that waits for its turn is as if it were empty."""
    moves = broker.partitions.moves
    for place, path in moves.wanted.items():
        replica, copy = broker.partitions.get(*place), moves.copies.get(place)
        if replica is not None:
            future = DescribeLogDirsPartition(
                partition_index=place.partition,
                partition_size=0 if copy is None else copy.log.size_bytes,
                offset_lag=replica.log.end_offset if copy is None else copy.lag,
                is_future_key=True,
            )
            yield path, place.topic, future


def _folder(
    broker: Broker, folder: str, topics: dict[str, list[DescribeLogDirsPartition]]
) -> DescribeLogDirsResult:
    if folder in broker.partitions.offline_folders:
        return DescribeLogDirsResult(
            error_code=ErrorCode.KAFKA_STORAGE_ERROR, log_dir=folder, topics=[]
        )
    total_bytes, usable_bytes = broker.volume(folder)
    return DescribeLogDirsResult(
        log_dir=folder,
        topics=[
            DescribeLogDirsTopic(name=name, partitions=partitions)
            for name, partitions in topics.items()
        ],
        total_bytes=total_bytes,
        usable_bytes=usable_bytes,
    )


HANDLER = Handler(
    api_key=35,
    name="DescribeLogDirs",
    versions=range(1, 5),
    broker=run,
    needs=(Need(Operation.DESCRIBE, ResourceType.CLUSTER),),
    kips=("KIP-113", "KIP-827"),
)
