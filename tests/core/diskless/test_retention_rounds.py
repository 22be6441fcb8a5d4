"""When a broker looks over its diskless partitions, and what it asks of the coordinator."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.core.api.in_memory_node import START_MS, InMemoryNode

from anabranch.core.diskless import retention_rounds
from anabranch.core.diskless.coordinator import CoordinatorAway
from anabranch.core.diskless.pause import Pause
from anabranch.core.diskless.retention import MOST_RUNS, Limits, to_look_over
from anabranch.core.diskless.retention_rounds import (
    AskStates,
    Expire,
    RoundEnded,
    Shortened,
    rounds,
)
from anabranch.core.diskless.rows import LogState

INTERVAL = {"log.retention.check.interval.ms": "7000"}
DISKLESS = {"diskless.enable": "true"}
MOST_PARTITIONS = 9


class Coordinator:
    """Runs by partition; a call of a number in `fails` fails."""

    def __init__(self, runs, fails=()):
        self.runs, self.fails = dict(runs), set(fails)
        self.calls = []

    def answer(self, step):
        self.calls.append(step)
        if len(self.calls) - 1 in self.fails:
            return CoordinatorAway("away")
        if isinstance(step, AskStates):
            return [self.state(key) for key in step.keys]
        if isinstance(step, Shortened):
            return None
        key = step.limits.key
        deleted = min(self.runs[key], step.most_runs)
        self.runs[key] -= deleted
        return self.state(key), deleted

    def state(self, key):
        return LogState(0, 9, 100 * self.runs[key]) if key in self.runs else None


def one_round(chain, coordinator):
    """A round of a chain that pauses: all steps until its end."""
    steps, result = [], START_MS
    while True:
        failed = isinstance(result, CoordinatorAway)
        step = chain.throw(result) if failed else chain.send(result)
        steps.append(step)
        if isinstance(step, RoundEnded):
            return steps
        result = coordinator.answer(step)


@pytest.fixture(scope="module")
def node():
    node = InMemoryNode(brokers=(1, 2), config=INTERVAL)
    node.topic("t", MOST_PARTITIONS, configs=DISKLESS)
    node.change("t", 1, leader=2, replicas=(2,), isr=(2,))
    return node


@pytest.fixture(scope="module")
def keys(node):
    """What this broker looks over."""
    broker = node.broker
    return [each.key for each in to_look_over(broker.image, 1, broker.config, START_MS)]


@given(data=st.data())
def test_a_round_deletes_all_that_may_go_unless_a_call_fails(node, keys, data):
    runs = {
        key: data.draw(st.sampled_from((0, 1, MOST_RUNS - 1, MOST_RUNS, 2 * MOST_RUNS + 1)))
        for key in keys
        if data.draw(st.booleans())
    }
    fails = data.draw(st.sets(st.integers(0, 12), max_size=1))
    at_once = data.draw(st.integers(1, MOST_PARTITIONS + 1))
    coordinator = Coordinator(runs, fails)
    chain = rounds(node.broker, states_at_once=at_once)
    for _ in range(2):
        assert next(chain, None) == Pause(7000)
        begun = len(coordinator.calls)
        steps = one_round(chain, coordinator)
        failed = any(begun <= each < len(coordinator.calls) for each in fails)
        assert (steps[-1].fault is not None) == failed
        if not failed:
            assert not any(coordinator.runs.values())
            asked = [key for step in steps if isinstance(step, AskStates) for key in step.keys]
            assert asked == keys
            assert all(len(each.keys) <= at_once for each in steps if isinstance(each, AskStates))
            assert all(runs.get(each.limits.key) for each in steps if isinstance(each, Expire))
            told = {each.change.key for each in steps if isinstance(each, Shortened)}
            assert told == {each.limits.key for each in steps if isinstance(each, Expire)}


def test_a_round_that_failed_is_followed_by_the_next_one(node, keys):
    coordinator = Coordinator(dict.fromkeys(keys, 1), fails={3})
    chain = rounds(node.broker)
    assert next(chain, None) == Pause(7000)
    assert [type(each) for each in one_round(chain, coordinator)] == [
        AskStates, Expire, Shortened, Expire, RoundEnded,
    ]  # fmt: skip
    assert next(chain, None) == Pause(7000)
    assert one_round(chain, coordinator)[-1] == RoundEnded()
    assert not any(coordinator.runs.values())


def test_where_no_sizes_are_asked_for_no_partition_is_left_out(node, keys):
    coordinator = Coordinator(dict.fromkeys(keys, 0))
    chain = rounds(node.broker, pause_ms=20, states_at_once=0)
    assert next(chain) == Pause(20)
    *calls, _ = one_round(chain, coordinator)
    assert [each.limits.key for each in calls] == keys


def test_where_no_sizes_are_asked_for_partitions_go_by_key():
    """An order of hashes would be another one in each process: no schedule could be repeated."""
    node = InMemoryNode()
    for number in range(9):
        node.topic(f"t{number}", configs=DISKLESS)
    broker = node.broker
    keys = [each.key for each in to_look_over(broker.image, 1, broker.config, START_MS)]
    chain = rounds(broker, pause_ms=20, states_at_once=0)
    next(chain)
    *calls, _ = one_round(chain, Coordinator(dict.fromkeys(keys, 0)))
    assert [each.limits.key for each in calls] == sorted(keys)


def test_partitions_are_looked_at_a_page_at_a_time(node, monkeypatch):
    """A broker may lead a hundred thousand partitions, and clients are served between two pages."""
    looked = []

    def many(*_arguments):
        for number in range(7):
            looked.append(number)
            yield Limits(number, -1, -1)

    monkeypatch.setattr(retention_rounds, "to_look_over", many)
    chain = rounds(node.broker, states_at_once=3)
    next(chain)
    step, asked = chain.send(START_MS), []
    while isinstance(step, AskStates):
        asked.append((len(step.keys), len(looked)))
        step = chain.send([None] * len(step.keys))
    assert asked == [(3, 3), (3, 6), (1, 7)]
