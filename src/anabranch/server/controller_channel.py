"""A connection to whichever controller is active.

What: sends a request and gives back the answer, dialling, redialling and moving on to the next
address as needed. Why: registration, heartbeats, forwarding and following the metadata all need the
active controller and must not care how it was found. Rule kept: a request is repeated only when the
answer says NOT_CONTROLLER or the connection broke; KIP-590 forwards under the same terms.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from ipaddress import ip_address
from typing import Any

from anabranch.client.connection import Connection
from anabranch.core.access.principal import Principal
from anabranch.core.access.principal_bytes import write_principal
from anabranch.core.errors import ApiError, ErrorCode
from anabranch.core.wire.messages.envelope import EnvelopeRequest, EnvelopeResponse

FIRST_PAUSE_S = 0.01
LONGEST_PAUSE_S = 0.5
PATIENCE_S = 30.0
"""How long a request looks for an active controller: less than clients wait for an answer."""


class ControllerChannel:
    """One connection, in order; see the module's docstring."""

    def __init__(self, addresses: Callable[[], Sequence[tuple[str, int]]], client_id: str) -> None:
        self.addresses = addresses
        self.client_id = client_id
        self.generation = 0
        """Grows with every new connection: what was learnt on an older one may be out of date."""
        self.obstacle = ""
        """Why the last attempt to reach an active controller failed."""
        self._connection: Connection | None = None
        self._dialling = asyncio.Lock()
        self._turn = 0

    def another(self, purpose: str) -> ControllerChannel:
        """A channel of its own to the same controllers, for long polls."""
        return ControllerChannel(self.addresses, f"{self.client_id}-{purpose}")

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
                answer = await connection.send(message, version)
                if getattr(answer, "error_code", 0) != ErrorCode.NOT_CONTROLLER:
                    return answer
                self.obstacle = f"{connection.address} is not the active controller"
            except (OSError, EOFError, TimeoutError) as fault:
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
        """Leave this connection and try the next address."""
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
                addresses = self.addresses()
                if not addresses:
                    raise OSError("controller.quorum.bootstrap.servers names none")
                host, port = addresses[self._turn % len(addresses)]
                self._connection = await Connection.open(host, port, client_id=self.client_id)
                self.generation += 1
            return self._connection


def _host_bytes(host: str) -> bytes:
    try:
        return ip_address(host).packed
    except ValueError:
        return ip_address("127.0.0.1").packed
