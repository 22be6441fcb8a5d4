"""What one moment does may come in any order that the simulation can follow, and in no other way."""

from __future__ import annotations

from dataclasses import replace

import pytest
from msgspec.structs import replace as changed_to

from anabranch.sim.rehearsal import orders
from anabranch.sim.rehearsal.library import names, text_of
from anabranch.sim.rehearsal.orders import Foretold, Turn, begins, choices, in_turns
from anabranch.sim.rehearsal.outcome import differences, moments, rehearsed
from anabranch.sim.rehearsal.rehearsal_file import read
from anabranch.sim.rehearsal.transcript import transcribe

TWO_END = """
length: 20s
cluster: {brokers: 3, controller: 3}
topics: {orders: {replicas: [[1, 2, 3]], settings: {min.insync.replicas: 2}}}
events:
  - {at: 1s, send: {to: orders-0, records: 2, acks: all}}
  - {at: 2s, kill: [1, 2]}
  - {at: 15s, start: 2}
"""
ONE_ENDS = TWO_END.replace("kill: [1, 2]", "kill: 1").replace("start: 2", "start: 1")
ALL_START = TWO_END.replace("kill: [1, 2]", "power_loss: all").replace("start: 2", "start: all")
KILLED = 1
"""The number of the moment at which brokers end."""
MIXED = """
cluster: {racks: {a: [1, 2], b: [3, 4]}}
topics: {orders: {replicas: [[1, 2, 3]]}}
events:
  - {at: 10s, power_loss: a}
  - {at: 10s, kill: [3, 4]}
  - {at: 10s, heal: links}
  - {at: 10500ms, start: [4, 3]}
  - {at: 20s, roll: all, down: 1s}
  - {at: 30s, kill: followers of orders-0}
"""


@pytest.fixture(scope="module")
def plan():
    return read(TWO_END, "two.yaml")


@pytest.fixture(scope="module")
def written(plan):
    return rehearsed(plan)


@pytest.fixture(scope="module")
def reversed_order(plan):
    """Broker 2 is missed first, or 1 where the simulation as written misses 2 first."""
    found = [rehearsed(in_turns(plan, {KILLED: Turn(each, (3_000_000,))}), plan) for each in BOTH]
    return next(each for each in found if each.text() != rehearsed(plan).text())


BOTH = ((1, 2), (2, 1))


def test_another_order_of_a_moment_is_found_and_named(written, reversed_order):
    foretold = Foretold(written)
    assert differences(written, reversed_order)
    assert foretold.search(reversed_order.rows)
    assert differences(foretold.met, replace(reversed_order, plan=written.plan)) == []
    assert foretold.order in {
        "brokers 1,2 killed: 1, then 2",
        "brokers 1,2 killed: 2, then 1",
    }


def test_rows_so_far_are_enough(written, reversed_order):
    foretold = Foretold(written)
    assert foretold.search(reversed_order.rows[: KILLED + 2])
    assert foretold.met.rows[-1].at_rest == reversed_order.rows[-1].at_rest


def otherwise(outcome):
    """The outcome with one thing changed, in each way in which processes could differ."""
    row = outcome.rows[KILLED + 1]
    state = row.state
    leads = state.partition
    changed = {
        "a leader": replace(state, partition=changed_to(leads, leader=1)),
        "an epoch": replace(state, partition=changed_to(leads, leader_epoch=9)),
        "an ISR": replace(state, partition=changed_to(leads, isr=(2, 3))),
        "an ELR": replace(state, partition=changed_to(leads, elr=(1, 2))),
        "a log": replace(state, logs=("down", "down", "1/1")),
        "a broker that runs": replace(state, logs=("2/2", "down", "2/2")),
        "a service": replace(state, serves="reads and writes"),
    }
    rows = {what: replace(row, state=each) for what, each in changed.items()}
    rows["a cut"] = replace(row, cuts=["broker 3 truncates its log from 2 to 1"])
    rows["a change"] = replace(row, changes=[*row.changes, "3 stays leader in a new epoch"])
    rows["no change"] = replace(row, changes=row.changes[:-1])
    before, after = outcome.rows[: KILLED + 1], outcome.rows[KILLED + 2 :]
    return {what: replace(outcome, rows=[*before, each, *after]) for what, each in rows.items()}


def test_what_no_order_gives_stays_a_difference(written, reversed_order):
    foretold = Foretold(written)
    for outcome in (written, reversed_order):
        for what, seen in otherwise(outcome).items():
            assert not foretold.search(seen.rows), what
            assert foretold.met is written and foretold.order == ""
            assert differences(foretold.met, seen), what


def test_a_run_that_a_check_has_ended_agrees_with_nothing(written):
    ended = replace(written, rows=written.rows[:-1])
    assert begins(ended, written.rows[:-1]) and not begins(ended, written.rows)


def test_a_lost_record_is_a_difference_in_every_order(written, reversed_order):
    foretold = Foretold(written)
    assert foretold.search(reversed_order.rows)
    assert differences(foretold.met, replace(reversed_order, lost=(1,)))


def test_one_broker_in_each_moment_has_one_order(monkeypatch):
    plan = read(ONE_ENDS, "one.yaml")
    foretold = Foretold(rehearsed(plan))
    monkeypatch.setattr(orders, "rehearsed", None)
    seen = [replace(each, cuts=["a cut"]) for each in foretold.met.rows]
    assert not foretold.search(seen)


def test_simulations_are_bounded(monkeypatch, written):
    count = []
    monkeypatch.setattr(orders, "TRIES", 3)
    monkeypatch.setattr(orders, "rehearsed", lambda *_: count.append(1) or written)
    foretold = Foretold(written)
    rows = [replace(each, cuts=["a cut"]) for each in written.rows]
    assert not foretold.search(rows) and not foretold.search(rows)
    assert len(count) == 3


def every_plan():
    return {name: read(text_of(name), name) for name in names()} | {"mixed": read(MIXED, "mixed")}


@pytest.mark.parametrize(("name", "plan"), every_plan().items())
def test_an_order_leaves_a_plan_as_it_is_but_for_times(name, plan):
    groups = moments(plan)
    ends_us = [*(each[0].at_us for each in groups[1:]), plan.length_us]
    for number, events in enumerate(groups):
        for turn in choices(events):
            apart = in_turns(plan, {number: turn})
            moved = [
                each for each in apart.events if events[0].at_us <= each.at_us < ends_us[number]
            ]
            assert deeds(moved) == deeds(events)
            assert len(apart.events) - len(moved) == len(plan.events) - len(events)


def deeds(events):
    """What happens to whom, whether at once or one after another."""
    return sorted(
        (each.action.value, broker)
        for each in events
        for broker in ((each.who and each.who.brokers) or (-1,))
    )


def test_an_order_keeps_what_the_file_says_after_it_behind_it():
    plan = read(MIXED, "mixed.yaml")
    turn = choices(moments(plan)[0])[-1]
    assert turn.brokers != (1, 2, 3, 4) and set(turn.brokers) == {1, 2, 3, 4}
    apart = in_turns(plan, {0: turn}).events
    ended = [each for each in apart if each.action.value in ("power_loss", "kill")][:4]
    assert [each.who.brokers[0] for each in ended] == list(turn.brokers)
    heal = next(each for each in apart if each.action.value == "heal")
    assert heal.at_us == max(each.at_us for each in ended) > 10_000_000


def test_machines_have_power_before_their_processes_start():
    """The first one is told by the others' machines that nothing listens there."""
    turn = Turn((3, 1, 2), (600_000, 600_000))
    told = transcribe(in_turns(read(ALL_START, "all.yaml"), {2: turn}))
    assert told.index("broker 3 serves again") < told.index("broker 1 started")


def test_a_roll_and_a_role_have_no_other_order():
    assert [bool(choices(each)) for each in moments(read(MIXED, "mixed.yaml"))] == [
        True, True, False, False,
    ]  # fmt: skip
