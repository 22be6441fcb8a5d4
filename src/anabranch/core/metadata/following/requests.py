"""What a follower of the metadata log asks of the active controller.

What: the requests, and taking the one partition out of an answer. Rule kept: every request carries
the cluster's id, so that a node never follows another cluster. Source: KIP-595, KIP-630.
"""

from __future__ import annotations

from anabranch.core.errors import ProtocolError
from anabranch.core.types import CLUSTER_METADATA_TOPIC, METADATA_TOPIC_ID
from anabranch.core.wire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
    ReplicaState,
)
from anabranch.core.wire.messages.fetch_snapshot import (
    FetchSnapshotRequest,
    FetchSnapshotRequestPartitionSnapshot,
    FetchSnapshotRequestTopicSnapshot,
    FetchSnapshotResponse,
    FetchSnapshotResponsePartitionSnapshot,
    SnapshotId,
)

WAIT_MS = 2_000
"""How long a controller may wait for news before it answers: a connection that is dead is noticed
within this, and an idle cluster asks only so often."""
PIECE_BYTES = 8 * 1024 * 1024
"""Most that one answer brings: it is held in memory on both sides."""
LOG_BYTES = 16 * 1024
"""Most of the log that one answer brings: some 150 records, which are applied in one step of a few
milliseconds. A node that is far behind serves its clients between two of them."""


class Asker:
    """Who asks: a node of a cluster."""

    def __init__(self, cluster_id: str, node_id: int, piece_bytes: int) -> None:
        self.cluster_id = cluster_id
        self.node_id = node_id
        self.piece_bytes = piece_bytes

    def log_from(self, offset: int, last_epoch: int, start_offset: int) -> FetchRequest:
        """The log from `offset` on; `last_epoch` is of the batch before it, -1 not to compare."""
        most_bytes = min(self.piece_bytes, LOG_BYTES)
        partition = FetchPartition(
            partition=0,
            current_leader_epoch=-1,
            fetch_offset=offset,
            last_fetched_epoch=last_epoch,
            log_start_offset=start_offset,
            partition_max_bytes=most_bytes,
        )
        topic = FetchTopic(
            topic=CLUSTER_METADATA_TOPIC, topic_id=METADATA_TOPIC_ID, partitions=[partition]
        )
        return FetchRequest(
            cluster_id=self.cluster_id,
            replica_id=self.node_id,
            replica_state=ReplicaState(replica_id=self.node_id),
            max_wait_ms=WAIT_MS,
            max_bytes=most_bytes,
            topics=[topic],
        )

    def piece_of(self, end_offset: int, epoch: int, position: int) -> FetchSnapshotRequest:
        """A piece of a snapshot, from a byte on."""
        partition = FetchSnapshotRequestPartitionSnapshot(
            partition=0,
            snapshot_id=SnapshotId(end_offset=end_offset, epoch=epoch),
            position=position,
        )
        topic = FetchSnapshotRequestTopicSnapshot(
            name=CLUSTER_METADATA_TOPIC, partitions=[partition]
        )
        return FetchSnapshotRequest(
            cluster_id=self.cluster_id,
            replica_id=self.node_id,
            max_bytes=self.piece_bytes,
            topics=[topic],
        )


def log_of(response: FetchResponse) -> PartitionData:
    """The answer about the one partition. Raises ProtocolError."""
    for topic in response.responses:
        for partition in topic.partitions:
            return partition
    raise ProtocolError("FetchResponse", 0, "responses", 0, "it lacks the metadata partition")


def piece_in(response: FetchSnapshotResponse) -> FetchSnapshotResponsePartitionSnapshot:
    """The answer about the one partition. Raises ProtocolError."""
    for topic in response.topics:
        for partition in topic.partitions:
            return partition
    raise ProtocolError("FetchSnapshotResponse", 0, "topics", 0, "it lacks the metadata partition")
