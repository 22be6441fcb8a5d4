"""How the coordinator comes to know a broker's epoch: every order of what calls can give."""

from __future__ import annotations

from itertools import product
from types import SimpleNamespace

import pytest

from anabranch.core.diskless.admission import (
    RETRY_MS,
    Admitted,
    Refused,
    Register,
    Waiting,
    admission,
)
from anabranch.core.diskless.coordinator import CoordinatorAway, Deposed, OlderCopy
from anabranch.core.diskless.pause import Pause
from anabranch.core.errors import StorageFault

KNOWN, AWAY, OLDER, DEPOSED = "known", "away", "older", "deposed"
MOVED, LATE = "moved", "late"
"""What a call gives. The controller has given another epoch meanwhile where it is MOVED, which
succeeds, or LATE: the coordinator knows that other epoch by then."""
FAULTS = {AWAY: CoordinatorAway("away"), OLDER: OlderCopy("older")}
FAULTS |= dict.fromkeys((DEPOSED, LATE), Deposed("epoch 9"))
ENDS = (KNOWN, DEPOSED, MOVED, LATE)
LONGEST = 4


def admitted(answers):
    """The steps of an admission whose calls give these, as far as they go."""
    broker = SimpleNamespace(broker_id=1, broker_epoch=5)
    steps, chain, result = [], admission(broker), None
    waiting = list(answers)
    while True:
        try:
            step = chain.throw(result) if isinstance(result, StorageFault) else chain.send(result)
        except StopIteration:
            return steps
        steps.append(step)
        result = None
        if isinstance(step, Register):
            if not waiting:
                return steps
            answer = waiting.pop(0)
            broker.broker_epoch = 6 if answer in (MOVED, LATE) else 5
            result = FAULTS.get(answer)


@pytest.mark.parametrize("length", range(LONGEST + 1))
def test_it_asks_until_the_epoch_is_known_or_never_will_be(length):
    for answers in product((AWAY, OLDER, *ENDS), repeat=length):
        steps = admitted(answers)
        ends = [number for number, each in enumerate(answers) if each in ENDS]
        calls = sum(isinstance(step, Register) for step in steps)
        assert calls == (ends[0] + 1 if ends else length + 1), answers
        last = answers[ends[0]] if ends else None
        assert [step for step in steps if isinstance(step, Admitted)] == (
            [Admitted(5)] if last == KNOWN else []
        ), answers
        assert any(isinstance(step, Refused) for step in steps) == (last == DEPOSED), answers


def test_a_call_that_failed_is_told_and_made_again_after_a_pause():
    call = Register(1, 5)
    away = Waiting(FAULTS[AWAY])
    assert admitted([AWAY, KNOWN]) == [call, away, Pause(RETRY_MS), call, Admitted(5)]


def test_another_epoch_ends_the_admission_of_this_one():
    broker = SimpleNamespace(broker_id=1, broker_epoch=5)
    chain = admission(broker)
    assert chain.send(None) == Register(1, 5)
    chain.throw(FAULTS[AWAY])
    assert chain.send(None) == Pause(RETRY_MS)
    broker.broker_epoch = 6
    assert next(chain, None) is None


def test_a_broker_that_was_deposed_is_told_what_to_do():
    *_, refused = admitted([DEPOSED])
    assert refused.why.startswith("epoch 9; another process has this broker's place")
    assert "put the newest metadata back" in refused.why
