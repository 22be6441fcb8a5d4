"""One thread for one database: calls in the order in which they come.

What: a queue of calls, each of which gets a future. Why not an executor: its threads are waited for
when the program ends, and this one may wait for a lock that a stopped process holds. Rule kept: a
call that was given up before it began is never made. Not here: SQL.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from threading import Thread
from typing import Any, TypeVar

ResultT = TypeVar("ResultT")


class Worker:
    """A daemon thread. `end` has it stop after what was asked before."""

    def __init__(self, name: str) -> None:
        self._calls: SimpleQueue[tuple[Callable[[], Any], Future[Any]] | None] = SimpleQueue()
        self._thread = Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    async def run(
        self,
        call: Callable[[], ResultT],
        timeout_s: float,
        cut: Callable[[], None] = lambda: None,
    ) -> ResultT:
        """What a call gives. Raises TimeoutError: if it had begun, it goes on, and `cut` is called
        to have it end."""
        future: Future[ResultT] = Future()
        self._calls.put((call, future))
        try:
            async with asyncio.timeout(timeout_s):  # wait_for may lose a cancellation in 3.11
                return await asyncio.wrap_future(future)
        except TimeoutError:
            if future.running():
                cut()
            raise

    def post(self, call: Callable[[], None]) -> None:
        """Make a call without waiting for its end."""
        self._calls.put((call, Future()))

    def end(self) -> None:
        """Take no more calls."""
        self._calls.put(None)

    def _work(self) -> None:
        while (asked := self._calls.get()) is not None:
            call, future = asked
            if not future.set_running_or_notify_cancel():
                continue
            try:
                future.set_result(call())
            except BaseException as fault:
                future.set_exception(fault)
            del asked, call, future
