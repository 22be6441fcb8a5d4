"""Partitions to slots, fences, and where a partition goes on."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from anabranch.core.mirror.wave_plan import (
    Start,
    assigned,
    counted_position,
    is_superseded,
    slot_of,
    slots_of,
    start_of,
    transactional_id,
)

PLACES = st.sets(st.tuples(st.sampled_from("ab"), st.integers(0, 9)), max_size=20)


@given(st.lists(st.tuples(PLACES, st.integers(1, 5)), min_size=1, max_size=6))
def test_a_partition_has_one_slot_and_none_changes_it_without_a_fence_of_both(waves):
    before = None
    for places, slots in waves:
        plan = assigned("east", places, slots, before)
        now = slots_of(plan)
        assert set(now) == places
        assert sum(map(len, plan.by_slot.values())) == len(places)
        for place, slot in now.items():
            was = None if before is None else before.get(place)
            if before is None or (was is not None and was != slot):
                assert transactional_id("east", slot) in plan.fence
                if was is not None:
                    assert transactional_id("east", was) in plan.fence
            if was is not None and was < slots:
                assert slot == was
        before = now


@given(PLACES, st.integers(1, 5))
def test_slots_of_a_first_wave_are_even(places, slots):
    sizes = [len(each) for each in assigned("east", places, slots, None).by_slot.values()]
    assert max(sizes) - min(sizes) <= 1


def test_slots_of_another_mirror_are_fenced_first_and_others_are_not_touched():
    known = ["east-mm2-MirrorSourceConnector-7", "east-mm2-MirrorSourceConnector-x", "other-1"]
    plan = assigned("east", [("t", 0)], 1, None, known_ids=known)
    assert plan.fence == (transactional_id("east", 0), transactional_id("east", 7))
    assert slot_of("east", known[0]) == 7 and slot_of("west", known[0]) is None


PLACE = ("t", 3)


def test_a_partition_goes_on_behind_its_position():
    assert start_of(PLACE, 41, log_start=0, log_end=50) == Start(42, False)
    assert start_of(PLACE, 49, log_start=0, log_end=50) == Start(50, False)


def test_without_a_position_it_begins_where_the_file_says():
    assert start_of(PLACE, None, log_start=7, log_end=50) == Start(7, True)
    assert start_of(PLACE, None, log_start=7, log_end=50, from_latest=True) == Start(50, True)


def test_what_is_lost_or_cut_is_told():
    overtaken = start_of(PLACE, 4, log_start=7, log_end=50)
    assert overtaken[:2] == (7, False) and "offsets 5 to 6" in overtaken.why
    cut = start_of(PLACE, 60, log_start=7, log_end=50)
    assert cut[:2] == (50, False) and "truncated" in cut.why
    diverged = start_of(PLACE, 60, log_start=7, log_end=80, diverged_at=55)
    assert diverged[:2] == (55, False) and "offsets 55 to 60" in diverged.why
    other = start_of(PLACE, 60, log_start=0, log_end=5, other_source=True)
    assert other[:2] == (0, True) and "deleted and created again at the source" in other.why
    gone = start_of(PLACE, 60, log_start=3, log_end=90, other_target=True)
    assert gone[:2] == (3, True) and "on the target" in gone.why


def test_what_the_index_has_not_is_mirrored_again_without_transactions():
    """A position may be of another attempt than the index."""
    assert counted_position(29, 20, is_exactly_once=False) == 19
    assert counted_position(19, 25, is_exactly_once=False) == 19
    assert counted_position(29, 20, is_exactly_once=True) == 29, "they are of one making"
    assert counted_position(29, None, is_exactly_once=False) == 29, "another mirror's position"
    assert counted_position(None, None, is_exactly_once=False) is None


def test_a_plan_is_superseded_when_the_target_names_another():
    assert is_superseded(b"one", b"two") and not is_superseded(b"one", b"one")
