"""Following the active controller: Fetch of `__cluster_metadata` into the node's own copy.

What: a loop of long polls; what comes is appended to the copy, replayed, and published as image and
delta. Rule kept: on every new connection the last batch of the copy is read again and compared. A
store that went back, or was swapped, shows then or as a diverging epoch, and the node stops with
one line instead of unlearning what it knew; so it does before it loads a snapshot that is older
than the copy. Every Fetch carries the cluster's id, so a node never follows another cluster.
Source: KIP-595, KIP-630.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from anabranch.core.errors import ApiError, ErrorCode, ProtocolError, StorageFault, TooOld
from anabranch.core.log.files import DiskFull
from anabranch.core.metadata.image import MetadataDelta, MetadataImage
from anabranch.core.metadata.replay import everything
from anabranch.core.metadata.store_check import CopyEnd, snapshot_fault, store_fault
from anabranch.core.types import CLUSTER_METADATA_TOPIC, METADATA_TOPIC_ID
from anabranch.core.wire.batch import read_header
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
    SnapshotId,
)
from anabranch.server.clocks import wall_ms
from anabranch.server.controller_channel import ControllerChannel
from anabranch.server.logs import logger
from anabranch.server.metadata_copy import MetadataCopy

__all__ = ["MetadataCopy", "MetadataFollower"]

LOG = logger("metadata")
WAIT_MS = 2000
PIECE_BYTES = 8 * 1024 * 1024
RETRY_S = 0.05
SERVED = "that the active controller serves"

OnImage = Callable[[MetadataImage, MetadataDelta], None]
ResultT = TypeVar("ResultT")


class MetadataFollower:
    """Keeps a node's copy and image up with the active controller."""

    def __init__(
        self,
        copy: MetadataCopy,
        channel: ControllerChannel,
        cluster_id: str,
        node_id: int,
        on_image: OnImage,
        on_stop: Callable[[str], None],
    ) -> None:
        self.copy = copy
        self.cluster_id = cluster_id
        self.node_id = node_id
        self.on_image = on_image
        self.on_stop = on_stop
        self.on_connected: Callable[[], None] | None = None
        """Called when an active controller answered over a new connection."""
        self.make_room: Callable[[DiskFull], bool] = lambda fault: False
        """Called when the copy's disk is full; whether it is worth trying again."""
        self._channel = channel.another("metadata")
        self._checked_generation = -1
        self._complaint = ""
        self._task: asyncio.Task[None] | None = None
        self._snapshot: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Publish what the copy holds and begin to follow."""
        if self.copy.image.offset >= 0:
            self.on_image(self.copy.image, everything(self.copy.image))
        self._task = asyncio.create_task(self._follow())

    async def stop(self) -> None:
        """End the loop and close the copy."""
        tasks = [task for task in (self._task, self._snapshot) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._channel.close()
        try:
            self.copy.close()
        except StorageFault as fault:  # the next start reads it through, as after a kill
            LOG.error("the copy of the metadata was not closed in order", why=str(fault))

    async def _follow(self) -> None:
        while True:
            try:
                if not await self._step():
                    return
            except (ApiError, ProtocolError) as fault:
                self._complain(str(fault))
                await self._channel.rotate()
                await asyncio.sleep(RETRY_S)
            except TooOld as fault:
                self.on_stop(str(fault))
                return
            except StorageFault as fault:
                self.on_stop(f"the copy of the metadata log cannot be written: {fault}")
                return
            except Exception as fault:  # who follows no more may lead what it leads no more
                self.on_stop(f"following the metadata failed: {type(fault).__name__}: {fault}")
                return

    def _complain(self, why: str) -> None:
        if why != self._complaint:
            LOG.warning("the metadata cannot be fetched", why=why)
        self._complaint = why

    async def _step(self) -> bool:
        """One Fetch; False when the node must stop."""
        checking = self._channel.generation != self._checked_generation
        end = self.copy.end if checking else CopyEnd(self.copy.folder)
        from_last_batch = checking and bool(end.last_batch)
        response: FetchResponse = await self._channel.send(self._request(end, from_last_batch))
        if not checking and self._channel.generation != self._checked_generation:
            return True  # it came over a new connection, and nothing was compared there yet
        if response.error_code == ErrorCode.INCONSISTENT_CLUSTER_ID:
            return self._stop(f"the controller belongs to another cluster than {self.cluster_id}")
        if response.error_code:
            raise ApiError(ErrorCode(response.error_code))
        partition = response.responses[0].partitions[0]
        if partition.error_code:
            await self._channel.rotate()
            await asyncio.sleep(RETRY_S)
            return True
        if from_last_batch and partition.snapshot_id.end_offset < 0:
            fault = self._disagreement(end, partition)
            if fault is not None:
                return self._stop(fault)
        self._checked_generation = self._channel.generation
        if checking and self.on_connected is not None:
            self.on_connected()
        return await self._take(partition)

    def _request(self, end: CopyEnd, from_last_batch: bool) -> FetchRequest:
        image = self.copy.image
        offset = end.last_base_offset if from_last_batch else image.next_offset
        epoch = -1 if from_last_batch or image.offset < 0 else image.epoch
        partition = FetchPartition(
            partition=0,
            current_leader_epoch=-1,
            fetch_offset=offset,
            last_fetched_epoch=epoch,
            log_start_offset=self.copy.log.start_offset,
            partition_max_bytes=PIECE_BYTES,
        )
        topic = FetchTopic(
            topic=CLUSTER_METADATA_TOPIC, topic_id=METADATA_TOPIC_ID, partitions=[partition]
        )
        return FetchRequest(
            cluster_id=self.cluster_id,
            replica_id=self.node_id,
            replica_state=ReplicaState(replica_id=self.node_id),
            max_wait_ms=WAIT_MS,
            max_bytes=PIECE_BYTES,
            topics=[topic],
        )

    def _disagreement(self, end: CopyEnd, partition: PartitionData) -> str | None:
        served = None
        if partition.records:
            data = memoryview(partition.records)
            served = bytes(data[: read_header(data).size_bytes])
        return store_fault(end, partition.high_watermark, served, SERVED)

    async def _take(self, partition: PartitionData) -> bool:
        if partition.diverging_epoch.epoch >= 0:
            back = partition.diverging_epoch.end_offset
            end = self.copy.end
            fault = store_fault(end, min(back, end.end_offset - 1), None, SERVED)
            return self._stop(fault or "the served metadata log diverges from this node's copy")
        offered = partition.snapshot_id
        if offered.end_offset >= 0:
            high, end = partition.high_watermark, self.copy.end
            fault = snapshot_fault(end, high, offered.end_offset, offered.epoch, SERVED)
            if fault is not None:
                return self._stop(fault)
            await self._load(partition)
        elif partition.records:
            self._append(partition)
        return True

    def _append(self, partition: PartitionData) -> None:
        records = partition.records
        assert records is not None
        delta = self._written(lambda: self.copy.append(records, wall_ms()))
        if delta is not None:
            self.on_image(self.copy.image, delta)
        busy = self._snapshot is not None and not self._snapshot.done()
        if not busy and self.copy.take_turn(wall_ms()):
            self._snapshot = asyncio.create_task(self._write_snapshot(self.copy.image))

    def _written(self, write: Callable[[], ResultT]) -> ResultT:
        """What must be written finds what is kept for it on a disk that is full."""
        try:
            return write()
        except DiskFull as fault:
            if not self.make_room(fault):
                raise
        return write()

    async def _write_snapshot(self, image: MetadataImage) -> None:
        """In a thread: the image does not change under it."""
        try:
            await asyncio.to_thread(self.copy.write_snapshot, image, wall_ms())
            self.copy.trim(wall_ms())
        except StorageFault as fault:
            LOG.error("no snapshot of the metadata could be written", why=str(fault))

    async def _load(self, partition: PartitionData) -> None:
        """Fetch the named snapshot in pieces and go on from it."""
        wanted = SnapshotId(
            end_offset=partition.snapshot_id.end_offset, epoch=partition.snapshot_id.epoch
        )
        payload = bytearray()
        size = 1
        while len(payload) < size:
            piece = await self._piece(wanted, len(payload))
            if piece is None:
                return
            size = piece[0]
            payload += piece[1]
        self._written(lambda: self.copy.load(bytes(payload), wanted.end_offset, wanted.epoch))
        self.on_image(self.copy.image, everything(self.copy.image))

    async def _piece(self, wanted: SnapshotId, position: int) -> tuple[int, bytes] | None:
        partition = FetchSnapshotRequestPartitionSnapshot(
            partition=0, snapshot_id=wanted, position=position
        )
        topic = FetchSnapshotRequestTopicSnapshot(
            name=CLUSTER_METADATA_TOPIC, partitions=[partition]
        )
        request = FetchSnapshotRequest(
            cluster_id=self.cluster_id,
            replica_id=self.node_id,
            max_bytes=PIECE_BYTES,
            topics=[topic],
        )
        response: FetchSnapshotResponse = await self._channel.send(request)
        if response.error_code:
            raise ApiError(ErrorCode(response.error_code))
        answer = response.topics[0].partitions[0]
        if answer.error_code == ErrorCode.SNAPSHOT_NOT_FOUND:
            return None
        if answer.error_code:
            raise ApiError(ErrorCode(answer.error_code))
        return answer.size, bytes(answer.unaligned_records)

    def _stop(self, sentence: str) -> bool:
        self.on_stop(sentence)
        return False
