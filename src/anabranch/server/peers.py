"""Connections from this broker to others, and the shell around what its machines ask of them.

What: `PeerConnections` has one connection for each broker and purpose, dialled when it is first
needed, at the address that the newest metadata names; replication fetches over it, too. `PeerShell`
sends what `broker.peers` wants asked, each lane over a connection of its own. Rules kept: each post
is answered once, with the response or with what prevented it; nothing is decided here. Not here:
the controller (`controller_channel.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from anabranch.client.connection import Connection
from anabranch.core.api.context import Broker
from anabranch.core.broker.peers import Ask
from anabranch.core.wire.schema import Message
from anabranch.server.logs import logger
from anabranch.server.outbound import PLAINTEXT, Transport, reach
from anabranch.server.own_faults import tell_unexpected

LOG = logger("peers")

SECOND_MS = 1000
RECEIVE_BUFFER = "replica.socket.receive.buffer.bytes"
"""Obeyed where somebody has set it: Kafka's default of 64 KB would end the kernel's own sizing."""


class Post(NamedTuple):
    """A request for another broker; `answered` is called with its response or an exception."""

    message: Message
    version: int | None
    """None: the newest that both sides speak, at most `most_version`."""
    answered: Callable[[Any], None]
    timeout_ms: int
    most_version: int | None = None


class PeerConnections:
    """The connections of one broker to others. All calls are for its loop."""

    def __init__(self, broker: Broker, listener: str, transport: Transport = PLAINTEXT) -> None:
        self._broker = broker
        self._listener = listener
        self.transport = transport
        self._connections: dict[tuple[int, str], Connection] = {}
        self._waiting: dict[tuple[int, str], list[Post]] = {}
        """What is sent once a connection is there: a dial is under way for each key."""
        self._dials: set[asyncio.Task[None]] = set()
        self._stopping = False

    def post(self, broker_id: int, purpose: str, post: Post) -> None:
        """Send at once, or once there is a connection."""
        if self._stopping:
            return
        key = (broker_id, purpose)
        connection = self._connections.get(key)
        if connection is not None and connection.is_open:
            _send(connection, post)
        elif key in self._waiting:
            self._waiting[key].append(post)
        else:
            self._waiting[key] = [post]
            dial = asyncio.get_running_loop().create_task(self._dial(key))
            self._dials.add(dial)
            dial.add_done_callback(self._dials.discard)

    async def stop(self) -> None:
        """Dial no more, and close every connection."""
        self._stopping = True
        dials = tuple(self._dials)
        for dial in dials:
            dial.cancel()
        await asyncio.gather(*dials, return_exceptions=True)
        for connection in self._connections.values():
            connection.abort()
        self._connections.clear()
        self._waiting.clear()

    async def _dial(self, key: tuple[int, str]) -> None:
        connection, fault = None, None
        try:
            connection = self._connections[key] = await self._connected(*key)
        except Exception as problem:  # whatever it is: who waits is told
            tell_unexpected(problem, "connecting to a broker")
            fault = problem
        for post in self._waiting.pop(key, ()):
            if connection is None:
                post.answered(fault)
            else:
                _send(connection, post)

    async def _connected(self, broker_id: int, purpose: str) -> Connection:
        broker = self._broker.image.brokers.get(broker_id)
        endpoint = None if broker is None else broker.endpoint(self._listener)
        if endpoint is None:
            raise OSError(f"the metadata names no listener {self._listener} of broker {broker_id}")
        config = self._broker.config
        connection = await reach(
            endpoint.host,
            endpoint.port,
            transport=self.transport,
            client_id=f"broker-{self._broker.broker_id}-{purpose}",
            timeout_seconds=config.replica_socket_timeout_ms / SECOND_MS,
        )
        size_bytes = config.replica_socket_receive_buffer_bytes
        if RECEIVE_BUFFER in config.static and size_bytes >= 0:
            connection.size_receive_buffer(size_bytes)
        return connection


def _send(connection: Connection, post: Post) -> None:
    try:
        version = post.version
        if version is None:
            version = connection.version_for(type(post.message).api_key)
            version = version if post.most_version is None else min(version, post.most_version)
        seconds = post.timeout_ms / SECOND_MS
        connection.post(post.message, version, post.answered, timeout_seconds=seconds)
    except Exception as fault:  # the connection has ended, or does not speak of this
        tell_unexpected(fault, "sending to a broker")
        post.answered(fault)


class PeerShell:
    """Sockets for `broker.peers`. `begin` begins a step, `settle` ends it."""

    def __init__(
        self,
        broker: Broker,
        connections: PeerConnections,
        begin: Callable[[], None],
        settle: Callable[[], None],
    ) -> None:
        self._broker = broker
        self._connections = connections
        self._begin = begin
        self._settle = settle
        self._silent: set[int] = set()
        self._stopping = False

    def perform(self) -> None:
        """Send what is to be asked; called when `broker.peers` has marked itself."""
        for ask in self._broker.peers.take_effects():
            post = Post(
                ask.message, None, partial(self._ended, ask), ask.timeout_ms, ask.most_version
            )
            # In a step of its own, since a connection that has ended says so at once.
            send = partial(self._connections.post, ask.broker_id, ask.lane, post)
            asyncio.get_running_loop().call_soon(send)

    def stop(self) -> None:
        """Hear of no more answers; `PeerConnections.stop` ends what is under way."""
        self._stopping = True

    def _ended(self, ask: Ask, answer: Any) -> None:
        if self._stopping:
            return
        is_fault = isinstance(answer, Exception)
        self._complain(ask.broker_id, answer if is_fault else None)
        self._begin()
        self._broker.peers.answered(ask, None if is_fault else answer)
        self._settle()

    def _complain(self, broker_id: int, fault: Exception | None) -> None:
        """Once a broker that does not answer, not once an attempt."""
        if fault is None:
            self._silent.discard(broker_id)
        elif broker_id not in self._silent:
            self._silent.add(broker_id)
            LOG.warning(
                "no answer from a broker", broker=broker_id, why=str(fault) or type(fault).__name__
            )
