"""One listener: a bound socket, who may connect to it, and when a silent client is let go.

Rules kept (Kafka's settings): `max.connections` and `max.connections.per.ip` bound how many,
`connections.max.idle.ms` bounds how long a silent one is kept, `socket.request.max.bytes` how large
a frame may be. A refused connection is closed and counted; the log says so once a second at most,
and names at most `BAD_LINES_A_SECOND` that were closed for what they sent (`unsaid`: how many since
the last line were not). The quota `connection_creation_rate` of addresses bounds how often they
connect.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from anabranch.core.access.principal import ANONYMOUS
from anabranch.core.broker.gate import Session
from anabranch.core.quotas.connection_rates import ConnectionRates
from anabranch.core.quotas.entities import CONNECTION_CREATION_RATE
from anabranch.core.sentences import shortened
from anabranch.core.settings.listeners import bind_sentence
from anabranch.server.address_limits import AddressLimits
from anabranch.server.clocks import steady_ms
from anabranch.server.connection import HELD, Connection
from anabranch.server.line_limit import LineLimit
from anabranch.server.listener_security import ListenerSecurity
from anabranch.server.logs import logger
from anabranch.server.open_connections import OpenConnections
from anabranch.server.own_faults import CONNECTION
from anabranch.server.receive_memory import ReceiveMemory
from anabranch.server.request_shell import RequestShell
from anabranch.server.tls_transport import Handshakes, TlsTransport
from anabranch.server.turns import LoopTurns

LOG = logger("listener")

IDLE_CHECKS = 10
"""How many times in `connections.max.idle.ms` the silent ones are looked for."""

LONGEST_IDLE_CHECK_SECONDS = 30.0
RELOAD_SECONDS = 5.0
"""How often files with keys and certificates are looked at."""
WARN_AGAIN_SECONDS = 1.0
MOST_HELD = 1_000
"""Connections of addresses that connect too often, which are kept for a second at most. More are
closed at once: each has a descriptor."""
BAD_LINES_A_SECOND = 20
"""Connections that are closed for what they sent, a line each: a client that sends rubbish in a
loop may not fill the disk with it."""

LONGEST_WHY = 1_000
"""Characters of why a connection is closed: it may quote what its client sent, half a megabyte."""


class Limits(Protocol):
    """The settings of a broker that a listener follows. It asks for them at each use: some change
    while the broker runs."""

    sasl_server_max_receive_size: int
    socket_request_max_bytes: int
    max_connections: int
    max_connections_per_ip: int
    max_connections_per_ip_overrides: str
    socket_listen_backlog_size: int
    socket_receive_buffer_bytes: int
    socket_send_buffer_bytes: int
    connections_max_idle_ms: int
    static: Mapping[str, str]


class BindFault(OSError):
    """A listener could not be bound; the sentence says why and what to do."""


class Acceptor:
    """Accepts the connections of one listener."""

    def __init__(
        self,
        name: str,
        serving: RequestShell,
        memory: ReceiveMemory,
        limits_now: Callable[[], Limits],
        turns: LoopTurns | None = None,
        security: ListenerSecurity | None = None,
        handshakes: Handshakes | None = None,
        rates: ConnectionRates | None = None,
        open_: OpenConnections | None = None,
    ) -> None:
        """`turns` and `handshakes` are those of the loop, shared by all its listeners; None: of
        this one alone. `security`: what it asks of clients, if anything. `rates`: how often
        addresses may connect; None: as they like. `open_`: the connections of all listeners of its
        role; None: it has no other."""
        self.name = name
        self.connections: set[Connection] = set()
        self.accepted_total = 0
        self.refused_total = 0
        self.bad_total = 0
        self.failed_handshakes_total = 0
        self._security = security
        self._handshakes = handshakes or Handshakes()
        self._reloading: asyncio.Task[None] | None = None
        self._limits_now = limits_now
        self._serving = serving
        self._memory = memory
        self._turns = turns or LoopTurns()
        self.overrides = AddressLimits()
        self._open = OpenConnections() if open_ is None else open_
        self._rates = rates
        self._held: set[Connection] = set()
        self._server: asyncio.Server | None = None
        self._sweeper: asyncio.TimerHandle | None = None
        self._warned_at = 0.0
        self._bad_lines = LineLimit(BAD_LINES_A_SECOND)
        self.largest_request_bytes = self._limits.socket_request_max_bytes
        self.largest_unknown_bytes = self._limits.sasl_server_max_receive_size

    @property
    def _limits(self) -> Limits:
        return self._limits_now()

    async def bind(self, host: str, port: int, *, serving: bool = True) -> int:
        """Take a port and return it (0: a free one); `serve` lets clients in. Raises BindFault."""
        loop = asyncio.get_running_loop()
        try:
            self._server = await loop.create_server(
                self._protocol,
                host or None,
                port,
                backlog=self._limits.socket_listen_backlog_size,
                reuse_address=True,
                start_serving=serving,
            )
        except (OSError, OverflowError) as fault:
            where = f"listener {self.name} cannot use {host or '*'}:{port}"
            raise BindFault(bind_sentence(where, fault, "listeners")) from None
        for each in self._server.sockets:
            self._size_buffers(each)
        self._sweep()
        bound: int = self._server.sockets[0].getsockname()[1]
        return bound

    def _size_buffers(self, listening: socket.socket) -> None:
        """Kernel buffers for the connections to come, where somebody has chosen their size.

        Kafka's default of 100 KB would switch off the kernel's own sizing: it is left out.
        """
        limits = self._limits
        for name, option, size_bytes in (
            ("socket.receive.buffer.bytes", socket.SO_RCVBUF, limits.socket_receive_buffer_bytes),
            ("socket.send.buffer.bytes", socket.SO_SNDBUF, limits.socket_send_buffer_bytes),
        ):
            if name in limits.static and size_bytes >= 0:
                listening.setsockopt(socket.SOL_SOCKET, option, size_bytes)

    async def serve(self) -> None:
        """Accept connections."""
        assert self._server is not None
        await self._server.start_serving()

    def _protocol(self) -> asyncio.BaseProtocol:
        connection = Connection(self, self._serving, self._memory, self._turns)
        if self._security is None or not self._security.uses_tls:
            return connection
        return TlsTransport(self, self._handshakes, connection)

    def stop_accepting(self) -> None:
        """Close the bound socket; the connections stay."""
        self.overrides.stop()
        if self._server is not None:
            self._server.close()
        if self._sweeper is not None:
            self._sweeper.cancel()

    def stop_reading(self) -> None:
        """Take no further request; what was read is still answered."""
        for connection in self.connections:
            connection.channel.stop_reading()

    async def drain(self, seconds: float) -> None:
        """Wait until every answer that is owed was sent, `seconds` at most, then close them all."""
        self.stop_reading()
        deadline = asyncio.get_running_loop().time() + seconds
        while any(not each.channel.is_idle for each in self.connections):
            if asyncio.get_running_loop().time() >= deadline:
                break
            await asyncio.sleep(0.005)
        for connection in tuple(self.connections):
            connection.channel.close()
        if self._server is not None:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._server.wait_closed(), 1.0)

    # What a connection calls.

    def context(self) -> ssl.SSLContext:
        """Keys and trust for the next handshake."""
        assert self._security is not None
        return self._security.context()

    def session(self, tls: Any) -> Session | str:
        """Whose a connection is, after its handshake if it has one; a sentence if it may not
        stay."""
        return Session(ANONYMOUS) if self._security is None else self._security.session(tls)

    def handshake_failed(self, host: str, why: str) -> None:
        """A client is not let in."""
        self.failed_handshakes_total += 1
        self._say_bad("a TLS handshake failed", host, shortened(why, LONGEST_WHY))

    def admit(self, connection: Connection) -> str:
        """Count a new connection in; a sentence when there is no room for it."""
        limits = self._limits
        host = connection.host
        rest_ms = 0 if self._rates is None else self._rates.rest_ms(host, steady_ms())
        if rest_ms:
            return self._hold(connection, rest_ms)
        is_full = len(self._open) >= limits.max_connections
        if is_full and self.name != self._open.kept_open:
            return self._refuse(connection, f"max.connections={limits.max_connections}")
        self.overrides.follow(limits.max_connections_per_ip_overrides)
        own = self.overrides.of(host)
        most = limits.max_connections_per_ip if own is None else own
        if self._open.of_host[host] >= most:
            return self._refuse(connection, f"max.connections.per.ip={most}")
        if is_full:
            self._open.make_room()
        self._open.add(connection, self.name)
        self.connections.add(connection)
        self.accepted_total += 1
        connection.channel.identity = self._serving.next_connection_id()
        connection.last_active_ms = steady_ms()
        return ""

    def leave(self, connection: Connection) -> None:
        """Count a connection out."""
        self._held.discard(connection)
        self.connections.discard(connection)
        self._open.remove(connection)

    def hung_up(self, connection: Connection, why: str, *, is_own_fault: bool) -> None:
        """The node closes a connection, and says why."""
        self.bad_total += 1
        why = shortened(why, LONGEST_WHY)
        if is_own_fault:
            about = {"listener": self.name, "peer": connection.host, "why": why}
            self._serving.own_faults.note(CONNECTION, "closing a connection", **about)
            return
        self._say_bad("closing a connection", connection.host, why)

    def _say_bad(self, what: str, host: str, why: str) -> None:
        more = self._bad_lines.take(steady_ms())
        if more is not None:
            LOG.warning(what, listener=self.name, peer=host, why=why, **more)

    def _hold(self, connection: Connection, rest_ms: int) -> str:
        """Keep a connection that came too soon, unread, until another may come (KIP-612)."""
        refusal = self._refuse(connection, f"{CONNECTION_CREATION_RATE} of its address")
        if len(self._held) >= MOST_HELD:
            return refusal
        self._held.add(connection)
        loop = asyncio.get_running_loop()
        loop.call_later(rest_ms / 1000, connection.channel.drop)
        return HELD

    def _refuse(self, connection: Connection, limit: str) -> str:
        self.refused_total += 1
        now = asyncio.get_running_loop().time()
        if now - self._warned_at > WARN_AGAIN_SECONDS:
            self._warned_at = now
            LOG.warning(
                "refusing connections", listener=self.name, peer=connection.host, limit=limit,
                refused=self.refused_total,
            )  # fmt: skip
        return limit

    def _sweep(self) -> None:
        idle_ms = self._limits.connections_max_idle_ms
        self.overrides.follow(self._limits.max_connections_per_ip_overrides)
        self.largest_request_bytes = self._limits.socket_request_max_bytes
        self._reload()
        if idle_ms > 0:
            now_ms = steady_ms()
            oldest = now_ms - idle_ms
            for connection in tuple(self.connections):
                connection.look(now_ms)
                if connection.last_active_ms < oldest and not connection.is_waited_for:
                    connection.channel.drop()
        seconds = LONGEST_IDLE_CHECK_SECONDS if self._security is None else RELOAD_SECONDS
        if idle_ms > 0:
            seconds = min(seconds, idle_ms / 1000 / IDLE_CHECKS)
        self._sweeper = asyncio.get_running_loop().call_later(seconds, self._sweep)

    def _reload(self) -> None:
        """Take keys and certificates from files that have changed."""
        security = self._security
        is_idle = self._reloading is None or self._reloading.done()
        if security is not None and is_idle and security.has_changed:
            reading = asyncio.to_thread(security.reload)
            self._reloading = asyncio.get_running_loop().create_task(reading)

    def statistics(self) -> dict[str, Any]:
        """Counts for metrics."""
        return {
            "connections": len(self.connections),
            "accepted_total": self.accepted_total,
            "refused_total": self.refused_total,
            "bad_total": self.bad_total,
            "failed_handshakes_total": self.failed_handshakes_total,
            "logins_total": self._serving.requests.logins[self.name, True],
            "failed_logins_total": self._serving.requests.logins[self.name, False],
            "unsent_bytes": sum(each.link.unsent_bytes for each in self.connections),
        }
