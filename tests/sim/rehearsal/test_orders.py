"""What one moment does may come in any order that the simulation can follow, and in no other way."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from msgspec.structs import replace as changed_to

from anabranch.core.controller.brokers.membership import Consequences
from anabranch.sim.rehearsal import orders
from anabranch.sim.rehearsal.library import names, text_of
from anabranch.sim.rehearsal.orders import (
    Foretold,
    Turn,
    begins,
    choices,
    in_turns,
    nobody_runs,
)
from anabranch.sim.rehearsal.outcome import differences, moments, rehearsed
from anabranch.sim.rehearsal.rehearsal_file import read
from anabranch.sim.rehearsal.stage import Stage
from anabranch.sim.rehearsal.transcript import transcribe
from anabranch.testing.rehearsal.actions import performable

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
BOTH_START = """
length: 20s
cluster: {brokers: 2, controller: 2}
topics: {orders: {replicas: [[1, 2]], settings: {min.insync.replicas: 2}}}
events:
  - {at: 1s, send: {to: orders-0, records: 2, acks: all}}
  - {at: 2s, power_loss: all}
  - {at: 10s, start: all}
"""
STARTED = 2
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


def otherwise(outcome, moment=KILLED):
    """The outcome with one thing changed, in each way in which processes could differ."""
    row = outcome.rows[moment + 1]
    state = row.state
    leads = state.partition
    changed = {
        "a leader": replace(state, partition=changed_to(leads, leader=-1 - leads.leader)),
        "an epoch": replace(state, partition=changed_to(leads, leader_epoch=9)),
        "an ISR": replace(state, partition=changed_to(leads, isr=(2, 3))),
        "an ELR": replace(state, partition=changed_to(leads, elr=(1, 2))),
        "a log": replace(state, logs=(*state.logs[:-1], "1/1")),
        "a broker": replace(state, logs=("frozen", *state.logs[1:])),
        "a service": replace(state, serves="reads" if state.serves != "reads" else "nothing"),
    }
    rows = {what: replace(row, state=each) for what, each in changed.items()}
    rows["a cut"] = replace(row, cuts=["broker 3 truncates its log from 2 to 1"])
    rows["a change"] = replace(row, changes=[*row.changes, "3 stays leader in a new epoch"])
    rows["no change"] = replace(row, changes=row.changes[:-1])
    before, after = outcome.rows[: moment + 1], outcome.rows[moment + 2 :]
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


# Nodes that start while no controller runs.


@pytest.fixture(scope="module")
def both_start():
    return read(BOTH_START, "both.yaml")


def ways(plan):
    """All ways in which the nodes of a plan start together."""
    turns = choices(moments(plan)[STARTED], nobody_runs=True)
    return [each for each in turns if each.paces]


def decided(plan):
    """What the controllers decided after the start: F fences a broker, R registers it, and U lets
    it in."""
    stage, found = Stage(plan), []
    letters = {"registered": "R", "goes from fenced": "U", "closed its connection": "F"}

    def listen(now_us, kind, _who, text, _details):
        match = re.match(rf"broker (\d) ({'|'.join(letters)})", text)
        if kind == "decided" and match and now_us > stage.begins_us + 10_000_000:
            found.append(letters[match[2]] + match[1])

    stage.world.listeners.append(listen)
    stage.run()
    return found


def told(turn):
    """What is decided in a turn, but for who is let in."""
    fenced = [each for each in turn.brokers if turn.pace(each).joins_us >= orders.LATE_US]
    late = sorted(fenced, key=lambda each: turn.pace(each).joins_us)
    first = [f"{'F' if each in fenced else 'R'}{each}" for each in turn.brokers]
    return [*first, *(f"R{each}" for each in late)]


def test_nodes_that_start_together_are_fenced_and_register_in_every_order(both_start):
    seen = set()
    for turn in ways(both_start):
        found = decided(in_turns(both_start, {STARTED: turn}))
        assert [each for each in found if each[0] != "U"] == told(turn), turn.text
        seen.add(tuple(found))
    assert len({tuple(each for each in found if each[0] != "U") for found in seen}) == 10
    assert ("F1", "F2", "R2", "R1", "U2", "U1") in seen
    assert ("F1", "F2", "R2", "U2", "R1", "U1") in seen


def test_every_way_in_which_nodes_start_together_is_found_and_named(both_start):
    written = rehearsed(both_start)
    foretold = Foretold(written)
    seen = {}
    for turn in ways(both_start):
        outcome = rehearsed(in_turns(both_start, {STARTED: turn}), both_start)
        seen.setdefault(outcome.rows[-1].at_rest, (turn, outcome))
    assert len(seen) > 3
    for turn, outcome in seen.values():
        assert foretold.search(outcome.rows), turn.text
        assert differences(foretold.met, replace(outcome, plan=both_start)) == []
    assert re.search(
        r"started: (1, then 2|2, then 1) left the ISR; \d, then \d registered", foretold.order
    )


def test_what_no_start_gives_stays_a_difference(both_start, monkeypatch):
    monkeypatch.setattr(orders, "CHANGED_TOGETHER", 1)
    foretold = Foretold(rehearsed(both_start))
    turns = {turn.text: turn for turn in ways(both_start)}
    for turn in turns.values():
        outcome = rehearsed(in_turns(both_start, {STARTED: turn}), both_start)
        for what, seen in otherwise(outcome, STARTED).items():
            assert not foretold.search(seen.rows), (turn.text, what)
            assert differences(foretold.met, seen), (turn.text, what)


def test_what_a_broken_rule_gives_is_found_in_no_start(both_start, monkeypatch):
    """Of a crashed broker's acknowledged records some may be gone: it is not eligible to lead."""
    monkeypatch.setattr(orders, "CHANGED_TOGETHER", 1)
    foretold = Foretold(rehearsed(both_start))
    plans = [in_turns(both_start, {STARTED: turn}) for turn in ways(both_start)]
    with monkeypatch.context() as broken:
        broken.setattr(
            Consequences, "lost", lambda self, broker, cause, but=(): self.leaves(broker, cause)
        )
        seen = [rehearsed(each, both_start) for each in plans]
    for each in seen:
        assert not foretold.search(each.rows), each.text()


def test_each_decision_is_a_change_of_its_own():
    """A node may read several decisions at once; on disks they stay apart."""
    plan = performable(read(text_of("power-loss-of-all"), "all"))
    left = [orders.LEFT.findall(each) for row in rehearsed(plan).rows for each in row.changes]
    assert [ids for found in left for ids in found if "," in ids] == []
    assert sum(map(len, left)) == 3


def test_only_nodes_that_start_while_none_runs_have_no_controller(both_start):
    assert nobody_runs(both_start) == [False, False, True]
    assert nobody_runs(read(TWO_END, "two.yaml")) == [False, False, False]
    assert nobody_runs(read(ALL_START, "all.yaml")) == [False, False, True]
    assert not any(turn.paces for turn in choices(moments(both_start)[STARTED]))
