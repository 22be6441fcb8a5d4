"""Rounds in which one broker combines manifests: when one begins, and what follows from its end.

What: `rounds` is a generator without an end, performed like those of garbage collection
(`garbage_rounds.py`). Rules kept: brokers take turns by the same count; two that think it is their
turn do no harm (`combination.py`); a round that failed, or left something, comes again soon. Not
here: what is done in a round, I/O (`server/diskless/combiner.py`, `sim/combination.py`).
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, NamedTuple, TypeAlias

from anabranch.core.diskless.combination import Call, Combining, CombiningPace, Maker, combine
from anabranch.core.diskless.garbage_rounds import AskTurn, Turn
from anabranch.core.diskless.pause import Pause
from anabranch.core.errors import StorageFault

MOST_DOUBLED = 16
"""Pauses double so often; `round_ms` bounds them earlier."""


class CombiningEnded(NamedTuple):
    """A round is over: the fault that ended it early, or what it did."""

    fault: StorageFault | None
    done: Combining | None


Step: TypeAlias = Pause | AskTurn | Call | CombiningEnded


class CombiningRounds:
    """One broker's turns, by the steady clock."""

    def __init__(self, pace: CombiningPace) -> None:
        self.pace = pace
        self._due_ms: int | None = None
        self.succeeded_ms: int | None = None
        """When the last round ended without a fault."""
        self.deleted_manifests = 0
        self._failures = 0

    def due_ms(self, turn: Turn) -> int:
        """When the next round begins: this broker is the `number`-th of so many, from 0 on."""
        if self._due_ms is None:
            self._due_ms = turn.now_ms + self.pace.round_ms * (turn.number + 1)
        return min(self._due_ms, turn.now_ms + self.pace.round_ms * max(1, turn.brokers))

    def ended(self, turn: Turn, done: Combining) -> None:
        """A round did what it was to."""
        self.succeeded_ms = turn.now_ms
        self.deleted_manifests += done.deleted
        self._failures = 0
        wait_ms = self.pace.retry_ms if done.left else self.pace.round_ms * max(1, turn.brokers)
        self._due_ms = turn.now_ms + wait_ms

    def failed(self, now_ms: int) -> None:
        """Coordinator or store were away, or another broker was first."""
        wait_ms = self.pace.retry_ms << min(self._failures, MOST_DOUBLED)
        self._failures += 1
        self._due_ms = now_ms + min(wait_ms, self.pace.round_ms)


def rounds(kept: CombiningRounds, maker: Maker, poll_ms: int) -> Generator[Step, Any, None]:
    """All rounds of a broker, which looks every `poll_ms` whether one is due."""
    while True:
        yield Pause(poll_ms)
        turn: Turn = yield AskTurn()
        if kept.due_ms(turn) <= turn.now_ms:
            yield from one_round(kept, maker)


def one_round(kept: CombiningRounds, maker: Maker) -> Generator[Step, Any, None]:
    """Combine once."""
    try:
        done = yield from combine(maker, kept.pace)
    except StorageFault as fault:
        now: Turn = yield AskTurn()
        kept.failed(now.now_ms)
        yield CombiningEnded(fault, None)
    else:
        now = yield AskTurn()
        kept.ended(now, done)
        yield CombiningEnded(None, done)
