"""What of a local log is copied next, and how far it was copied.

What: compares the local segments with the offsets that FINISHED remote segments cover. Rules kept:
a segment is copied once it is closed and ends at or below the last stable offset, oldest first; a
log counts as copied up to the first offset that no finished segment has from the same epoch, so
that a hole in the remote log keeps the local segment that fills it. Source: KIP-405; Kafka goes by
the highest copied offset, which a hole below it does not change. Not here: what goes from the local
disk (`core/log/truncation.py`), retention of the whole log (`log_retention.py`).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from anabranch.core.remote.lineage import Lineage, Span, agreed_spans, joined
from anabranch.core.remote.segments import RemoteSegment

UNLIMITED = -1


class LocalSegment(NamedTuple):
    """A segment on the leader's disk; offsets are `[start_offset, end_offset)`."""

    start_offset: int
    end_offset: int
    byte_size: int
    newest_ms: int
    """Its greatest timestamp, or when it was written where no record has one."""
    is_active: bool = False


class Limits(NamedTuple):
    """What may stay: age and size; -1 is no limit."""

    most_ms: int = UNLIMITED
    most_bytes: int = UNLIMITED


class Coverage:
    """The offsets that finished remote segments hold as the log has them."""

    def __init__(self, segments: Iterable[RemoteSegment], lineage: Lineage) -> None:
        finished = (each for each in segments if each.is_finished)
        self.spans = joined(span for each in finished for span in agreed_spans(each, lineage))

    def holds(self, first: int, end: int) -> bool:
        """Whether all of some offsets are there."""
        return end <= self.reach(first)

    def reach(self, first: int) -> int:
        """The offset up to which all is there, from one on; that one where it is not there."""
        at = bisect_right(self.spans, first, key=_first) - 1
        return max(first, self.spans[at].end) if at >= 0 else first


class CopyLag(NamedTuple):
    """What could be copied and was not yet."""

    segments: int
    byte_size: int


def to_copy(
    local: Sequence[LocalSegment], coverage: Coverage, log_start: int, last_stable_offset: int
) -> list[LocalSegment]:
    """The segments that may be copied now and were not, in order."""
    return [
        each
        for each in local
        if not each.is_active
        and log_start < each.end_offset <= last_stable_offset
        and not coverage.holds(max(each.start_offset, log_start), each.end_offset)
    ]


def copy_lag(waiting: Sequence[LocalSegment]) -> CopyLag:
    """How much waits."""
    return CopyLag(len(waiting), sum(each.byte_size for each in waiting))


def _first(span: Span) -> int:
    return span.first
