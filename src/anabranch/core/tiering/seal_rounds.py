"""Rounds of a leader whose topic becomes diskless: what it asks for, and in which order.

What: while the topic prepares, its log is closed and copied until little is left; while it is
sealed, the leader waits until all that was written is committed and no transaction is open, closes
and copies the rest, and tells the coordinator where the log has ended, with its producers. Rules
kept: nothing is sealed that is not held by finished segments, from the log start to the end; a
leader that was replaced seals nothing; a log that could not be sealed as a whole is not ready; what
it waits for is a sentence; what fails is begun again with the next round. Not here: the rounds of
remote logs, of which these are made (`core/remote/rounds.py`), I/O.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, NamedTuple, TypeAlias

from anabranch.core.diskless.migration import Phase, Step
from anabranch.core.diskless.rows import LogKey
from anabranch.core.errors import StorageFault
from anabranch.core.remote import rounds
from anabranch.core.remote.facts import Facts
from anabranch.core.remote.lineage import Span
from anabranch.core.remote.rounds import Done, Leading, LocalView
from anabranch.core.remote.segments import SegmentId
from anabranch.core.sentences import number_of
from anabranch.core.tiering.seals import first_missing, to_keep

LITTLE_BYTES = 1 << 20
"""What may be left to copy when the log is sealed: producers wait for it."""
CUT = (
    "offsets {} to {} are held by no remote segment whose other records are those of the log, as "
    "after an unclean election; it goes on once retention or DeleteRecords has removed them"
)


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

    done: Done | None
    """None where the log has no settled end, and nothing was asked of anybody."""
    is_sealed: bool = False
    is_ready: bool = False
    waits_for: str = ""
    """Why it is neither, as a sentence; "" where it is."""

    @property
    def fault(self) -> StorageFault | None:
        """Of a copy."""
        return None if self.done is None else self.done.fault


def migration_round(of: Leading, phase: Phase) -> Generator[SealStep, Any, Migrated]:
    """Go on with a migration."""
    end: LogEnd = yield LookAtEnd(of.key)
    is_sealing = phase.step is Step.SEALING
    if is_sealing and not end.is_settled:  # others have the coordinator meanwhile
        return Migrated(None, waits_for=_unsettled(end))
    if end.active_bytes > (0 if is_sealing else LITTLE_BYTES):
        yield RollLog(of.key)
    done, facts, view = yield from rounds.round_and_view(of)
    if done.fault is not None:
        return Migrated(done, waits_for=str(done.fault))
    end = yield LookAtEnd(of.key)
    if not is_sealing:
        missing = _missing(facts, view, end)
        return (yield from _ready(of, phase, done, end, missing))
    if done.lag.segments or end.active_bytes or not end.is_settled:
        return Migrated(done, waits_for=_unsettled(end) or _uncopied(done, end))
    log_start = max(facts.log_start, view.log_start)
    kept = to_keep(facts.segments, view.lineage, log_start)
    yield SealLog(of.key, phase.migration, of.leader_epoch, log_start, end.end_offset, kept)
    return Migrated(done, is_sealed=True)


def _ready(
    of: Leading, phase: Phase, done: Done, end: LogEnd, missing: Span | None
) -> Generator[SealStep, Any, Migrated]:
    if end.last_stable_offset < end.high_watermark:
        return Migrated(done, waits_for=_unsettled(end))
    if not end.is_in_sync:
        return Migrated(done, waits_for="a replica is not in sync")
    if done.lag.byte_size + end.active_bytes > LITTLE_BYTES:
        return Migrated(done, waits_for=_uncopied(done, end))
    if missing is not None:
        return Migrated(done, waits_for=CUT.format(*missing))
    yield MarkReady(of.key, phase.migration, of.leader_epoch)
    return Migrated(done, is_ready=True)


def _missing(facts: Facts, view: LocalView, end: LogEnd) -> Span | None:
    """Offsets that no copy would bring into a segment that can be kept."""
    coverage = rounds.covered(facts, view)
    log_start = max(facts.log_start, view.log_start)
    local = [
        Span(each.start_offset, each.end_offset)
        for each in view.segments
        if each.is_active or not coverage.holds(max(each.start_offset, log_start), each.end_offset)
    ]
    end_offset = min(end.end_offset, max([log_start, *(each.end_offset for each in view.segments)]))
    return first_missing(facts.segments, view.lineage, local, log_start, end_offset)


def _unsettled(end: LogEnd) -> str:
    """Why a log has no settled end; "" where it has one."""
    if end.high_watermark < end.end_offset:
        return f"offsets {end.high_watermark} to {end.end_offset} are not committed"
    if end.last_stable_offset < end.high_watermark:
        return f"a transaction is open from offset {end.last_stable_offset} on"
    return ""


def _uncopied(done: Done, end: LogEnd) -> str:
    return f"{number_of(done.lag.byte_size + end.active_bytes, 'byte')} are to be copied"
