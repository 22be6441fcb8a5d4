"""What a rehearsal's events led to, and what counts as another result."""

from __future__ import annotations

from dataclasses import replace

import pytest

from anabranch.sim.rehearsal.answers import Condition
from anabranch.sim.rehearsal.library import text_of
from anabranch.sim.rehearsal.outcome import (
    ALL,
    NOTHING,
    READS,
    chance_from,
    differences,
    is_at_rest,
    moments,
    rehearsed,
    table,
)
from anabranch.sim.rehearsal.rehearsal_file import read

PLAN = """
length: 40s
cluster: {brokers: 3, controller: 3}
topics: {orders: {replicas: [[1, 2, 3]], settings: {min.insync.replicas: 2}}}
events:
  - {at: 1s, send: {to: orders-0, records: 2, acks: all}}
  - {at: 2s, pause: 1}
  - {at: 15s, kill: [2, 3]}
  - {at: 25s, start: 3}
  - {at: 35s, start: 2}
"""
PAUSED, BOTH, STARTED, WHOLE = 2, 3, 4, 5
"""Numbers of rows."""


@pytest.fixture(scope="module")
def outcome():
    return rehearsed(read(PLAN, "plan.yaml"))


def with_row(outcome, number, **state):
    rows = list(outcome.rows)
    rows[number] = replace(rows[number], state=replace(rows[number].state, **state))
    return replace(outcome, rows=rows)


def test_rows_say_who_leads_and_what_is_served(outcome):
    seen = [(row.state.leader, row.state.serves) for row in outcome.rows]
    assert seen[:BOTH] == [(1, ALL), (1, ALL), (2, ALL)]
    assert seen[BOTH:] == [(-1, NOTHING), (3, READS), (3, ALL)] or seen[BOTH][1] == NOTHING
    assert outcome.lost == ()
    assert differences(outcome, outcome) == []


def test_a_row_has_how_long_it_was_offline_until_the_next(outcome):
    paused, both = outcome.rows[PAUSED], outcome.rows[BOTH]
    assert 5_000_000 < paused.lasted_us[Condition.OFFLINE] < 12_000_000
    assert paused.duration(Condition.OFFLINE) and not both.duration(Condition.OFFLINE)
    assert both.lasted_us[Condition.OFFLINE] == pytest.approx(10_000_000, rel=0.01)


def test_another_leader_is_a_difference_until_chance_decides(outcome):
    assert chance_from(outcome.plan) == BOTH
    other = with_row(outcome, PAUSED, leader=3)
    assert [each.what for each in differences(outcome, other)] == ["leader"]
    leader = outcome.rows[WHOLE].state.leader
    assert leader > 0
    assert differences(outcome, with_row(outcome, WHOLE, leader=5 - leader)) == []
    none = differences(outcome, with_row(outcome, WHOLE, leader=-1))
    assert [(each.what, each.seen) for each in none] == [("leader", "none")]


def test_each_kind_of_result_is_compared(outcome):
    for number in range(len(outcome.rows)):
        served = outcome.rows[number].state.serves
        for serves in {NOTHING, READS, ALL} - {served}:
            found = differences(outcome, with_row(outcome, number, serves=serves))
            assert [(each.what, each.rehearsed, each.seen) for each in found] == [
                ("served", served, serves)
            ]
    (lost,) = differences(outcome, replace(outcome, lost=(1, 2, 5)))
    assert (lost.rehearsed, lost.seen) == ("none", "1-2, 5")
    less = replace(outcome, rows=outcome.rows[:-1])
    assert [each.what for each in differences(outcome, less)] == ["the event"]
    assert [each.what for each in differences(less, outcome)] == ["the event"]


def test_durations_are_shown_and_are_no_difference(outcome):
    rows = list(outcome.rows)
    rows[PAUSED] = replace(rows[PAUSED], lasted_us={Condition.OFFLINE: 19_000_000})
    slower = replace(outcome, rows=rows)
    assert differences(outcome, slower) == []
    was = outcome.rows[PAUSED].duration(Condition.OFFLINE)
    assert table(outcome, slower)[PAUSED][3] == f"19 s (rehearsed: {was})"


def test_processes_are_at_rest_where_every_replica_is(outcome):
    state = outcome.rows[PAUSED].state
    assert is_at_rest(outcome, PAUSED, state)
    assert not is_at_rest(outcome, PAUSED, replace(state, isr=frozenset({1, 2, 3})))
    assert not is_at_rest(outcome, PAUSED, replace(state, logs=("frozen", "2/2", "0/1")))
    assert not is_at_rest(outcome, len(outcome.rows), state)
    late = outcome.rows[WHOLE].state
    mirrored = replace(late, leader=5 - late.leader, logs=tuple(reversed(late.logs)))
    assert is_at_rest(outcome, WHOLE, mirrored)
    assert not is_at_rest(outcome, WHOLE, replace(mirrored, isr=frozenset({2})))


@pytest.mark.parametrize("name", ["rack-loss", "object-store-down", "rolling-restart"])
def test_each_shipped_rehearsal_has_a_row_a_moment(name):
    plan = read(text_of(name) or "", name)
    outcome = rehearsed(plan)
    assert len(outcome.rows) == len(moments(plan)) + 1
    assert all(row.what for row in outcome.rows)
