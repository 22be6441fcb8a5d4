"""What acts for the requests of one role of a node: clocks, one timer, threads, tasks.

What: `RequestShell` begins and ends the steps in which requests are handled (`core.node.requests`),
and makes the calls that they ask for: reads in threads, decisions, and requests to the controller.
Each end comes back as a step of its own. Rule kept: nothing is decided here.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Hashable, Iterable, Sequence
from functools import partial
from typing import Any

from anabranch.core.api.handler import Handler
from anabranch.core.due import WAITS
from anabranch.core.log.files import ColdRead
from anabranch.core.node.channel import Channel
from anabranch.core.node.outcomes import STOPS_UNASKED, STOPS_UNDECIDED
from anabranch.core.node.requests import Requests
from anabranch.core.node.route import Route
from anabranch.core.node.turns import TURN_NS
from anabranch.core.outcome import Hangup, Propose
from anabranch.core.request import Request
from anabranch.core.step import Mailbox, Performer, drain
from anabranch.server.clocks import both_ms, steady_ms
from anabranch.server.own_faults import OwnFaults
from anabranch.server.warmer import Warmer


class RequestShell(Performer):
    """One role. `submit` makes a decision durable and `pass_on` asks the controller."""

    def __init__(
        self,
        role: str,
        world: Any,
        handlers: dict[int, Handler],
        mailbox: Mailbox,
        *,
        submit: Callable[[Propose], asyncio.Future[Any]],
        pass_on: Callable[[memoryview, Request], Coroutine[Any, Any, bytes]],
    ) -> None:
        self.settle: Callable[[], None] = partial(drain, mailbox, self)
        """Ends a step."""
        self.requests = Requests(role, world, handlers, self, mailbox)
        mailbox.due.performs(WAITS, self._arm)
        self.own_faults = OwnFaults()
        """The node's, where there is one."""
        self._submit = submit
        self._pass_on = pass_on
        self._connection_ids = 0
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms = 0
        self._warmer = Warmer()
        self._tasks: set[asyncio.Task[Any]] = set()
        self.begin()

    # Connections.

    def next_connection_id(self) -> int:
        """A number that no other connection of this role has had."""
        self._connection_ids += 1
        return self._connection_ids

    def left(self, connection: Channel) -> None:
        """A connection has ended, for any cause."""

    # Steps.

    def begin(self) -> None:
        """Read the clocks, once for everything that this step does."""
        requests = self.requests
        requests.now_ms, requests.steady_ms = both_ms()

    def wake(self, *keys: Hashable) -> None:
        """Something changed outside of a request: a step of its own."""
        self.requests.mailbox.changed.update(dict.fromkeys(keys))
        self.begin()
        self.settle()

    def read_on(self) -> None:
        """There is room for what waits for a store: a step of its own."""
        self.begin()
        self.requests.crowd.read_on()
        self.settle()

    def wake_waiting(self, keys: Iterable[Hashable]) -> None:
        requests = self.requests
        if requests.purgatory.by_key:
            requests.purgatory.wake(keys, requests.now_ms)

    def _told(self, done: Callable[[Any], None], result: Any) -> None:
        self.begin()
        done(result)
        self.settle()

    # What requests ask for: see `core.node.outcomes.Shell`.

    def warm(
        self, reads: Sequence[ColdRead], done: Callable[[BaseException | Hangup | None], None]
    ) -> None:
        self._warmer.warm(reads, partial(self._told, done))

    def propose(self, proposal: Propose, done: Callable[[Any], None]) -> None:
        ended = partial(self._ended, done, STOPS_UNDECIDED)
        self._submit(proposal).add_done_callback(ended)

    def now_ns(self) -> int:
        return time.monotonic_ns()

    def forward(self, frame: memoryview, request: Request, done: Callable[[Any], None]) -> None:
        task = asyncio.get_running_loop().create_task(self._pass_on(frame, request))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(partial(self._ended, done, STOPS_UNASKED))

    def _ended(self, done: Callable[[Any], None], why: str, future: asyncio.Future[Any]) -> None:
        """A call has ended, or (`why`) never will: a task may be cancelled before it has begun."""
        if future.cancelled():
            self._told(done, Hangup(why))
        else:
            self._told(done, future.exception() or future.result())

    def unexpected(self, route: Route, request: Request, fault: BaseException) -> None:
        self.own_faults.note_exception(
            "a request failed", fault, api=route.name, version=route.version,
            peer=request.client_host,
        )  # fmt: skip

    # Time.

    def _arm(self) -> None:
        """One timer for all who wait."""
        deadline_ms = self.requests.purgatory.next_deadline()
        if deadline_ms is None:
            return
        if self._timer is not None:
            if deadline_ms >= self._timer_ms:
                return
            self._timer.cancel()
        self._timer_ms = deadline_ms
        seconds = max(0, deadline_ms - steady_ms()) / 1000
        self._timer = asyncio.get_running_loop().call_later(seconds, self._ring)

    def _ring(self) -> None:
        self._timer = None
        self.begin()
        until_ns = time.monotonic_ns() + TURN_NS  # the rest is due in the next round of the loop
        self.requests.expire(lambda: time.monotonic_ns() < until_ns)
        self.settle()

    async def stop(self) -> None:
        """Answer everybody who waits as if their time had come. What no thread reads yet is not
        read: whoever asked for it is hung up."""
        self.begin()
        self.requests.finish_all()
        self.settle()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for task in tuple(self._tasks):
            task.cancel()
        self._warmer.stop()
