"""The round-robin placer and the checks that hold for every placer."""

# ruff: noqa: E501

from collections import Counter
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.core.errors import ClientFault, ErrorCode
from anabranch.core.placement.placer import Ask, UsableBroker, place
from anabranch.core.placement.round_robin import round_robin


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


@pytest.mark.parametrize(
    ("usable", "factor", "sentence"),
    [
        (brokers(False), 0, "Invalid replication factor 0: the replication factor must be positive."),
        (brokers(True, True), 1, "All brokers are currently fenced."),
        (brokers(), 1, "All brokers are currently fenced."),
        (brokers(False), 2, "The target replication factor of 2 cannot be reached because only 1 broker(s) are registered."),
    ],
)  # fmt: skip
def test_the_checks_before_any_placer(
    usable: list[UsableBroker], factor: int, sentence: str
) -> None:
    with pytest.raises(ClientFault) as caught:
        place(round_robin, usable, Ask(1, factor), Random(1))
    assert (caught.value.code, caught.value.message) == (
        ErrorCode.INVALID_REPLICATION_FACTOR,
        sentence,
    )
