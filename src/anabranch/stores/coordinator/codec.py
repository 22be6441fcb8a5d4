"""Compact bytes for what the coordinator stores whole: verdicts, a producer's batches, changes.

What: fixed little-endian fields, one entry after another, with the number of the layout in front
where a later one may differ.

    verdicts   per batch: code int16, base offset int64, start offset int64, duplicate int8,
               expected sequence int32
    batches    per batch of a producer: base sequence int32, last sequence int32, offset int64
    changes    object id int64, length of its key uint16, key, then per partition: topic id 16
               bytes, partition int32, kind int8, start int64, high watermark int64, size int64,
               number of runs uint16; of kinds 2 and 3 also the tiered end int64, of kind 3 the
               leader epoch int32; per run: base int64, end int64, position int64, size int64,
               timestamp int64, timestamp type int8

Kinds: 0 it is gone, 1 nothing of it was ever tiered (all that versions without tiering write), 2,
3 its records have another leader epoch than 0, since its topic was classic.

All runs of one packet of changes lie in one object. Not here: a checksum, which the database has.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import starmap
from struct import Struct

from anabranch.core.diskless.commit import Written
from anabranch.core.diskless.rows import Change, LogKey, LogState, Run, Verdict
from anabranch.core.errors import ErrorCode
from anabranch.core.types import TopicId
from anabranch.stores.objects.keys import MOST_KEY_BYTES

VERDICT = Struct("<hqqbi")
WRITTEN = Struct("<iiq")
OBJECT = Struct("<qH")
CHANGE = Struct("<16sibqqqH")
RUN = Struct("<qqqqqb")
TIERED_END = Struct("<q")
LEADER_EPOCH = Struct("<i")
GONE, UNTIERED, TIERED, LED = 0, 1, 2, 3


def pack_verdicts(verdicts: Sequence[Verdict]) -> bytes:
    """The verdicts of an object."""
    return b"".join(starmap(VERDICT.pack, verdicts))


def unpack_verdicts(packed: bytes | None) -> tuple[Verdict, ...]:
    """As they were packed; none of what is NULL."""
    return tuple(
        Verdict(ErrorCode(code), base, start, bool(duplicate), expected)
        for code, base, start, duplicate, expected in VERDICT.iter_unpack(packed or b"")
    )


def pack_written(written: Sequence[Written]) -> bytes:
    """A producer's last batches."""
    return b"".join(starmap(WRITTEN.pack, written))


def unpack_written(packed: bytes) -> tuple[Written, ...]:
    """As they were packed."""
    return tuple(starmap(Written, WRITTEN.iter_unpack(packed)))


def pack_changes(changes: Sequence[Change], most_bytes: int) -> Iterator[bytes]:
    """Packets of at most so many bytes, in order; a partition's change is in one of them as a
    whole, unless its runs do not fit: then it comes again with the others."""
    parts: list[bytes] = []
    head, size = b"", 0
    for change in changes:
        for piece in _pieces(change, most_bytes):
            object_head = _object_head(piece.runs)
            part = _pack_change(piece)
            if parts and (
                size + len(part) > most_bytes or (head and object_head not in (b"", head))
            ):
                yield b"".join((head or OBJECT.pack(-1, 0), *parts))
                head, parts = b"", []
            if not parts:
                size = OBJECT.size + MOST_KEY_BYTES
            head = head or object_head
            parts.append(part)
            size += len(part)
    if parts:
        yield b"".join((head or OBJECT.pack(-1, 0), *parts))


def unpack_changes(packed: bytes) -> list[Change]:
    """The changes of one packet."""
    object_id, length = OBJECT.unpack_from(packed)
    at = OBJECT.size + length
    key = packed[OBJECT.size : at].decode()
    changes = []
    while at < len(packed):
        topic_id, partition, kind, start, high_watermark, byte_size, count = CHANGE.unpack_from(
            packed, at
        )
        log, at = LogKey(TopicId(topic_id), partition), at + CHANGE.size
        state = None if kind == GONE else LogState(start, high_watermark, byte_size)
        if state is not None and kind >= TIERED:
            state = state._replace(tiered_end=TIERED_END.unpack_from(packed, at)[0])
            at += TIERED_END.size
        if state is not None and kind == LED:
            state = state._replace(leader_epoch=LEADER_EPOCH.unpack_from(packed, at)[0])
            at += LEADER_EPOCH.size
        runs = []
        for _ in range(count):
            base, end, position, size, timestamp, clock = RUN.unpack_from(packed, at)
            runs.append(Run(log, base, end, object_id, key, position, size, timestamp, clock))
            at += RUN.size
        changes.append(Change(log, state, tuple(runs)))
    return changes


def _pieces(change: Change, most_bytes: int) -> Iterator[Change]:
    """A change whose runs fit into a packet each."""
    head = OBJECT.size + MOST_KEY_BYTES + CHANGE.size + TIERED_END.size + LEADER_EPOCH.size
    fit = (most_bytes - head) // RUN.size
    if len(change.runs) <= fit:
        yield change
        return
    for at in range(0, len(change.runs), fit):
        yield change._replace(runs=change.runs[at : at + fit])


def _object_head(runs: Sequence[Run]) -> bytes:
    if not runs:
        return b""
    key = runs[0].object_key.encode()
    return OBJECT.pack(runs[0].object_id, len(key)) + key


def _pack_change(change: Change) -> bytes:
    key, state, runs = change
    start, high_watermark, byte_size, tiered_end, leader_epoch = state or LogState(0, 0)
    kind = GONE if state is None else TIERED if tiered_end else UNTIERED
    if leader_epoch:
        kind = LED
    head = CHANGE.pack(*key, kind, start, high_watermark, byte_size, len(runs))
    head += TIERED_END.pack(tiered_end) if kind >= TIERED else b""
    head += LEADER_EPOCH.pack(leader_epoch) if kind == LED else b""
    return head + b"".join(
        RUN.pack(
            run.base_offset,
            run.end_offset,
            run.byte_offset,
            run.byte_size,
            run.max_timestamp,
            run.timestamp_type,
        )
        for run in runs
    )
