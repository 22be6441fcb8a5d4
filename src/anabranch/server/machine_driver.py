"""Drives a pure machine on the loop: events, effects, and a timer for what is due.

What: `step` hands over an event and has each effect done; between events a timer calls `tick` when
the machine wants it. Rules kept: effects are done in order, also those that follow from another
effect's event; after an error, or after `stop`, nothing more is done.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Protocol

from anabranch.core.broker.registration.events import Effect, Say
from anabranch.core.step import InOrder
from anabranch.server.clocks import steady_ms
from anabranch.server.own_faults import tell_unexpected

LONGEST_WAIT_MS = 3_600_000
"""A timer further away is set anew then."""


class Machine(Protocol):
    """What is driven."""

    def step(self, event: Any, now_ms: int) -> None:
        """Take an event."""

    def tick(self, now_ms: int) -> None:
        """Do what is due."""

    def take_effects(self) -> list[Effect]:
        """What is to be done now, in order."""

    @property
    def next_tick_ms(self) -> int:
        """When `tick` has something to do."""


class Timed:
    """One machine on the running loop. `do` performs an effect; `failed` is told of an error."""

    def __init__(
        self, machine: Machine, do: Callable[[Effect], None], failed: Callable[[Exception], None]
    ) -> None:
        self._machine = machine
        self._do_all = InOrder(machine.take_effects, do)
        self._failed = failed
        self._timer: asyncio.TimerHandle | None = None
        self._is_stopped = False

    def step(self, event: Any) -> None:
        """Take an event and do what follows from it."""
        self._go(lambda: self._machine.step(event, steady_ms()))

    def stop(self) -> None:
        """Do nothing more."""
        self._is_stopped = True
        if self._timer is not None:
            self._timer.cancel()

    def _go(self, act: Callable[[], None]) -> None:
        if self._is_stopped:
            return
        try:
            act()
            self._perform()
        except Exception as fault:
            tell_unexpected(fault, "a step of a machine")
            self.stop()
            self._failed(fault)

    def _perform(self) -> None:
        if self._do_all():
            self._set_timer()

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        wait_ms = min(self._machine.next_tick_ms - steady_ms(), LONGEST_WAIT_MS)
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(max(wait_ms, 0) / 1000, self._tick)

    def _tick(self) -> None:
        self._go(lambda: self._machine.tick(steady_ms()))


def say(log: Any, effect: Effect) -> None:
    """Write what an operator should know."""
    assert isinstance(effect, Say)
    details = {"why": effect.why} if effect.why else {}
    (log.error if effect.is_error else log.warning)(effect.sentence, **details)
