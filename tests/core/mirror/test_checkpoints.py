"""Checkpoints, groups on the target, and the syncs of MirrorMaker 2's own readers."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from anabranch.core.mirror.checkpoints import (
    ReadAgain,
    Synced,
    SyncState,
    due,
    read_again,
    remote_name,
    syncs_of,
    to_sync,
)
from anabranch.core.mirror.formats import Checkpoint
from anabranch.core.mirror.index import IndexRun
from anabranch.core.mirror.policy import Policy


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50)), max_size=30))
def test_a_checkpoint_moves_back_only_when_the_group_does(offsets):
    last = None
    for upstream, downstream in offsets:
        if due(last, upstream, downstream):
            if last is not None and downstream < last.downstream:
                assert upstream < last.upstream
            last = Checkpoint("g", "t", 0, upstream, downstream)


def test_what_came_from_the_target_has_its_own_name_there_again():
    policy = Policy(source="east")
    assert remote_name("west.orders", policy, "west") == "orders"
    assert remote_name("orders", policy, "west") == "east.orders"
    assert remote_name("north.orders", policy, "west") == "east.north.orders"


PLACE = ("t", 0)


def test_a_group_moves_forward_or_where_it_has_nothing():
    assert to_sync({PLACE: Synced(9, 5)}, {}, {}) == {PLACE: 5}
    assert to_sync({PLACE: Synced(9, 5)}, {PLACE: 4}, {}) == {PLACE: 5}
    assert to_sync({PLACE: Synced(9, 5)}, {PLACE: 6}, {}) == {}


def test_a_group_goes_back_only_if_it_did_at_the_source_and_was_left_alone_here():
    back = {PLACE: Synced(3, 2)}
    assert to_sync(back, {PLACE: 5}, {PLACE: Synced(9, 5)}) == {PLACE: 2}
    assert to_sync(back, {PLACE: 6}, {PLACE: Synced(9, 5)}) == {}, "it was moved on the target"
    assert to_sync({PLACE: Synced(9, 2)}, {PLACE: 5}, {PLACE: Synced(9, 5)}) == {}


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(1, 300)), max_size=12),
       st.integers(0, 100))  # fmt: skip
def test_syncs_are_true_pairs_that_rise_and_lag_no_further_than_allowed(gaps, most_lag):
    state, upstream, downstream, pairs = SyncState(), 0, 0, {}
    synced = -1
    for up_gap, down_gap, count in gaps:
        upstream, downstream = upstream + up_gap, downstream + down_gap
        run = IndexRun(upstream, downstream, count)
        pairs |= {upstream + each: downstream + each for each in range(count)}
        for sync in syncs_of(state, "t", 0, run, most_lag):
            assert pairs[sync.upstream] == sync.downstream
            assert sync.upstream > synced
            synced = sync.upstream
        upstream, downstream = run.upstream_end, run.downstream_end
        assert downstream - 1 - pairs[synced] <= most_lag


def test_what_is_read_again_is_what_was_consumed_since_the_sync():
    committed = {("t", 0): 10, ("t", 1): 7, ("u", 0): 3}
    again = read_again(committed, {("t", 0): 10, ("t", 1): 4})
    assert again == [ReadAgain("t", 0, 0), ReadAgain("t", 1, 3), ReadAgain("u", 0, 3)]
