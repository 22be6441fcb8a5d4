"""Segments of a restored coordinator whose offsets others have, that were made of them.

What: a store may have segments that were being removed, or were never put in the place of others,
when the coordinator was lost. Each of them is whole. Rules kept: a segment counts as removed where
segments of a later generation, or of its own where that is not the first, have all of its offsets;
so no offset is lost, and none is in two segments of different age. Why any of them will do: a pass
drops a record only where a newer one of its key stays, and a tombstone only where its key has no
record in another group of segments and nothing of the partition waits for its removal; so each key
has its newest record in whichever segments are chosen. Not here: reading the store.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from anabranch.core.remote.compacted_mark import mark_of
from anabranch.core.remote.lineage import Span, joined
from anabranch.core.remote.segments import RemoteSegment, SegmentState


def without_superseded(segments: Sequence[RemoteSegment]) -> list[RemoteSegment]:
    """The same, in the same order, those removed whose offsets compacted ones have."""
    states = {each.segment_id: each.state for each in segments}
    finished = [each for each in segments if each.is_finished]
    for each in sorted(finished, key=_by_age):
        least = max(1, mark_of(each).generation)
        others = (
            one
            for one in finished
            if one is not each
            and states[one.segment_id] is SegmentState.COPY_SEGMENT_FINISHED
            and mark_of(one).generation >= least
        )
        if _is_covered(each, others):
            states[each.segment_id] = SegmentState.DELETE_SEGMENT_STARTED
    return [each._replace(state=states[each.segment_id]) for each in segments]


def _is_covered(segment: RemoteSegment, others: Iterable[RemoteSegment]) -> bool:
    spans = joined(Span(each.start_offset, each.end_offset) for each in others)
    return any(
        span.first <= segment.start_offset and segment.end_offset <= span.end for span in spans
    )


def _by_age(segment: RemoteSegment) -> tuple[int, int, int, bytes]:
    generation, upto = mark_of(segment)
    return generation, upto, segment.start_offset, segment.segment_id
