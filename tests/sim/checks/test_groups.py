"""What members of a group may not see, told by hand, is caught under its name."""

from __future__ import annotations

from typing import Any

import pytest

from anabranch.core.coordination.groups.offsets_topic import OFFSETS_TOPIC
from anabranch.core.types import TopicPartition
from anabranch.sim.checks.commits import Committed
from anabranch.sim.checks.entries import Entry
from anabranch.sim.checks.groups import MAY_COME_LATE_US, GroupChecks
from anabranch.sim.checks.logs import LogChecks
from anabranch.sim.checks.marks import MARKS, Marks
from anabranch.sim.checks.model import Model
from anabranch.sim.checks.truth import Loss, Truth
from anabranch.sim.checks.violation import Violation
from anabranch.sim.history import Assigned, Commit, Poll

PLACE, OTHER = TopicPartition("t", 0), TopicPartition("t", 1)
OFFSETS = TopicPartition(OFFSETS_TOPIC, 0)


@pytest.fixture
def groups() -> GroupChecks:
    logs = LogChecks(Model(), Marks())
    truth = logs.places[PLACE] = Truth((b"", 0))
    truth.peak = 10
    logs.places[OFFSETS] = Truth((b"", 1), has_offsets=True)
    return GroupChecks(logs, logs.marks)


def given(client: str, generation: int, *places: TopicPartition, at_us: int = 0) -> Assigned:
    return Assigned("g", client, generation, places, at_us)


def committed(offset: int, *, ok: bool = True, at_us: int = 0) -> Commit:
    return Commit("g", PLACE, offset, ok, at_us)


def write(groups: GroupChecks, *offsets: int) -> None:
    """Commits of g, each in a batch of its own."""
    truth = groups.logs.places[OFFSETS]
    for offset in offsets:
        entry = Entry(truth.high, truth.high + 1, 0, 0, -1, -1, -1)
        truth.commits[entry] = (Committed("g", PLACE, offset),)
        truth.commit([entry], entry.end)


def begins(client: str, position: int) -> Poll:
    return Poll(client, PLACE, 0, position, [(position, b"v")], 0, True)


def violated(act: Any, *args: Any) -> str:
    with pytest.raises(Violation) as caught:
        act(*args)
    return caught.value.id


def test_rebalances_and_commits_are_clean(groups):
    groups.assigned(given("a", 1, PLACE, OTHER))
    write(groups, 4)
    groups.committed(committed(4))
    groups.assigned(given("a", 2, OTHER))
    groups.assigned(given("b", 2, PLACE))
    groups.polled(begins("b", 4))
    groups.assigned(given("b.1", 2, PLACE))  # the next process of a static member
    assert groups.marks["rebalanced"] == 1


def test_two_owners_in_one_generation(groups):
    groups.assigned(given("a", 1, PLACE))
    assert violated(groups.assigned, given("b", 1, PLACE)) == "group-owners"


def test_a_generation_that_goes_back(groups):
    groups.assigned(given("a", 2))
    assert violated(groups.assigned, given("a", 1)) == "group-generation"


def test_a_commit_beyond_the_log(groups):
    write(groups, 10)
    groups.committed(committed(10))
    groups.committed(committed(11, ok=False))
    assert violated(groups.committed, committed(11)) == "group-offset"


def test_an_acknowledged_commit_that_is_not_in_the_committed_log(groups):
    write(groups, 4)
    groups.committed(committed(5, ok=False))
    assert violated(groups.committed, committed(5)) == "group-commit"


def test_a_commit_that_is_acknowledged_twice_is_written_twice(groups):
    write(groups, 4, 6, 4)
    groups.committed(committed(4))
    groups.committed(committed(4))
    assert violated(groups.committed, committed(4)) == "group-commit"


def test_a_commit_that_is_written_and_not_committed_does_not_count(groups):
    write(groups, 4)
    groups.logs.places[OFFSETS].entries.clear()
    assert violated(groups.committed, committed(4)) == "group-commit"


def test_a_member_that_begins_before_what_was_committed(groups):
    write(groups, 4, 7)
    groups.committed(committed(4))
    groups.committed(committed(7))
    late_us = 2 * MAY_COME_LATE_US
    groups.assigned(given("b", 1, PLACE, at_us=late_us))
    assert violated(groups.polled, begins("b", 6)) == "group-rewound"


def test_a_member_begins_anywhere_in_a_log_that_has_lost_what_was_committed(groups):
    """Seed 9000236: an unclean election left 2 of 19 records, and the group began there."""
    write(groups, 7)
    groups.committed(committed(7))
    groups.logs.places[PLACE].losses.append(
        Loss(Entry(2, 9, 0, 0, -1, -1, -1), "unclean election", 1)
    )
    groups.assigned(given("b", 1, PLACE, at_us=2 * MAY_COME_LATE_US))
    groups.polled(begins("b", 2))


def test_a_commit_that_may_come_late_lowers_what_may_be_asked(groups):
    write(groups, 7)
    groups.committed(committed(7))
    groups.committed(committed(3, ok=False))
    groups.assigned(given("b", 1, PLACE))
    groups.polled(begins("b", 3))
    groups.polled(begins("b", 0))  # only the first answer shows where it began


def test_a_commit_whose_answer_was_lost_may_be_the_newest(groups):
    """Seed 43020917: the topic had lost records, so the group went back, and nobody heard of it."""
    write(groups, 7)
    groups.committed(committed(7))
    groups.committed(committed(3, ok=False))
    groups.assigned(given("b", 1, PLACE, at_us=2 * MAY_COME_LATE_US))
    groups.polled(begins("b", 3))
    groups.assigned(given("b", 2, PLACE, at_us=2 * MAY_COME_LATE_US))
    assert violated(groups.polled, begins("b", 2)) == "group-rewound"


def test_without_a_commit_it_may_begin_anywhere(groups):
    groups.committed(committed(7, ok=False))
    groups.assigned(given("b", 1, PLACE))
    groups.polled(begins("b", 0))


def test_a_loss_of_the_offsets_topic_voids_it_all(groups):
    groups.assigned(given("a", 2, PLACE))
    lost = Loss(Entry(0, 1, 0, 0, -1, -1, -1), "unclean election", 1)
    groups.logs.places[OFFSETS].losses.append(lost)
    groups.committed(committed(4))
    groups.assigned(given("b", 2, PLACE))
    groups.assigned(given("a", 1))


def test_a_mark_must_be_of_the_table():
    marks = Marks()
    marks.hit("truncation")
    assert marks == {"truncation": 1}
    with pytest.raises(KeyError, match="is no mark"):
        marks.hit("truncated")
    assert all(text and not text.endswith(".") for text in MARKS.values())
