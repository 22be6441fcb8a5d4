"""One round of garbage collection, step by step: what is asked of the coordinator and of the store.

What: `collect` and `sweep` are generators. Each yields a call and is sent its result; when a call
fails, the rest is left to the next round. Why: a broker and the simulator make the same calls in
the same order, each in its own way. Rules kept: a round is bounded; the store deletes before the
coordinator forgets, so that what is interrupted is done again; a listing deletes only what is old,
what the coordinator does not know, and what its database named. Not here: when a round is due
(`garbage.py`), I/O (`server/objects/garbage_collector.py`, `sim/diskless_upkeep.py`).
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, NamedTuple, TypeAlias

from anabranch.core.diskless.garbage import (
    DELETE_AT_ONCE,
    MARK_AT_ONCE,
    STEPS_A_ROUND,
    GarbageRounds,
    is_ours,
)
from anabranch.core.diskless.objects import Listed


class MarkExpired(NamedTuple):
    """Mark objects whose lease is over; gives how many were marked."""

    limit: int


class ForgetProducers(NamedTuple):
    """Forget producers that were idle for so long."""

    idle_ms: int
    limit: int


class FindDeletable(NamedTuple):
    """Gives (number, key) of marked objects that have waited for the grace."""

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
    MarkExpired | ForgetProducers | FindDeletable | DeleteObjects | ForgetObjects | ReadMark
    | ListObjects | FindUnknown
)  # fmt: skip


class Page(NamedTuple):
    """What a listing gives at a time, and the wall clock when it came."""

    objects: list[Listed]
    wall_ms: int


def collect(rounds: GarbageRounds) -> Generator[Call, Any, int]:
    """Delete what the coordinator says may go; returns how much may be left."""
    for _ in range(STEPS_A_ROUND):
        if not (yield MarkExpired(MARK_AT_ONCE)):
            break
    yield ForgetProducers(rounds.pace.idle_producer_ms, MARK_AT_ONCE)
    waiting: list[tuple[int, str]] = []
    for _ in range(STEPS_A_ROUND):
        waiting = yield FindDeletable(rounds.pace.grace_ms, DELETE_AT_ONCE)
        if waiting:
            gone = set((yield DeleteObjects([key for _, key in waiting])))
            yield ForgetObjects([number for number, key in waiting if key in gone])
            rounds.deleted_objects += len(gone)
        if len(waiting) < DELETE_AT_ONCE:
            return 0
    return len(waiting)


def sweep(rounds: GarbageRounds) -> Generator[Call, Any, None]:
    """List the store, and delete old objects that the coordinator named and does not know."""
    mark: str = yield ReadMark()
    foreign = 0
    page: Page | None
    while (page := (yield ListObjects())) is not None:
        old = [each.key for each in page.objects if rounds.is_old(each, page.wall_ms)]
        unknown: list[str] = (yield FindUnknown(old)) if old else []
        orphans = [key for key in unknown if is_ours(key, mark)]
        foreign += len(unknown) - len(orphans)
        if orphans:
            yield DeleteObjects(orphans)
            rounds.deleted_orphans += len(orphans)
    rounds.foreign_objects = foreign
