"""The turns of a node's loop: the shell around `core.node.turns`, one for all connections.

What: measures what connections take, and has the line go on in the next round of the loop, so that
sockets, timers and tasks come in between. Rule kept: a slice is charged with the processor's time
where it was given in a turn, since the machine may do something else meanwhile. Not here: who is
next, and for how long.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from time import monotonic_ns, thread_time_ns
from typing import Protocol

from anabranch.core.node.turns import SLICE_NS, Member, Turns


class Queued(Member, Protocol):
    """A connection with requests that were not run yet: see `core.node.channel.Channel`."""

    @property
    def has_runnable(self) -> bool:
        """Whether a request is queued that waits for nothing but its turn."""

    def run_queued(self, has_time: Callable[[], bool]) -> None:
        """Run what is queued in a step, one request at least, while there is time."""

    def drop(self) -> None:
        """Close at once."""


class LoopTurns:
    """Who of the connections of one loop runs its requests when."""

    __slots__ = ("_is_due", "turns")

    def __init__(self) -> None:
        self.turns: Turns[Queued] = Turns()
        self._is_due = False

    def line_up(self, connection: Queued) -> None:
        """Have the connection run what it has queued when it is its turn."""
        self.turns.line_up(connection)
        self.go_on()

    def go_on(self) -> None:
        """Take a turn in the next round of the loop."""
        if not self._is_due:
            self._is_due = True
            asyncio.get_running_loop().call_soon(self._turn)

    def _turn(self) -> None:
        self._is_due = False
        turns = self.turns
        now_ns = monotonic_ns()
        turns.start(now_ns)
        while (connection := turns.pick(now_ns)) is not None:
            self._serve(connection, now_ns + SLICE_NS)
            now_ns = monotonic_ns()
        turns.end(now_ns)
        if not turns.is_open:
            self.go_on()

    def _serve(self, connection: Queued, until_ns: int) -> None:
        if not connection.has_runnable:
            self.turns.pass_over(connection)
            return
        begun_ns = thread_time_ns()
        try:
            connection.run_queued(lambda: monotonic_ns() < until_ns)
        except Exception as fault:  # as the loop does where it calls a connection itself
            message = "requests of a connection were not run"
            told = {"message": message, "exception": fault, "protocol": connection}
            asyncio.get_running_loop().call_exception_handler(told)
            connection.drop()
        self.turns.served(connection, thread_time_ns() - begun_ns)
        if connection.has_runnable:
            self.turns.line_up(connection)
