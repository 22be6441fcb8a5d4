"""Which segments of a diskless partition are compacted next, and which of them become one.

What: from the facts of a partition a pass over its finished segments, oldest first. Rules kept:
the settings of a topic decide as on classic topics (`core/log/cleanable.py`): the dirty part of
what would be read, and the time for which records wait at least and at most; only what is tiered is
compacted, without a gap; segments become one while together they had at most the size of one.
Tombstones go only while nothing of the partition waits for its removal: a coordinator that was lost
might bring an older record back. No pass ends before a segment that might abort what it has read.
Not here: the rules for records (`core/log/compaction.py`), SQL.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from anabranch.core.diskless.rows import LogKey, LogState
from anabranch.core.log.indexes import INT32_MAX
from anabranch.core.remote.compacted_mark import Mark, mark_of
from anabranch.core.remote.segments import RemoteSegment


class Compactable(NamedTuple):
    """A partition, and what its topic's settings ask for."""

    key: LogKey
    least_ratio: float
    """`min.cleanable.dirty.ratio`."""
    least_lag_ms: int
    most_lag_ms: int
    delete_retention_ms: int
    most_bytes: int
    """Of a segment."""


class Tiered(NamedTuple):
    """What the coordinator knows of a partition."""

    state: LogState
    segments: Sequence[RemoteSegment]
    """In any state, by start offset."""
    now_ms: int
    """By the coordinator's clock."""


class Pass(NamedTuple):
    """What compaction could do to a partition."""

    segments: tuple[RemoteSegment, ...]
    """In order, without a gap."""
    mark: Mark
    """Of what it makes."""
    clean_bytes: int
    dirty_bytes: int
    is_late: bool
    forgets: bool
    """Whether tombstones may go."""
    clean_to: int
    """Where passes before have ended."""

    @property
    def ratio(self) -> float:
        """The dirty part of what would be read."""
        total = self.clean_bytes + self.dirty_bytes
        return self.dirty_bytes / total if total else 0.0


def next_pass(held: Tiered, wanted: Compactable) -> Pass:
    """What may be compacted of a partition now, worth it or not."""
    finished = list(_without_gap(held))
    clean_to = max((mark_of(each).upto for each in finished), default=0)
    taken: list[RemoteSegment] = []
    clean = dirty = 0
    is_late, before_ms = False, -1
    for each in finished:
        if each.end_offset > clean_to:
            if wanted.least_lag_ms > 0 and each.max_timestamp > held.now_ms - wanted.least_lag_ms:
                break
            dirty += each.byte_size
            is_late = is_late or before_ms < held.now_ms - wanted.most_lag_ms
        else:
            clean += each.byte_size
        before_ms = each.max_timestamp
        taken.append(each)
    if taken and _ends_undecided(held, taken[-1].end_offset):
        taken, clean, dirty = [], 0, 0
    generation = max((mark_of(each).generation for each in taken), default=0) + 1
    upto = taken[-1].end_offset if taken else 0
    start = held.state.start_offset
    forgets = all(each.is_finished and each.end_offset > start for each in held.segments)
    return Pass(tuple(taken), Mark(generation, upto), clean, dirty, is_late, forgets, clean_to)


def is_worth_it(found: Pass, wanted: Compactable) -> bool:
    """Whether the settings of the topic want this now."""
    return found.dirty_bytes > 0 and (found.is_late or found.ratio > wanted.least_ratio)


def _ends_undecided(held: Tiered, upto: int) -> bool:
    """Whether a segment behind an offset may say that records before it were aborted."""
    return any(each.has_aborted and each.end_offset > upto for each in held.segments)


def _without_gap(held: Tiered) -> Iterator[RemoteSegment]:
    """The finished segments that have something that is not deleted; up to the first gap."""
    at = None
    for each in held.segments:
        if not each.is_finished or each.end_offset <= held.state.start_offset:
            continue
        if at is not None and each.start_offset != at:
            return
        yield each
        at = each.end_offset


def grouped(segments: Iterable[RemoteSegment], most_bytes: int) -> list[list[RemoteSegment]]:
    """Neighbours that fit into one segment."""
    groups: list[list[RemoteSegment]] = []
    size = 0
    for each in segments:
        span = each.end_offset - groups[-1][0].start_offset if groups else 0
        if groups and size + each.byte_size <= most_bytes and span <= INT32_MAX:
            groups[-1].append(each)
            size += each.byte_size
        else:
            groups.append([each])
            size = each.byte_size
    return groups


def tiles(segment: RemoteSegment, replaced: Sequence[RemoteSegment]) -> bool:
    """Whether segments, by start offset, have the offsets of one, each once."""
    at = segment.start_offset
    for each in replaced:
        if each.start_offset != at:
            return False
        at = each.end_offset
    return at == segment.end_offset
