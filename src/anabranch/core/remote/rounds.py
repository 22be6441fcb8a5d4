"""A round of one partition on its leader: what it asks for, and in which order.

What: `one_round` is a generator. It yields calls of the coordinator, the store, the log and the
clock, and is sent what they gave, or is thrown the fault of a call that failed. Why: a broker and
the simulator make the same calls in the same order. Rules kept: the log start is recorded, with
what it removes, before the local log begins there and before an object is deleted; a round first
removes, then copies, so that nothing is copied that retention takes next; a local segment goes only
by facts that were read after the last copy of the round; what an older leader asks for is refused
once a newer one has read the facts. A call that fails ends the round: the next one begins with the
facts. Not here: when a round is due, I/O.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any, NamedTuple, TypeAlias

from anabranch.core.diskless.rows import LogKey
from anabranch.core.errors import StorageFault
from anabranch.core.remote import segment_copy
from anabranch.core.remote.facts import Facts
from anabranch.core.remote.keys import object_keys, segment_folder
from anabranch.core.remote.lineage import NO_END, Lineage
from anabranch.core.remote.local_log import (
    CopyLag,
    Coverage,
    Limits,
    LocalSegment,
    copy_lag,
    local_limits,
    local_start,
    to_copy,
)
from anabranch.core.remote.log_retention import (
    delete_lag,
    log_start_after,
    remote_size_bytes,
    stretches,
    to_remove,
    trusted_now_ms,
)
from anabranch.core.remote.segments import RemoteSegment, SegmentId, SegmentState
from anabranch.core.remote.unfinished import Removals, given_up

MOST_COPIES = 8
"""Of one round: other partitions of the broker have their turn after them."""


class LocalView(NamedTuple):
    """What the leader's log is, and what its topic's settings ask for."""

    lineage: Lineage
    segments: tuple[LocalSegment, ...]
    log_start: int
    high_watermark: int
    last_stable_offset: int
    whole: Limits
    local: Limits
    copies: bool
    """False with `remote.log.copy.disable`."""
    steady_ms: int
    wall_ms: int


class ReadFacts(NamedTuple):
    """Gives Facts, and has the coordinator refuse older leaders from now on. Refused itself where
    a newer one has been there."""

    key: LogKey
    leader_epoch: int


class LookAtFacts(NamedTuple):
    """Gives Facts, or None where no leader has ever asked."""

    key: LogKey


class LookAtLog(NamedTuple):
    """Gives LocalView."""

    key: LogKey


class BeginRemoval(NamedTuple):
    """Record a log start and, in the same transaction, which segments are removed: finished ones,
    and of those that were given up the ones that are not FINISHED by now. Refused where a newer
    leader has been there."""

    key: LogKey
    leader_epoch: int
    log_start: int
    finished: tuple[SegmentId, ...]
    given_up: tuple[SegmentId, ...]


class RaiseLogStart(NamedTuple):
    """Have the local log begin at an offset that was recorded."""

    key: LogKey
    offset: int


class DeleteObjects(NamedTuple):
    """Delete these objects of a try, the first one before the others, and what else its folder
    has; those that are not there count."""

    object_keys: tuple[str, ...]
    folder: str


class ForgetSegments(NamedTuple):
    """Forget removals that are over."""

    segment_ids: tuple[SegmentId, ...]


class DropLocal(NamedTuple):
    """Have the local log begin at an offset; its records before it are read remotely."""

    key: LogKey
    offset: int


Step: TypeAlias = (
    ReadFacts | LookAtFacts | LookAtLog | BeginRemoval | RaiseLogStart | DeleteObjects
    | ForgetSegments | DropLocal | segment_copy.Step
)  # fmt: skip


class Done(NamedTuple):
    """What a round found and left, for metrics."""

    lag: CopyLag
    remote_bytes: int
    copied: int
    fault: StorageFault | None = None
    """Of a copy: what else the round had to do was done."""
    delete_lag: CopyLag = CopyLag(0, 0)
    """Removals that are not over."""
    segments: int = 0
    """Of which there are facts, in any state."""


class Leading(NamedTuple):
    """A partition that this broker leads, in one epoch."""

    cluster_id: str
    key: LogKey
    leader_epoch: int
    removals: Removals
    running: set[SegmentId]
    """Tries of this process that are under way."""


def one_round(of: Leading) -> Generator[Step, Any, Done]:
    """Remove, copy, and shorten the local log."""
    done, _, _ = yield from round_and_view(of)
    return done


def round_and_view(of: Leading) -> Generator[Step, Any, tuple[Done, Facts, LocalView]]:
    """As `one_round`, with what the coordinator and the log said last."""
    facts: Facts = yield ReadFacts(of.key, of.leader_epoch)
    view: LocalView = yield LookAtLog(of.key)
    facts = yield from _remove(of, facts, view)
    copied, fault = yield from _copy(of, facts)
    if copied or fault:
        facts = yield ReadFacts(of.key, of.leader_epoch)
    view = yield LookAtLog(of.key)
    coverage = covered(facts, view)
    log_start = max(facts.log_start, view.log_start)
    yield from _shorten(of.key, facts, view, coverage, log_start)
    waiting = to_copy(view.segments, coverage, log_start, view.last_stable_offset)
    done = Done(
        copy_lag(waiting),
        remote_size_bytes(facts.segments),
        copied,
        fault,
        delete_lag(facts.segments),
        len(facts.segments),
    )
    return done, facts, view


def ending_round(of: Leading) -> Generator[Step, Any, Done]:
    """Remove all that is remote, of a partition whose topic has a remote log no longer: its log
    begins where the local one does."""
    facts: Facts = yield ReadFacts(of.key, of.leader_epoch)
    view: LocalView = yield LookAtLog(of.key)
    finished = tuple(each.segment_id for each in facts.segments if each.is_finished)
    left = tuple(given_up(facts.segments, of.running, of.leader_epoch))
    if finished or left:
        log_start = max(facts.log_start, view.log_start)
        yield BeginRemoval(of.key, of.leader_epoch, log_start, finished, left)
        facts = yield ReadFacts(of.key, of.leader_epoch)
    yield from delete_removed(of.cluster_id, of.removals, facts.segments, view.steady_ms)
    return Done(CopyLag(0, 0), remote_size_bytes(facts.segments), 0)


def follower_round(key: LogKey) -> Generator[Step, Any, None]:
    """Shorten the log of a follower, by what its own epochs find in the facts: it may lead next,
    and then has what no segment holds. Its leader tells it the log start: the recorded one may be
    that of a leader whose log was lost."""
    facts: Facts | None = yield LookAtFacts(key)
    if facts is None:
        return
    view: LocalView = yield LookAtLog(key)
    coverage = covered(facts, view)
    yield from _shorten(key, facts, view, coverage, view.log_start)


def _remove(of: Leading, facts: Facts, view: LocalView) -> Generator[Step, Any, Facts]:
    """Raise the log start, begin removals and go on with those that were begun; the facts then."""
    recorded = max(facts.log_start, view.log_start)
    log_start = log_start_after(
        stretches(facts.segments, view.segments, view.lineage, recorded),
        recorded,
        view.whole,
        view.high_watermark,
        trusted_now_ms(view.wall_ms, facts.now_ms),
    )
    gone = tuple(to_remove(facts.segments, view.lineage, log_start))
    left = tuple(given_up(facts.segments, of.running, of.leader_epoch))
    if gone or left or log_start > facts.log_start:
        yield BeginRemoval(of.key, of.leader_epoch, log_start, gone, left)
        facts = yield ReadFacts(of.key, of.leader_epoch)
    # A leader of an unclean election may know of less that is committed than was when the start was
    # recorded; the rest waits until it knows as much.
    committed_start = min(facts.log_start, view.high_watermark)
    if committed_start > view.log_start:
        yield RaiseLogStart(of.key, committed_start)
    yield from delete_removed(of.cluster_id, of.removals, facts.segments, view.steady_ms)
    return facts


def covered(facts: Facts, view: LocalView) -> Coverage:
    """What of the local log finished segments hold."""
    first = view.segments[0].start_offset if view.segments else NO_END
    return Coverage(facts.segments, view.lineage, first)


def delete_removed(
    cluster_id: str, removals: Removals, segments: Sequence[RemoteSegment], now_ms: int
) -> Generator[DeleteObjects | ForgetSegments, Any, None]:
    """Delete the objects of removals, and forget those that are over."""
    removals.look(segments, now_ms)
    over: list[SegmentId] = []
    for each in segments:
        if each.state is SegmentState.DELETE_SEGMENT_STARTED:
            folder = segment_folder(cluster_id, each.key, each.segment_id)
            yield DeleteObjects(tuple(object_keys(cluster_id, each)), folder)
            if removals.is_over(each.segment_id, now_ms):
                over.append(each.segment_id)
    if over:
        yield ForgetSegments(tuple(over))


def _copy(of: Leading, facts: Facts) -> Generator[Step, Any, tuple[int, StorageFault | None]]:
    """Copy what waits, oldest first; a fault ends copying, and the rest of the round goes on."""
    copied = 0
    view: LocalView = yield LookAtLog(of.key)
    if not view.copies:
        return 0, None
    coverage = covered(facts, view)
    log_start = max(facts.log_start, view.log_start)
    waiting = to_copy(view.segments, coverage, log_start, view.last_stable_offset)
    try:
        for each in waiting[:MOST_COPIES]:
            is_copied = yield from segment_copy.copy_segment(
                of.key, of.leader_epoch, each, of.running
            )
            if not is_copied:
                break
            copied += 1
    except StorageFault as fault:
        return copied, fault
    return copied, None


def _shorten(
    key: LogKey, facts: Facts, view: LocalView, coverage: Coverage, log_start: int
) -> Generator[Step, Any, None]:
    """Drop local segments that were copied and that the local limits do not keep."""
    if not view.segments:
        return
    start = local_start(
        view.segments,
        coverage,
        log_start,
        local_limits(view.whole, view.local, copies=view.copies),
        trusted_now_ms(view.wall_ms, facts.now_ms),
        view.high_watermark,
    )
    if start > view.segments[0].start_offset:
        yield DropLocal(key, start)
