"""A partition as a mirror sees it: batches, transactions, epochs, and what is taken away again.

What: `Log` appends whole batches, hides aborted and open transactions from readers of committed
records, compacts, applies retention, and loses its end in an unclean election. Rule kept: offsets
never come twice but after such an election, which begins an epoch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from anabranch.core.wire.batch import patch, read_header
from anabranch.core.wire.records import Record, build_batch, decode_records


class OutOfRange(Exception):
    """A reader asks for what the log does not have."""


class Entry(NamedTuple):
    """A batch in the log, or the marker of a transaction, which has no batch."""

    base_offset: int
    last_offset: int
    epoch: int
    batch: bytes = b""
    producer_id: int = -1
    is_transactional: bool = False


class Log:
    """One partition, on whichever broker leads it."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.start = self.end = 0
        self.epoch = 0
        self.epochs: list[tuple[int, int]] = [(0, 0)]
        """(epoch, its first offset)."""
        self.open: dict[int, int] = {}
        """Producer id -> the first offset of its transaction."""
        self.aborted: list[tuple[int, int, int]] = []
        """(producer id, first offset, offset of the marker)."""
        self.ever: dict[int, bytes] = {}
        """Offset -> value, of every record that was not lost, even when it is deleted since."""
        self.gone: list[bytes] = []
        """Values of committed records that retention has deleted, in their order."""
        self.was_cut = False

    def append(
        self, batch: bytes | bytearray, producer_id: int = -1, *, transactional: bool = False
    ) -> int:
        """The offset that the batch's first record gets."""
        own, base = bytearray(batch), self.end
        patch(own, 0, base, self.epoch)
        last = base + read_header(own).last_offset_delta
        self.entries.append(Entry(base, last, self.epoch, bytes(own), producer_id, transactional))
        self.end = last + 1
        self.ever |= {base + each.offset: each.value or b"" for each in decode_records(batch)}
        if transactional:
            self.open.setdefault(producer_id, base)
        return base

    def end_transaction(self, producer_id: int, *, commits: bool) -> None:
        """Write the marker of a transaction that has records here."""
        first = self.open.pop(producer_id, None)
        if first is None:
            return
        self.entries.append(Entry(self.end, self.end, self.epoch, producer_id=producer_id))
        if not commits:
            self.aborted.append((producer_id, first, self.end))
        self.end += 1

    @property
    def stable_end(self) -> int:
        """The offset behind the last record whose transaction has ended."""
        return min(self.open.values(), default=self.end)

    def shown(self, offset: int, *, committed: bool, most: int = 1 << 30) -> Iterator[Entry]:
        """The next entries for a reader, markers among them. Raises OutOfRange."""
        if not self.start <= offset <= self.end:
            raise OutOfRange
        end = self.stable_end if committed else self.end
        for entry in self.entries:
            if entry.last_offset < offset or entry.base_offset >= end:
                continue
            if most <= 0:
                return
            most -= 1
            yield entry._replace(batch=b"") if committed and self._is_aborted(entry) else entry

    def _is_aborted(self, entry: Entry) -> bool:
        return entry.is_transactional and any(
            producer == entry.producer_id and first <= entry.base_offset <= marker
            for producer, first, marker in self.aborted
        )

    def records(self, offset: int | None = None, *, committed: bool = True) -> list[Record]:
        """What a reader finds from an offset on, or all there is."""
        first = self.start if offset is None else offset
        return [
            record
            for entry in self.shown(first, committed=committed)
            if entry.batch
            for record in decode_records(entry.batch)
            if record.offset >= first
        ]

    def parted(self, epoch: int, following: int) -> int | None:
        """Where the log is another one than for a reader who reads `following` next, and read that
        far under `epoch`; None where it is the same."""
        later = [first for number, first in self.epochs if number > epoch]
        end = min([*later, self.end]) if epoch >= 0 else following
        return end if end < following else None

    # What happens to a log.

    def elect(self) -> None:
        """Another leader, which has everything."""
        self.epoch += 1
        self.epochs.append((self.epoch, self.end))

    def lose_end(self, offset: int) -> list[Entry]:
        """An unclean election: what is from `offset` on is gone, but no part of a transaction that
        has ended; what was lost."""
        kept = max([offset, self.start, *(marker + 1 for _, _, marker in self.aborted)])
        kept = max([kept, *(e.last_offset + 1 for e in self.entries if e.is_transactional)])
        kept = max([kept, *(each.last_offset + 1 for each in self.entries if not each.batch)])
        at = next((n for n, e in enumerate(self.entries) if e.last_offset >= kept), None)
        lost = [] if at is None else self.entries[at:]
        del self.entries[len(self.entries) - len(lost) :]
        if lost:  # offsets that compaction left out before it belong to no batch, and go with it
            self.end = self.entries[-1].last_offset + 1 if self.entries else self.start
        self.ever = {at: value for at, value in self.ever.items() if at < self.end}
        self.was_cut = self.was_cut or bool(lost)
        self.epochs = [each for each in self.epochs if each[1] <= self.end]
        self.elect()
        return lost

    def delete_before(self, offset: int) -> None:
        """Retention: whole batches that lie before an offset are gone."""
        limit = min(offset, self.stable_end)
        kept = {entry.base_offset for entry in self.entries if entry.last_offset >= limit}
        for record in self.records():
            if record.offset < min(kept, default=self.end):
                self.gone.append(record.value or b"")
        while self.entries and self.entries[0].last_offset < limit:
            self.start = self.entries.pop(0).last_offset + 1

    def compact(self, keeps_tombstones: Callable[[], bool]) -> None:
        """Of each key the newest committed record stays; markers and aborted records go. The last
        batch stays whole: its segment is the one that is written to."""
        end = min([self.stable_end, *(each.base_offset for each in self.entries[-1:])])
        newest = {record.key: record.offset for record in self.records()}
        entries: list[Entry] = []
        for entry in self.entries:
            if entry.base_offset >= end:
                entries.append(entry)
            elif entry.batch and not self._is_aborted(entry):
                kept = [
                    record
                    for record in decode_records(entry.batch)
                    if newest.get(record.key) == record.offset
                    and (record.value is not None or keeps_tombstones())
                ]
                entries += [_thinned(entry, kept)] if kept else []
        self.entries = entries


def _thinned(entry: Entry, kept: list[Record]) -> Entry:
    """A batch that keeps its base offset, as the cleaner leaves it."""
    header = read_header(entry.batch)
    if len(kept) == header.record_count:
        return entry
    batch = build_batch(
        kept, base_offset=entry.base_offset, leader_epoch=entry.epoch,
        producer_id=header.producer_id, producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence, transactional=entry.is_transactional,
    )  # fmt: skip
    return entry._replace(batch=bytes(batch), last_offset=kept[-1].offset)
