"""Rounds of a leader whose topic becomes diskless: what it asks for, and in which order.

What: while the topic prepares, its log is closed and copied until little is left; while it is
sealed, the leader waits until all that was written is committed and no transaction is open, closes
and copies the rest, and tells the coordinator where the log has ended, with its producers. Rules
kept: nothing is sealed that is not held by finished segments, from the log start to the end; a
leader that was replaced seals nothing; what fails is begun again with the next round. Not here:
the rounds of remote logs, of which these are made (`core/remote/rounds.py`), I/O.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, NamedTuple, TypeAlias

from anabranch.core.diskless.migration import Phase, Step
from anabranch.core.diskless.rows import LogKey
from anabranch.core.remote import rounds
from anabranch.core.remote.facts import Facts
from anabranch.core.remote.rounds import Done, Leading, LocalView
from anabranch.core.remote.segments import SegmentId
from anabranch.core.tiering.seals import to_keep

LITTLE_BYTES = 1 << 20
"""What may be left to copy when the log is sealed: producers wait for it."""


class LogEnd(NamedTuple):
    """How a leader's log ends now."""

    end_offset: int
    high_watermark: int
    last_stable_offset: int
    active_bytes: int
    """Of the segment that is not closed."""
    is_in_sync: bool
    """Whether all replicas are."""

    @property
    def is_settled(self) -> bool:
        """Whether all of it is committed, and no transaction is open."""
        return self.end_offset == self.high_watermark == self.last_stable_offset


class LookAtEnd(NamedTuple):
    """Gives LogEnd."""

    key: LogKey


class RollLog(NamedTuple):
    """Close the segment that is written."""

    key: LogKey


class MarkReady(NamedTuple):
    """Tell the coordinator that little is left to copy."""

    key: LogKey
    migration: int
    leader_epoch: int


class SealLog(NamedTuple):
    """Tell the coordinator that the log has ended at an offset, with the producers that it knows.
    Refused where it ends elsewhere by now, or takes records."""

    key: LogKey
    migration: int
    leader_epoch: int
    log_start: int
    end_offset: int
    kept: tuple[SegmentId, ...]


SealStep: TypeAlias = rounds.Step | LookAtEnd | RollLog | MarkReady | SealLog


class Migrated(NamedTuple):
    """What a round has done."""

    done: Done
    is_sealed: bool = False
    is_ready: bool = False


def migration_round(of: Leading, phase: Phase) -> Generator[SealStep, Any, Migrated]:
    """Go on with a migration."""
    end: LogEnd = yield LookAtEnd(of.key)
    is_sealing = phase.step is Step.SEALING
    if end.active_bytes > (0 if is_sealing else LITTLE_BYTES) and (
        end.is_settled or not is_sealing
    ):
        yield RollLog(of.key)
    done: Done = yield from rounds.one_round(of)
    if done.fault is not None:
        return Migrated(done)
    end = yield LookAtEnd(of.key)
    if not is_sealing:
        return (yield from _ready(of, phase, done, end))
    if done.lag.segments or end.active_bytes or not end.is_settled:
        return Migrated(done)
    facts: Facts = yield rounds.ReadFacts(of.key, of.leader_epoch)
    view: LocalView = yield rounds.LookAtLog(of.key)
    log_start = max(facts.log_start, view.log_start)
    kept = to_keep(facts.segments, view.lineage, log_start)
    yield SealLog(of.key, phase.migration, of.leader_epoch, log_start, end.end_offset, kept)
    return Migrated(done, is_sealed=True)


def _ready(
    of: Leading, phase: Phase, done: Done, end: LogEnd
) -> Generator[SealStep, Any, Migrated]:
    is_little = done.lag.byte_size + end.active_bytes <= LITTLE_BYTES
    has_open = end.last_stable_offset < end.high_watermark
    if has_open or not (is_little and end.is_in_sync):
        return Migrated(done)
    yield MarkReady(of.key, phase.migration, of.leader_epoch)
    return Migrated(done, is_ready=True)
