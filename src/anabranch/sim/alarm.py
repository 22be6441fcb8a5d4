"""An alarm of a simulated node: one timer for a deadline that moves about."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from anabranch.sim.processes import Process, Timer
    from anabranch.sim.world import World


class Alarm:
    """One deadline of a process's life that moves about: `due` says where it is by now."""

    __slots__ = ("_action", "_due", "_due_ms", "_process", "_timer", "_world")

    def __init__(
        self,
        world: World,
        process: Process,
        due: Callable[[], float | None],
        action: Callable[[], None],
    ) -> None:
        self._world = world
        self._process = process
        self._due = due
        self._action = action
        self._timer: Timer | None = None
        self._due_ms = 0.0

    def set(self) -> None:
        """Ring when the steady clock reaches what is due, if anything is."""
        due_ms = self._due()
        if due_ms is None:
            return
        if self._timer is not None:
            if due_ms >= self._due_ms:
                return
            self._timer.cancel()
        self._due_ms = due_ms
        delay_us = max(0, int(due_ms * 1000) - self._world.now_us)
        self._timer = self._world.after_in(self._process, delay_us, self._ring)

    def _ring(self) -> None:
        self._timer = None
        due_ms = self._due()
        if due_ms is not None and due_ms * 1000 > self._world.now_us:
            self.set()
        else:
            self._action()
