"""A node's own copy of the metadata log, on disk as Kafka keeps it.

What: folder `__cluster_metadata-0` with segments of committed batches and snapshots named
`<20-digit end offset>-<10-digit epoch>.checkpoint`. Why: a node starts from it, Kafka's dump tool
reads it, a lost store is restored from it, and a store that went back is noticed by it. Rule kept:
only committed batches come here, as the bytes that were committed. Source: KIP-595, KIP-630. It is
not the commit point, so appends are not synced one by one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from itertools import chain
from typing import TypeVar

from anabranch.core.log.config import LogConfig
from anabranch.core.log.files import ColdRead, Files
from anabranch.core.log.log import Log
from anabranch.core.metadata.batches import (
    decode_batches,
    encode_snapshot,
    snapshot_is_whole,
    understood,
)
from anabranch.core.metadata.image import MetadataDelta, MetadataImage
from anabranch.core.metadata.levels import check_supported, level_of
from anabranch.core.metadata.replay import replay_batch
from anabranch.core.metadata.snapshot import from_snapshot, snapshot_is_due, snapshot_records
from anabranch.core.metadata.store_check import CopyEnd
from anabranch.core.settings.broker import BrokerConfig
from anabranch.core.types import (
    CLUSTER_METADATA_TOPIC,
    METADATA_TOPIC_ID,
    Buffer,
    PartitionIndex,
    TopicPartition,
)
from anabranch.core.wire.batch import read_header

PARTITION = TopicPartition(CLUSTER_METADATA_TOPIC, PartitionIndex(0))
CHECKPOINT = re.compile(r"(\d{20})-(\d{10})\.checkpoint")
READ_BYTES = 8 * 1024 * 1024
KEPT_SNAPSHOTS = 2
UNLIMITED = -1
LARGEST_BATCH_BYTES = 1 << 30
ResultT = TypeVar("ResultT")


def checkpoint_name(end_offset: int, epoch: int) -> str:
    """The file name of a snapshot."""
    return f"{end_offset:020d}-{epoch:010d}.checkpoint"


class MetadataCopy:
    """The copy and the image it makes."""

    def __init__(
        self,
        files: Files,
        folder: str,
        log: Log,
        image: MetadataImage,
        config: BrokerConfig | None,
        now_ms: int,
    ) -> None:
        self.files = files
        self.folder = folder
        self.log = log
        self.image = image
        self.bytes_since_snapshot = 0
        self._config = config
        self._snapshot_ms = now_ms

    @classmethod
    def open(
        cls, files: Files, metadata_log_dir: str, config: BrokerConfig | None, now_ms: int
    ) -> MetadataCopy:
        """Open or make the copy in a log folder: the newest whole snapshot, then the log."""
        folder = f"{metadata_log_dir}/{PARTITION}"
        log_config = _log_config(config)
        image = MetadataImage.empty()
        if files.is_dir(folder):
            image = _newest_snapshot(files, folder)
            log = Log.open(files, folder, PARTITION, METADATA_TOPIC_ID, log_config, now_ms=now_ms)
        else:
            log = Log.create(files, folder, PARTITION, METADATA_TOPIC_ID, log_config, now_ms=now_ms)
            files.sync_dir(metadata_log_dir)  # or a snapshot that was synced could go with it
        copy = cls(files, folder, log, image, config, now_ms)
        copy._replay_tail()
        return copy

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

    def batches(self) -> Iterator[Buffer]:
        """The whole log, in pieces of whole batches."""
        offset = self.log.start_offset
        while offset < self.log.end_offset:
            piece = self.read(offset, READ_BYTES)
            for batch in decode_batches(piece):
                offset = batch.header.next_offset
            yield piece

    def append(self, records: Buffer, now_ms: int) -> MetadataDelta | None:
        """Add committed batches and move the image; batches that are here already are skipped.

        Raises TooOld when they bring what this version does not know.
        """
        data = memoryview(records)
        position = 0
        fresh = []
        for batch in understood(data):
            if batch.header.next_offset <= self.image.next_offset:
                position += batch.header.size_bytes
            else:
                fresh.append(batch)
        if not fresh:
            return None
        if self.log.end_offset != fresh[0].header.base_offset:
            self.log.truncate_fully(fresh[0].header.base_offset)
        self.log.append_as_follower(bytearray(data[position:]), now_ms=now_ms)
        self.bytes_since_snapshot += len(data) - position
        last = fresh[-1].header
        self.image, delta = replay_batch(
            self.image,
            chain.from_iterable(batch.records for batch in fresh),
            last.last_offset,
            last.leader_epoch,
        )
        if delta.features_changed:
            check_supported(self.image)
        return delta

    def load(self, payload: bytes, end_offset: int, epoch: int) -> None:
        """Go on from a snapshot that was fetched: the log begins anew after it."""
        name = f"{self.folder}/{checkpoint_name(end_offset, epoch)}"
        self.files.write_atomic(name, payload, sync=True)
        self.log.truncate_fully(end_offset)
        self.image = image_of(payload, end_offset, epoch)
        self.bytes_since_snapshot = 0

    def take_turn(self, now_ms: int) -> bool:
        """Whether a snapshot is due; if so it counts as begun, and the next is due anew."""
        if self._config is None:
            return False
        age_ms = now_ms - self._snapshot_ms
        if not snapshot_is_due(self._config, self.bytes_since_snapshot, age_ms):
            return False
        self.bytes_since_snapshot = 0
        self._snapshot_ms = now_ms
        return True

    def write_snapshot(self, image: MetadataImage, now_ms: int) -> None:
        """Write a snapshot of an image; may run in a thread. Old snapshots go."""
        payload = encode_snapshot(
            snapshot_records(image),
            epoch=image.epoch,
            last_contained_ms=now_ms,
            now_ms=now_ms,
            level=level_of(image),
        )
        name = f"{self.folder}/{checkpoint_name(image.next_offset, image.epoch)}"
        self.files.write_atomic(name, payload, sync=True)
        for _end, _epoch, old in checkpoints(self.files, self.folder)[KEPT_SNAPSHOTS:]:
            self.files.remove(f"{self.folder}/{old}")

    def trim(self, now_ms: int) -> None:
        """Let go of log that the oldest kept snapshot covers, and of segments wholly before it."""
        kept = checkpoints(self.files, self.folder)
        if len(kept) >= KEPT_SNAPSHOTS and kept[-1][0] > self.log.start_offset:
            self.log.delete_records_before(min(kept[-1][0], self.log.end_offset))
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
            for batch in understood(piece):
                header = batch.header
                offset = header.next_offset
                if offset > self.image.next_offset:
                    self.image, _delta = replay_batch(
                        self.image, batch.records, header.last_offset, header.leader_epoch
                    )


def checkpoints(files: Files, folder: str) -> list[tuple[int, int, str]]:
    """(end offset, epoch, name) of the snapshots in a folder, the newest first."""
    found = []
    for name in files.list(folder):
        match = CHECKPOINT.fullmatch(name)
        if match is not None:
            found.append((int(match[1]), int(match[2]), name))
    return sorted(found, reverse=True)


def image_of(payload: bytes, end_offset: int, epoch: int) -> MetadataImage:
    """The image that a snapshot's bytes make."""
    records = chain.from_iterable(batch.records for batch in understood(payload))
    return from_snapshot(records, end_offset, epoch)


def _newest_snapshot(files: Files, folder: str) -> MetadataImage:
    for end_offset, epoch, name in checkpoints(files, folder):
        payload = files.read(f"{folder}/{name}")
        if snapshot_is_whole(payload):
            return image_of(payload, end_offset, epoch)
    return MetadataImage.empty()


def _log_config(config: BrokerConfig | None) -> LogConfig:
    segment_bytes = config.metadata_log_segment_bytes if config is not None else 1 << 30
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
            cold.file.warm(cold.position, cold.length)
