"""The committed metadata batches: what Fetch of `__cluster_metadata` serves.

What: the batches since the last snapshot, in memory, and that snapshot's bytes. Rule kept: only
what the store committed is here, so no follower ever sees a record that could disappear. Bounded:
when a snapshot is taken, the batches before the one before it go. Source: KIP-595, KIP-630.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import NamedTuple

from anabranch.core.types import Buffer


class CommittedBatch(NamedTuple):
    """One batch as it was committed."""

    first_offset: int
    end_offset: int
    epoch: int
    payload: Buffer


class SnapshotView(NamedTuple):
    """A checkpoint file: the state up to `end_offset` (exclusive)."""

    end_offset: int
    epoch: int
    payload: bytes


class CommittedLog:
    """Batches from `start_offset` up to `end_offset` (exclusive)."""

    def __init__(self, start_offset: int = 0, epoch: int = 0) -> None:
        self.snapshot: SnapshotView | None = None
        self._start_epoch = epoch
        self._start_offset = start_offset
        self._batches: list[CommittedBatch] = []
        self._firsts: list[int] = []
        self.bytes_since_snapshot = 0

    @property
    def start_offset(self) -> int:
        """The first offset that can be read."""
        return self._start_offset

    @property
    def end_offset(self) -> int:
        """The next offset to be committed."""
        return self._batches[-1].end_offset if self._batches else self._start_offset

    @property
    def last_epoch(self) -> int:
        """The epoch of the last batch."""
        return self._batches[-1].epoch if self._batches else self._start_epoch

    def extend(self, batch: CommittedBatch) -> None:
        """One more committed batch; it must begin where the log ends."""
        assert batch.first_offset == self.end_offset
        self._batches.append(batch)
        self._firsts.append(batch.first_offset)
        self.bytes_since_snapshot += len(batch.payload)

    def read(self, offset: int, max_bytes: int) -> list[Buffer]:
        """Whole batches from the one that holds `offset`, at least one if there is any."""
        index = max(bisect_right(self._firsts, offset) - 1, 0)
        found: list[Buffer] = []
        left = max_bytes
        for at in range(index, len(self._batches)):  # a slice would copy all that follows
            batch = self._batches[at]
            if batch.end_offset <= offset:
                continue
            left -= len(batch.payload)
            if found and left < 0:
                break
            found.append(batch.payload)
        return found

    def epoch_end(self, epoch: int) -> tuple[int, int]:
        """The largest epoch not above `epoch`, and the offset at which it ends here."""
        end_offset = self._start_offset
        found = self._start_epoch
        low, high = 0, len(self._batches)
        while low < high:
            middle = (low + high) // 2
            if self._batches[middle].epoch <= epoch:
                low = middle + 1
            else:
                high = middle
        if low:
            end_offset, found = self._batches[low - 1].end_offset, self._batches[low - 1].epoch
        return found, end_offset

    def take_snapshot(self, snapshot: SnapshotView) -> None:
        """Keep a newer snapshot, and of the batches those after the one before it. An older one
        changes nothing: it might end before the log begins, and nobody could go on from it."""
        keep_from = self.snapshot.end_offset if self.snapshot is not None else 0
        if snapshot.end_offset < keep_from:
            return
        count = sum(1 for batch in self._batches if batch.end_offset <= keep_from)
        if count:
            self._start_offset = self._batches[count - 1].end_offset
            self._start_epoch = self._batches[count - 1].epoch
            del self._batches[:count], self._firsts[:count]
        self.snapshot = snapshot
        self.bytes_since_snapshot = self.bytes_after(snapshot.end_offset)

    def bytes_after(self, offset: int) -> int:
        """Bytes of the batches that end after an offset."""
        count = 0
        for batch in reversed(self._batches):
            if batch.end_offset <= offset:
                break
            count += len(batch.payload)
        return count
