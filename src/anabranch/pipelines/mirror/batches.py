"""Fetched batches to batches for the target: what travels as it is, and what is put together.

What: `Packer.pack` turns a part of a partition into outgoing batches, in order. Rules kept: control
batches are left out, and with `read_committed` what was aborted; checksums of the source are
checked before they are renewed, so damage is told and not passed on; where numba is not installed,
or declines, `core.mirror.repack` does the same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

from anabranch.client.committed import Committed
from anabranch.core.errors import ProtocolError
from anabranch.core.mirror.repack import encoded, repacked
from anabranch.core.mirror.restamp import (
    Fit,
    Group,
    Outgoing,
    Run,
    codec_of,
    groups_of,
    joined,
    must_open,
    restamped,
    runs_of,
)
from anabranch.core.types import Buffer
from anabranch.core.wire.batch import (
    BATCH_OVERHEAD,
    HEADER,
    MAGIC,
    PREFIX,
    BatchHeader,
    crc_is_valid,
    walk,
)
from anabranch.core.wire.compression import Codec, compress, decompress
from anabranch.core.wire.records import DEFAULT_LIMIT_BYTES, decode_records
from anabranch.pipelines.mirror.reader import FetchedPart

HAS_NUMBA = find_spec("numba") is not None
SMALL = "small"


class DamagedBatch(Exception):
    """A batch of the source that is not what it claims to be; the text names place and remedy."""


class Packer:
    """What becomes of parts, and how often what was done."""

    def __init__(self, *, read_committed: bool, compiled: bool = HAS_NUMBA) -> None:
        self.opened: Counter[str] = Counter()
        """Batches that were opened, by why."""
        self.leader_epoch = -1
        """The source's leader epoch of the last batch that was looked at."""
        self.whole = 0
        """Batches that travelled as they were."""
        self._read_committed = read_committed
        self._compiled = compiled

    def pack(self, part: FetchedPart, fit: Fit) -> Iterator[Outgoing]:
        """The batches of a part for the target. Raises DamagedBatch and RecordTooLarge."""
        records = part.records
        shown = list(self._shown(part))
        if shown and shown[0][1].base_offset < part.start:
            yield from self._from_middle(part, shown.pop(0), fit)
        for group in groups_of(shown, fit):
            if not group.is_opened:
                self.whole += 1
                yield restamped(records, *group.members[0])
                continue
            for _, header in group.members:
                self.opened[must_open(header, fit) or SMALL] += 1
            yield from self._opened(part, group, fit)

    def _shown(self, part: FetchedPart) -> Iterator[tuple[int, BatchHeader]]:
        committed = Committed(part.aborted if self._read_committed else ())
        for position, header in walk(part.records):
            if header.magic != MAGIC:
                raise _damaged(part, header, f"its format is {header.magic}, not {MAGIC}")
            if not crc_is_valid(part.records, position, header.size_bytes):
                raise _damaged(part, header, "its checksum does not match")
            self.leader_epoch = header.leader_epoch
            is_shown = committed.shows(header, part.records, position) and header.record_count
            if is_shown and header.last_offset >= part.start:
                yield position, header

    def _from_middle(
        self, part: FetchedPart, first: tuple[int, BatchHeader], fit: Fit
    ) -> Iterator[Outgoing]:
        """What is to be mirrored of a batch that begins before the position."""
        position, header = first
        try:
            records = decode_records(part.records, position)
        except ProtocolError as problem:
            raise _damaged(part, header, str(problem)) from None
        codec = codec_of(Group([first], True), fit)
        wanted = [each for each in records if each.offset >= part.start]
        return encoded(wanted, codec, fit.limit_bytes)

    def _opened(self, part: FetchedPart, group: Group, fit: Fit) -> Iterator[Outgoing]:
        codec = codec_of(group, fit)
        try:
            made = merged(part.records, group, codec) if self._compiled else None
            if made is not None and len(made.batch) <= fit.limit_bytes:
                yield made
                return
            positions = [position for position, _ in group.members]
            yield from repacked(part.records, positions, codec, fit.limit_bytes)
        except ProtocolError as problem:
            raise _damaged(part, group.members[0][1], str(problem)) from None


def _damaged(part: FetchedPart, header: BatchHeader, why: str) -> DamagedBatch:
    topic, partition = part.place
    return DamagedBatch(
        f"{topic}-{partition}: the batch of offsets {header.base_offset} to {header.last_offset} "
        f"is corrupt: {why}. If another replica has it whole, make that broker the leader."
    )


def merged(records: Buffer, group: Group, codec: Codec) -> Outgoing | None:
    """The records of a group as one batch; None where they are for `repacked` to judge. Raises
    ProtocolError."""
    import numpy as np

    from anabranch.pipelines.compiled import DECLINED
    from anabranch.pipelines.mirror.compiled_merge import MOST_GROWTH, append_records

    plains = [_plain(records, *member) for member in group.members]
    count = sum(header.record_count for _, header in group.members)
    out = np.empty(BATCH_OVERHEAD + sum(map(len, plains)) + MOST_GROWTH * count, np.uint8)
    deltas = np.empty(count, np.int64)
    base = _base_timestamp(group.members[0][1])
    position, done = BATCH_OVERHEAD, 0
    runs: list[Run] = []
    for (_, header), plain in zip(group.members, plains, strict=True):
        fixed = header.log_append_time
        shift = (header.max_timestamp if fixed else header.base_timestamp) - base
        own = deltas[done : done + header.record_count]
        position = append_records(
            np.frombuffer(plain, np.uint8), header.record_count, header.last_offset_delta, shift,
            fixed, done, out, position, own,
        )  # fmt: skip
        if position == DECLINED:
            return None
        if header.record_count != header.last_offset_delta + 1:
            own += header.base_offset
            runs += runs_of(own.tolist())
        else:
            runs.append(Run(header.base_offset, header.record_count))
        done += header.record_count
    latest = max(header.max_timestamp for _, header in group.members)
    batch = _finished(memoryview(out)[:position], codec, count, base, latest)
    return Outgoing(batch, joined(runs))


def _base_timestamp(header: BatchHeader) -> int:
    return header.max_timestamp if header.log_append_time else header.base_timestamp


def _plain(records: Buffer, position: int, header: BatchHeader) -> Buffer:
    packed = memoryview(records)[position + BATCH_OVERHEAD : position + header.size_bytes]
    if not header.codec:
        return packed
    if header.codec > Codec.ZSTD:
        raise ProtocolError("RecordBatch", MAGIC, "codec", position, f"codec {header.codec}")
    return decompress(Codec(header.codec), packed, limit_bytes=DEFAULT_LIMIT_BYTES)


def _finished(out: Any, codec: Codec, count: int, base_timestamp: int, latest: int) -> bytearray:
    """A batch of plain records behind room for a header; the checksum is the producer's to fill."""
    batch = bytearray(out)
    if codec:
        batch = bytearray(BATCH_OVERHEAD) + compress(codec, memoryview(out)[BATCH_OVERHEAD:])
    HEADER.pack_into(
        batch, 0, 0, len(batch) - PREFIX, -1, MAGIC, 0, int(codec), count - 1, base_timestamp,
        latest, -1, -1, -1, count,
    )  # fmt: skip
    return batch
