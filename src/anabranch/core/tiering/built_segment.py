"""A segment made of diskless batches, as Kafka has it on disk.

What: from the runs of a planned segment, and their bytes, to the files of a remote segment: batches
with their offsets and the partition's epoch, offset and time index, producers at its end, leader
epochs. Rules kept: each batch is checked (checksum, offsets) before it counts, so that a damaged
object ends the try and no row is deleted; indexes are noted by the rule of local segments; the
snapshot of producers is that of the segment before, with this segment's batches, without those that
wrote nothing for a day, by the time of the records. There is no transaction index: diskless topics
take no transactions. Not here: where bytes come from, puts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from anabranch.core.diskless.assembly import assembled
from anabranch.core.diskless.rows import NO_PRODUCER, LogKey, Run
from anabranch.core.errors import StorageFault
from anabranch.core.log.checkpoints import LEADER_EPOCHS, format_epochs
from anabranch.core.log.producer_replay import note_batch
from anabranch.core.log.producer_snapshot import decode_snapshot, encode_snapshot
from anabranch.core.log.producers import ProducerStates
from anabranch.core.log.segment import LOG, SNAPSHOT, Segment, offset_name
from anabranch.core.remote.segments import EpochStart, RemoteSegment, SegmentId
from anabranch.core.tiering.plan import PlannedSegment
from anabranch.core.types import Buffer
from anabranch.core.wire.batch import BatchHeader, read_header

INDEX_INTERVAL_BYTES = 4096
"""Kafka's default of `index.interval.bytes`."""
PRODUCERS_KEPT_MS = 86_400_000
"""Kafka's default of `producer.id.expiration.ms`."""


class BuiltSegment(NamedTuple):
    """The objects of a segment but its sidecar, by name, the batches first."""

    segment: RemoteSegment
    files: dict[str, list[Buffer]]


def build(
    key: LogKey,
    segment_id: SegmentId,
    planned: PlannedSegment,
    bytes_of: Callable[[Run], Buffer],
    snapshot_before: bytes,
    leader_epoch: int = 0,
) -> BuiltSegment:
    """The files of a segment; `snapshot_before` is that of the segment before, b"" for the first,
    and `leader_epoch` that of the records. Whose leader it is, and in which epoch, is left to the
    leader. Raises StorageFault."""
    start_offset, end_offset, runs = planned
    captured: Any = _Captured()
    index = Segment(captured, "", start_offset, 0)
    producers = _producers(snapshot_before)
    batches: list[Buffer] = []
    position = 0
    for run in runs:
        buffer = assembled(run, [bytes_of(run)], leader_epoch)
        for header in _headers(buffer):
            index.note(
                position, header.size_bytes, header.last_offset, header.newest_timestamp,
                INDEX_INTERVAL_BYTES,
            )  # fmt: skip
            position += header.size_bytes
            if header.producer_id != NO_PRODUCER:
                producers.now_ms = max(0, header.max_timestamp)
                note_batch(producers, header, b"", 0, header.base_offset, header.max_timestamp)
        batches.append(buffer)
    producers.expire(index.max_timestamp, PRODUCERS_KEPT_MS)
    index.save_indexes(captured)
    captured.files[offset_name(end_offset, SNAPSHOT)] = [encode_snapshot(producers)]
    epoch_start = start_offset if leader_epoch else 0
    captured.files[LEADER_EPOCHS] = [format_epochs([(leader_epoch, epoch_start)])]
    epochs = (EpochStart(leader_epoch, start_offset),)
    segment = RemoteSegment(
        segment_id, key, start_offset, end_offset, index.max_timestamp, epochs, position, -1, -1
    )
    return BuiltSegment(segment, {offset_name(start_offset, LOG): batches, **captured.files})


def _headers(buffer: Buffer) -> Iterator[BatchHeader]:
    position = 0
    while position < len(buffer):
        header = read_header(buffer, position)
        yield header
        position += header.size_bytes


def _producers(snapshot_before: bytes) -> ProducerStates:
    if not snapshot_before:
        return ProducerStates()
    found = decode_snapshot(snapshot_before)
    if found is None:
        raise StorageFault("the snapshot of producers of the segment before is damaged")
    return found


class _Captured:
    """Takes the index files of a segment that lies in memory."""

    def __init__(self) -> None:
        self.files: dict[str, list[Buffer]] = {}

    def open(self, _path: str, **_: bool) -> None:
        """Nothing is read: batches are noted as they are made."""

    def write_atomic(self, path: str, encoded: bytes, *, sync: bool) -> None:
        """An index."""
        self.files[path.rpartition("/")[2]] = [encoded]
