"""Tries that did not end, and removals: when a try is given up, and when a removal is over.

What: the leader of a partition gives up each try that it does not make itself: it was made in an
older epoch, or by an earlier life of this process. A removal is over once the objects were deleted
at a time by which any put of the try has ended, since one that is under way may arrive after the
first deletion. For that, a broker that copies asks the coordinator again and again whether its try
still stands, and begins no request once the last yes is a lease old. Rules kept: only the steady
clock of whoever waits counts, so that no clock that is set, here or anywhere, ends anything early;
a try that is given up cannot become FINISHED, since its state says so. Not here: the calls
(`rounds.py`, `segment_copy.py`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from anabranch.core.remote.segments import RemoteSegment, SegmentId, SegmentState

CONFIRM_MS = 10_000
"""How often a broker that copies asks whether its try still stands."""
LEASE_MS = 60_000
"""How old the last yes may be: a coordinator that is away for less ends no copy."""
PUT_ENDS_MS = 180_000
"""How long a put goes on after it was given its last piece: a part, the end of the upload, and its
copy, about a minute each with what the library tries again."""
PUTS_END_MS = LEASE_MS + PUT_ENDS_MS + 15_000
"""How long after a try was given up one of its puts may still arrive, with room for clocks that run
at different speeds."""


def given_up(
    segments: Iterable[RemoteSegment], running: Collection[SegmentId], leader_epoch: int
) -> list[SegmentId]:
    """Tries that the leader of an epoch removes; `running` are those that it makes."""
    return [
        each.segment_id
        for each in segments
        if each.state is SegmentState.COPY_SEGMENT_STARTED
        and each.segment_id not in running
        and each.leader_epoch <= leader_epoch
    ]


def may_go_on(asked_ms: int, now_ms: int) -> bool:
    """Whether a try may begin another request, if the coordinator's last yes was asked for then."""
    return now_ms - asked_ms < LEASE_MS


class Removals:
    """Since when one process has known of each removal, by its steady clock."""

    def __init__(self) -> None:
        self._since_ms: dict[SegmentId, int] = {}

    def look(self, segments: Iterable[RemoteSegment], now_ms: int) -> None:
        """Note what is there now: all of the removals that this process sees to."""
        known, self._since_ms = self._since_ms, {}
        for each in segments:
            if each.state is SegmentState.DELETE_SEGMENT_STARTED:
                self._since_ms[each.segment_id] = known.get(each.segment_id, now_ms)

    def is_over(self, segment_id: SegmentId, now_ms: int) -> bool:
        """Whether a removal whose objects are deleted now may be forgotten."""
        return now_ms - self._since_ms.get(segment_id, now_ms) >= PUTS_END_MS
