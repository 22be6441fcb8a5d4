"""When a try is given up, and when a removal is over."""

from __future__ import annotations

from tests.core.remote.remote_kit import remote

from anabranch.core.remote.segments import SegmentState
from anabranch.core.remote.unfinished import (
    LEASE_MS,
    PUT_ENDS_MS,
    PUTS_END_MS,
    Removals,
    given_up,
    may_go_on,
)

STARTED, REMOVED = SegmentState.COPY_SEGMENT_STARTED, SegmentState.DELETE_SEGMENT_STARTED


def test_a_leader_gives_up_what_it_does_not_copy_itself():
    mine, older = (
        remote(0, 9, number=1, state=STARTED, leader_epoch=4),
        remote(0, 9, number=2, state=STARTED, leader_epoch=3),
    )
    newer = remote(0, 9, number=3, state=STARTED, leader_epoch=5)
    ended = [remote(0, 9, number=4 + state, state=state) for state in (1, 2, 3)]
    every = [mine, older, newer, *ended]
    assert given_up(every, {mine.segment_id}, 4) == [older.segment_id]
    assert given_up(every, set(), 4) == [mine.segment_id, older.segment_id]


def test_a_removal_is_over_once_every_put_has_ended():
    removed = remote(0, 9, state=REMOVED)
    removals = Removals()
    removals.look([removed], 1_000)
    assert not removals.is_over(removed.segment_id, 999 + PUTS_END_MS)
    removals.look([removed], 2_000)
    assert removals.is_over(removed.segment_id, 1_000 + PUTS_END_MS)
    assert PUTS_END_MS > LEASE_MS + PUT_ENDS_MS


def test_a_removal_that_was_not_seen_before_begins_now():
    removed = remote(0, 9, state=REMOVED)
    removals = Removals()
    assert not removals.is_over(removed.segment_id, 10**12)
    removals.look([removed], 0)
    removals.look([], 10)
    removals.look([removed], PUTS_END_MS)
    assert not removals.is_over(removed.segment_id, PUTS_END_MS + 1)


def test_a_try_goes_on_for_a_lease_after_the_last_yes():
    assert may_go_on(500, 499 + LEASE_MS)
    assert not may_go_on(500, 500 + LEASE_MS)
