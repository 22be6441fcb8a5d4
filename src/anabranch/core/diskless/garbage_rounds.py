"""Rounds of garbage collection of one broker: when one begins, and what follows from its end.

What: `rounds` is a generator without an end. It yields pauses, questions and calls, and is sent
what they gave, or is thrown the fault of a call that failed. Why: a broker and the simulator do the
same in the same order, each in its own way. Rule kept: a call that fails ends its round, which
comes again soon. Not here: whose turn it is (`garbage.py`), the calls of a round
(`garbage_round.py`), I/O (`server/objects/garbage_collector.py`, `sim/diskless_upkeep.py`).
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, NamedTuple, TypeAlias

from anabranch.core.diskless.garbage import GarbageRounds
from anabranch.core.diskless.garbage_round import Call, collect, sweep
from anabranch.core.diskless.pause import Pause
from anabranch.core.errors import StorageFault


class Turn(NamedTuple):
    """Which of the living brokers this one is, and how many there are, by the steady clock."""

    now_ms: int
    number: int
    brokers: int


class AskTurn(NamedTuple):
    """Gives the present Turn."""


class RoundEnded(NamedTuple):
    """A round is over: the fault that ended it early, if one did, and whether it began to list the
    store."""

    fault: StorageFault | None
    has_listed: bool


Step: TypeAlias = Pause | AskTurn | Call | RoundEnded


def rounds(kept: GarbageRounds, poll_ms: int) -> Generator[Step, Any, None]:
    """All rounds of a broker, which looks every `poll_ms` whether one is due: other brokers come
    and go."""
    while True:
        yield Pause(poll_ms)
        turn: Turn = yield AskTurn()
        if kept.due_ms(*turn) <= turn.now_ms:
            yield from one_round(kept, turn)


def one_round(kept: GarbageRounds, turn: Turn) -> Generator[Step, Any, None]:
    """Collect, and sometimes list the store."""
    has_listed = False
    try:
        left = yield from collect(kept)
        has_listed = kept.lists_now(*turn)
        if has_listed:
            yield from sweep(kept)
    except StorageFault as fault:
        now: Turn = yield AskTurn()
        kept.failed(now.now_ms)
        yield RoundEnded(fault, has_listed)
    else:
        now = yield AskTurn()
        kept.ended(now.now_ms, turn.brokers, left)
        yield RoundEnded(None, has_listed)
