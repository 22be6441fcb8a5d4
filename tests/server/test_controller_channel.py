"""Finding the active controller, and finding it again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from controller_kit import CLUSTER, SECONDS, Host, eventually, unused_port

from anabranch.core.broker.registration import active_controller
from anabranch.core.errors import ApiError, ErrorCode
from anabranch.core.wire.messages.describe_cluster import DescribeClusterRequest
from anabranch.core.wire.messages.fetch_snapshot import FetchSnapshotRequest
from anabranch.server.cluster_discovery import cluster_of_controllers
from anabranch.server.controller_channel import ControllerChannel
from anabranch.stores.metadata.sqlite import SqliteStore

REQUEST = FetchSnapshotRequest(cluster_id=CLUSTER, topics=[])
"""A request that only an active controller answers without an error."""


@pytest.fixture
async def hosts(tmp_path: Path) -> AsyncIterator[tuple[Host, Host]]:
    """Two controllers on one store: the first is active."""
    first = await Host(tmp_path / "store.db", node_id=1).start()
    second = await Host(tmp_path / "store.db", node_id=2).start()
    await first.commit()
    yield first, second
    for host in (second, first):
        await host.stop()


async def test_the_active_one_is_found_wherever_it_stands(hosts: tuple[Host, Host]) -> None:
    first, second = hosts
    channel = second.channel(first)
    answer = await channel.send(REQUEST)
    assert answer.error_code == 0
    assert channel.generation == 2, "it dialled the second one first"
    assert channel.obstacle == ""
    await channel.close()


async def test_a_lost_connection_is_dialled_again(hosts: tuple[Host, Host]) -> None:
    first, _ = hosts
    channel = first.channel()
    await channel.send(REQUEST)
    await first.hang_up()
    waiting = asyncio.create_task(channel.send(REQUEST))
    await eventually(lambda: channel.obstacle)
    await first.listen()
    assert (await waiting).error_code == 0
    assert channel.generation == 2
    await channel.close()


async def test_all_who_lost_one_connection_share_the_next(hosts: tuple[Host, Host]) -> None:
    first, _ = hosts
    channel = first.channel()
    await channel.send(REQUEST)
    channel._connection.abort()
    answers = await asyncio.gather(*(channel.send(REQUEST) for _ in range(20)))
    assert [each.error_code for each in answers] == [0] * 20
    assert channel.generation == 2
    await channel.close()


async def test_the_next_active_one_is_found(hosts: tuple[Host, Host]) -> None:
    """The first gives its lease back; the second takes it and answers the same channel."""
    first, second = hosts
    channel = first.channel(second)
    await channel.send(REQUEST)
    await first.shell.stop()
    async with asyncio.timeout(SECONDS):
        assert (await channel.send(REQUEST)).error_code == 0
    assert second.shell.controller.active
    assert second.shell.controller.epoch == 2
    await channel.close()


class StandingStill:
    """Passes bytes on to a controller until it is frozen: a process under SIGSTOP keeps its
    connections, takes new ones, and says nothing."""

    def __init__(self, port: int) -> None:
        self.target = port
        self.frozen = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    async def listen(self) -> StandingStill:
        self._server = await asyncio.start_server(self._took, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def _took(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there = await asyncio.open_connection("127.0.0.1", self.target)
        for source, sink in ((reader, there[1]), (there[0], writer)):
            self._tasks.append(asyncio.create_task(self._pass_on(source, sink)))

    async def _pass_on(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        while piece := await source.read(1 << 16):
            if self.frozen.is_set():
                await asyncio.Event().wait()
            sink.write(piece)

    def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        self._server.close()


@pytest.fixture
async def still(
    hosts: tuple[Host, Host], monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[StandingStill]:
    """In front of the first controller."""
    monkeypatch.setattr(active_controller, "SILENCE_MS", 100)
    still = await StandingStill(hosts[0].port).listen()
    yield still
    still.close()


async def test_a_controller_that_stands_still_is_left_for_the_one_that_took_over(
    hosts: tuple[Host, Host], still: StandingStill
) -> None:
    addresses = [("127.0.0.1", still.port), ("127.0.0.1", hosts[1].port)]
    channel = ControllerChannel(lambda: addresses, "test")
    assert (await channel.send(REQUEST)).error_code == 0
    still.frozen.set()
    waiting = [asyncio.create_task(each.send(REQUEST)) for each in (channel, channel.another("b"))]
    await hosts[0].shell.stop()
    async with asyncio.timeout(SECONDS):
        assert [(await each).error_code for each in waiting] == [0, 0]
    assert hosts[1].shell.controller.active
    await channel.close()


async def test_one_that_is_slow_and_alone_is_waited_for(
    hosts: tuple[Host, Host], still: StandingStill
) -> None:
    """A request is not repeated only because its answer takes long."""
    channel = ControllerChannel(lambda: [("127.0.0.1", still.port)], "test")
    await channel.send(REQUEST)
    generation = channel.generation
    still.frozen.set()
    waiting = asyncio.create_task(channel.send(REQUEST))
    done, _ = await asyncio.wait((waiting,), timeout=0.5)
    assert not done and channel.generation == generation
    waiting.cancel()
    await channel.close()


async def test_a_dial_that_nobody_answers_goes_on_to_the_next(
    hosts: tuple[Host, Host], still: StandingStill
) -> None:
    still.frozen.set()
    addresses = [("127.0.0.1", still.port), ("127.0.0.1", hosts[0].port)]
    channel = ControllerChannel(lambda: addresses, "test")
    async with asyncio.timeout(SECONDS):
        assert (await channel.send(REQUEST)).error_code == 0
    again = channel.another("second")
    async with asyncio.timeout(SECONDS):
        assert (await again.send(REQUEST)).error_code == 0
    assert again.generation == 1, "it was told where the active one is"
    for each in (again, channel):
        await each.close()


async def test_nobody_there_is_said_after_a_while() -> None:
    port = unused_port()
    channel = ControllerChannel(lambda: [("127.0.0.1", port)], "test")
    with pytest.raises(ApiError, match=f"no active controller: 127.0.0.1:{port} cannot") as raised:
        await channel.send(REQUEST, patience_ms=30)
    assert raised.value.code == ErrorCode.NOT_CONTROLLER


async def test_no_address_is_said() -> None:
    channel = ControllerChannel(list, "test")
    with pytest.raises(ApiError, match=r"controller\.quorum\.bootstrap\.servers names none"):
        await channel.send(REQUEST, patience_ms=0)


async def test_own_controllers_that_are_away_are_told_from_one_of_another_cluster(
    hosts: tuple[Host, Host],
) -> None:
    """The start ended as if all controllers were the other cluster's."""
    foreign, away = hosts[0].port, unused_port()
    channel = ControllerChannel(lambda: [("127.0.0.1", foreign), ("127.0.0.1", away)], "test")
    said = (
        f"no controller of its cluster OWN within 1000 ms .*: 127.0.0.1:{away} did not answer, "
        f"127.0.0.1:{foreign} is of cluster {CLUSTER}; "
    )
    with pytest.raises(ApiError, match=said):
        await cluster_of_controllers(channel, 1, 1_000, own="OWN")
    await channel.close()


async def test_a_fresh_node_joins_neither_of_two_clusters(
    hosts: tuple[Host, Host], tmp_path: Path
) -> None:
    """It joined whichever answered first. One that is away is not waited for."""
    store = await SqliteStore.open(str(tmp_path / "other.db"))
    await store.cluster_id("OTHER")
    other, away = await Host(tmp_path / "other.db").start(store), unused_port()

    async def joined(*ports: int, own: str = "") -> str:
        channel = ControllerChannel(lambda: [("127.0.0.1", port) for port in ports], "test")
        try:
            return await cluster_of_controllers(channel, 1, 60_000, own=own)
        finally:
            await channel.close()

    first, second = (each.port for each in hosts)
    said = (
        f"node 1 is new, and controller.quorum.bootstrap.servers names controllers of several "
        f"clusters: 127.0.0.1:{first} is of cluster {CLUSTER}, 127.0.0.1:{second} is of cluster "
        f"{CLUSTER}, 127.0.0.1:{other.port} is of cluster OTHER; "
    )
    with pytest.raises(ApiError, match=said) as raised:
        await joined(first, away, second, other.port)
    assert raised.value.code == ErrorCode.INCONSISTENT_CLUSTER_ID
    assert await joined(away, first, second) == CLUSTER
    assert await joined(first, other.port, own=CLUSTER) == CLUSTER
    await other.stop()


async def test_requests_of_one_channel_share_a_connection(hosts: tuple[Host, Host]) -> None:
    first, _ = hosts
    channel = first.channel()
    answers = await asyncio.gather(*(channel.send(REQUEST) for _ in range(20)))
    assert [each.error_code for each in answers] == [0] * 20
    assert channel.generation == 1
    await channel.close()


async def test_a_controller_says_where_it_is_and_who_is_active(hosts: tuple[Host, Host]) -> None:
    """KIP-919: what clients with bootstrap.controllers ask first. One that waits has looked at the
    lease, and names who holds it."""
    await eventually(lambda: hosts[1].shell.controller.active_id == 1)
    for host in hosts:
        host.shell.controller.endpoint = ("127.0.0.1", host.port)
        channel = host.channel()
        answer = await channel.send(DescribeClusterRequest(endpoint_type=2))
        assert (answer.error_code, answer.cluster_id, answer.endpoint_type) == (0, CLUSTER, 2)
        assert answer.controller_id == 1
        found = [(each.broker_id, each.host, each.port) for each in answer.brokers]
        assert found == [(host.node_id, "127.0.0.1", host.port)]
        refused = await channel.send(DescribeClusterRequest(endpoint_type=1))
        assert refused.error_code == ErrorCode.MISMATCHED_ENDPOINT_TYPE
        assert refused.error_message == (
            "The request was sent to an endpoint of type CONTROLLER, but we wanted an endpoint of "
            "type BROKER"
        )
        await channel.close()
