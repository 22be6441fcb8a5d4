"""Fetched parts of a partition to Arrow batches, in either of the source's two shapes.

What: walks the batches of each part, checks them, leaves out what a reader must not see, and hands
the rest to an assembler (rows of records) or makes a row of each (`shape=batches`). Rule kept: a
batch that is damaged is never passed over in silence: it ends the reading, or is counted and told.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from anabranch.client.committed import Committed
from anabranch.client.ranges import Part
from anabranch.core.errors import ProtocolError
from anabranch.core.sentences import number_of
from anabranch.core.wire.batch import MAGIC, BatchHeader, crc_is_valid, walk
from anabranch.core.wire.compression import Codec
from anabranch.pipelines.assembler import FARTHEST_MS, Window, assembler

SHOWN = 5
"""Damaged batches that are named where many were left out."""


class CorruptBatch(Exception):
    """A batch that cannot be read; the text names partition, offsets and remedy."""

    def __init__(self, place: str, header: BatchHeader, why: str) -> None:
        self.offsets = f"{header.base_offset} to {header.last_offset}"
        super().__init__(
            f"{place}: the batch of offsets {self.offsets} is corrupt: {why}. If another replica "
            "has it whole, make that broker the leader and read again; with "
            "option('failOnCorruption', 'false') such batches are left out and counted."
        )


@dataclass(kw_only=True)
class RangeDecoder:
    """How the parts of one range become Arrow batches, and what was left out on the way."""

    topic: str
    partition: int
    window: Window
    schema: Any
    read_committed: bool = False
    fail_on_corruption: bool = True
    from_middle: bool = False
    """With `shape=batches`: whether a batch that begins before the window belongs to it."""
    compiled: bool | None = None
    left_out: list[str] = field(default_factory=list)
    """Offsets of the damaged batches that were left out."""

    @property
    def place(self) -> str:
        """The partition, as people write it."""
        return f"{self.topic}-{self.partition}"

    def records(self, parts: Iterable[Part]) -> Iterator[Any]:
        """Arrow batches with a row for each record of the window."""
        rows = assembler(self.schema, self.topic, self.partition, compiled=self.compiled)
        for part in parts:
            committed = Committed(part.aborted if self.read_committed else ())
            for position, header in self._sound(part):
                if header.last_offset < self.window.start or not committed.shows(
                    header, part.records, position
                ):
                    continue
                batch = memoryview(part.records)[position : position + header.size_bytes]
                try:
                    yield from rows.add(header, batch, self.window)
                except ProtocolError as problem:
                    self._corrupt(header, str(problem))
        yield from rows.rest()

    def batches(self, parts: Iterable[Part]) -> Iterator[Any]:
        """Arrow batches with a row for each record batch of the window, as it lies in the log."""
        for part in parts:
            committed = Committed(part.aborted)
            rows: list[tuple[int, BatchHeader]] = []
            for position, header in self._sound(part):
                if not self._holds(header):
                    continue
                if self.read_committed and not committed.shows(header, part.records, position):
                    continue
                if rows and position != _end(*rows[-1]):
                    yield self._described(part, rows)
                    rows = []
                rows.append((position, header))
            if rows:
                yield self._described(part, rows)

    def _holds(self, header: BatchHeader) -> bool:
        """Whether a batch belongs to the window: it does where its first offset does, so that of
        two ranges that meet within a batch exactly one has it."""
        if header.base_offset < self.window.start:
            return self.from_middle and header.last_offset >= self.window.start
        return header.base_offset < self.window.until

    def _sound(self, part: Part) -> Iterator[tuple[int, BatchHeader]]:
        """The batches of a part that are what they claim to be."""
        for position, header in walk(part.records):
            if header.base_offset >= self.window.until:
                return
            if header.magic != MAGIC:
                self._corrupt(header, f"its format is {header.magic}, not {MAGIC}")
            elif not crc_is_valid(part.records, position, header.size_bytes):
                self._corrupt(header, "its checksum does not match")
            else:
                yield position, header

    def _corrupt(self, header: BatchHeader, why: str) -> None:
        fault = CorruptBatch(self.place, header, why)
        if self.fail_on_corruption:
            raise fault
        self.left_out.append(fault.offsets)

    def _described(self, part: Part, rows: list[tuple[int, BatchHeader]]) -> Any:
        """A row for each of some batches that lie side by side: their bytes stay where they are."""
        headers = [header for _, header in rows]
        begins = [position for position, _ in rows]
        times = [min(max(each.max_timestamp, -FARTHEST_MS), FARTHEST_MS) * 1000 for each in headers]
        columns: list[list[Any]] = [
            [self.topic] * len(rows), [self.partition] * len(rows),
            [each.base_offset for each in headers], [each.last_offset for each in headers],
            [each.record_count for each in headers], [codec_name(each.codec) for each in headers],
            times, [each.producer_id for each in headers],
            [each.producer_epoch for each in headers], [each.base_sequence for each in headers],
        ]  # fmt: skip
        arrays = [pa.array(each, kind.type) for each, kind in zip(columns, self.schema)]
        ends = np.array([*begins, _end(*rows[-1])], np.int32)
        content = [None, pa.py_buffer(ends), pa.py_buffer(part.records)]
        arrays.append(pa.Array.from_buffers(pa.binary(), len(rows), content))
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def summary(self) -> str:
        """One line about what was left out; empty when nothing was."""
        if not self.left_out:
            return ""
        shown = ", ".join(self.left_out[:SHOWN])
        more = f" and {len(self.left_out) - SHOWN} more" if len(self.left_out) > SHOWN else ""
        count = number_of(len(self.left_out), "corrupt batch", "corrupt batches")
        return f"{self.place}: {count} left out: {shown}{more}"


def _end(position: int, header: BatchHeader) -> int:
    return position + header.size_bytes


def codec_name(codec: int) -> str:
    """The codec as `compression.type` names it; 5 to 7 are nobody's."""
    return Codec(codec).name.lower() if codec <= Codec.ZSTD else f"unknown-{codec}"
