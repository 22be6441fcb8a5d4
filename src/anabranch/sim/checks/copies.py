"""One replica's log as its node has it, followed batch by batch.

What: a `Copy` knows what its replica was like at the last look (`replica.log.end_offset` and the
like) and the batches of its log. `grow` reads what was appended, `reload` reads everything again
after a cut or a start and says what is gone. Why: a look at a copy that has not changed costs a few
comparisons, however long the log is. Not here: judgement (`logs.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from anabranch.sim.checks.entries import (
    BEGIN,
    NOTHING,
    Entry,
    Unreadable,
    read_entries,
    unsynced_entries,
)
from anabranch.sim.checks.truth import NEVER
from anabranch.sim.checks.violation import Violation

if TYPE_CHECKING:
    from collections.abc import Set

    from anabranch.core.replication.replica import Replica
    from anabranch.core.types import Buffer
    from anabranch.sim.checks.compacted import Compacted
    from anabranch.sim.checks.truth import Truth
    from anabranch.sim.node import SimNode

NOT_SEEN = -9


class Copy:
    """One replica on one node. `is_sure`: the batches are those that the node has."""

    __slots__ = (
        "_had",
        "_sound",
        "compacted",
        "cut_to",
        "end",
        "entries",
        "epoch",
        "has_left",
        "high",
        "holes",
        "is_exchanged",
        "is_given_up",
        "is_older",
        "is_rotten",
        "is_sure",
        "largest",
        "last_end",
        "last_local",
        "last_start",
        "leads",
        "missed_marker",
        "node",
        "partition_epoch",
        "position",
        "replica",
        "sequences",
        "start",
        "stays_ms",
        "truth",
        "was_in_sync",
    )

    def __init__(self, node: SimNode, truth: Truth, compacted: Compacted | None = None) -> None:
        self.node = node
        self.truth = truth
        self.compacted = compacted
        """What its batches had, where the topic is compacted."""
        self.entries: list[Entry] = []
        self.holes: set[Entry] = set()
        """Those of the batches that compaction took out of this log."""
        self.is_sure = False
        self.is_rotten = False
        """A bit of its disk flipped: what is read may differ from what was written."""
        self._sound: dict[int, Entry] = {}
        """What was written before it rotted."""
        self.is_given_up = False
        """So much of it is rotten that its batches cannot be told apart."""
        self.is_exchanged = False
        """Whether compaction has exchanged segments since the last look."""
        self.was_in_sync = self.missed_marker = False
        """Whether it was ever in sync, and has since copied what lies behind a marker of a
        transaction without the marker: compaction had taken that."""
        self.stays_ms: int | None = None
        """How long the last pass that exchanged segments left a tombstone at least."""
        self.largest = 0
        """The largest batch of those that were read last, in bytes."""
        self.is_older = False
        """An older copy of its folder was put in, and not opened yet."""
        self.has_left = False
        """Its partition moved away while no process had it, and may have come back since."""
        self.cut_to = NOT_SEEN
        """Where a cut was announced since the last look."""
        self.sequences: dict[tuple[int, int], tuple[int, int]] = {}
        """(producer id, epoch) -> the last batch's sequence number, and its end."""
        self.replica: Replica | None = None
        self.position = BEGIN
        self.start = self.end = self.last_start = self.last_end = self.last_local = NOT_SEEN
        """`last_start`, `last_end`: where its log began and ended when its process was last looked
        at."""
        self._had: Set[Entry] = NOTHING
        """While its log is read again: what it had for certain."""
        self.forget()

    def forget(self) -> None:
        """The process is gone; the batches are still what its disk holds, as far as is known."""
        self.last_local = self.local_start
        self.replica = None
        self.is_exchanged = False
        self.last_start = self.known_start
        self.last_end = max(self.last_end, self.end)
        self.end = self.start = self.high = self.epoch = self.partition_epoch = NOT_SEEN
        self.leads = False

    @property
    def known_start(self) -> int:
        """Where its log begins; of a process that is gone, where it began then."""
        return self.last_start if self.start == NOT_SEEN else self.start

    @property
    def local_start(self) -> int:
        """From where on it has batches itself."""
        return self.last_local if self.replica is None else self.replica.log.local_start_offset

    def lacks(self, start: int, upto: int) -> Entry | None:
        """The first committed batch of a range that is not here and not deleted here: it may have
        deleted more than a leader that was elected uncleanly since."""
        is_reset = self.truth.reset_epoch != NEVER
        begins = self.local_start if self.truth.has_remote else self.known_start
        start = max(start, begins if is_reset else self.truth.needed_from(begins))
        return self.truth.missing_in(self.entries, start, upto)

    def within(self, first: int, upto: int) -> list[Entry]:
        """The batches that end after an offset and not after another: of a branch of its own the
        first may begin before."""
        entries = self.entries
        at = len(entries)
        while at and entries[at - 1].end > first:
            at -= 1
        return [each for each in entries[at:] if each.end <= upto]

    def first_unsynced(self, entries: list[Entry]) -> Entry | None:
        """The first of these batches that a power cut might take: its bytes, or the name of their
        file, are not on the disk."""
        assert self.replica is not None
        if not entries:
            return None
        wanted = {(each.base, each.epoch) for each in entries}
        found = unsynced_entries(self.node.disk, self.replica.log, entries[0].base)
        return next((raw for raw in found if (raw.base, raw.epoch) in wanted), None)

    def told(self) -> dict[str, object]:
        """For a violation's details."""
        return {
            "node": self.node.name,
            "partition": "" if self.replica is None else self.replica.topic_partition,
            "epoch": self.epoch,
        }

    def grow(self) -> list[Entry]:
        """Read what was appended since the last look; the new batches."""
        assert self.replica is not None
        log = self.replica.log
        fresh: list[Entry] = []
        self.largest = 0
        try:
            for entry, position, batch in read_entries(self.node.disk, log, self.position):
                self.largest = max(self.largest, len(batch))
                if self.compacted is not None:
                    *holes, entry = self._read(entry, batch)
                    self.holes.update(holes)
                    self._note_missed(holes)
                    fresh += [self._checked(each) for each in holes]
                fresh.append(self._checked(entry))
                self.truth.note_commits(fresh[-1], batch)
                self.position = position
        except Unreadable as fault:
            if self.is_rotten:
                self.is_given_up, self.is_sure = True, False
                return fresh
            sentence = f"The log has bytes that are no batch: {fault}."
            raise Violation("L1", sentence, self.told()) from None
        end = self.entries[-1].end if self.entries else None
        if end is not None and end != log.end_offset and not self.is_rotten:
            raise Violation(
                "L1", "The log's end is not where its last batch ends.",
                {**self.told(), "end": log.end_offset, "batches_end": end},
            )  # fmt: skip
        return fresh

    def _note_missed(self, holes: list[Entry]) -> None:
        if self.was_in_sync and self.compacted is not None and self.entries:
            is_missed = any(map(self.compacted.is_marker, holes))
            self.missed_marker = self.missed_marker or is_missed

    def _read(self, entry: Entry, batch: Buffer) -> list[Entry]:
        """The batch, after those that compaction took out before it."""
        compacted = self.compacted
        if compacted is None or self.replica is None:
            return [entry]
        before = self.entries[-1] if self.entries else None
        start = self.replica.log.local_start_offset
        if self.is_rotten:
            return compacted.read_rotten(entry, batch, before, start, self.node.now_ms)
        return compacted.read(
            entry, batch, before, start, self.node.now_ms, self.told(), self.stays_ms, self._had
        )

    def reload(self, *, is_whole: bool = False) -> list[Entry]:
        """Read the whole log again; the batches that are gone. One that compaction had taken out
        was gone before, also where the log ends in its place now. `is_whole`: it was not cut, so
        what it had and compaction may have taken is what it has."""
        before, holes = self.entries, self.holes
        if self.is_rotten:
            end = self.replica.log.end_offset if self.replica is not None else 0
            self._sound.update((entry.base, entry) for entry in before)
            self._sound = {base: each for base, each in self._sound.items() if base < end}
        self.entries, self.holes, self.sequences, self.position = [], set(), {}, BEGIN
        missed, self._had = self.missed_marker, set(before) if is_whole else NOTHING
        self.grow()
        self._had = NOTHING
        self.missed_marker = missed  # its own compaction took the others
        here = holes.union(self.entries)
        return [entry for entry in before if entry not in here]

    def _checked(self, entry: Entry) -> Entry:
        """L1 between batches, L2 among copies, L8 within the log."""
        if self.entries and entry.base != self.entries[-1].end:
            if self.is_rotten:
                raise Unreadable
            raise Violation(
                "L1", "A batch does not begin where the one before it ends.",
                {**self.told(), "base": entry.base, "before": self.entries[-1].end},
            )  # fmt: skip
        if self.is_rotten and self.truth.written.get((entry.base, entry.epoch)) != entry:
            entry = self._sound.get(entry.base, entry)
        known = self.truth.known(entry)
        if known is None:
            first = self.truth.written[entry.base, entry.epoch]
            raise Violation(
                "L2", "Two batches have the same offset and leader epoch.",
                {**self.told(), "one": tuple(first), "other": tuple(entry)},
            )  # fmt: skip
        if entry.producer_id >= 0 and entry.sequence >= 0:
            self._check_sequence(entry)
        self.entries.append(known)
        return known

    def _check_sequence(self, entry: Entry) -> None:
        producer = (entry.producer_id, entry.producer_epoch)
        last, end = self.sequences.get(producer, (-1, 0))
        if entry.sequence <= last and not self._was_given_again(entry, end):
            raise Violation(
                "L8", "A producer's sequence number stands twice in one log, or goes back.",
                {**self.told(), "producer": entry.producer_id,
                 "producer_epoch": entry.producer_epoch, "sequence": entry.sequence,
                 "last": last, "offset": entry.base},
            )  # fmt: skip
        self.sequences[producer] = entry.sequence + entry.end - entry.base - 1, entry.end

    def _was_given_again(self, entry: Entry, end: int) -> bool:
        """Whether nothing of what a producer wrote before can tell: it has expired, compaction took
        it, or the producer was silent so long that its state is forgotten. A coordinator whose log
        is lost gives transactional producers the same ids and epochs again. The log of a leader
        may have begun anew behind records that were deleted, and knows nothing of them."""
        compacted = self.compacted
        if self.replica is not None and end <= self.replica.log.local_start_offset:
            if not (self.leads and entry.epoch == self.epoch):
                return True
        if compacted is None or self.replica is None or not compacted.is_of_transaction(entry):
            return False
        start = self.replica.log.local_start_offset
        if self.truth.expires and end <= start:
            return True
        idle_ms, now_ms = self.replica.log.config.producer_id_expiration_ms, self.node.now_ms
        return compacted.coordinator_lost() and all(
            each in self.holes or each.end <= start or compacted.age_ms(each, now_ms) >= idle_ms
            for each in self.entries
            if each.producer_id == entry.producer_id and _rules_out(each, entry)
        )


def _rules_out(one: Entry, other: Entry) -> bool:
    """Whether a log that has one batch of a producer may take no other one with such a number."""
    if one.producer_epoch == other.producer_epoch:
        return one.sequence >= other.sequence
    return one.producer_epoch > other.producer_epoch
