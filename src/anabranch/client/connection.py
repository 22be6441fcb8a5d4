"""One connection to a node: requests out, answers in, in order, pipelined.

What: `Connection.open` dials, with TLS where it is given a context, asks ApiVersions, and logs in
where it is given a login, again before the session is over (KIP-368); `send` picks the newest
version that both sides speak; `post` has a function called with the answer, within the very step
that brought it. Why not a stream reader: large record sets are received where they are used
(`frames`). Rule kept: an answer is matched to the oldest request without one; anything else, and
every end of the connection, fails all that wait with `ConnectionLost`. Source: KIP-511.

Not here: finding leaders, retrying (cluster.py).
"""

from __future__ import annotations

import asyncio
import math
import socket
import ssl as ssl_module
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import Any, NamedTuple

from anabranch.client.frames import NotAFrame, Receiver
from anabranch.client.handshake_faults import CLOSED, CLOSINGS, why_not_secure
from anabranch.client.sasl import Login, asks_for_none, authenticate
from anabranch.core.errors import ApiError, ClientFault, ErrorCode, ProtocolError
from anabranch.core.types import Buffer
from anabranch.core.wire.frame import frame_request, read_response
from anabranch.core.wire.messages import API_KEYS
from anabranch.core.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from anabranch.core.wire.messages.sasl_handshake import SaslHandshakeRequest
from anabranch.core.wire.schema import Message

DIAL_SECONDS = 10.0
REQUEST_SECONDS = 40.0
"""Longer than any node takes to answer by itself: its own timeouts end at 30 s."""
SOFTWARE_NAME = "anabranch"
SHARE_OF_SESSION = 0.85
"""How much of a session is over when its login is renewed, as in Kafka's clients."""


class ConnectionLost(ConnectionError):
    """The connection could not be made or has ended; the message says where and why."""


class PendingRequest(NamedTuple):
    """A request that waits for its answer."""

    correlation_id: int
    response: type[Message]
    version: int
    answered: Callable[[Any], None]
    """Called once, with the response message or with ConnectionLost."""
    timeout_seconds: float = 0.0
    due: float = math.inf
    """When the connection is given up for it, by the loop's clock."""


class Connection(asyncio.BufferedProtocol):
    """An open connection. Make it with `Connection.open`; all calls are for one event loop."""

    def __init__(self, address: str, client_id: str | None) -> None:
        self.address = address
        self.client_id = client_id
        self.versions: dict[int, tuple[int, int]] = {}
        self.features: dict[str, int] = {}
        """The levels of the cluster's features when the connection was made (KIP-584)."""
        self.lost: ConnectionLost | None = None
        self._transport: Any = None
        self._pending: deque[PendingRequest] = deque()
        self._receiver = Receiver()
        self._correlation_id = 0
        self._writable: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        """Rings when the first of those that wait may be due, or earlier: one timer for them all,
        since nearly every answer comes long before."""
        self._login: Login | None = None
        self._renewal: asyncio.TimerHandle | asyncio.Task[None] | None = None
        self._held: deque[tuple[PendingRequest | None, list[Buffer]]] | None = None
        """Requests that wait until the login is renewed; None when it is not."""

    @classmethod
    async def open(
        cls,
        host: str,
        port: int,
        *,
        client_id: str | None = SOFTWARE_NAME,
        ssl: ssl_module.SSLContext | None = None,
        login: Login | None = None,
        timeout_seconds: float = DIAL_SECONDS,
    ) -> Connection:
        """Dial, learn which versions the node speaks, and log in. Raises ConnectionLost, or
        ClientFault for a certificate or a login that is not accepted."""
        loop = asyncio.get_running_loop()
        connection = cls(f"{host}:{port}", client_id)
        try:
            async with asyncio.timeout(timeout_seconds):
                await loop.create_connection(lambda: connection, host, port, ssl=ssl)
                await connection._learn_versions()
                if login is not None:
                    if SaslHandshakeRequest.api_key not in connection.versions:
                        raise asks_for_none(connection.address, ErrorCode.UNSUPPORTED_VERSION)
                    connection._login = login
                    await connection._log_in(connection._say)
        except TimeoutError:
            connection.abort()
            why = f"{connection.address} did not answer within {timeout_seconds:g} s"
            raise ConnectionLost(f"{why}: is it a Kafka listener, and is the node up?") from None
        except ConnectionLost:
            raise
        except UnicodeError:
            raise ConnectionLost(f"{connection.address} is not a host name") from None
        except ssl_module.SSLError as problem:
            raise ClientFault(
                ErrorCode.INVALID_CONFIG, f"{connection.address}: {why_not_secure(problem, host)}"
            ) from None
        except OSError as problem:
            if ssl is not None and isinstance(problem, CLOSINGS):
                raise ConnectionLost(f"{connection.address} {CLOSED}") from None
            why = _why_unreachable(problem, host)
            raise ConnectionLost(f"{connection.address} cannot be reached: {why}") from None
        except BaseException:  # refused, or nobody waits any more: a frozen node keeps its side
            connection.abort()
            raise
        return connection

    async def _learn_versions(self) -> None:
        request = ApiVersionsRequest(
            client_software_name=SOFTWARE_NAME, client_software_version="0"
        )
        newest = API_KEYS[ApiVersionsRequest.api_key].versions[-1]
        answer: ApiVersionsResponse = await self._send(request, newest)
        if answer.error_code == ErrorCode.UNSUPPORTED_VERSION:
            answer = await self._send(request, 0)
        if answer.error_code:
            raise ApiError(ErrorCode(answer.error_code))
        self.versions = {key.api_key: (key.min_version, key.max_version) for key in answer.api_keys}
        self.features = {each.name: each.max_version_level for each in answer.finalized_features}

    async def _say(self, message: Message) -> Any:
        return await self._send(message, self.version_for(type(message).api_key))

    def version_for(self, api_key: int) -> int:
        """The newest version that both sides speak; raises ApiError UNSUPPORTED_VERSION."""
        spec = API_KEYS[api_key]
        low, high = self.versions.get(api_key, (0, -1))
        version = min(spec.versions[-1], high)
        if version < max(spec.versions[0], low):
            raise ApiError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"{self.address} does not serve {spec.name} in a version that this client "
                "supports.",
            )
        return version

    async def send(
        self,
        message: Message,
        version: int | None = None,
        *,
        timeout_seconds: float = REQUEST_SECONDS,
    ) -> Any:
        """Send a request and return its response message; error codes inside are the caller's.

        Raises ConnectionLost, also when no answer comes in time, as the order is lost then.
        """
        if version is None:
            version = self.version_for(type(message).api_key)
        try:
            async with asyncio.timeout(timeout_seconds):
                return await self._send(message, version)
        except TimeoutError:
            self._no_answer(API_KEYS[type(message).api_key].name, timeout_seconds)
            assert self.lost is not None
            raise self.lost from None

    def post(
        self,
        message: Message,
        version: int,
        answered: Callable[[Any], None],
        *,
        timeout_seconds: float = REQUEST_SECONDS,
    ) -> None:
        """Send a request; `answered` is called once, with the response or ConnectionLost.

        For one who has few requests under way: it does not wait until the socket takes more.
        Raises ConnectionLost when the connection has ended already, and calls nobody then.
        """
        buffers = self._frame(message, version)
        response = API_KEYS[type(message).api_key].response
        due = asyncio.get_running_loop().time() + timeout_seconds
        pending = PendingRequest(
            self._correlation_id, response, version, answered, timeout_seconds, due
        )
        if self._timer is None or due < self._timer.when():
            self._arm(due)
        if self._is_held(pending, buffers):
            return
        self._pending.append(pending)
        self._transport.write(b"".join(buffers))

    async def send_unanswered(self, message: Message, version: int | None = None) -> None:
        """Send a request that has no answer (Produce with acks=0)."""
        if version is None:
            version = self.version_for(type(message).api_key)
        buffers = self._frame(message, version)
        if not self._is_held(None, buffers):
            await self._write(buffers)

    async def _send(self, message: Message, version: int, *, is_login: bool = False) -> Any:
        buffers = self._frame(message, version)
        future = asyncio.get_running_loop().create_future()
        response = API_KEYS[type(message).api_key].response
        answered = partial(_resolve, future)
        pending = PendingRequest(self._correlation_id, response, version, answered)
        if is_login or not self._is_held(pending, buffers):
            self._pending.append(pending)
            await self._write(buffers)
        return await future

    # Logins.

    async def _log_in(self, say: Callable[[Message], Awaitable[Any]]) -> None:
        assert self._login is not None
        lifetime_ms = await authenticate(say, self.address, self._login)
        if lifetime_ms > 0:
            seconds = lifetime_ms / 1000 * SHARE_OF_SESSION
            self._renewal = asyncio.get_running_loop().call_later(seconds, self._begin_renewal)

    def _begin_renewal(self) -> None:
        self._renewal = asyncio.get_running_loop().create_task(self._renew())

    async def _renew(self) -> None:
        """Log in again on the same connection (KIP-368); other requests wait meanwhile."""
        try:
            async with asyncio.timeout(REQUEST_SECONDS):
                await self._log_in(self._say_again)
        except ConnectionLost:
            return  # all who wait have been told
        except (ApiError, ClientFault, TimeoutError) as fault:
            self._fail(f"{self.address} did not renew the login: {fault or 'it does not answer'}")
            return
        held, self._held = self._held or (), None
        for pending, buffers in held:
            if pending is not None:
                self._pending.append(pending)
            self._transport.writelines(buffers)

    async def _say_again(self, message: Message) -> Any:
        if self._held is None:
            self._held = deque()
        version = self.version_for(type(message).api_key)
        return await self._send(message, version, is_login=True)

    def _is_held(self, pending: PendingRequest | None, buffers: list[Buffer]) -> bool:
        if self._held is None:
            return False
        self._held.append((pending, buffers))
        return True

    def _frame(self, message: Message, version: int) -> list[Buffer]:
        if self.lost is not None:
            raise self.lost
        self._correlation_id = (self._correlation_id + 1) & 0x7FFFFFFF
        return frame_request(self._correlation_id, self.client_id, message, version)

    async def _write(self, buffers: list[Buffer]) -> None:
        self._transport.writelines(buffers)
        if self._writable is not None:
            await self._writable

    @property
    def is_open(self) -> bool:
        """Whether requests can be sent."""
        return self._transport is not None and self.lost is None

    def size_receive_buffer(self, size_bytes: int) -> None:
        """Give the socket a kernel buffer of that size, which the kernel then leaves alone."""
        raw = self._transport.get_extra_info("socket")
        if raw is not None:
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, size_bytes)

    async def close(self) -> None:
        """End the connection after what was written is sent; nothing waits any more."""
        self._fail(f"the connection to {self.address} was closed")

    def abort(self) -> None:
        """End the connection at once."""
        if self._transport is not None:
            self._transport.abort()
        self._fail(f"the connection to {self.address} was closed")

    def _arm(self, due: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_at(due, self._ring)

    def _ring(self) -> None:
        self._timer = None
        held = (pending for pending, _ in self._held or () if pending is not None)
        first = min((*self._pending, *held), key=lambda each: each.due, default=None)
        if first is None or first.due == math.inf:
            return
        if first.due <= asyncio.get_running_loop().time():
            name = API_KEYS[first.response.api_key].name
            self._no_answer(name, first.timeout_seconds)
        else:
            self._arm(first.due)

    def _no_answer(self, name: str, timeout_seconds: float) -> None:
        self._fail(f"{self.address} did not answer {name} within {timeout_seconds:g} s")

    def _fail(self, why: str) -> None:
        if self.lost is None:
            self.lost = ConnectionLost(why)
        if self._transport is not None:
            self._transport.close()
        if self._timer is not None:
            self._timer.cancel()
        if self._renewal is not None and self._renewal is not asyncio.current_task():
            self._renewal.cancel()
        pending, self._pending = self._pending, deque()
        for each in pending:
            each.answered(self.lost)
        held, self._held = self._held or (), None
        _tell(held, self.lost)
        self.resume_writing()

    # What the transport calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The socket is connected."""
        self._transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        """The socket is gone: everybody who waits is told."""
        why = str(exc) if exc is not None else "the other side closed it"
        self._fail(f"the connection to {self.address} ended: {why}")

    def pause_writing(self) -> None:
        """The socket takes no more until `resume_writing`."""
        self._writable = asyncio.get_running_loop().create_future()

    def resume_writing(self) -> None:
        """The socket takes bytes again."""
        if self._writable is not None and not self._writable.done():
            self._writable.set_result(None)
        self._writable = None

    def get_buffer(self, _size_hint: int) -> memoryview:
        """Where the next bytes go."""
        return self._receiver.room()

    def buffer_updated(self, size: int) -> None:
        """Bytes came: hand on the answers that are whole."""
        try:
            for frame in self._receiver.received(size):
                self._answered(frame)
        except NotAFrame:
            self._fail(f"{self.address} does not speak the Kafka protocol")

    def eof_received(self) -> bool:
        """The other side sends no more: the loop closes the connection."""
        return False

    def _answered(self, frame: Buffer) -> None:
        if not self._pending:
            self._fail(f"{self.address} sent a response without a request")
            return
        pending = self._pending.popleft()
        version = pending.version
        if pending.response.api_key == ApiVersionsRequest.api_key and _is_refusal(frame):
            version = 0
        try:
            correlation_id, message = read_response(frame, pending.response, version)
        except ProtocolError as problem:
            self._pending.appendleft(pending)
            self._fail(f"{self.address} sent an answer that cannot be read: {problem}")
            return
        if correlation_id != pending.correlation_id:
            self._pending.appendleft(pending)
            self._fail(f"{self.address} answered out of order")
        else:
            pending.answered(message)


def _tell(held: Iterable[tuple[PendingRequest | None, list[Buffer]]], lost: ConnectionLost) -> None:
    for pending, _ in held:
        if pending is not None:
            pending.answered(lost)


def _resolve(future: asyncio.Future[Any], answer: Any) -> None:
    """Give an answer, or its failure, to those that still await it."""
    if future.done():
        return
    if isinstance(answer, ConnectionLost):
        future.set_exception(answer)
    else:
        future.set_result(answer)


def _is_refusal(frame: Buffer) -> bool:
    """Whether an ApiVersions answer is the version 0 one that says UNSUPPORTED_VERSION."""
    return int.from_bytes(frame[4:6], "big", signed=True) == ErrorCode.UNSUPPORTED_VERSION


def _why_unreachable(problem: OSError, host: str) -> str:
    """What a failed dial means, in the words of people who look for the cause."""
    if isinstance(problem, ConnectionRefusedError):
        return "nothing listens there"
    if isinstance(problem, socket.gaierror):
        return f"no host is known by the name {host}"
    return problem.strerror or str(problem)
