"""Retention of a whole log: its remote segments and what is only local, as one.

What: where the log begins once what is too old or too much is gone, and which remote segments are
to be removed. Rules kept: whole segments, oldest first, none above the high watermark; the size is
that of FINISHED segments and of local bytes that were not copied (KAFKA-17062), and offsets that
several segments hold count once; the log start is raised, and recorded, before any byte goes. A
segment goes when the log start has passed it, wherever it overlaps others (KAFKA-16511), or when an
unclean election has cut all of it. Times: the caller gives the smaller one of its own clock and the
coordinator's, so that one clock that runs ahead expires nothing early. Not here: the local files.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from heapq import heappop, heappush
from typing import NamedTuple

from anabranch.core.remote.lineage import Lineage, Span, agreed_spans, is_cut
from anabranch.core.remote.local_log import CopyLag, Limits, LocalSegment
from anabranch.core.remote.segments import RemoteSegment, SegmentId, SegmentState


class Stretch(NamedTuple):
    """Offsets of the log that one segment answers for, and its share of that segment's bytes."""

    first: int
    end: int
    byte_size: int
    newest_ms: int


def trusted_now_ms(own_ms: int, coordinators_ms: int) -> int:
    """The time that retention goes by: of two clocks the one that is behind."""
    return min(own_ms, coordinators_ms)


def stretches(
    segments: Iterable[RemoteSegment],
    local: Sequence[LocalSegment],
    lineage: Lineage,
    log_start: int,
) -> Iterator[Stretch]:
    """The log from its start on, in order; where segments overlap, the one that begins first
    answers, and a remote one before a local one. `segments` are by start offset, and are looked at
    as far as the caller goes."""
    at = log_start
    for each in _by_offset(segments, local, lineage):
        if each.end <= at:
            continue
        first = max(each.first, at)
        share = each.byte_size * (each.end - first) // (each.end - each.first)
        yield each._replace(first=first, byte_size=share)
        at = each.end


def _by_offset(
    segments: Iterable[RemoteSegment], local: Sequence[LocalSegment], lineage: Lineage
) -> Iterator[Stretch]:
    waiting: list[tuple[int, bool, Stretch]] = []
    for each in local:
        if each.start_offset < each.end_offset:
            stretch = Stretch(each.start_offset, each.end_offset, each.byte_size, each.newest_ms)
            heappush(waiting, (each.start_offset, True, stretch))
    for segment in segments:
        while waiting and waiting[0][0] < segment.start_offset:
            yield heappop(waiting)[2]
        if segment.is_finished:
            for span in agreed_spans(segment, lineage):
                heappush(waiting, (span.first, False, _stretch(segment, span)))
    while waiting:
        yield heappop(waiting)[2]


def _stretch(segment: RemoteSegment, span: Span) -> Stretch:
    offsets = segment.end_offset - segment.start_offset
    share = segment.byte_size * (span.end - span.first) // offsets
    newest_ms = segment.max_timestamp if segment.max_timestamp >= 0 else segment.event_ms
    return Stretch(span.first, span.end, share, newest_ms)


def log_start_after(
    found: Iterable[Stretch], log_start: int, limits: Limits, high_watermark: int, now_ms: int
) -> int:
    """Where the log begins once what the limits do not keep is gone; never before `log_start`.
    Without a limit of size, no more than what goes is looked at."""
    has_size, excess = limits.most_bytes >= 0, 0
    if has_size:
        found = list(found)
        excess = sum(each.byte_size for each in found) - limits.most_bytes
    for each in found:
        is_too_much = has_size and excess >= each.byte_size
        is_too_old = 0 <= limits.most_ms < now_ms - each.newest_ms
        if each.end > high_watermark or not (is_too_much or is_too_old):
            break
        excess -= each.byte_size
        log_start = each.end
    return log_start


def to_remove(
    segments: Iterable[RemoteSegment], lineage: Lineage, log_start: int
) -> list[SegmentId]:
    """The finished segments that nothing needs any more, by a log start that was recorded."""
    return [
        each.segment_id
        for each in segments
        if each.state is SegmentState.COPY_SEGMENT_FINISHED
        and (each.end_offset <= log_start or is_cut(each, lineage, log_start))
    ]


def remote_size_bytes(segments: Iterable[RemoteSegment]) -> int:
    """What the remote log takes: finished segments alone, each as a whole."""
    return sum(each.byte_size for each in segments if each.is_finished)


def delete_lag(segments: Iterable[RemoteSegment]) -> CopyLag:
    """What is being removed and may still be in the store."""
    removed = SegmentState.DELETE_SEGMENT_STARTED
    sizes = [each.byte_size for each in segments if each.state is removed]
    return CopyLag(len(sizes), sum(sizes))
