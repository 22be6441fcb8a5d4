"""From runs and their bytes to what a reader gets: batches with their offsets.

Batches are stored as producers sent them, with base offset 0; their place is known from the run
that they belong to. Both fields that are written here, base offset and leader epoch, lie outside
of the batch's checksum. Rules kept: the batches of a run must fill its bytes and its offsets
exactly, and each must have a sound checksum, or nothing of the run is told; every record of a
partition has the same leader epoch, 0 unless its topic was classic before, so that no reader finds
a history that parts. Not here: where bytes come from, what an
answer is made of (`answer_buffers.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from struct import Struct, error
from typing import NamedTuple

from anabranch.core.diskless.rows import NO_PRODUCER, Run
from anabranch.core.errors import StorageFault
from anabranch.core.log import record_walk
from anabranch.core.log.indexes import NO_TIMESTAMP
from anabranch.core.log.lookup import TimestampOffset
from anabranch.core.types import Buffer
from anabranch.core.wire.batch import (
    BATCH_OVERHEAD,
    HEADER,
    MAGIC,
    PREFIX,
    crc_is_valid,
    patch,
    read_header,
    renew_crc,
)

MOST_DELTA = (1 << 31) - 1
"""Between the first and the last offset of a batch: a field of 32 bits."""
_HEAD = Struct(">qiibIhi")


class Damaged(StorageFault):
    """An object does not hold what the coordinator says."""

    def __init__(self, run: Run, why: str) -> None:
        super().__init__(
            f"object {run.object_key}, {run.byte_size} bytes at {run.byte_offset}, which hold "
            f"offsets {run.base_offset} to {run.end_offset - 1} of partition {run.key.partition}: "
            f"{why}. Restore the object from a copy, or give its records up with DeleteRecords."
        )
        self.object_key = run.object_key


class PlacedBatch(NamedTuple):
    """A batch as it lies in its object, and the offsets that it has."""

    base_offset: int
    end_offset: int
    view: memoryview


def placed_batches(view: memoryview, run: Run) -> Iterator[PlacedBatch]:
    """The batches of a run, whose bytes are `view`. Raises Damaged."""
    position, offset = 0, run.base_offset
    while position < run.byte_size:
        try:
            _, length, _, magic, _, _, delta = _HEAD.unpack_from(view, position)
        except error:
            raise Damaged(run, "the last batch is cut") from None
        size = length + PREFIX
        end = position + size
        if magic != MAGIC or size < BATCH_OVERHEAD or end > run.byte_size or delta < 0:
            raise Damaged(run, "no batch begins where one should")
        if not crc_is_valid(view, position, size):
            raise Damaged(run, f"the batch for offset {offset} does not match its checksum")
        yield PlacedBatch(offset, offset + delta + 1, view[position:end])
        offset += delta + 1
        position = end
    if offset != run.end_offset:
        raise Damaged(run, f"its batches end at offset {offset}, not at {run.end_offset}")


def empty_batch(base_offset: int, end_offset: int, leader_epoch: int = 0) -> bytes:
    """A batch without records that takes the place of offsets up to an end, or of many of them:
    consumers go on behind it, as behind one that compaction has left."""
    batch = bytearray(BATCH_OVERHEAD)
    delta = min(end_offset - base_offset - 1, MOST_DELTA)
    HEADER.pack_into(
        batch, 0, base_offset, BATCH_OVERHEAD - PREFIX, leader_epoch, MAGIC, 0, 0, delta,
        NO_TIMESTAMP, NO_TIMESTAMP, NO_PRODUCER, -1, -1, 0,
    )  # fmt: skip
    renew_crc(batch, 0, len(batch))
    return bytes(batch)


def first_not_older(buffer: Buffer, timestamp: int, start_offset: int) -> TimestampOffset | None:
    """The first record of a run (its batches placed) at or after a timestamp and an offset.
    Raises ProtocolError for records that are none: their producer wrote them so, and no copy of the
    object has others."""
    for position, size in _batches(buffer):
        header = read_header(buffer, position)
        if header.max_timestamp < timestamp or header.last_offset < start_offset:
            continue
        batch = bytes(memoryview(buffer)[position : position + size])
        found = record_walk.first_not_older(batch, header, timestamp, start_offset)
        if found is not None:
            return TimestampOffset(*found, header.leader_epoch)
    return None


def _batches(buffer: Buffer) -> Iterator[tuple[int, int]]:
    position = 0
    while position < len(buffer):
        size = _HEAD.unpack_from(buffer, position)[1] + PREFIX
        yield position, size
        position += size


def assembled(run: Run, pieces: Sequence[Buffer], leader_epoch: int = 0) -> bytearray:
    """The bytes of a run, with every batch in its place. Raises Damaged."""
    buffer = bytearray().join(pieces)
    position = 0
    for base_offset, _, view in placed_batches(memoryview(buffer), run):
        patch(buffer, position, base_offset, leader_epoch)
        position += len(view)
    return buffer
