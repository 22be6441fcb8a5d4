"""Rounds of garbage collection of one broker: when one begins, what it asks for, and how it ends.

What: generators. `rounds` has no end: it looks whether a round is due, and makes it. A round yields
pauses, questions and calls of the coordinator and the store, and is sent what they gave, or is
thrown the fault of a call that failed. Why: a broker and the simulator make the same calls in the
same order, each in its own way. Rules kept: each call is bounded, and a round goes on, with pauses,
until nothing is due, so that garbage never grows faster than it goes; it ends where the store gives
nothing back, and a call that fails ends it early: it comes again soon. The store deletes before the
coordinator forgets, so that what is interrupted is done again. A listing deletes only what is old,
what the coordinator does not know, and what its database named. Not here: whose turn it is
(`garbage.py`), I/O (`server/diskless/garbage_collector.py`, `sim/diskless_upkeep.py`).
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, NamedTuple, TypeAlias

from anabranch.core.diskless.garbage import (
    DELETE_AT_ONCE,
    MARK_AT_ONCE,
    MOST_COUNTED,
    STEP_PAUSE_MS,
    GarbageRounds,
    is_ours,
)
from anabranch.core.diskless.objects import Listed
from anabranch.core.diskless.pause import Pause
from anabranch.core.errors import StorageFault


class Turn(NamedTuple):
    """Which of the living brokers this one is, and how many there are, by the steady clock."""

    now_ms: int
    number: int
    brokers: int


class AskTurn(NamedTuple):
    """Gives the present Turn."""


class RoundEnded(NamedTuple):
    """A round is over: the fault that ended it early, if one did, and whether it began to list the
    store."""

    fault: StorageFault | None
    has_listed: bool


class MarkExpired(NamedTuple):
    """Mark objects whose lease is over; gives how many were marked."""

    limit: int


class ForgetProducers(NamedTuple):
    """Forget producers that were idle for so long; gives how many were forgotten."""

    idle_ms: int
    limit: int


class FindDeletable(NamedTuple):
    """Gives (number, key) of marked objects that have waited for the grace."""

    grace_ms: int
    limit: int


class CountDeletable(NamedTuple):
    """Gives how many such objects there are, at most so many."""

    grace_ms: int
    limit: int


class DeleteObjects(NamedTuple):
    """Delete objects in the store; gives the keys that are gone."""

    keys: list[str]


class ForgetObjects(NamedTuple):
    """The coordinator forgets objects that are gone, by their numbers."""

    numbers: list[int]


class ReadMark(NamedTuple):
    """Gives the mark of the coordinator's database."""


class ListObjects(NamedTuple):
    """Gives the next page of the store's listing, None behind the last one."""


class FindUnknown(NamedTuple):
    """Gives those of some keys that the coordinator does not know."""

    keys: list[str]


Call: TypeAlias = (
    MarkExpired | ForgetProducers | FindDeletable | CountDeletable | DeleteObjects | ForgetObjects
    | ReadMark | ListObjects | FindUnknown
)  # fmt: skip
Step: TypeAlias = Pause | AskTurn | Call | RoundEnded


class Page(NamedTuple):
    """What a listing gives at a time, and the wall clock when it came."""

    objects: list[Listed]
    wall_ms: int


def rounds(kept: GarbageRounds, poll_ms: int) -> Generator[Step, Any, None]:
    """All rounds of a broker, which looks every `poll_ms` whether one is due: other brokers come
    and go."""
    while True:
        yield Pause(poll_ms)
        turn: Turn = yield AskTurn()
        if kept.due_ms(*turn) <= turn.now_ms:
            yield from one_round(kept, turn)


def one_round(kept: GarbageRounds, turn: Turn) -> Generator[Step, Any, None]:
    """Collect, and sometimes list the store."""
    has_listed = False
    try:
        yield from collect(kept)
        has_listed = kept.lists_now(*turn)
        if has_listed:
            yield from sweep(kept)
    except StorageFault as fault:
        now: Turn = yield AskTurn()
        kept.failed(now.now_ms)
        yield RoundEnded(fault, has_listed)
    else:
        now = yield AskTurn()
        kept.ended(now.now_ms, turn.brokers)
        yield RoundEnded(None, has_listed)


def collect(kept: GarbageRounds) -> Generator[Step, Any, None]:
    """Delete what the coordinator says may go, a bounded step of each kind at a time. A kind of
    which a step did less than it could has nothing left; what comes due meanwhile waits for the
    next round."""
    while True:
        marked: int = yield MarkExpired(MARK_AT_ONCE)
        forgotten: int = yield ForgetProducers(kept.pace.idle_producer_ms, MARK_AT_ONCE)
        has_more_objects = yield from _delete_some(kept)
        if max(marked, forgotten) < MARK_AT_ONCE and not has_more_objects:
            return
        yield Pause(STEP_PAUSE_MS)


def _delete_some(kept: GarbageRounds) -> Generator[Step, Any, bool]:
    """Delete some objects; whether there are more that the store may give back."""
    grace_ms = kept.pace.grace_ms
    found: list[tuple[int, str]] = yield FindDeletable(grace_ms, DELETE_AT_ONCE)
    is_full = len(found) >= DELETE_AT_ONCE
    kept.waiting_objects = (yield CountDeletable(grace_ms, MOST_COUNTED)) if is_full else len(found)
    if not found:
        return False
    gone = set((yield DeleteObjects([key for _, key in found])))
    yield ForgetObjects([number for number, key in found if key in gone])
    kept.deleted_objects += len(gone)
    kept.waiting_objects -= len(gone)
    return is_full and bool(gone)


def sweep(kept: GarbageRounds) -> Generator[Step, Any, None]:
    """List the store, and delete old objects that the coordinator named and does not know."""
    mark: str = yield ReadMark()
    foreign = 0
    page: Page | None
    while (page := (yield ListObjects())) is not None:
        old = [each.key for each in page.objects if kept.is_old(each, page.wall_ms)]
        unknown: list[str] = (yield FindUnknown(old)) if old else []
        orphans = [key for key in unknown if is_ours(key, mark)]
        foreign += len(unknown) - len(orphans)
        if orphans:
            yield DeleteObjects(orphans)
            kept.deleted_orphans += len(orphans)
    kept.foreign_objects = foreign
