"""R17: a controller that slept through its lease tells nobody of its old metadata when it wakes.

A follower that dials it just then would find that the log "went back", and end its node.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from controller_kit import CLUSTER, Follower, Host, eventually, topic

from anabranch.client.connection import Connection
from anabranch.core.controller.result import Result
from anabranch.core.controller.tenure import events
from anabranch.core.controller.tenure.lease import LeaseTimes
from anabranch.core.errors import ErrorCode
from anabranch.core.outcome import Propose
from anabranch.core.types import CLUSTER_METADATA_TOPIC, METADATA_TOPIC_ID
from anabranch.core.wire.messages.broker_heartbeat import BrokerHeartbeatRequest
from anabranch.core.wire.messages.describe_cluster import DescribeClusterRequest
from anabranch.core.wire.messages.describe_quorum import DescribeQuorumRequest
from anabranch.core.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from anabranch.core.wire.messages.fetch_snapshot import FetchSnapshotRequest
from anabranch.server import controller as controller_module

CONTROLLERS = 2
"""DescribeCluster's endpoint type."""


@pytest.fixture
async def first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Host]:
    """The active controller; none of its timers will run, nor will another's."""
    monkeypatch.setattr(controller_module, "TIMING", LeaseTimes(600_000, renew_ms=600_000))
    host = await Host(tmp_path / "store.db").start()
    await host.commit(topic(1))
    yield host
    await host.stop()


def sleeps(host: Host) -> None:
    """It did not run for longer than its lease lasts."""
    holding = host.shell.tenure.state.holding
    assert holding is not None
    holding.confirmed_ms -= host.shell.tenure.state.timing.lease_timeout_ms + 1


async def successor(path: Path) -> Host:
    """Another process's controller on the same store, which has taken the lease."""
    host = await Host(path, node_id=2).start()
    host.shell._step(events.HolderGone(1))
    await eventually(lambda: host.shell.controller.active)
    await host.shell.submit(Propose(Result((topic(2),), None)))
    return host


def fetch(offset: int, max_wait_ms: int = 0) -> FetchRequest:
    partition = FetchPartition(
        partition=0, fetch_offset=offset, last_fetched_epoch=-1, partition_max_bytes=1 << 20
    )
    topic = FetchTopic(
        topic=CLUSTER_METADATA_TOPIC, topic_id=METADATA_TOPIC_ID, partitions=[partition]
    )
    return FetchRequest(
        cluster_id=CLUSTER, replica_id=7, max_wait_ms=max_wait_ms, max_bytes=1 << 20, topics=[topic]
    )


def fetches(host: Host) -> int:
    return sum(each.requests for each in host.serving.requests.routes if each.name == "Fetch")


def is_refused(answer: Any) -> bool:
    partition = answer.responses[0].partitions[0]
    return bool(partition.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER and not partition.records)


async def test_a_follower_that_dials_it_goes_on_asking_elsewhere(
    first: Host, tmp_path: Path
) -> None:
    second = await successor(tmp_path / "store.db")
    follower = Follower(tmp_path / "copy", second.channel(first))
    await follower.loop.start()
    await follower.caught_up(second)
    sleeps(first)
    await second.hang_up()
    await eventually(lambda: fetches(first) > 1 or follower.sentences)
    assert follower.sentences == []
    await second.listen()
    await second.commit(topic(3))
    await follower.caught_up(second)
    assert "t3" in follower.image.topic_ids_by_name and follower.sentences == []
    await follower.loop.stop()
    await second.stop()


@pytest.mark.parametrize(
    "message",
    [
        DescribeQuorumRequest(topics=[]),
        FetchSnapshotRequest(topics=[]),
        BrokerHeartbeatRequest(broker_id=1, broker_epoch=1),
    ],
    ids=lambda message: type(message).__name__,
)
async def test_it_says_that_it_is_not_the_controller(first: Host, message: Any) -> None:
    connection = await Connection.open("127.0.0.1", first.port)
    sleeps(first)
    assert (await connection.send(message)).error_code == ErrorCode.NOT_CONTROLLER
    assert not first.shell.controller.active
    await connection.close()


async def test_it_does_not_name_itself(first: Host) -> None:
    connection = await Connection.open("127.0.0.1", first.port)
    asked = DescribeClusterRequest(endpoint_type=CONTROLLERS)
    assert (await connection.send(asked)).controller_id == first.node_id
    sleeps(first)
    assert (await connection.send(asked)).controller_id != first.node_id
    await connection.close()


async def test_who_waits_there_is_told_as_well(first: Host) -> None:
    """A long poll whose time is over when the process wakes."""
    connection = await Connection.open("127.0.0.1", first.port)
    end = first.shell.controller.log.end_offset
    waiting = asyncio.ensure_future(connection.send(fetch(end, max_wait_ms=200)))
    await eventually(lambda: first.serving.requests.purgatory.parked_total)
    sleeps(first)
    assert is_refused(await waiting)
    await connection.close()
