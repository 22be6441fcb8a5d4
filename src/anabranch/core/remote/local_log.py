"""What of a local log is copied next, and what of it may go because it was copied.

What: compares the local segments with the offsets that FINISHED remote segments cover. Rules kept:
a segment is copied once it is closed and ends at or below the last stable offset, oldest first; a
local segment goes only where every offset of it, from the log start on, lies in a finished segment
of the same epochs, so that a hole in the remote log keeps the local segment that fills it; the
active segment is neither copied nor dropped. Source: KIP-405; Kafka goes by the highest copied
offset, which a hole below it does not change. Not here: retention of the whole log
(`log_retention.py`).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from anabranch.core.remote.lineage import NO_END, Lineage, Span, agreed_spans, joined
from anabranch.core.remote.segments import RemoteSegment

UNLIMITED = -1
AS_WHOLE_LOG = -2
"""Of `local.retention.*`: the same as for the whole log."""


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
    """The offsets that finished remote segments hold as the log has them, from an offset on: what
    lies before the local part of a log is not looked at."""

    def __init__(self, segments: Iterable[RemoteSegment], lineage: Lineage, first: int = 0) -> None:
        finished = (each for each in segments if each.end_offset > first and each.is_finished)
        self.spans = joined(span for each in finished for span in agreed_spans(each, lineage))

    def holds(self, first: int, end: int) -> bool:
        """Whether all of some offsets are there."""
        if first >= end:
            return True
        at = bisect_right(self.spans, first, key=_first) - 1
        return at >= 0 and end <= self.spans[at].end


class CopyLag(NamedTuple):
    """What is still to be done: copied, or removed."""

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


def local_limits(whole: Limits, local: Limits, *, copies: bool) -> Limits:
    """The limits of what is local, by the settings of a topic. Where nothing is copied any more
    (`remote.log.copy.disable`), those of the whole log hold, as in Kafka."""
    return Limits(
        *(
            theirs if not copies or own == AS_WHOLE_LOG else own
            for own, theirs in zip(local, whole, strict=True)
        )
    )


def local_start(
    local: Sequence[LocalSegment],
    coverage: Coverage,
    log_start: int,
    limits: Limits,
    now_ms: int,
    high_watermark: int = NO_END,
) -> int:
    """Where the local log may begin: behind its oldest segments that were copied and that the
    limits do not keep, or that lie before the log start. `local` is not empty."""
    excess = sum(each.byte_size for each in local) - limits.most_bytes
    start = local[0].start_offset
    for each in local:
        is_before = each.end_offset <= log_start
        is_too_much = limits.most_bytes >= 0 and excess >= each.byte_size
        is_too_old = 0 <= limits.most_ms < now_ms - each.newest_ms
        is_copied = coverage.holds(max(each.start_offset, log_start), each.end_offset)
        if each.is_active or each.end_offset > high_watermark:
            break
        if not (is_before or (is_copied and (is_too_much or is_too_old))):
            break
        excess -= each.byte_size
        start = each.end_offset
    return start


def _first(span: Span) -> int:
    return span.first
