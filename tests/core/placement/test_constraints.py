"""R9: placement constraints are read, refused with their place, and met exactly."""

from __future__ import annotations

import json
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.core.placement.constraints import (
    Constraints,
    ConstraintsFault,
    first_unmet,
    place_constrained,
    read_constraints,
)
from anabranch.core.placement.placer import UsableBroker

BOTH = Constraints({"east": 2, "south": 1}, {"west": 1})
CONFLUENTS = {
    "version": 2,
    "replicas": [
        {"count": 2, "constraints": {"rack": "east"}},
        {"count": 1, "constraints": {"rack": "south"}},
    ],
    "observers": [{"count": 1, "constraints": {"rack": "west"}}],
}


def test_both_forms_say_the_same() -> None:
    assert read_constraints("replicas=east:2,south:1,observers=west:1") == BOTH
    assert read_constraints(" replicas = east:2, south:1, observers = west:1 ") == BOTH
    assert read_constraints(json.dumps(CONFLUENTS)) == BOTH
    old = {**CONFLUENTS, "version": 1, "observerPromotionPolicy": ""}
    assert read_constraints(json.dumps(old)) == BOTH
    assert read_constraints(" ") is None
    assert BOTH.replication_factor == 3


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("east:2", "write replicas=RACK:COUNT"),
        ("replicas=east", "write RACK:COUNT"),
        ("replicas=east:x", "write RACK:COUNT"),
        ("leaders=east:1", "write replicas=RACK:COUNT"),
        ("observers=west:1", "replicas: say at least one rack"),
        ("replicas=east:0", "the count is 1 to 32767"),
        ("replicas=east:1,east:1", "rack east is named twice"),
        ("replicas=east:32767,west:1", "at most 32767 altogether"),
        ("{", "line 1, column 2"),
        ("replicas=east:" + "9" * 5000, "write RACK:COUNT"),
        ('{"version": ' + "9" * 5000 + "}", "a number is too long"),
        ('{"version": ' + "[" * 30_000, "nested too deeply"),
        ('{"version": 2, "\\ud800": 1}', "'\\ud800': no such field"),
        (
            '{"version": 2, "replicas": [{"count": 1, "constraints": {"rack": "\\ud800"}}]}',
            "replicas[0]: '\\ud800' is no name of a rack",
        ),
        ('{"version": 3}', "version: write 1 or 2"),
        ('{"version": 2, "racks": []}', "'racks': no such field"),
        ('{"version": 2, "replicas": {}}', "replicas: write a list"),
        ('{"version": 2, "replicas": [{"count": 1}]}', "replicas[0]: write an object"),
        (
            '{"version": 2, "replicas": [{"count": 1, "constraints": {"zone": "a"}}]}',
            "replicas[0].constraints",
        ),
        (
            '{"version": 2, "replicas": [{"count": true, "constraints": {"rack": "a"}}]}',
            "replicas[0].count",
        ),
        ('{"version": 2, "observerPromotionPolicy": "under-min-isr"}', "anabranch plan observers"),
    ],
)
def test_every_mistake_is_named_with_its_place(text: str, words: str) -> None:
    with pytest.raises(ConstraintsFault) as refused:
        read_constraints(text)
    assert words in str(refused.value)


def test_an_unmet_rack_is_named_with_what_is_wanted_and_there() -> None:
    brokers = [UsableBroker(1, "east", False), UsableBroker(3, "west", False)]
    unmet = first_unmet(brokers, Constraints({"east": 2}, {}))
    assert unmet is not None and unmet.sentence == (
        "The placement constraints want 2 replicas in rack east; brokers there that can get one: 1."
    )
    beside = first_unmet(brokers, Constraints({"east": 1}, {"east": 1}))
    assert beside is not None
    assert "1 observer beside 1 replica in rack east" in beside.sentence
    assert first_unmet(brokers, Constraints({"east": 1}, {"west": 1})) is None


def test_the_worked_example() -> None:
    brokers = [UsableBroker(number, rack, False) for number, rack in ((1, "e"), (2, "e"), (3, "w"))]
    made = place_constrained(
        brokers, Constraints({"e": 2}, {"w": 1}), 2, carried=Counter(), led=Counter()
    )
    assert made.replicas == [(1, 2), (2, 1)]
    assert made.observers == [(3,), (3,)]


@given(
    st.dictionaries(st.sampled_from("abc"), st.integers(1, 2), min_size=1),
    st.dictionaries(st.sampled_from("abc"), st.integers(1, 2)),
    st.lists(st.sampled_from("abc"), min_size=12, max_size=18),
    st.integers(1, 20),
)
def test_each_rack_gets_exactly_what_is_asked_for_evenly(
    replicas: dict[str, int], observers: dict[str, int], racks: list[str], count: int
) -> None:
    brokers = [UsableBroker(number, rack, False) for number, rack in enumerate(racks)]
    constraints = Constraints(replicas, observers)
    if first_unmet(brokers, constraints) is not None:
        return
    carried: Counter[int] = Counter()
    made = place_constrained(brokers, constraints, count, carried=carried, led=Counter())
    for row, watching in zip(made.replicas, made.observers, strict=True):
        assert Counter(racks[each] for each in row) == replicas
        assert Counter(racks[each] for each in watching) == observers
        assert len({*row, *watching}) == len(row) + len(watching)
    for rack in replicas:
        held = [carried[each.broker_id] for each in brokers if each.rack == rack]
        assert max(held) - min(held) <= 1


@given(st.text() | st.text(alphabet='replicas=obv:,{}[]"1 ').map(lambda text: "replicas=" + text))
def test_any_text_is_constraints_or_a_fault_that_can_be_sent(text: str) -> None:
    try:
        read_constraints(text)
    except ConstraintsFault as fault:
        str(fault).encode()
