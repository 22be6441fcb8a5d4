"""Machines mark themselves; what is idle is not called."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.core.due import Due

NAMES = "abcd"


def test_a_machine_is_performed_a_first_time_once_it_has_been_named():
    due, acts = Due(), []
    due.performs("a", lambda: acts.append("a"))
    assert due.marked == {"a"}
    due.perform()
    due.perform()
    assert acts == ["a"]


def test_what_nobody_performs_is_marked_in_vain():
    due = Due()
    due.marker("nobody")()
    due.perform()
    assert not due.marked


def test_a_machine_that_marks_itself_or_an_earlier_one_is_performed_in_the_next_round():
    due, acts = Due(), []
    leaves = {"b": ["a", "b"]}

    def perform(name):
        acts.append(name)
        for each in leaves.pop(name, ()):
            due.marker(each)()

    for name in "abc":
        due.performs(name, lambda name=name: perform(name))
    due.perform()
    assert acts == ["a", "b", "c"]
    assert due.marked == {"a", "b"}
    due.perform()
    assert acts == ["a", "b", "c", "a", "b"]
    assert not due.marked


def test_who_could_not_be_performed_is_performed_again():
    due, acts = Due(), []

    def fail():
        acts.append("fail")
        if acts == ["fail"]:
            raise RuntimeError("oh")

    due.performs("a", fail)
    due.performs("b", lambda: acts.append("b"))
    with pytest.raises(RuntimeError):
        due.perform()
    due.perform()
    assert acts == ["fail", "fail", "b"]
    assert not due.marked


@given(st.permutations(NAMES), st.lists(st.sets(st.sampled_from(NAMES + "x"))))
def test_those_that_are_marked_are_performed_once_in_the_order_of_the_node(order, rounds):
    due, acts = Due(), []
    for name in order:
        due.performs(name, lambda name=name: acts.append(name))
    due.perform()
    for marked in rounds:
        acts.clear()
        for name in marked:
            due.marker(name)()
            due.marker(name)()
        due.perform()
        assert acts == [name for name in order if name in marked]
        assert not due.marked
