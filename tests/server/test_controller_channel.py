"""Finding the active controller, and finding it again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from controller_kit import CLUSTER, SECONDS, Host, eventually, unused_port

from anabranch.core.errors import ApiError, ErrorCode
from anabranch.core.wire.messages.describe_cluster import DescribeClusterRequest
from anabranch.core.wire.messages.fetch_snapshot import FetchSnapshotRequest
from anabranch.server.controller_channel import ControllerChannel

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
    assert channel.obstacle == f"127.0.0.1:{second.port} is not the active controller"
    assert channel.generation == 2
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


async def test_nobody_there_is_said_after_a_while() -> None:
    port = unused_port()
    channel = ControllerChannel(lambda: [("127.0.0.1", port)], "test")
    with pytest.raises(ApiError, match=f"no active controller: 127.0.0.1:{port} cannot") as raised:
        await channel.send(REQUEST, patience_s=0.03)
    assert raised.value.code == ErrorCode.NOT_CONTROLLER


async def test_no_address_is_said() -> None:
    channel = ControllerChannel(list, "test")
    with pytest.raises(ApiError, match=r"controller\.quorum\.bootstrap\.servers names none"):
        await channel.send(REQUEST, patience_s=0)


async def test_requests_of_one_channel_share_a_connection(hosts: tuple[Host, Host]) -> None:
    first, _ = hosts
    channel = first.channel()
    answers = await asyncio.gather(*(channel.send(REQUEST) for _ in range(20)))
    assert [each.error_code for each in answers] == [0] * 20
    assert channel.generation == 1
    await channel.close()


async def test_a_controller_says_where_it_is_and_who_is_active(hosts: tuple[Host, Host]) -> None:
    """KIP-919: what clients with bootstrap.controllers ask first."""
    for host, active in zip(hosts, (1, -1), strict=True):
        host.shell.controller.endpoint = ("127.0.0.1", host.port)
        channel = host.channel()
        answer = await channel.send(DescribeClusterRequest(endpoint_type=2))
        assert (answer.error_code, answer.cluster_id, answer.endpoint_type) == (0, CLUSTER, 2)
        assert answer.controller_id == active
        found = [(each.broker_id, each.host, each.port) for each in answer.brokers]
        assert found == [(host.node_id, "127.0.0.1", host.port)]
        refused = await channel.send(DescribeClusterRequest(endpoint_type=1))
        assert refused.error_code == ErrorCode.MISMATCHED_ENDPOINT_TYPE
        assert refused.error_message == (
            "The request was sent to an endpoint of type CONTROLLER, but we wanted an endpoint of "
            "type BROKER"
        )
        await channel.close()
