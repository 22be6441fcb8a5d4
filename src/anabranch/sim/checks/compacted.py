"""What compaction may take out of a partition's log, by the checker's own account.

    C1  the newest committed record of a key stays in every log that reaches so far
    C2  a tombstone that is the newest stays until the delete horizon that a first pass wrote into
        its batch; that is `delete.retention.ms` after the tombstone was written, or later
    C3  the first batch of a leader epoch stays, if need be empty, unless it was deleted: a replica
        may be cut no further than to its leader's start, and keep others before that; what follows
        that start is not the first of its epoch then
    C4  what compaction writes is part of what was there, and nothing else is missing

Of a transaction what is committed counts, where its marker stands; what was aborted may go, and the
markers with it.

What: each batch is noted record by record when it is first seen, before anything can be compacted.
A log that was compacted is read as the batches that it had: a smaller batch is taken for the one
that it was, and where batches are missing those are put that were there, once everything that is
gone has been judged. So copies of one partition are compared as if nothing was ever compacted.

Rule kept: what was lost by a recorded rule (an unclean election, a disk) may take newer records of
a key with it, so C1 and C2 are not asked from then on. Source: KIP-58, KIP-354, the rules of
`core.log.compaction` written down once more. Not here: when a log is
compacted, what logs say of transactions (C5, `ended.py`), by which markers a pass may go (C6,
`decided.py`), whether there may be a pass at all (C7, `logs.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Set
from typing import TYPE_CHECKING, NamedTuple

from anabranch.core.errors import ProtocolError
from anabranch.core.wire.batch import BatchHeader, crc_is_valid, read_header
from anabranch.core.wire.control import end_marker
from anabranch.core.wire.records import decode_records
from anabranch.sim.checks.entries import NOTHING, Entry
from anabranch.sim.checks.violation import Violation

if TYPE_CHECKING:
    from anabranch.core.types import Buffer
    from anabranch.sim.checks.truth import Truth

NOT_YET = -1


class Noted(NamedTuple):
    """One record as it was written."""

    offset: int
    key: bytes | None
    is_tombstone: bool


class Decided(NamedTuple):
    """What a batch is to transactions."""

    producer_id: int
    is_transactional: bool
    commits: bool | None
    """Of a marker."""


class Compacted:
    """The batches of one compacted partition as they were. `told` is for a violation's details."""

    def __init__(
        self,
        truth: Truth,
        tombstones_stay_ms: Callable[[], int],
        coordinator_lost: Callable[[], bool],
    ) -> None:
        self._truth = truth
        self._tombstones_stay_ms = tombstones_stay_ms
        self.coordinator_lost = coordinator_lost
        """Whether the coordinator of transactions may lack what it had stored."""
        self._records: dict[Entry, tuple[Noted, ...]] = {}
        self._seen_ms: dict[Entry, int] = {}
        self._horizons: dict[Entry, int] = {}
        """The earliest delete horizon with which any log has had a batch."""
        self._earliest: dict[Entry, int] = {}
        """What that horizon must be at least, by the settings when it was written."""
        self._by_base: dict[int, list[Entry]] = {}
        self._newest: dict[bytes, int] = {}
        self._newest_upto = 0
        self.installed_upto = NOT_YET
        """How far any pass has read that exchanges segments; less than 0 where nobody says."""
        self.passed_upto = 0
        """How far any copy was compacted."""
        self._decided: dict[Entry, Decided] = {}
        self._undecided: dict[int, list[Entry]] = {}
        """Producer -> the batches of its transaction under way."""
        self._aborted: set[Entry] = set()
        self.taken_out = 0
        """Batches that were found smaller, or not at all, by all logs together."""

    def read(
        self,
        raw: Entry,
        batch: Buffer,
        before: Entry | None,
        start: int,
        now_ms: int,
        told: dict[str, object],
        stays_ms: int | None = None,
        had: Set[Entry] = NOTHING,
    ) -> list[Entry]:
        """The batches that a log had up to this one, which follows `before` in its file. `stays_ms`
        is for how long the passes over this log leave tombstones, where that is known; `had` is
        what it was seen to have."""
        original = self._truth.written.get((raw.base, raw.epoch))
        if original is None:
            self._note(raw, batch, now_ms, stays_ms)
            original = raw
        elif original != raw and original.end == raw.end and crc_is_valid(batch, 0, len(batch)):
            self._judge_smaller(original, batch, now_ms, told, stays_ms)
        elif original != raw:
            original = raw  # L2 has something to say about it
        expected = start if before is None else before.end
        if raw.base <= expected:
            return [original]
        return [*self._gone(before, expected, raw, now_ms, told, had), original]

    def read_rotten(
        self, raw: Entry, batch: Buffer, before: Entry | None, start: int, now_ms: int
    ) -> list[Entry]:
        """The same of a log in which a bit flipped; nothing is judged."""
        original = self._truth.written.get((raw.base, raw.epoch))
        if original is None:
            self._note(raw, batch, now_ms)
            original = raw
        elif original.end == raw.end and crc_is_valid(batch, 0, len(batch)):
            self._note_horizon(original, read_header(batch), stays_ms=0)
        expected = start if before is None else before.end
        if raw.base <= expected:
            return [original]
        return [*next(self._bridges(before, expected, original), ()), original]

    def _note(self, entry: Entry, batch: Buffer, now_ms: int, stays_ms: int | None = None) -> None:
        if crc_is_valid(batch, 0, len(batch)):
            header = read_header(batch)
            marker = end_marker(batch) if header.is_control else None
            if header.is_transactional or header.is_control:
                commits = None if marker is None else marker.committed
                self._decided[entry] = Decided(
                    header.producer_id, header.is_transactional and not header.is_control, commits
                )
            self._records[entry] = tuple(
                Noted(each.offset, each.key, each.value is None)
                for each in (() if header.is_control else decode_records(batch))
            )
            self._seen_ms[entry] = now_ms
            self._note_horizon(entry, header, stays_ms)
            self._by_base.setdefault(entry.base, []).append(entry)

    def age_ms(self, entry: Entry, now_ms: int) -> int:
        """How long ago any log first had a batch."""
        return now_ms - self._seen_ms.get(entry, now_ms)

    def is_of_transaction(self, entry: Entry) -> bool:
        """Whether a batch holds records of a transaction."""
        found = self._decided.get(entry)
        return found is not None and found.is_transactional

    def has_transaction_between(self, first: int, upto: int) -> bool:
        """Whether a batch that begins in `[first, upto)` holds records of a transaction."""
        return any(
            found.is_transactional and first <= entry.base < upto
            for entry, found in self._decided.items()
        )

    def is_open_across(self, start: int, end: int) -> bool:
        """Whether a transaction began before one offset, and no marker before the other ends it."""
        began: dict[int, int] = {}
        ended: dict[int, int] = {}
        for entry, found in self._decided.items():
            if found.is_transactional and entry.base < start:
                began[found.producer_id] = max(entry.base, began.get(found.producer_id, 0))
            elif found.commits is not None and entry.base < end:
                ended[found.producer_id] = max(entry.base, ended.get(found.producer_id, 0))
        return any(base > ended.get(producer, -1) for producer, base in began.items())

    def is_marker(self, entry: Entry) -> bool:
        """Whether a batch says how a transaction ended."""
        found = self._decided.get(entry)
        return found is not None and found.commits is not None

    def decided(self, entry: Entry) -> Decided | None:
        """What a batch is to transactions, None for nothing."""
        return self._decided.get(entry)

    def _note_horizon(self, entry: Entry, header: BatchHeader, stays_ms: int | None = None) -> None:
        """A horizon is seen first when a pass has written it, by the settings of then."""
        horizon_ms = header.base_timestamp
        if header.has_delete_horizon and horizon_ms < self._horizons.get(entry, horizon_ms + 1):
            self._horizons[entry] = horizon_ms
            stays_ms = self._tombstones_stay_ms() if stays_ms is None else stays_ms
            self._earliest[entry] = self._seen_ms.get(entry, 0) + stays_ms

    def _judge_smaller(
        self,
        original: Entry,
        batch: Buffer,
        now_ms: int,
        told: dict[str, object],
        stays_ms: int | None,
    ) -> None:
        header = read_header(batch)
        try:
            kept = {
                Noted(each.offset, each.key, each.value is None)
                for each in (() if header.is_control else decode_records(batch))
            }
        except ProtocolError as fault:
            raise Violation(
                "C4", f"A compacted batch cannot be read: {fault}.",
                {**told, "batch": tuple(original)},
            ) from None  # fmt: skip
        noted = self._records.get(original)
        if noted is None:
            return
        if not kept <= set(noted):
            raise Violation(
                "C4", "A compacted batch has records that were not in it.",
                {**told, "batch": tuple(original)},
            )  # fmt: skip
        self._judge(original, [each for each in noted if each not in kept], now_ms, told)
        self._note_horizon(original, header, stays_ms)

    def _gone(
        self,
        before: Entry | None,
        expected: int,
        following: Entry,
        now_ms: int,
        told: dict[str, object],
        had: Set[Entry] = NOTHING,
    ) -> list[Entry]:
        """The batches that are missing before one, each judged; none where nobody can tell."""
        epoch = -1 if before is None else before.epoch
        bridges = self._bridges(before, expected, following, had)
        gone = next(bridges, None)
        if gone is None:
            if self.is_excused or (before is None and expected == 0):
                return []
            raise Violation(
                "C4", "Batches are missing that compaction cannot have taken.",
                {**told, "from": expected, "to": following.base},
            )  # fmt: skip
        first = self._first_of_epoch(epoch, gone)
        if first is not None:
            # A log that an unclean election left behind may have had others than those committed.
            others = (each for each in bridges if self._first_of_epoch(epoch, each) is None)
            gone = next(others, None)
            if gone is None:
                raise Violation(
                    "C3", "The first batch of a leader epoch was compacted away.",
                    {**told, "batch": tuple(first)},
                )  # fmt: skip
        for entry in gone:
            self._judge(entry, list(self._records.get(entry, ())), now_ms, told)
        return gone

    def _first_of_epoch(self, epoch: int, gone: list[Entry]) -> Entry | None:
        """A batch among those that are missing behind one of an epoch which had to stay."""
        for entry in gone:
            if 0 <= epoch < entry.epoch and entry.base > self._truth.deleted_to:
                return entry
            epoch = entry.epoch
        return None

    def _bridges(
        self,
        before: Entry | None,
        expected: int,
        following: Entry,
        had: Set[Entry] = NOTHING,
    ) -> Iterator[list[Entry]]:
        """The batches that may have been between two of a log, or between its start and its first:
        it may start within a batch that is gone. The most likely ones come first."""
        is_met = False
        epoch = -1 if before is None else before.epoch
        for gone in self._chains(expected, epoch, following, had):
            is_met = True
            yield gone
        if is_met or before is not None:
            return
        for each in self._truth.written.values():
            if each.base < expected < each.end <= following.base:
                yield from self._chains(each.end, each.epoch, following, had)

    def _chains(
        self, at: int, epoch: int, following: Entry, had: Set[Entry]
    ) -> Iterator[list[Entry]]:
        """Batches from an offset up to a batch, with epochs that fit: first those that the log was
        seen to have, then those that are committed."""
        if at == following.base:
            yield []
            return
        fitting = [
            each
            for each in self._by_base.get(at, ())
            if epoch <= each.epoch <= following.epoch and each.end <= following.base
        ]
        for each in sorted(
            fitting, key=lambda each: (each not in had, not self._truth.holds(each), -each.epoch)
        ):
            for rest in self._chains(each.end, each.epoch, following, had):
                yield [each, *rest]

    @property
    def is_excused(self) -> bool:
        """Whether a recorded rule allowed records to be lost."""
        return bool(self._truth.losses) or self._truth.reset_epoch >= 0

    def _judge(self, entry: Entry, gone: list[Noted], now_ms: int, told: dict[str, object]) -> None:
        """C1 and C2 for records of a batch that are not there any more."""
        self.taken_out += 1
        if self.is_excused or entry.base < self._truth.start:
            return
        if 0 <= self.installed_upto <= entry.base:
            raise Violation(
                "C4", "Records are missing where no pass of compaction has been.",
                {**told, "batch": tuple(entry), "installed_upto": self.installed_upto},
            )  # fmt: skip
        newest = self._newest_offsets()
        if entry in self._aborted:
            return
        for record in gone:
            if record.key is None or newest.get(record.key, NOT_YET) > record.offset:
                continue
            told = {**told, "offset": record.offset, "key": record.key}
            if not record.is_tombstone:
                raise Violation("C1", "The newest committed record of a key is gone.", told)
            horizon_ms = self._horizons.get(entry)
            earliest_ms = self._earliest.get(entry, 0)
            if horizon_ms is None or horizon_ms < earliest_ms or now_ms < horizon_ms:
                told = {**told, "horizon_ms": horizon_ms, "earliest_ms": earliest_ms}
                raise Violation("C2", "A tombstone went before its time.", told)

    def _newest_offsets(self) -> dict[bytes, int]:
        """Key -> offset of its newest committed record."""
        truth = self._truth
        for entry in truth.between(self._newest_upto, truth.high):
            decided = self._decided.get(entry)
            if decided is None:
                self._count(entry)
            elif decided.is_transactional:
                self._undecided.setdefault(decided.producer_id, []).append(entry)
            elif decided.commits is not None:
                of_transaction = self._undecided.pop(decided.producer_id, [])
                if decided.commits:
                    for each in of_transaction:
                        self._count(each)
                else:
                    self._aborted.update(of_transaction)
        self._newest_upto = max(self._newest_upto, truth.high)
        return self._newest

    def _count(self, entry: Entry) -> None:
        """A batch's records supersede earlier ones of their keys."""
        for record in self._records.get(entry, ()):
            if record.key is not None:
                self._newest[record.key] = max(self._newest.get(record.key, -1), record.offset)

    def records(self, entries: list[Entry]) -> Iterator[Noted]:
        """The records of some batches as they were written."""
        for entry in entries:
            yield from self._records.get(entry, ())
