"""The facts of a partition that were read before, and what has changed since.

What: a coordinator numbers the changes of each partition, and is asked for those after the last one
that is known. Why: a partition may have 100,000 segments, and is looked at every 30 seconds. Rules
kept: finished segments are kept between reads, all others are told each time, since they are few; a
segment that was forgotten, and was not seen to be removed before, makes the coordinator tell all
again; where nothing has changed, the same tuple is given. Not here: SQL, whose facts they are.
"""

from __future__ import annotations

from typing import NamedTuple

from anabranch.core.remote.segments import RemoteSegment, SegmentId

NOTHING = -1
"""The number of the last change of one who knows nothing."""


class Changed(NamedTuple):
    """What a coordinator tells."""

    number: int
    """Of the last change."""
    is_whole: bool
    """Whether it is all that there is, not what has changed alone."""
    segments: tuple[RemoteSegment, ...]
    """Those that have changed, and those that are not finished."""


class KnownSegments:
    """All segments of a partition, as far as one reader knows."""

    def __init__(self) -> None:
        self.number = NOTHING
        self.segments: tuple[RemoteSegment, ...] = ()
        """By start offset."""
        self.unfinished: list[RemoteSegment] = []

    def take(self, told: Changed) -> tuple[RemoteSegment, ...]:
        """All segments now."""
        if told.is_whole:
            self.segments = tuple(sorted(told.segments, key=_place))
        elif self._differs(told.segments):
            segments = (*self._kept(told.segments), *told.segments)
            self.segments = tuple(sorted(segments, key=_place))
        self.unfinished = [each for each in told.segments if not each.is_finished]
        self.number = told.number
        return self.segments

    def _differs(self, told: tuple[RemoteSegment, ...]) -> bool:
        """Whether one is told that is finished, or another one that is not."""
        return len(told) != len(self.unfinished) or set(told) != set(self.unfinished)

    def _kept(self, told: tuple[RemoteSegment, ...]) -> list[RemoteSegment]:
        changed = {each.segment_id for each in told}
        return [
            each for each in self.segments if each.is_finished and each.segment_id not in changed
        ]


def _place(segment: RemoteSegment) -> tuple[int, int, SegmentId]:
    return segment.start_offset, segment.end_offset, segment.segment_id
