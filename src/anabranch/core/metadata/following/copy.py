"""A node's own copy of the metadata log, on disk as Kafka keeps it.

What: folder `__cluster_metadata-0` with segments of committed batches, and snapshots of what they
add up to. Why: a node starts from it, Kafka's dump tool reads it, a lost store is restored from it,
and a store that went back is noticed by it. Rules kept: only committed batches come here, as the
bytes that were committed, each where the one before it ends; the image moves after the bytes are
written; log is let go of only where two snapshots cover it. It is not the commit point, so appends
are not synced one by one. Source: KIP-595, KIP-630. Not here: what is fetched when
(`following.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeVar

from anabranch.core.errors import ProtocolError
from anabranch.core.log.config import LogConfig
from anabranch.core.log.files import ColdRead, Files
from anabranch.core.log.log import Log
from anabranch.core.metadata.batches import snapshot_parts
from anabranch.core.metadata.following.checkpoints import (
    KEPT,
    checkpoint_name,
    checkpoints,
    image_of,
    newest_whole,
)
from anabranch.core.metadata.following.replayer import PLAIN, BatchReader
from anabranch.core.metadata.image import MetadataDelta, MetadataImage
from anabranch.core.metadata.levels import check_supported, level_of
from anabranch.core.metadata.snapshot import snapshot_records
from anabranch.core.metadata.store import Snapshot, StoredBatch
from anabranch.core.metadata.store_check import CopyEnd
from anabranch.core.types import (
    CLUSTER_METADATA_TOPIC,
    METADATA_TOPIC_ID,
    Buffer,
    PartitionIndex,
    TopicId,
    TopicPartition,
)
from anabranch.core.wire.batch import read_header, walk

PARTITION = TopicPartition(CLUSTER_METADATA_TOPIC, PartitionIndex(0))
READ_BYTES = 8 * 1024 * 1024
UNLIMITED = -1
LARGEST_BATCH_BYTES = 1 << 30
ResultT = TypeVar("ResultT")


class MetadataCopy:
    """The copy and the image it makes."""

    def __init__(
        self, files: Files, folder: str, log: Log, image: MetadataImage, reading: BatchReader
    ) -> None:
        self.files = files
        self.folder = folder
        self.log = log
        self.image = image
        self.bytes_since_snapshot = 0
        self.deleted_ids: set[TopicId] = set()
        """Topics of whose deletion the log behind the newest snapshot told when it was opened."""
        self._reading = reading

    @classmethod
    def open(
        cls,
        files: Files,
        metadata_log_dir: str,
        now_ms: int,
        *,
        segment_bytes: int = LARGEST_BATCH_BYTES,
        reading: BatchReader = PLAIN,
    ) -> MetadataCopy:
        """Open or make the copy in a log folder: the newest whole snapshot, then the log.

        `now_ms` is of the wall clock. Raises StorageFault, TooOld.
        """
        folder = f"{metadata_log_dir}/{PARTITION}"
        log_config = _log_config(segment_bytes)
        image = MetadataImage.empty()
        if files.is_dir(folder):
            found = newest_whole(files, folder)
            if found is not None:
                checkpoint, payload = found
                image = reading.image_of(payload, checkpoint.end_offset, checkpoint.epoch)
            log = Log.open(files, folder, PARTITION, METADATA_TOPIC_ID, log_config, now_ms=now_ms)
        else:
            log = Log.create(files, folder, PARTITION, METADATA_TOPIC_ID, log_config, now_ms=now_ms)
            files.sync_dir(metadata_log_dir)  # or a snapshot that was synced could go with it
        copy = cls(files, folder, log, image, reading)
        copy._replay_tail()
        return copy

    @property
    def end_offset(self) -> int:
        """The offset of what comes next."""
        return int(self.image.next_offset)

    @property
    def end(self) -> CopyEnd:
        """Where the copy ends, and its last batch."""
        end_offset = self.image.next_offset
        if self.log.end_offset != end_offset or self.log.start_offset == end_offset:
            return CopyEnd(self.folder, end_offset, self.image.epoch, end_offset, b"")
        last = self.read(end_offset - 1, 1)
        header = read_header(last)
        batch = bytes(memoryview(last)[: header.size_bytes])
        return CopyEnd(self.folder, end_offset, self.image.epoch, header.base_offset, batch)

    def read(self, offset: int, max_bytes: int) -> Buffer:
        """Whole batches from the one that holds `offset`, waiting for the disk if need be."""
        return _patiently(
            lambda: self.log.read(
                offset, max_bytes=max_bytes, upto=self.log.end_offset, at_least_one=True
            )
        )

    def content(self) -> tuple[Snapshot | None, list[StoredBatch]]:
        """What a store needs to go on where the copy ends: the newest whole snapshot, and the
        batches that go beyond it."""
        found = newest_whole(self.files, self.folder)
        snapshot = None
        if found is not None:
            checkpoint, payload = found
            snapshot = Snapshot(checkpoint.end_offset, checkpoint.epoch, payload)
        start = snapshot.end_offset if snapshot is not None else 0
        return snapshot, [batch for batch in self._batches() if batch.end_offset > start]

    def _batches(self) -> Iterator[StoredBatch]:
        offset = int(self.log.start_offset)
        while offset < self.log.end_offset:
            piece = memoryview(bytes(self.read(offset, READ_BYTES)))
            for position, header in walk(piece):
                payload = bytes(piece[position : position + header.size_bytes])
                offset = header.next_offset
                yield StoredBatch(header.base_offset, offset, header.leader_epoch, payload)

    def append(self, records: Buffer, now_ms: int) -> MetadataDelta | None:
        """Add committed batches and move the image; batches that are here already are skipped.

        Raises TooOld when they bring what this version does not know, ProtocolError when they do
        not begin where the copy ends, DiskFull and StorageFault with nothing changed.
        """
        data, position, fresh = memoryview(records), 0, []
        for batch in self._reading.batches(data):
            if batch.header.next_offset <= self.image.next_offset:
                position += batch.header.size_bytes
            else:
                fresh.append(batch)
        if not fresh:
            return None
        first = fresh[0].header.base_offset
        if first != self.end_offset:
            detail = f"the batches begin at {first}, and this node's copy ends at {self.end_offset}"
            raise ProtocolError("metadata log", 0, "base offset", 0, detail)
        self._write(data[position:], first, now_ms)
        self.image, delta = self._reading.replay(self.image, fresh, data[position:])
        if delta.features_changed:
            check_supported(self.image)
        return delta

    def _write(self, batches: memoryview, first_offset: int, now_ms: int) -> None:
        """Behind what is here; a log that ends elsewhere than the image begins anew there: the
        image is of a snapshot."""
        if self.log.end_offset != first_offset:
            self.log.truncate_fully(first_offset)
        self.log.append_as_follower(bytearray(batches), now_ms=now_ms)
        self.bytes_since_snapshot += len(batches)

    def load(self, payload: bytes, end_offset: int, epoch: int) -> None:
        """Go on from a snapshot that was fetched: the log begins anew after it.

        The snapshot is understood first and safe next: from then on the copy is the snapshot,
        wherever a crash comes. Raises ProtocolError, TooOld, StorageFault.
        """
        image = image_of(self._reading, payload, end_offset, epoch)
        name = f"{self.folder}/{checkpoint_name(end_offset, epoch)}"
        self.files.write_atomic(name, payload, sync=True)
        self.log.truncate_fully(end_offset)
        self.image = image
        self.bytes_since_snapshot = 0

    def write_snapshot(self, image: MetadataImage, now_ms: int) -> None:
        """Write a snapshot of an image."""
        self.store_snapshot(image, b"".join(image_parts(image, now_ms)))

    def store_snapshot(self, image: MetadataImage, payload: bytes) -> None:
        """Store what `image_parts` made; may run in a thread. Old snapshots go."""
        name = f"{self.folder}/{checkpoint_name(image.next_offset, image.epoch)}"
        self.files.write_atomic(name, payload, sync=True)
        for old in checkpoints(self.files, self.folder)[KEPT:]:
            self.files.remove(f"{self.folder}/{old.name}")

    def trim(self, now_ms: int) -> None:
        """Let go of log that the oldest kept snapshot covers, and of segments wholly before it."""
        kept = checkpoints(self.files, self.folder)
        if len(kept) >= KEPT and kept[-1].end_offset > self.log.start_offset:
            self.log.delete_records_before(min(kept[-1].end_offset, self.log.end_offset))
        self.log.apply_retention(now_ms, self.log.end_offset)
        self.log.remove_deleted_files(now_ms)

    def close(self) -> None:
        """Sync and close."""
        self.log.close(clean=True)

    def _replay_tail(self) -> None:
        offset = int(self.image.next_offset)
        if not self.log.start_offset <= offset <= self.log.end_offset:
            return
        while offset < self.log.end_offset:
            piece = self.read(offset, READ_BYTES)
            self.bytes_since_snapshot += len(piece)
            offset = self._replay(piece)

    def _replay(self, piece: Buffer) -> int:
        """Apply what the image lacks; where the piece ends."""
        data, position = memoryview(piece), 0
        batches = self._reading.batches(data)
        for batch in batches:
            end = position + batch.header.size_bytes
            if batch.header.next_offset > self.image.next_offset:
                self.image, delta = self._reading.replay(self.image, (batch,), data[position:end])
                gone = (*delta.deleted_topics, *delta.passing_topics)
                self.deleted_ids.update(topic.topic_id for topic in gone)
            position = end
        return batches[-1].header.next_offset


def image_parts(image: MetadataImage, now_ms: int) -> Iterator[bytes]:
    """An image as a snapshot, part by part."""
    return snapshot_parts(
        snapshot_records(image),
        epoch=image.epoch,
        last_contained_ms=now_ms,
        now_ms=now_ms,
        level=level_of(image),
    )


def _log_config(segment_bytes: int) -> LogConfig:
    return LogConfig(
        segment_bytes=segment_bytes,
        retention_ms=UNLIMITED,
        retention_bytes=UNLIMITED,
        file_delete_delay_ms=0,
        max_message_bytes=LARGEST_BATCH_BYTES,
    )


def _patiently(read: Callable[[], ResultT]) -> ResultT:
    while True:
        try:
            return read()
        except ColdRead as cold:
            cold.warm()
