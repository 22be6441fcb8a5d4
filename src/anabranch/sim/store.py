"""The simulated metadata store: one log of committed batches and one lease, with their faults.

What: the contract of a node's metadata store, with answers that come later. An append is committed
only for the holder of the newest lease and only at the log's end; it answers `Committed`, `Deposed`
or `Unknown`. What is committed is told to whoever watches, at the moment at which it is.

Faults: the store is away (nothing is answered but `Unknown` or None); it is slow, or its answers
are late; the next appends end in `Unknown`, done or not done; somebody takes the lease; readers are
served from a copy that is some batches behind; the store is put back to an earlier state, as by a
backup.

Rule kept: an append under an old lease changes nothing, whatever else is wrong.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, TypeAlias

from anabranch.core.metadata.store import (
    NOBODY,
    Appended,
    Committed,
    Deposed,
    Lease,
    Snapshot,
    StoredBatch,
    Unknown,
    next_lease,
    refusal,
)
from anabranch.sim.processes import Process
from anabranch.sim.world import World

__all__ = [
    "AWAY",
    "Committed",
    "Lease",
    "SimStore",
    "Snapshot",
    "StoreFaults",
    "Stored",
    "StoredBatch",
]

WAY_US = (100, 300)
"""From a node to the store, and back."""
COMMIT_US = (300, 1_500)
"""What making a batch durable takes."""
GIVE_UP_US = 3_000_000
"""After so long without an answer a caller of a store that is away hears that."""


OnCommitted: TypeAlias = Callable[[StoredBatch], None]


@dataclass(slots=True)
class StoreFaults:
    """What is wrong with the store."""

    away: bool = False
    cut_off: set[str] = field(default_factory=set)
    """Names of processes for which it is away."""
    slow_us: int = 0
    """At most so much more until a call arrives, drawn a call."""
    late_us: int = 0
    """So much more from what was done until its answer."""
    unknown: int = 0
    """So many of the next appends end in Unknown."""
    stale: int = 0
    """Readers do not see so many of the last batches."""


class Stored(NamedTuple):
    """What a reader gets: the newest snapshot, and the batches that were kept."""

    snapshot: Snapshot | None
    batches: list[StoredBatch]


class PutAside(NamedTuple):
    """What is right while an older copy of the store is in its place."""

    batches: list[StoredBatch]
    snapshot: Snapshot | None
    kept_from: int
    held: Lease | None


class SimStore:
    """The store. Calls are made by a process; `answer` is called in it, if it is still there."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.faults = StoreFaults()
        self.batches: list[StoredBatch] = []
        self.snapshot: Snapshot | None = None
        self.held: Lease | None = None
        self.put_aside: PutAside | None = None
        self.times_back = 0
        self._leases: dict[int, Lease | None] = {}
        """End of the log -> the lease by then: what a backup of that time has."""
        self.kept_from = 0
        """Readers get no batches that end at or before this: they are in the snapshot."""
        self.on_committed: list[OnCommitted] = []
        self.on_confirmed: list[Callable[[Process, Lease], None]] = []
        self.on_snapshot: list[Callable[[Snapshot], None]] = []
        self.appends = self.takings = 0
        self._random = world.random("store")

    @property
    def end_offset(self) -> int:
        """Where the committed log ends."""
        return self.batches[-1].end_offset if self.batches else 0

    @property
    def last_epoch(self) -> int:
        """The epoch of the last batch."""
        return self.batches[-1].epoch if self.batches else 0

    # What a node may ask.

    def append(
        self,
        process: Process,
        lease: Lease,
        expected_end: int,
        batches: list[StoredBatch],
        answer: Callable[[Appended], None],
    ) -> None:
        """Commit all batches or none, if this is the present lease and the log ends as expected."""
        away = Unknown("the store did not answer")
        self._ask(process, self._append, (lease, expected_end, batches), answer, away, COMMIT_US)

    def end(self, process: Process, base_offset: int) -> Any:
        """Where the log ends, and the batch that begins at an offset if there is one; AWAY when the
        store is away. At once: a process asks once, at its start."""
        if self._is_away(process):
            return AWAY
        found = [bytes(each.payload) for each in self.batches if each.first_offset == base_offset]
        return self.end_offset, (found[0] if found else None)

    def lease(self, process: Process) -> Any:
        """The lease as it stands, AWAY when the store is away. At once: those who wait for the
        lease look often, and a look that is a little old by then tells them nothing else."""
        return AWAY if self._is_away(process) else self.held

    def take_lease(
        self,
        process: Process,
        seen: Lease | None,
        holder: int,
        incarnation: str,
        answer: Callable[[Any], None],
    ) -> None:
        """Take over with the next epoch if the lease still is as `seen`; else None."""
        self._ask(process, self._take, (seen, holder, incarnation), answer, AWAY, COMMIT_US)

    def renew_lease(self, process: Process, lease: Lease, answer: Callable[[Any], None]) -> None:
        """One beat more; None when another epoch holds it."""
        self._ask(process, self._renew, (lease,), answer, AWAY, COMMIT_US)

    def release_lease(self, process: Process, lease: Lease) -> None:
        """Give it back, so that the next taker need not wait."""
        self._ask(process, self._release, (lease,), _nothing, None)

    def read(self, process: Process, answer: Callable[[Any], None]) -> None:
        """Everything that is committed, as the copy that answers knows it."""
        self._ask(process, self._read, (), answer, AWAY)

    def save_snapshot(
        self,
        process: Process,
        snapshot: Snapshot,
        keep_log_from: int,
        answer: Callable[[Any], None],
    ) -> None:
        """Replace the snapshot by a newer one. Batches that end at or before `keep_log_from` are
        not read again; they stay here, for the checks."""
        self._ask(process, self._save, (snapshot, keep_log_from), answer, AWAY, COMMIT_US)

    # Faults that act once.

    def steal_lease(self) -> None:
        """Somebody who is no part of this cluster's world takes the lease, and goes away."""
        epoch = max(self.held.epoch if self.held else 0, self.last_epoch) + 1
        self.held = Lease(epoch, NOBODY, "stolen", "", 0)

    def restore_backup(self, end_offset: int) -> bool:
        """An older copy of the store is put in place, lease and all: the log ends at or before
        `end_offset`. Whether there is one."""
        older = [each for each in self.batches if each.end_offset <= end_offset]
        if self.put_aside is not None or not older:
            return False
        self.put_aside = PutAside(self.batches, self.snapshot, self.kept_from, self.held)
        self.batches, self.held = older, self._leases[older[-1].end_offset]
        if self.snapshot is not None and self.snapshot.end_offset > older[-1].end_offset:
            self.snapshot, self.kept_from = None, 0
        self.times_back += 1
        return True

    def come_back(self) -> None:
        """The right store is in place again, with whichever lease is the newer one."""
        if self.put_aside is not None:
            aside, self.put_aside = self.put_aside, None
            self.batches, self.snapshot, self.kept_from = aside[:3]
            if aside.held is not None and (
                self.held is None or aside.held.epoch >= self.held.epoch
            ):
                self.held = aside.held

    # How calls are made.

    def _ask(
        self,
        process: Process,
        act: Callable[..., Any],
        args: tuple[Any, ...],
        answer: Callable[[Any], None],
        away: Any,
        work_us: tuple[int, int] = (0, 0),
    ) -> None:
        low, high = WAY_US[0] + work_us[0], WAY_US[1] + work_us[1]
        delay_us = self._random.randint(low, high)
        if self.faults.slow_us:
            delay_us += self._random.randrange(self.faults.slow_us)
        self.world.after(delay_us, self._arrive, process, process.life, act, args, answer, away)

    def _arrive(
        self,
        process: Process,
        life: int,
        act: Callable[..., Any],
        args: tuple[Any, ...],
        answer: Callable[[Any], None],
        away: Any,
    ) -> None:
        if self._is_away(process):
            outcome, delay_us = away, GIVE_UP_US
        else:
            outcome, delay_us = act(*args), self._random.randint(*WAY_US) + self.faults.late_us
            self._tell_confirmed(process, act, args, outcome)
        if process.life == life:
            self.world.after_in(process, delay_us, answer, outcome)

    def _tell_confirmed(
        self, process: Process, act: Callable[..., Any], args: tuple[Any, ...], outcome: Any
    ) -> None:
        """Tell who looks on that a holder's call was carried out, whatever it hears of that."""
        if act in (self._append, self._renew) and self.held is not None:
            if args[0].is_still(self.held) and not isinstance(outcome, Deposed):
                for told in self.on_confirmed:
                    told(process, self.held)

    def _is_away(self, process: Process) -> bool:
        return self.faults.away or process.name in self.faults.cut_off

    def _append(self, lease: Lease, expected_end: int, batches: list[StoredBatch]) -> Appended:
        refused = refusal(lease, self.held, expected_end, self.end_offset)
        unknown = self.faults.unknown > 0
        if unknown:
            self.faults.unknown -= 1
            if self._random.random() < 0.5:
                return Unknown("the connection broke before the append was done")
        if refused is not None:
            return refused
        self.appends += 1
        for batch in batches:
            self.batches.append(batch)
            self._leases[batch.end_offset] = self.held
            for told in self.on_committed:
                told(batch)
        if unknown:
            return Unknown("the connection broke after the append was done")
        return Committed(self.end_offset)

    def _take(self, seen: Lease | None, holder: int, incarnation: str) -> Lease | None:
        if self.held != seen:
            return None
        self.takings += 1
        self.held = next_lease(seen, self.last_epoch, holder, incarnation, "", str(self.takings))
        return self.held

    def _renew(self, lease: Lease) -> Lease | None:
        held = self.held
        if held is None or not lease.is_still(held):
            return None
        self.held = replace(held, beat=held.beat + 1)
        return self.held

    def _release(self, lease: Lease) -> None:
        held = self.held
        if held is not None and lease.is_still(held):
            self.held = replace(held, holder=NOBODY, beat=held.beat + 1)

    def _read(self) -> Stored:
        seen = self.batches[: max(0, len(self.batches) - self.faults.stale)]
        snapshot = self.snapshot
        if snapshot is not None and (not seen or snapshot.end_offset > seen[-1].end_offset):
            seen = self.batches  # a copy that is behind has no newer snapshot either
        return Stored(snapshot, [each for each in seen if each.end_offset > self.kept_from])

    def _save(self, snapshot: Snapshot, keep_log_from: int) -> None:
        for told in self.on_snapshot:
            told(snapshot)
        if self.snapshot is None or snapshot.end_offset > self.snapshot.end_offset:
            self.snapshot = snapshot
            self.kept_from = max(self.kept_from, min(keep_log_from, snapshot.end_offset))


class Away:
    """The answer of a store that cannot be reached."""


AWAY = Away()


def _nothing(_outcome: Any) -> None:
    return None
