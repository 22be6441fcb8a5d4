"""The simulator's placer."""

from collections import Counter
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from anabranch.core.placement.placer import Ask, UsableBroker, place
from anabranch.sim.round_robin import round_robin


def brokers(*fenced: bool) -> list[UsableBroker]:
    return [UsableBroker(number, None, each) for number, each in enumerate(fenced)]


@given(
    st.lists(st.booleans(), min_size=1, max_size=6).filter(lambda fenced: not all(fenced)),
    st.integers(1, 6),
    st.integers(1, 30),
    st.integers(0, 9),
)
def test_lists_are_distinct_complete_and_led_by_the_unfenced(
    fenced: list[bool], factor: int, count: int, seed: int
) -> None:
    usable = brokers(*fenced)
    factor = min(factor, len(usable))
    lists = place(round_robin, usable, Ask(count, factor), Random(seed)).rows
    assert len(lists) == count
    for replicas in lists:
        assert len(set(replicas)) == len(replicas) == factor
        assert not fenced[replicas[0]]
    leaders = Counter(replicas[0] for replicas in lists)
    if count >= fenced.count(False):
        assert max(leaders.values()) - min(leaders.values()) <= 1
