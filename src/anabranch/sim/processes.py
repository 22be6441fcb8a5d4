"""Processes of the simulated world: alive, paused, or dead.

What: what the world must know of whoever its events belong to. A life begins with each start and
ends with each crash; an event that was planned in one life does not happen in another. A paused
process (stopped by a signal, or on a machine that swaps) keeps its events until it goes on; the
clocks meanwhile do not stop. Not here: what a node does (`node.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Any

import msgspec


class State(Enum):
    """What a process is doing."""

    RUNNING = "running"
    PAUSED = "paused"
    CRASHED = "crashed"
    """The process is gone, its machine is not: who speaks to it is refused."""
    POWERED_OFF = "powered off"
    """The machine has no power: nobody answers at all."""


class Process:
    """Who events belong to. `held` keeps those of a paused process, in order."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.state = State.CRASHED
        self.life = 0
        self.held: list[Timer] | None = None
        self.newest: dict[int, int] = {}
        """API key -> the newest version that this process speaks, where that is not the newest."""

    @property
    def is_up(self) -> bool:
        """Whether there is a process, running or paused."""
        return self.state is State.RUNNING or self.state is State.PAUSED


class Timer(msgspec.Struct, eq=False):
    """Something that is to happen once; `cancel` forgets it."""

    action: Callable[..., None] | None
    args: tuple[Any, ...]
    process: Process | None
    life: int

    def cancel(self) -> None:
        """It will not happen."""
        self.action = None
        self.args = ()
