"""The exact index: where each record of a partition of the source landed on the target.

    key    topic STRING (at the source) | partition INT32 | downstream INT64 (of its first run)
    value  version INT16 = 0 | flags INT8 (1: nothing was mirrored before it) |
           topic id at the source 16 bytes | topic id on the target 16 bytes |
           leader epoch INT32 (at the source, of its last batch, -1 unknown) |
           runs: upstream gap varint | downstream gap varint | count varint

    key    -1 INT16 | "plan"
    value  what names the plan that tasks may work by

Varints are zigzag. A gap counts from the end of the run before, the first one from 0. Where offsets
go on without a gap on both sides a run grows, so a partition without holes and transactions has one
run. Rules kept: of records that were mirrored twice the last copy counts, once all that was
mirrored before has been mirrored again; an offset between two runs, where the source has nothing
or what another mirror has copied, is behind the run before. So a translated offset skips no record,
and none is behind it that the group has read. What was mirrored before the index began is `None`,
never a guess. Chunks that lie wholly below the target's log start are dropped.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from itertools import pairwise
from operator import attrgetter
from struct import Struct, error
from typing import NamedTuple

import msgspec

from anabranch.core.mirror.formats import ForeignRecord
from anabranch.core.types import ZERO_TOPIC_ID

VERSION = 0
BEGINS = 1
MOST_RUNS = 128
"""Of a chunk: a chunk is written whole each time it grows, with a few bytes a run."""
UNKNOWN_EPOCH = -1
PLAN_KEY = b"\xff\xffplan"
"""Of the record that names the newest plan; no topic's name has a length of -1."""
_KEY_END = Struct(">iq")
_INT16 = Struct(">h")
_HEAD = Struct(">hb16s16si")
MOST_VARINT_BYTES = 10
NOWHERE = 1 << 63
"""Behind every offset."""


class IndexRun(NamedTuple):
    """Records that follow each other on both sides."""

    upstream: int
    downstream: int
    records: int

    @property
    def upstream_end(self) -> int:
        """The offset behind its last record, at the source."""
        return self.upstream + self.records

    @property
    def downstream_end(self) -> int:
        """The offset behind its last record, on the target."""
        return self.downstream + self.records


class Chunk(msgspec.Struct, frozen=True):
    """Some runs of a partition, the content of one record of the index topic."""

    topic: str
    partition: int
    runs: tuple[IndexRun, ...]
    begins: bool = False
    """Whether nothing of the partition was mirrored before these runs."""
    source_id: bytes = ZERO_TOPIC_ID
    target_id: bytes = ZERO_TOPIC_ID
    leader_epoch: int = UNKNOWN_EPOCH

    @property
    def key(self) -> bytes:
        """The key of its record."""
        return chunk_key(self.topic, self.partition, self.runs[0].downstream)

    def grown(self, run: IndexRun, leader_epoch: int = UNKNOWN_EPOCH) -> Chunk | None:
        """The chunk with one more run at its end; None when it is full, or the source has gone
        back, so that another chunk begins."""
        last = self.runs[-1]
        if run.upstream < last.upstream_end or run.downstream < last.downstream_end:
            return None
        if run.upstream == last.upstream_end and run.downstream == last.downstream_end:
            joined = last._replace(records=last.records + run.records)
            runs = (*self.runs[:-1], joined)
        elif len(self.runs) >= MOST_RUNS:
            return None
        else:
            runs = (*self.runs, run)
        return msgspec.structs.replace(self, runs=runs, leader_epoch=leader_epoch)


def chunk_key(topic: str, partition: int, downstream: int) -> bytes:
    """The key of the chunk whose first run is at an offset of the target: that never comes twice,
    while offsets of the source do, after a crash."""
    raw = topic.encode()
    return _INT16.pack(len(raw)) + raw + _KEY_END.pack(partition, downstream)


def chunk_value(chunk: Chunk) -> bytes:
    """The value of a chunk's record."""
    flags = BEGINS if chunk.begins else 0
    out = bytearray(
        _HEAD.pack(VERSION, flags, chunk.source_id, chunk.target_id, chunk.leader_epoch)
    )
    upstream = downstream = 0
    for run in chunk.runs:
        for number in (run.upstream - upstream, run.downstream - downstream, run.records):
            _put_varint(out, number)
        upstream, downstream = run.upstream_end, run.downstream_end
    return bytes(out)


def read_key(key: bytes) -> tuple[str, int, int]:
    """(topic, partition, downstream offset) of a record's key. Raises ForeignRecord."""
    try:
        (size,) = _INT16.unpack_from(key, 0)
        partition, downstream = _KEY_END.unpack_from(key, 2 + size)
        return key[2 : 2 + size].decode(), partition, downstream
    except (error, UnicodeDecodeError) as fault:
        raise ForeignRecord(str(fault)) from None


def read_chunk(key: bytes, value: bytes) -> Chunk:
    """The chunk of a record. Raises ForeignRecord."""
    topic, partition, _ = read_key(key)
    try:
        version, flags, source_id, target_id, leader_epoch = _HEAD.unpack_from(value, 0)
    except error as fault:
        raise ForeignRecord(str(fault)) from None
    if version != VERSION:
        raise ForeignRecord(f"an index of version {version}")
    runs = tuple(_runs(value))
    if not runs:
        raise ForeignRecord("a chunk without runs")
    begins = bool(flags & BEGINS)
    return Chunk(topic, partition, runs, begins, source_id, target_id, leader_epoch)


def _runs(value: bytes) -> Iterable[IndexRun]:
    position, upstream, downstream = _HEAD.size, 0, 0
    while position < len(value):
        up_gap, position = _varint(value, position)
        down_gap, position = _varint(value, position)
        count, position = _varint(value, position)
        run = IndexRun(upstream + up_gap, downstream + down_gap, count)
        if min(run) < 0 or not count:
            raise ForeignRecord(f"a run of {run}")
        upstream, downstream = run.upstream_end, run.downstream_end
        yield run


def _put_varint(out: bytearray, number: int) -> None:
    value = (number << 1) ^ (number >> 63)
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def _varint(value: bytes, position: int) -> tuple[int, int]:
    found = 0
    for index in range(MOST_VARINT_BYTES):
        if position >= len(value):
            break
        byte = value[position]
        position += 1
        found |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return (found >> 1) ^ -(found & 1), position
    raise ForeignRecord("a varint ends early")


class PartitionIndex:
    """The runs of one partition of the source, of the topics that are there now.

    Where the source went back, or is read again after a crash, what was known stays in force until
    the new copies have come as far, and without a gap where there were records: only then is there
    a copy of everything behind them. A gap is left by attempts that write at the same time.
    """

    def __init__(self) -> None:
        self._runs: list[IndexRun] = []
        self._begins = False
        self._first_downstream = NOWHERE
        """Of the first run that was added, though later copies may have replaced it."""
        self._again: PartitionIndex | None = None
        """The new copies, while they have not come as far."""

    def __len__(self) -> int:
        return len(self._runs)

    @property
    def runs(self) -> tuple[IndexRun, ...]:
        """All runs that are in force, by their offsets."""
        return tuple(self._runs)

    @property
    def upstream_end(self) -> int:
        """The offset behind the last record that the index knows; 0 without any."""
        return self._runs[-1].upstream_end if self._runs else 0

    @property
    def downstream_end(self) -> int:
        """The offset behind the last copy on the target."""
        if self._again is not None:
            return self._again.downstream_end
        return self._runs[-1].downstream_end if self._runs else 0

    def add(self, run: IndexRun, *, begins: bool = False) -> None:
        """A run was mirrored, later than all others."""
        self._begins = self._begins or (begins and not self._runs)
        self._first_downstream = min(self._first_downstream, run.downstream)
        if self._again is None and run.upstream >= self.upstream_end:
            self._append(run)
            return
        if self._again is None or self._knows(self._again.upstream_end, run.upstream):
            self._again = PartitionIndex()
        self._again.add(run)
        if self._again.upstream_end >= self.upstream_end:
            self._cut(self._again.runs[0].upstream)
            self._runs += self._again.runs
            self._again = None

    def _knows(self, start: int, until: int) -> bool:
        """Whether it has records of [start, until)."""
        return any(max(start, run.upstream) < min(until, run.upstream_end) for run in self._runs)

    def _append(self, run: IndexRun) -> None:
        last = self._runs[-1] if self._runs else None
        if last and run[:2] == (last.upstream_end, last.downstream_end):
            self._runs[-1] = last._replace(records=last.records + run.records)
        else:
            self._runs.append(run)

    def _cut(self, upstream: int) -> None:
        while self._runs and self._runs[-1].upstream_end > upstream:
            last = self._runs.pop()
            if last.upstream < upstream:
                self._runs.append(last._replace(records=upstream - last.upstream))

    def translate(self, offset: int, *, log_start: int = 0) -> int | None:
        """Where a group that reads `offset` next reads next on the target.

        Behind everything that was mirrored it is the offset behind the last record. None where only
        what came before the index could say. `log_start` is the target's first offset.
        """
        if not self._runs:
            return None
        at = bisect_right(self._runs, offset, key=attrgetter("upstream")) - 1
        if at < 0:
            first = self._runs[0]
            is_whole = self._begins or self._first_downstream <= log_start
            return max(first.downstream, log_start) if is_whole else None
        run = self._runs[at]
        if offset < run.upstream_end:
            return max(run.downstream + offset - run.upstream, log_start)
        is_last = at + 1 == len(self._runs)
        return max(self.downstream_end if is_last else run.downstream_end, log_start)

    def upstream_of(self, offset: int) -> int | None:
        """The other way round: where a group that reads `offset` of the target next reads next at
        the source; None before the first run."""
        if self._again is not None:
            found = self._again.upstream_of(offset)
            if found is not None:
                return found
        at = bisect_right(self._runs, offset, key=attrgetter("downstream")) - 1
        if at < 0:
            return None
        run = self._runs[at]
        if offset < run.downstream_end:
            return run.upstream + offset - run.downstream
        return self._runs[at + 1].upstream if at + 1 < len(self._runs) else run.upstream_end

    def missing(self, start: int, until: int) -> int:
        """How many offsets of the source in [start, until) no run has: aborted records, markers,
        what compaction removed, and what was never mirrored."""
        known = sum(
            max(0, min(run.upstream_end, until) - max(run.upstream, start)) for run in self._runs
        )
        return max(0, until - start) - known


def index_of(chunks: Iterable[Chunk], *, source_id: bytes, target_id: bytes) -> PartitionIndex:
    """The index of one partition from its chunks: those of topics that were deleted are left out,
    and order is the order in which records were written, which the target's offsets tell."""
    index = PartitionIndex()
    ids = {source_id, ZERO_TOPIC_ID}, {target_id, ZERO_TOPIC_ID}
    found = [
        (run, chunk.begins and not number)
        for chunk in chunks
        if chunk.source_id in ids[0] and chunk.target_id in ids[1]
        for number, run in enumerate(chunk.runs)
    ]
    for run, begins in sorted(found, key=lambda each: each[0].downstream):
        index.add(run, begins=begins)
    return index


def below(chunks: Iterable[Chunk], log_start: int) -> list[Chunk]:
    """The chunks that say only what the target no longer has: those before one that begins at its
    log start or before."""
    ordered = sorted(chunks, key=lambda each: each.runs[0].downstream)
    return [
        chunk for chunk, following in pairwise(ordered) if following.runs[0].downstream <= log_start
    ]
