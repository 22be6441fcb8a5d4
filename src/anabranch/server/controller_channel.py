"""A connection to whichever controller is active.

What: sends a request and gives back the answer, dialling, redialling and moving on to the next
address as needed. Why: registration, heartbeats, forwarding and following the metadata all need the
active controller and must not care how it was found. Rules kept: a request is repeated only when
the answer says NOT_CONTROLLER or the connection broke; KIP-590 forwards under the same terms. A
process that stands still keeps its connections, so a request that gets no answer for `HANGS_S` has
the other controllers asked who is active, and a connection is left for one that says it is.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Any

from anabranch.client.connection import DIAL_SECONDS, Connection
from anabranch.core.access.principal import Principal
from anabranch.core.access.principal_bytes import write_principal
from anabranch.core.errors import ApiError, ErrorCode
from anabranch.core.wire.messages.describe_quorum import DescribeQuorumRequest
from anabranch.core.wire.messages.envelope import EnvelopeRequest, EnvelopeResponse

FIRST_PAUSE_S = 0.01
LONGEST_PAUSE_S = 0.5
PATIENCE_S = 30.0
"""How long a request looks for an active controller: less than clients wait for an answer."""
HANGS_S = 1.0
"""Silence after which the others are asked; long polls are answered sooner. A dial may take as long
at first: each that takes longer doubles it, up to what all clients wait."""
WHO_IS_ACTIVE = DescribeQuorumRequest(topics=[])
"""Only the active controller answers it without an error."""
NO_ANSWER = (OSError, EOFError, TimeoutError)

Address = tuple[str, int]


@dataclass(slots=True)
class Seen:
    """Where the active controller was found last; shared by the channels of one node."""

    active: Address | None = None


class ControllerChannel:
    """One connection, in order; see the module's docstring."""

    def __init__(
        self,
        addresses: Callable[[], Sequence[Address]],
        client_id: str,
        seen: Seen | None = None,
    ) -> None:
        self.addresses = addresses
        self.client_id = client_id
        self.generation = 0
        """Grows with every new connection: what was learnt on an older one may be out of date."""
        self.obstacle = ""
        """Why the last attempt to reach an active controller failed; empty when it did not."""
        self._seen = seen or Seen()
        self._connection: Connection | None = None
        self._address: Address | None = None
        self._dialling = asyncio.Lock()
        self._asking = asyncio.Lock()
        self._dial_s = HANGS_S
        self._turn = 0

    def another(self, purpose: str) -> ControllerChannel:
        """A channel of its own to the same controllers, for long polls."""
        return ControllerChannel(self.addresses, f"{self.client_id}-{purpose}", self._seen)

    async def send(
        self, message: Any, version: int | None = None, *, patience_s: float | None = PATIENCE_S
    ) -> Any:
        """The active controller's answer. Raises ApiError NOT_CONTROLLER when none is found in
        time; `patience_s` None stands for ever."""
        loop = asyncio.get_running_loop()
        give_up = None if patience_s is None else loop.time() + patience_s
        pause_s = FIRST_PAUSE_S
        while True:
            connection: Connection | None = None
            try:
                connection = await self._connected()
                answer = await self._answer(connection, message, version)
                if getattr(answer, "error_code", 0) != ErrorCode.NOT_CONTROLLER:
                    self._seen.active, self.obstacle = self._address, ""
                    return answer
                self.obstacle = f"{connection.address} is not the active controller"
            except NO_ANSWER as fault:
                self.obstacle = str(fault) or type(fault).__name__
            if connection is self._connection:  # else somebody else has left it already
                await self.rotate()
            if give_up is not None and loop.time() > give_up:
                sentence = f"no active controller: {self.obstacle}"
                raise ApiError(ErrorCode.NOT_CONTROLLER, sentence)
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 2, LONGEST_PAUSE_S)

    async def forward(
        self, frame: bytes | memoryview, principal: Principal, client_host: str
    ) -> bytes:
        """Pass a client's request on in its name (KIP-590).

        `frame` is the request's header and body; the result is the answer's header and body.
        Raises ApiError when the controller refuses the envelope.
        """
        envelope = EnvelopeRequest(
            request_data=bytes(frame),
            request_principal=write_principal(principal),
            client_host_address=_host_bytes(client_host),
        )
        answer: EnvelopeResponse = await self.send(envelope)
        if answer.error_code:
            raise ApiError(ErrorCode(answer.error_code))
        return bytes(answer.response_data or b"")

    async def rotate(self) -> None:
        """Leave this connection and try another address."""
        if self._seen.active == self._address:
            self._seen.active = None  # it is not, or not there
        self._turn += 1
        await self.close()

    async def close(self) -> None:
        """Close the connection; the next `send` dials again."""
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()

    async def _connected(self) -> Connection:
        async with self._dialling:
            if self._connection is None:
                self._address = self._next_address()
                self._connection = await self._dialled(self._address)
                self.generation += 1
            return self._connection

    def _next_address(self) -> Address:
        addresses = self.addresses()
        if not addresses:
            raise OSError("controller.quorum.bootstrap.servers names none")
        return self._seen.active or addresses[self._turn % len(addresses)]

    async def _dialled(self, address: Address) -> Connection:
        loop, limit_s = asyncio.get_running_loop(), self._dial_s
        begun_s = loop.time()
        try:
            connection = await Connection.open(
                *address, client_id=self.client_id, timeout_seconds=limit_s
            )
        except NO_ANSWER:
            if loop.time() - begun_s >= limit_s:
                self._dial_s = min(2 * limit_s, DIAL_SECONDS)
            raise
        self._dial_s = HANGS_S
        return connection

    async def _answer(self, connection: Connection, message: Any, version: int | None) -> Any:
        """The answer on one connection, which ends when another controller is the active one."""
        asked = asyncio.ensure_future(connection.send(message, version))
        try:
            while not (await asyncio.wait((asked,), timeout=HANGS_S))[0]:
                if connection is self._connection and await self._is_elsewhere():
                    connection.abort()
            return asked.result()
        finally:
            asked.cancel()

    async def _is_elsewhere(self) -> bool:
        """Whether another than this channel's controller says that it is active."""
        async with self._asking:
            if self._seen.active in (None, self._address):
                others = [each for each in self.addresses() if each != self._address]
                answers = await asyncio.gather(*map(self._is_active, others))
                active = [each for each, says in zip(others, answers, strict=True) if says]
                if active:
                    self._seen.active = active[0]
            return self._seen.active not in (None, self._address)

    async def _is_active(self, address: Address) -> bool:
        connection: Connection | None = None
        try:
            async with asyncio.timeout(HANGS_S):
                connection = await Connection.open(*address, client_id=self.client_id)
                return not (await connection.send(WHO_IS_ACTIVE)).error_code
        except (*NO_ANSWER, ApiError):
            return False
        finally:
            if connection is not None:
                connection.abort()


def _host_bytes(host: str) -> bytes:
    try:
        return ip_address(host).packed
    except ValueError:
        return ip_address("127.0.0.1").packed
