"""A cluster as its client sees it: brokers, leaders, and trying again while that can help.

What: one connection a broker, dialled when needed; metadata when asked for. Rules kept: an error
that the protocol calls retriable, and a lost connection, are tried again with growing pauses until
the deadline; everything else is raised at once as `ApiError` with the node's own sentence.
"""

from __future__ import annotations

import asyncio
import re
import ssl as ssl_module
from collections.abc import Awaitable, Callable, Collection, Sequence
from types import TracebackType
from typing import Any, NamedTuple, Self, TypeVar

from anabranch.client.connection import DIAL_SECONDS, SOFTWARE_NAME, Connection, ConnectionLost
from anabranch.client.security import PLAINTEXT, Security
from anabranch.core.errors import ERRORS, ApiError, ClientFault, ErrorCode
from anabranch.core.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from anabranch.core.wire.schema import Message

T = TypeVar("T")
PORT = re.compile("[0-9]{1,5}")

FIRST_PAUSE_SECONDS = 0.02
LONGEST_PAUSE_SECONDS = 1.0
DEFAULT_DEADLINE_SECONDS = 30.0


class BrokerAddress(NamedTuple):
    """Where a broker listens, and in which rack it stands."""

    broker_id: int
    host: str
    port: int
    rack: str | None


def check(code: int, message: str | None = None, *, of: str = "") -> None:
    """Raise ApiError for an error code in a response; 0 is silence.

    `of` names what was refused: it stands before a sentence that does not name it.
    """
    if code:
        fault = ApiError(ErrorCode(code), message or "")
        if of not in fault.message:
            fault = ApiError(fault.code, f"{of}: {fault.message}")
        raise fault


def check_there(code: int, topic: str) -> None:
    """Raise ApiError if a topic is not there, in the same words for every request about topics;
    other codes are left to the caller."""
    if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"There is no topic {topic!r}.")


def no_leader(topic: str, partition: int) -> ApiError:
    """What is raised while a partition cannot be asked."""
    return ApiError(ErrorCode.LEADER_NOT_AVAILABLE, f"Partition {topic}-{partition} has no leader.")


def leaders_of(
    topic: MetadataResponseTopic, among: Collection[int] | None = None
) -> dict[int, int]:
    """Partition -> broker id of its leader, of all partitions or of those `among` that are there;
    raises ApiError while one of these has none."""
    leaders = {
        each.partition_index: each.leader_id
        for each in topic.partitions
        if among is None or each.partition_index in among
    }
    for partition, leader in leaders.items():
        if leader < 0:
            raise no_leader(topic.name or "", partition)
    return leaders


def parse_addresses(bootstrap_servers: str) -> list[tuple[str, int]]:
    """`host:port,host:port` as pairs; raises ClientFault that names the part it cannot read."""
    addresses = []
    for part in filter(None, (each.strip() for each in bootstrap_servers.split(","))):
        if "://" in part:
            address = part.partition("://")[2].partition("/")[0] or "127.0.0.1:9092"
            raise ClientFault(
                ErrorCode.INVALID_REQUEST,
                f"{part!r} is a URL; a bootstrap server is host:port, as in {address}.",
            )
        host, _, port = part.rpartition(":")
        if not host or not PORT.fullmatch(port) or not 0 < int(port) < 65536:
            raise ClientFault(
                ErrorCode.INVALID_REQUEST, f"{part!r} is not host:port, as in 127.0.0.1:9092."
            )
        addresses.append((host.strip("[]"), int(port)))
    if not addresses:
        raise ClientFault(ErrorCode.INVALID_REQUEST, "No bootstrap server was given.")
    return addresses


class Cluster:
    """Connections to the brokers of one cluster. Use it as an asynchronous context manager."""

    def __init__(
        self,
        bootstrap_servers: str,
        *,
        client_id: str = SOFTWARE_NAME,
        security: Security = PLAINTEXT,
        deadline_seconds: float = DEFAULT_DEADLINE_SECONDS,
        at_controllers: bool = False,
    ) -> None:
        """`at_controllers`: the servers are listeners of controllers, which have no metadata of
        topics (KIP-919); use only `send`."""
        self._at_controllers = at_controllers
        self.brokers: dict[int, BrokerAddress] = {}
        self.cluster_id = ""
        self.controller_id = -1
        self.deadline_seconds = deadline_seconds
        self._bootstrap = parse_addresses(bootstrap_servers)
        self._client_id = client_id
        self._security = security
        self._ssl: ssl_module.SSLContext | None = None
        self._connections: dict[tuple[str, int], Connection] = {}

    async def __aenter__(self) -> Self:
        if self._at_controllers:
            await self.any_connection()
        else:
            await self.metadata([])
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, fault: BaseException | None,
        trace: TracebackType | None,
    ) -> None:  # fmt: skip
        await self.close()

    async def close(self) -> None:
        """End every connection."""
        connections, self._connections = self._connections, {}
        for connection in connections.values():
            await connection.close()

    async def send(self, message: Message) -> Any:
        """Ask any broker; error codes inside the response are the caller's."""
        connection = await self.any_connection()
        return await connection.send(message)

    async def send_to(self, broker_id: int, message: Message) -> Any:
        """Ask one broker, as for partitions that it leads."""
        connection = await self.connection_to(broker_id)
        return await connection.send(message)

    async def connection_to(self, broker_id: int) -> Connection:
        """The connection to a broker; raises ApiError BROKER_NOT_AVAILABLE for an unknown one."""
        broker = self.brokers.get(broker_id)
        if broker is None:
            known = ", ".join(map(str, sorted(self.brokers))) or "none"
            raise ApiError(
                ErrorCode.BROKER_NOT_AVAILABLE,
                f"Broker {broker_id} does not exist; known: {known}.",
            )
        return await self._dial(broker.host, broker.port)

    async def metadata(
        self, topics: Sequence[str] | None, *, creates: bool = False
    ) -> MetadataResponse:
        """Metadata of some topics, or of all (None); brokers are remembered.

        With `creates`, a cluster that creates topics by itself creates those that are missing.
        """
        wanted = None if topics is None else [MetadataRequestTopic(name=name) for name in topics]
        request = MetadataRequest(topics=wanted, allow_auto_topic_creation=creates)
        response: MetadataResponse = await self.send(request)
        check(response.error_code)
        self.brokers = {
            each.node_id: BrokerAddress(each.node_id, each.host, each.port, each.rack)
            for each in response.brokers
        }
        self.cluster_id = response.cluster_id or ""
        self.controller_id = response.controller_id
        return response

    async def topic(self, name: str) -> MetadataResponseTopic:
        """One topic with all its partitions; raises ApiError when it is not there."""
        topic = (await self.metadata([name])).topics[0]
        if topic.error_code:
            code = ErrorCode(topic.error_code)
            check_there(code, name)
            raise ApiError(code, f"Topic {name!r}: {ERRORS[code].sentence}")
        return topic

    async def partition(self, name: str, index: int) -> MetadataResponsePartition:
        """One partition of a topic; raises ApiError, without waiting, when it is not there."""
        found = (await self.topic(name)).partitions
        for each in found:
            if each.partition_index == index:
                return each
        raise ApiError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            f"Topic {name} has no partition {index}: it has {len(found)}, counted from 0.",
        )

    async def leader(self, name: str, index: int) -> int:
        """The broker id of one partition's leader, whatever the others have; raises ApiError while
        there is none, or no such partition."""
        leader = (await self.partition(name, index)).leader_id
        if leader < 0:
            raise no_leader(name, index)
        return leader

    async def leaders(self, name: str, among: Collection[int] | None = None) -> dict[int, int]:
        """Partition -> broker id of its leader, see `leaders_of`."""
        return leaders_of(await self.topic(name), among)

    async def retrying(
        self, attempt: Callable[[], Awaitable[T]], *, seconds: float | None = None
    ) -> T:
        """Run `attempt` until it succeeds, fails for good, or the cluster's deadline is over; or
        `seconds`, where that is shorter."""
        loop = asyncio.get_running_loop()
        longest = self.deadline_seconds
        deadline = loop.time() + (longest if seconds is None else min(seconds, longest))
        pause = FIRST_PAUSE_SECONDS
        while True:
            try:
                return await attempt()
            except (ApiError, ConnectionLost) as fault:
                if not may_help(fault) or loop.time() + pause > deadline:
                    raise
            await asyncio.sleep(pause)
            pause = min(pause * 2, LONGEST_PAUSE_SECONDS)

    async def any_connection(self) -> Connection:
        """The connection that is open, else one to the first node that answers."""
        for connection in self._connections.values():
            if connection.is_open:
                return connection
        known = [(broker.host, broker.port) for broker in self.brokers.values()]
        failure: ConnectionLost | None = None
        for host, port in dict.fromkeys([*self._bootstrap, *known]):
            try:
                return await self._dial(host, port)
            except ConnectionLost as fault:
                failure = failure or fault
        assert failure is not None
        raise failure

    async def _dial(self, host: str, port: int) -> Connection:
        connection = self._connections.get((host, port))
        if connection is not None and connection.is_open:
            return connection
        connection = await self.another(host, port)
        self._connections[host, port] = connection
        return connection

    async def another(self, host: str, port: int) -> Connection:
        """A connection of its own, as secure as the others; the caller closes it. Raises
        ConnectionLost, ClientFault."""
        limit = min(DIAL_SECONDS, self.deadline_seconds)
        if self._ssl is None:
            self._ssl = self._security.context()
        return await Connection.open(
            host, port, client_id=self._client_id, ssl=self._ssl,
            login=self._security.login, timeout_seconds=limit,
        )  # fmt: skip


def may_help(fault: Exception) -> bool:
    """Whether trying the same again may end otherwise."""
    return isinstance(fault, ConnectionLost) or (
        isinstance(fault, ApiError) and ERRORS[fault.code].retriable
    )
