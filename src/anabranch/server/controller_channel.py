"""A connection to whichever controller is active.

What: sends a request and gives back the answer, dialling and redialling as needed. Why:
registration, heartbeats, forwarding and following the metadata all need the active controller and
must not care how it was found. Which controller is asked, and when another is looked for, is
decided in `core/broker/registration/active_controller.py`. Rule kept: a node that knows
its cluster asks no other's controllers: the metadata may name an address that is another's since.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from ipaddress import ip_address
from typing import Any

from anabranch.client.connection import Connection
from anabranch.core.access.principal import Principal
from anabranch.core.access.principal_bytes import write_principal
from anabranch.core.broker.registration import active_controller
from anabranch.core.broker.registration.active_controller import (
    PATIENCE_MS,
    Attempts,
    Search,
    Seen,
)
from anabranch.core.errors import ApiError, ClientFault, ErrorCode
from anabranch.core.wire.messages.describe_cluster import DescribeClusterRequest
from anabranch.core.wire.messages.describe_quorum import DescribeQuorumRequest
from anabranch.core.wire.messages.envelope import EnvelopeRequest, EnvelopeResponse
from anabranch.server.clocks import steady_ms
from anabranch.server.outbound import PLAINTEXT, Transport, reach

WHO_IS_ACTIVE = DescribeQuorumRequest(topics=[])
"""Only the active controller answers it without an error."""
WHOSE_IT_IS = DescribeClusterRequest(endpoint_type=2)
"""Asked of a controller: each tells its cluster."""
NO_ANSWER = (OSError, EOFError, TimeoutError)

Address = tuple[str, int]


class ControllerChannel:
    """One connection, in order; see the module's docstring."""

    def __init__(
        self,
        addresses: Callable[[], Sequence[Address]],
        client_id: str,
        seen: Seen[Address] | None = None,
        *,
        cluster_id: Callable[[], str] = str,
        transport: Transport = PLAINTEXT,
    ) -> None:
        """`cluster_id` gives the id of the node's cluster, empty while it is not known."""
        self.transport = transport
        self.addresses = addresses
        self.cluster_id = cluster_id
        self.client_id = client_id
        self.obstacle = ""
        """Why the last attempt to reach an active controller failed; empty when it did not."""
        self._search: Search[Address] = Search(seen)
        self._connection: Connection | None = None
        self._dialling = asyncio.Lock()
        self._asking = asyncio.Lock()

    @property
    def generation(self) -> int:
        """Grows with every new connection: what was learnt on an older one may be out of date."""
        return self._search.generation

    @property
    def address(self) -> Address:
        """Who answered last."""
        assert self._search.address is not None
        return self._search.address

    def another(self, purpose: str) -> ControllerChannel:
        """A channel of its own to the same controllers, for long polls."""
        return ControllerChannel(
            self.addresses,
            f"{self.client_id}-{purpose}",
            self._search.seen,
            cluster_id=self.cluster_id,
            transport=self.transport,
        )

    async def send(
        self, message: Any, version: int | None = None, *, patience_ms: int | None = PATIENCE_MS
    ) -> Any:
        """The active controller's answer. Raises ApiError NOT_CONTROLLER when none is found in
        time; `patience_ms` None stands for ever."""
        attempts = Attempts(steady_ms(), patience_ms)
        while True:
            connection: Connection | None = None
            try:
                connection = await self._connected()
                answer = await self._answer(connection, message, version)
                if self._search.answered(getattr(answer, "error_code", 0)):
                    self.obstacle = ""
                    return answer
                self.obstacle = f"{connection.address} is not the active controller"
            except NO_ANSWER as fault:
                self.obstacle = str(fault) or type(fault).__name__
            if connection is self._connection:  # else another request has left it
                await self.rotate()
            pause_ms = attempts.pause_ms(steady_ms())
            if pause_ms is None:
                sentence = f"no active controller: {self.obstacle}"
                raise ApiError(ErrorCode.NOT_CONTROLLER, sentence)
            await asyncio.sleep(pause_ms / 1000)

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
        self._search.leave()
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
                self._connection = await self._dialled(self._search.next_address(addresses))
                self._search.connected()
            return self._connection

    async def _dialled(self, address: Address) -> Connection:
        begun_ms, limit_s = steady_ms(), self._search.dial_ms / 1000
        try:
            return await self._opened(address, limit_s)
        except NO_ANSWER:
            self._search.not_connected(steady_ms() - begun_ms)
            raise

    async def _opened(self, address: Address, limit_s: float) -> Connection:
        """A connection to a controller of this node's cluster. Raises NO_ANSWER."""
        try:
            connection = await reach(
                *address, transport=self.transport, client_id=self.client_id,
                timeout_seconds=limit_s,
            )  # fmt: skip
        except ClientFault as fault:  # a certificate or a login that is not accepted
            raise OSError(str(fault)) from None
        cluster_id = self.cluster_id()
        if not cluster_id:
            return connection
        try:
            async with asyncio.timeout(limit_s):
                answer = await connection.send(WHOSE_IT_IS)
            if answer.cluster_id != cluster_id:
                raise OSError(f"{connection.address} is no controller of cluster {cluster_id}")
        except BaseException as fault:
            connection.abort()
            if isinstance(fault, TimeoutError):
                raise OSError(f"{connection.address} does not say whose it is") from None
            if isinstance(fault, ApiError):
                raise OSError(f"{connection.address} is no controller: {fault}") from None
            raise
        return connection

    async def _answer(self, connection: Connection, message: Any, version: int | None) -> Any:
        """The answer on one connection, which ends when another controller is the active one."""
        asked = asyncio.ensure_future(connection.send(message, version))
        try:
            while not (await asyncio.wait((asked,), timeout=active_controller.SILENCE_MS / 1000))[
                0
            ]:
                if connection is self._connection and await self._is_elsewhere():
                    connection.abort()
            return asked.result()
        finally:
            asked.cancel()

    async def _is_elsewhere(self) -> bool:
        """Whether another than this channel's controller says that it is active."""
        async with self._asking:
            others = self._search.others_to_ask(self.addresses())
            answers = await asyncio.gather(*map(self._is_active, others))
            self._search.found([each for each, says in zip(others, answers, strict=True) if says])
            return self._search.is_elsewhere

    async def _is_active(self, address: Address) -> bool:
        connection: Connection | None = None
        try:
            limit_s = active_controller.SILENCE_MS / 1000
            async with asyncio.timeout(limit_s):
                connection = await self._opened(address, limit_s)
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
