"""When a broker's rounds of garbage collection begin, and what follows when a call fails."""

from __future__ import annotations

import pytest

from anabranch.core.diskless import garbage_round as does
from anabranch.core.diskless.coordinator import CoordinatorAway
from anabranch.core.diskless.garbage import GarbageRounds, Pace
from anabranch.core.diskless.garbage_rounds import AskTurn, RoundEnded, Turn, rounds
from anabranch.core.diskless.pause import Pause

POLL_MS = 100
PACE = Pace(round_ms=2_000, retry_ms=700, list_ms=5_000)
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
        results = {does.MarkExpired: 0, does.FindDeletable: [(1, "a")], does.DeleteObjects: ["a"],
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
