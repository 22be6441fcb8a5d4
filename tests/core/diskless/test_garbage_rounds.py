"""When a broker's rounds of garbage collection begin, their calls in order, and how they end."""

from __future__ import annotations

import pytest

from anabranch.core.diskless import garbage_rounds as does
from anabranch.core.diskless.coordinator import CoordinatorAway
from anabranch.core.diskless.garbage import (
    DELETE_AT_ONCE,
    MARK_AT_ONCE,
    STEP_PAUSE_MS,
    GarbageRounds,
    Pace,
)
from anabranch.core.diskless.garbage_rounds import AskTurn, RoundEnded, Turn, rounds
from anabranch.core.diskless.keys import object_key
from anabranch.core.diskless.objects import Listed
from anabranch.core.diskless.pause import Pause

POLL_MS = 100
PACE = Pace(
    round_ms=2_000, grace_ms=50, retry_ms=700, list_ms=5_000, orphan_ms=500, idle_producer_ms=900
)
NOW_MS = 10_000
BROKERS, NUMBER = 3, 1
FIRST_MS = POLL_MS + PACE.round_ms * (NUMBER + 1)
CALLS = [
    does.MarkExpired, does.ForgetProducers, does.FindDeletable, does.DeleteObjects,
    does.ForgetObjects,
]  # fmt: skip
LISTING = [does.ReadMark, does.ListObjects]


class Broker:
    """Performs rounds until a time; the call of a number in `fails` fails. What it did, and when."""

    def __init__(self, fails=()):
        self.kept = GarbageRounds(PACE)
        self.fails = set(fails)
        self.now_ms, self.calls = 0, 0
        self.done = []
        self._chain, self._result = rounds(self.kept, POLL_MS), None

    def run(self, until_ms):
        while True:
            step = self._step()
            if isinstance(step, Pause):
                self.now_ms += step.pause_ms
                self._result = self.now_ms
                if self.now_ms > until_ms:
                    return self
            elif isinstance(step, AskTurn):
                self._result = Turn(self.now_ms, NUMBER, BROKERS)
            else:
                self.done.append((self.now_ms, step))
                self._result = None if isinstance(step, RoundEnded) else self._call(step)

    def _step(self):
        if isinstance(self._result, CoordinatorAway):
            return self._chain.throw(self._result)
        return self._chain.send(self._result)

    def _call(self, step):
        self.calls += 1
        if self.calls - 1 in self.fails:
            return CoordinatorAway("away")
        results = {does.MarkExpired: 0, does.ForgetProducers: 0, does.FindDeletable: [(1, "a")], does.DeleteObjects: ["a"],
                   does.ReadMark: "mark"}  # fmt: skip
        return results.get(type(step))

    def begun(self):
        """When each round began."""
        return [at_ms for at_ms, step in self.done if isinstance(step, does.MarkExpired)]

    def kinds(self):
        return [type(step) for _, step in self.done]


def test_rounds_begin_at_the_brokers_turn():
    broker = Broker().run(20_000)
    assert broker.begun() == list(range(FIRST_MS, 20_001, BROKERS * PACE.round_ms))
    assert broker.kinds()[: len(CALLS) + 1] == [*CALLS, RoundEnded]


def test_some_rounds_also_list_the_store():
    broker = Broker().run(20_000)
    listed = [at_ms for at_ms, step in broker.done if isinstance(step, does.ListObjects)]
    assert 0 < len(listed) < len(broker.begun())
    ends = [step for _, step in broker.done if isinstance(step, RoundEnded)]
    assert [each.has_listed for each in ends] == [at_ms in listed for at_ms in broker.begun()]


@pytest.mark.parametrize("call", range(2 * len(CALLS) + len(LISTING)))
def test_a_round_whose_call_failed_ends_and_comes_again_soon(call):
    """Whichever call it is: of the first round, or of the second one, which lists."""
    broker = Broker([call]).run(20_000)
    [(number, at_ms)] = [
        (number, at_ms)
        for number, (at_ms, step) in enumerate(broker.done)
        if isinstance(step, RoundEnded) and step.fault
    ]
    before = broker.kinds()[:number]
    assert len(before) - before.count(RoundEnded) == call + 1, "nothing is called after the fault"
    assert at_ms + PACE.retry_ms in broker.begun()
    assert broker.kept.succeeded_ms == broker.begun()[-1]


def calls_of(steps, results):
    """What is asked, when each call gives the next of some results."""
    asked, given = [], iter((None, *results))
    try:
        while True:
            asked.append(steps.send(next(given)))
    except StopIteration:
        return asked


def test_the_store_deletes_before_the_coordinator_forgets_and_only_what_is_gone():
    kept = GarbageRounds(PACE)
    asked = calls_of(does.collect(kept), [0, 0, [(1, "a"), (2, "b")], ["b"], None])
    assert asked == [
        does.MarkExpired(MARK_AT_ONCE),
        does.ForgetProducers(PACE.idle_producer_ms, MARK_AT_ONCE),
        does.FindDeletable(PACE.grace_ms, DELETE_AT_ONCE),
        does.DeleteObjects(["a", "b"]),
        does.ForgetObjects([2]),
    ]
    assert kept.deleted_objects == 1 and kept.waiting_objects == 1


class Backlog:
    """A coordinator and a store with so much to do; `added` more comes due with each call."""

    def __init__(self, rows=0, producers=0, objects=0, added=0, refuses=False):
        self.left = {does.MarkExpired: rows, does.ForgetProducers: producers}
        self.objects, self.next = dict.fromkeys(range(objects)), objects
        self.added, self.refuses = added, refuses
        self.waiting = []
        """What the metric said after each deletion, and what was right."""

    def collect(self):
        kept, result, calls = GarbageRounds(PACE), None, 0
        steps = does.collect(kept)
        try:
            while calls < 10_000:
                calls += 1
                step = steps.send(result)
                if isinstance(step, Pause):
                    assert step.pause_ms == STEP_PAUSE_MS
                    self.waiting.append((kept.waiting_objects, len(self.objects)))
                result = self._do(step)
            pytest.fail("the round does not end")
        except StopIteration:
            return kept

    def _do(self, step):
        for kind in self.left:
            self.left[kind] += self.added
        match step:
            case does.MarkExpired(limit) | does.ForgetProducers(_, limit):
                done = min(limit, self.left[type(step)])
                self.left[type(step)] -= done
                return done
            case does.FindDeletable(_, limit):
                return [(number, str(number)) for number in sorted(self.objects)[:limit]]
            case does.CountDeletable(_, limit):
                return min(limit, len(self.objects))
            case does.DeleteObjects(keys):
                return [] if self.refuses else keys
            case does.ForgetObjects(numbers):
                for number in numbers:
                    del self.objects[number]
        return None


@pytest.mark.parametrize("kind", ["rows", "producers", "objects"])
def test_a_round_goes_on_until_nothing_is_due(kind):
    """However much of one kind it is; the metric tells how many objects are left meanwhile."""
    backlog = Backlog(**{kind: 60_000})
    kept = backlog.collect()
    assert not any(backlog.left.values()) and not backlog.objects
    assert kept.waiting_objects == 0 and len(backlog.waiting) > 10
    assert all(told == right for told, right in backlog.waiting)


def test_a_round_ends_while_a_little_comes_due_all_the_time():
    backlog = Backlog(rows=5_000, added=10)
    backlog.collect()
    assert backlog.left[does.MarkExpired] < MARK_AT_ONCE


def test_a_round_ends_when_the_store_gives_nothing_back():
    backlog = Backlog(objects=2_000, refuses=True)
    kept = backlog.collect()
    assert kept.waiting_objects == 2_000 and kept.deleted_objects == 0


def test_a_listing_deletes_what_is_old_unknown_and_of_this_database():
    old, young = NOW_MS - PACE.orphan_ms, NOW_MS - PACE.orphan_ms + 1
    ours, other, known, fresh = (
        object_key("c", mark, number)
        for number, mark in enumerate(("mine", "another", "mine", "mine"))
    )
    page = [Listed(ours, 9, old), Listed(other, 9, old), Listed(known, 9, old)]
    rounds = GarbageRounds(PACE)
    asked = calls_of(
        does.sweep(rounds),
        [
            "mine",
            does.Page([*page, Listed(fresh, 9, young)], NOW_MS),
            [ours, other],
            [ours],
            does.Page([Listed(fresh, 9, young)], NOW_MS),
            None,
        ],
    )
    assert asked == [
        does.ReadMark(),
        does.ListObjects(),
        does.FindUnknown([ours, other, known]),
        does.DeleteObjects([ours]),
        does.ListObjects(),
        does.ListObjects(),
    ]
    assert rounds.deleted_orphans == 1 and rounds.foreign_objects == 1
