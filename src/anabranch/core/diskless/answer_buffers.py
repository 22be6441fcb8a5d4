"""From runs and their bytes to the buffers of an answer, without a copy of large batches.

What: the batches that a reader may have, each with its base offset and leader epoch, which stand
side by side in its first 16 bytes. Of a large batch these are made anew, and the rest is the
cache's own memory; small ones are copied into one buffer, which costs less than a vector of them.
Why: a slow store makes six objects readable at once, and a consumer that takes them at a megabyte
for each of its partitions had as much memory again. Rule kept: nothing that lies in the cache is
written to. Not here: whether batches are sound (`assembly.py`).
"""

from __future__ import annotations

from collections.abc import Sequence

from anabranch.core.diskless.assembly import Damaged, PlacedBatch, placed_batches
from anabranch.core.diskless.rows import Run
from anabranch.core.types import Buffer
from anabranch.core.wire.batch import patch

JOINED_BYTES = 16 << 10
"""Batches below this are copied."""
PLACE_BYTES = 16
"""Base offset, length and leader epoch, with which a batch begins."""


class AnswerBuffers:
    """Batches from the one that holds `offset` on, before `upto`, in `max_bytes`; more only for the
    first one, with `at_least_one`."""

    def __init__(
        self, offset: int, upto: int, max_bytes: int, *, at_least_one: bool, leader_epoch: int = 0
    ) -> None:
        self.is_full = False
        self._leader_epoch = leader_epoch
        self._offset, self._upto = offset, upto
        self._max_bytes, self._at_least_one = max_bytes, at_least_one
        self._size_bytes = 0
        self._buffers: list[Buffer] = []
        self._joined = bytearray()

    def add(self, batches: Sequence[PlacedBatch]) -> None:
        """Take those batches of a run that the reader may have."""
        for base_offset, end_offset, view in batches:
            if end_offset <= self._offset:
                continue
            if end_offset > self._upto or not self._fits(len(view)):
                self.is_full = True
                return
            self._put(base_offset, view)

    def _fits(self, size: int) -> bool:
        is_first = not self._size_bytes
        return self._size_bytes + size <= self._max_bytes or (is_first and self._at_least_one)

    def _put(self, base_offset: int, view: memoryview) -> None:
        self._size_bytes += len(view)
        start, is_large = len(self._joined), len(view) >= JOINED_BYTES
        self._joined += view[:PLACE_BYTES] if is_large else view
        patch(self._joined, start, base_offset, self._leader_epoch)
        if is_large:
            self._buffers += [self._joined, view[PLACE_BYTES:]]
            self._joined = bytearray()

    def take(self) -> tuple[Buffer, ...]:
        """All of them, in order."""
        return (*self._buffers, self._joined) if self._joined else tuple(self._buffers)


def answer_of(
    runs: Sequence[Run], pieces: Sequence[Sequence[Buffer]], answer: AnswerBuffers
) -> Damaged | None:
    """Add what an answer may have of these runs, up to the first one that is damaged."""
    for run, parts in zip(runs, pieces, strict=True):
        whole = parts[0] if len(parts) == 1 else b"".join(parts)
        try:
            answer.add(list(placed_batches(memoryview(whole), run)))
        except Damaged as damage:
            return damage
        if answer.is_full:
            return None
    return None
