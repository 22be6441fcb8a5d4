"""The event loop of a node whose links can be cut and delayed.

What: every connection that the node makes to a listener of another node of its cluster becomes a
`Link`, which stands between the socket and whoever made the connection, and looks at the node's
faults before it passes anything on. Why here: bytes then stop at a node's edge without a proxy, a
firewall or rights that a test has not, and nobody is told: what was written waits, what arrives
waits, ends of connections wait, and new dials hang until the link heals. Rule kept: order is kept,
and nothing is lost but what the one who closes a connection gives up. Both directions are held by
the side that dialled. Not here: connections of clients; what the kernel says of a process that dies
behind a cut (it closes what that process had accepted and dialled, and the other side sees that).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import Executor, ThreadPoolExecutor
from typing import Any

import uvloop

from anabranch.testing.faults import CONTROLLER, REPLICATION, Lane, NodeFaults

LOOK_SECONDS = 0.005
"""How often a lane that holds something looks whether the link has healed."""

Action = Callable[[], None]


class Queue:
    """What waits in one direction of one connection, in order."""

    def __init__(self, loop: asyncio.AbstractEventLoop, lane: Callable[[], Lane]) -> None:
        self.lane = lane
        self._loop = loop
        self._waiting: deque[tuple[float, Action]] = deque()

    @property
    def is_holding(self) -> bool:
        """Whether something waits."""
        return bool(self._waiting)

    def put(self, act: Action) -> None:
        """Act now, or when the link lets it through."""
        if self.is_clear:
            act()
            return
        self._waiting.append((self._loop.time() + self.lane().delay_ms / 1000, act))
        if len(self._waiting) == 1:
            self._look()

    @property
    def is_clear(self) -> bool:
        """Whether what is put now passes at once."""
        return not self._waiting and not any(self.lane())

    def _look(self) -> None:
        waiting = self._waiting
        while waiting and waiting[0][0] <= self._loop.time() and not self.lane().is_cut:
            try:
                waiting[0][1]()  # it still waits while it acts: nothing overtakes it
            finally:
                waiting.popleft()
        if waiting:
            left_seconds = waiting[0][0] - self._loop.time()
            seconds = LOOK_SECONDS if left_seconds <= 0 else min(LOOK_SECONDS, left_seconds)
            self._loop.call_later(seconds, self._look)


class Link(asyncio.Protocol, asyncio.Transport):
    """A connection to another node: the socket's protocol, and the transport of its dialler."""

    def __init__(
        self, inner: asyncio.BaseProtocol, loop: asyncio.AbstractEventLoop,
        faults: NodeFaults, peer: int, links: int,
    ) -> None:  # fmt: skip
        super().__init__()
        self._loop = loop
        self.inner: Any = inner
        self._socket: Any = None
        self._out = Queue(loop, lambda: faults.outgoing(peer, links))
        self._in = Queue(loop, lambda: faults.incoming(peer, links))
        self._closing = False
        self._told_lost = False
        self._wants_to_read = True
        self._holds_back = False
        """Whether the kernel is left to keep what arrives, because of a cut."""

    # As the protocol of the socket.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The socket is connected."""
        self._socket = transport
        self.inner.connection_made(self)

    def data_received(self, data: bytes) -> None:
        """Bytes have arrived; the kernel keeps those that follow while these wait behind a cut."""
        self._in.put(lambda: self._deliver(data))
        if self._in.is_holding and self._in.lane().is_cut:
            self._holds_back = True
            self._socket.pause_reading()

    def _deliver(self, data: bytes) -> None:
        if self._closing:
            return
        if isinstance(self.inner, asyncio.BufferedProtocol):
            rest = memoryview(data)
            while rest:
                room = memoryview(self.inner.get_buffer(len(rest)))
                count = min(len(room), len(rest))
                room[:count] = rest[:count]
                self.inner.buffer_updated(count)
                rest = rest[count:]
        else:
            self.inner.data_received(data)
        if self._holds_back:
            self._holds_back = False
            self._read_on()

    def _read_on(self) -> None:
        if self._wants_to_read and not (self._holds_back or self._socket.is_closing()):
            self._socket.resume_reading()

    def eof_received(self) -> bool:
        """The other side will send no more; the socket stays until that was passed on."""
        self._in.put(self._deliver_end)
        return True

    def _deliver_end(self) -> None:
        if not self._closing and not self.inner.eof_received():
            self.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """The socket is gone; who closed it needs no byte of the other side's to know."""
        if self._closing:
            self._tell_lost(exc)
        else:
            self._in.put(lambda: self._tell_lost(exc))

    def _tell_lost(self, exc: Exception | None) -> None:
        self._closing = True
        if not self._told_lost:
            self._told_lost = True
            self.inner.connection_lost(exc)

    def pause_writing(self) -> None:
        """The socket takes no more until it says so."""
        self.inner.pause_writing()

    def resume_writing(self) -> None:
        """The socket takes bytes again."""
        self.inner.resume_writing()

    # As the transport of its dialler.

    def write(self, data: Any) -> None:
        """Send bytes."""
        if not self._out.is_clear:
            data = bytes(data)  # the caller may use its buffer again
        self._out.put(lambda: self._send(data))

    def writelines(self, list_of_data: Iterable[Any]) -> None:
        """Send bytes of several buffers."""
        if self._out.is_clear:
            self._socket.writelines(list_of_data)
        else:
            self.write(b"".join(list_of_data))

    def _send(self, data: Any) -> None:
        if not self._socket.is_closing():  # it may have been lost while this waited
            self._socket.write(data)

    def write_eof(self) -> None:
        """Send no more."""
        self._out.put(lambda: None if self._socket.is_closing() else self._socket.write_eof())

    def can_write_eof(self) -> bool:
        """As the socket."""
        return bool(self._socket.can_write_eof())

    def close(self) -> None:
        """End the connection after what was written; behind a cut the other side is told later."""
        self._end(self._socket.close)

    def abort(self) -> None:
        """End the connection at once; behind a cut the other side is told later."""
        self._end(self._socket.abort)

    def _end(self, end: Action) -> None:
        if self._closing:
            return
        self._closing = True
        self._out.put(end)
        if self._out.is_holding:
            self._loop.call_soon(self._tell_lost, None)

    def is_closing(self) -> bool:
        """Whether it was closed."""
        return self._closing

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """As the socket."""
        return self._socket.get_extra_info(name, default)

    def pause_reading(self) -> None:
        """Take nothing from the socket."""
        self._wants_to_read = False
        self._socket.pause_reading()

    def resume_reading(self) -> None:
        """Take from the socket again, unless the link is cut and holds bytes already."""
        self._wants_to_read = True
        self._read_on()

    def is_reading(self) -> bool:
        """Whether bytes are taken from the socket."""
        return self._wants_to_read

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """As the socket."""
        self._socket.set_write_buffer_limits(high, low)

    def get_write_buffer_size(self) -> int:
        """As the socket."""
        return int(self._socket.get_write_buffer_size())

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """Pass what arrives to another protocol."""
        self.inner = protocol

    def get_protocol(self) -> asyncio.BaseProtocol:
        """Who gets what arrives."""
        protocol: asyncio.BaseProtocol = self.inner
        return protocol


class FaultyLoop(uvloop.Loop):
    """The loop of one node. `peers` are the ports of the other nodes' listeners, with their ids;
    `controllers` are those of them that are of controllers."""

    def __init__(
        self, faults: NodeFaults, peers: Mapping[int, int], controllers: Collection[int] = ()
    ) -> None:
        super().__init__()
        self._faults = faults
        self._peers = peers
        self._controllers = controllers
        default = ThreadPoolExecutor(thread_name_prefix="anabranch-loop")
        self.set_default_executor(default)
        self.executors: set[Executor] = {default}
        """Those that may have work of this loop: whoever kills the node ends them."""

    async def create_connection(  # type: ignore[override]
        self, protocol_factory: Callable[[], asyncio.BaseProtocol], host: str | None = None,
        port: int | None = None, **rest: Any,
    ) -> tuple[asyncio.Transport, asyncio.BaseProtocol]:  # fmt: skip
        """As of any loop; a connection to another node is a link, and waits while that is cut."""
        peer = self._peers.get(port or 0)
        dial: Any = super().create_connection
        made: tuple[asyncio.Transport, asyncio.BaseProtocol]
        if peer is None:
            made = await dial(protocol_factory, host, port, **rest)
            return made
        links = CONTROLLER if port in self._controllers else REPLICATION
        while self._faults.is_cut(peer, links):  # noqa: ASYNC110  # it cannot wake us
            await asyncio.sleep(LOOK_SECONDS)
        there_and_back = self._faults.outgoing(peer).delay_ms + self._faults.incoming(peer).delay_ms
        if there_and_back:
            await asyncio.sleep(there_and_back / 1000)

        def linked() -> asyncio.BaseProtocol:
            return Link(protocol_factory(), self, self._faults, peer, links)

        _, link = await dial(linked, host, port, **rest)
        assert isinstance(link, Link)
        return link, link.inner

    def run_in_executor(self, executor: Any, func: Any, *args: Any) -> Any:  # type: ignore[override]
        """As of any loop; the executor is remembered."""
        if executor is not None:
            self.executors.add(executor)
        return super().run_in_executor(executor, func, *args)
