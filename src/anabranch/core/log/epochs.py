"""Which leader epoch started at which offset: what a follower asks before it truncates.

Source: KIP-101, KIP-279. The table is `leader-epoch-checkpoint`; a batch carries its epoch too, so
the table can be rebuilt from the segments: compaction keeps the first batch of each epoch. Kafka
does not keep it, so in a log that Kafka compacted, or that was copied from one, the table says more
than the batches. Rules kept: epochs and start offsets both increase; the file is right for what
lies before the segment from which recovery reads on, so no append has to write it. Not here: when
it is written (`sync_round`).
"""

from __future__ import annotations

from bisect import bisect_right

UNKNOWN_END = (-1, -1)
"""No epoch, and no offset at which it ends."""
LATER_THAN_ANY = 2**31
ALL_SAVED = 2**63
"""No log reaches this offset."""


class LeaderEpochs:
    """A list of (epoch, start offset). From `unsaved_from` on the file may say something else;
    `unsynced` when a power cut may take what it says."""

    __slots__ = ("entries", "unsaved_from", "unsynced")

    def __init__(self, entries: list[tuple[int, int]] | None = None) -> None:
        self.entries = entries if entries is not None else []
        self.unsaved_from = ALL_SAVED
        self.unsynced = False

    @property
    def earliest(self) -> int:
        """The oldest epoch, later than any when there is none."""
        return self.entries[0][0] if self.entries else LATER_THAN_ANY

    @property
    def begin_offset(self) -> int:
        """Where the oldest epoch begins, as far as is known here; later than any offset when there
        is none."""
        return self.entries[0][1] if self.entries else ALL_SAVED

    @property
    def latest(self) -> int:
        """The newest epoch, -1 when there is none."""
        return self.entries[-1][0] if self.entries else -1

    def assign(self, epoch: int, start_offset: int) -> bool:
        """Note that an epoch starts at an offset; True when that is news."""
        entries = self.entries
        if epoch < 0 or (entries and epoch == entries[-1][0]):
            return False
        while entries and (entries[-1][0] >= epoch or entries[-1][1] >= start_offset):
            self._changed(entries.pop()[1])
        entries.append((epoch, start_offset))
        self._changed(start_offset)
        return True

    def _changed(self, offset: int) -> None:
        self.unsaved_from = min(self.unsaved_from, offset)

    def found(self, epoch: int, offset: int, begin: int, log_start_offset: int) -> None:
        """Note a batch that is read again: the table is right where the batch agrees with it.

        It disagrees with a table that is older than the log: then the epoch starts at `begin`. Of
        what lies before the log's start, a table that was cut there says nothing any more."""
        if epoch < 0 or epoch == self.epoch_of(offset):
            return
        if self.entries and epoch <= self.entries[0][0]:
            if offset < self.entries[0][1] <= log_start_offset:
                return
        while self.entries and (self.entries[-1][0] > epoch or self.entries[-1][1] >= offset):
            self._changed(self.entries.pop()[1])
        self.assign(epoch, begin)

    def end_offset(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """The largest known epoch up to `epoch`, and where it ended; (-1, -1) when unknown."""
        entries = self.entries
        if epoch < 0 or not entries or epoch > entries[-1][0]:
            return UNKNOWN_END
        if epoch == entries[-1][0]:
            return epoch, log_end_offset
        higher = bisect_right(entries, (epoch, 2**63))
        return (entries[higher - 1][0] if higher else epoch), entries[higher][1]

    def epoch_of(self, offset: int) -> int:
        """The epoch that an offset was written in, -1 when unknown."""
        found = bisect_right(self.entries, offset, key=_start_offset)
        return self.entries[found - 1][0] if found else -1

    def cut_end(self, end_offset: int) -> None:
        """Forget epochs that start at or after the log's new end."""
        while self.entries and self.entries[-1][1] >= end_offset:
            self.entries.pop()
            self._changed(end_offset)

    def forget(self) -> None:
        """Begin anew."""
        self.entries = []
        self.unsaved_from = 0

    def begun_before(self, end_offset: int) -> list[tuple[int, int]]:
        """What the file has to say. A new leader's epoch begins where its log ends, and counts once
        something is written in it."""
        return [entry for entry in self.entries if entry[1] < end_offset]

    def saved(self, end_offset: int, *, synced: bool) -> None:
        """The file says what began before an offset."""
        has_unwritten = bool(self.entries) and self.entries[-1][1] >= end_offset
        self.unsaved_from = end_offset if has_unwritten else ALL_SAVED
        self.unsynced = not synced

    def cut_start(self, start_offset: int) -> None:
        """Forget epochs that ended before the log's new start; the one in force moves up to it.

        That is no reason to write the table: it is cut again when it is read."""
        first = bisect_right(self.entries, start_offset, key=_start_offset) - 1
        if first < 0 or (first == 0 and self.entries[0][1] == start_offset):
            return
        self.entries = [(self.entries[first][0], start_offset), *self.entries[first + 1 :]]

    def precede(self, earlier: LeaderEpochs, offset: int) -> None:
        """Take over what another table says of the log before `offset`, where this one begins."""
        first = self.entries[0] if self.entries else (ALL_SAVED, ALL_SAVED)
        known = [
            entry
            for entry in earlier.entries
            if entry[1] < min(offset, first[1]) and entry[0] <= first[0]
        ]
        if known and known[-1][0] == first[0]:
            self.entries.pop(0)
        if known:
            self.entries = known + self.entries
            self._changed(known[0][1])

    def reach_back(self, start_offset: int) -> None:
        """In a table made from batches alone: what is missing at the log's start was of the first
        epoch that they tell of.

        Compaction left those offsets out, and it keeps the first batch of each epoch, so none
        younger began among them. An older one may end there; then a replica of it gives up offsets
        of which its leader has nothing, and loses nothing by that."""
        if self.entries and self.entries[0][1] > start_offset:
            self.entries[0] = (self.entries[0][0], start_offset)
            self._changed(start_offset)


def _start_offset(entry: tuple[int, int]) -> int:
    return entry[1]
