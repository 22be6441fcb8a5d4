"""A broker's life with its controller, on a real connection and on real nodes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from controller_kit import (
    Follower,
    Host,
    eventually,
    registration,
    standing_of,
    unused_port,
)
from node_kit import settings_of

from anabranch.client.admin import create_topic
from anabranch.client.cluster import Cluster
from anabranch.core.broker.hosting.effects import Ready
from anabranch.core.errors import ApiError, ErrorCode
from anabranch.core.log.checkpoints import CLEAN_SHUTDOWN, format_clean_shutdown
from anabranch.core.log.incarnations import previous_broker_epoch
from anabranch.core.wire.messages.broker_heartbeat import BrokerHeartbeatRequest
from anabranch.core.wire.messages.unregister_broker import UnregisterBrokerRequest
from anabranch.core.wire.metadata_records import RegisterBrokerRecord, UnregisterBrokerRecord
from anabranch.server import controller as controller_module
from anabranch.server.clocks import steady_ms
from anabranch.server.config import load_config
from anabranch.server.controller_channel import ControllerChannel
from anabranch.server.files import RealFiles
from anabranch.server.metadata_log import MetadataFollower
from anabranch.server.node import Node
from anabranch.server.partitions import PartitionShell
from anabranch.server.registration import Registration

OTHER_FOLDER = {"/e": b"e" * 16}
SOON_MS = 1_000
"""Long enough for an answer that is refused to come first."""
HOUR_NS = 3600 * 10**9


@pytest.fixture
async def host(tmp_path: Path) -> AsyncIterator[Host]:
    started = await Host(tmp_path / "store.db").start()
    yield started
    await started.stop()


@pytest.fixture
async def follower(host: Host, tmp_path: Path) -> AsyncIterator[Follower]:
    made = Follower(tmp_path / "copy", host.channel())
    await made.loop.start()
    yield made
    await made.loop.stop()


async def test_a_broker_registers_and_is_let_in(host: Host, follower: Follower) -> None:
    broker, stops = registration(host, follower)
    epoch = await broker.register()
    await broker.unfenced()
    registered = host.image.brokers[1]
    assert (registered.epoch, registered.fenced) == (epoch, False)
    assert registered.incarnation_id == broker.machine.identity.incarnation_id
    assert registered.endpoints["PLAINTEXT"].port == 9092
    await broker.shutdown()
    assert host.image.brokers[1].fenced
    assert stops == []


async def test_a_node_is_let_in_only_when_its_logs_are_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Elected while it opens them, it would lead what no client can write or read there yet."""
    settings = settings_of(tmp_path / "node", **{"broker.heartbeat.interval.ms": "20"})
    node = Node(load_config(None, settings))
    await node.start()
    async with Cluster(node.bootstrap_servers) as cluster:
        await create_topic(cluster, "t", partitions=3)
    await node.stop()
    held: list[Callable[[], None]] = []
    performs = PartitionShell.performs

    def late(shell: PartitionShell, effect: Any, performer: Any) -> None:
        performs(shell, effect, lambda told: held.append(partial(performer, told)))

    monkeypatch.setattr(
        PartitionShell,
        "performs",
        lambda shell, effect, performer: (late if effect is Ready else performs)(
            shell, effect, performer
        ),
    )
    again = Node(load_config(None, settings))
    starting = asyncio.create_task(again.start())
    await eventually(lambda: again.broker is not None and len(again.broker.broker.partitions) == 3)
    assert again.controller is not None
    controller = again.controller.controller
    contacts: set[int] = set()
    contact_ms = controller.sessions.contact_ms
    await eventually(lambda: contacts.update(contact_ms.values()) or len(contacts) > 3)
    assert controller.image.brokers[1].fenced
    assert leaders(again) == {-1}
    (let_in,) = held
    let_in()
    await starting
    assert not controller.image.brokers[1].fenced
    assert leaders(again) == {1}
    await again.stop()


def leaders(node: Node) -> set[int]:
    """Who leads partitions of `t`, as the controller of this node knows."""
    assert node.controller is not None
    topic = node.controller.controller.image.topic("t")
    assert topic is not None
    return {each.leader for each in topic.partitions.values()}


async def test_a_broker_that_fails_to_send_heartbeats_stops(host: Host, follower: Follower) -> None:
    """Else it would be fenced from then on, and its process would run without a word."""
    broker, stops = registration(host, follower)
    await broker.register()
    standing_of(broker).follower = None  # type: ignore[assignment]
    await eventually(lambda: stops)
    assert stops == [
        "heartbeats failed: AttributeError: 'NoneType' object has no attribute 'image'"
    ]
    await broker.shutdown()


async def test_a_living_broker_keeps_its_session(host: Host, follower: Follower) -> None:
    broker, _ = registration(host, follower)
    epoch = await broker.register()
    await broker.unfenced()
    contact_ms = host.shell.controller.sessions.contact_ms
    for _ in range(3):
        before = contact_ms[1, epoch]
        await eventually(lambda seen=before: contact_ms[1, epoch] > seen)
    await broker.shutdown()


async def test_heartbeats_are_stamped_with_the_clock_that_sessions_are_measured_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With two clocks a broker that has just spoken looks silent for years, again and again."""
    node = Node(load_config(None, settings_of(tmp_path / "node")))
    await node.start()
    assert node.controller is not None and node.broker is not None
    controller = node.controller.controller
    ticks: list[int] = []
    tick = controller.tick
    monkeypatch.setattr(controller, "tick", lambda now_ms: (ticks.append(now_ms), tick(now_ms))[1])
    await eventually(lambda: ticks)
    (contact_ms,) = controller.sessions.contact_ms.values()
    assert 0 <= ticks[-1] - contact_ms < controller.sessions.timeout_ms
    wall_ns = time.time_ns
    for jump_ns in (HOUR_NS, -HOUR_NS):
        monkeypatch.setattr(time, "time_ns", lambda jump=jump_ns: wall_ns() + jump)
        await heartbeat_of(node)
        assert 0 <= steady_ms() - max(controller.sessions.contact_ms.values()) < 5000
        assert tick(steady_ms()) is None
    assert not controller.image.brokers[1].fenced
    monkeypatch.undo()
    await node.stop()


async def heartbeat_of(node: Node) -> None:
    """One more heartbeat of a node's broker."""
    assert node._channel is not None and node.broker is not None
    request = BrokerHeartbeatRequest(
        broker_id=node.config.node_id,
        broker_epoch=node.broker.broker.broker_epoch,
        current_metadata_offset=node.broker.broker.image.offset,
    )
    assert (await node._channel.send(request)).error_code == 0


async def test_a_silent_broker_is_fenced_but_not_for_the_controller_s_own_absence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A loop that was blocked, a process that was frozen: heartbeats lay unread meanwhile."""
    host = await Host(tmp_path / "store.db", **{"broker.session.timeout.ms": "2000"}).start()
    follower = Follower(tmp_path / "copy", host.channel())
    await follower.loop.start()
    broker, _ = registration(host, follower, heartbeat_ms=60_000)
    epoch = await broker.register()
    await broker.unfenced()
    controller, absence_ms = host.shell.controller, 5000
    contact_ms = controller.sessions.contact_ms
    before = contact_ms[1, epoch]
    monkeypatch.setattr(controller_module, "steady_ms", lambda: steady_ms() + absence_ms)
    await eventually(lambda: contact_ms[1, epoch] - before >= absence_ms)
    assert not host.image.brokers[1].fenced
    await eventually(lambda: host.image.brokers[1].fenced)
    await broker.shutdown()
    await follower.loop.stop()
    await host.stop()


def twin(host: Host, follower: Follower, **changes: Any) -> Registration:
    """A broker of the same id on another folder, which does not ask for long."""
    wanted = {"directories": OTHER_FOLDER, "registration_timeout_ms": SOON_MS, **changes}
    return registration(host, follower, **wanted)[0]


@pytest.mark.parametrize("folder", ["of its own", "a copy"])
async def test_a_second_broker_of_the_same_id_is_refused_while_the_first_lives(
    host: Host, follower: Follower, folder: str
) -> None:
    first, stops = registration(host, follower)
    await first.register()
    changes = {"directories": first.machine.identity.directories} if folder == "a copy" else {}
    second = twin(host, follower, **changes)
    with pytest.raises(ApiError) as raised:
        await second.register()
    assert raised.value.message == (
        f"broker 1 could not register within {SOON_MS} ms "
        "(initial.broker.registration.timeout.ms): another live broker has node.id=1; give each "
        "node its own id; if one of two processes runs on a copy of the other's folders, stop it"
    )
    assert host.image.brokers[1].incarnation_id == first.machine.identity.incarnation_id
    assert stops == []
    await first.shutdown()
    await second.shutdown()


async def test_a_refusal_is_told_though_the_controller_then_says_nothing_more(
    host: Host, follower: Follower, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, _ = registration(host, follower)
    await first.register()
    second = twin(host, follower)
    send, asked = second._channel.send, []

    async def send_once(message: object, **how: object) -> object:
        asked.append(message)
        return await (send(message, **how) if len(asked) == 1 else asyncio.Event().wait())

    with monkeypatch.context() as patched:
        patched.setattr(second._channel, "send", send_once)
        with pytest.raises(ApiError, match=r"another live broker has node\.id=1; give each"):
            await second.register()
    assert len(asked) == 2
    await first.shutdown()
    await second.shutdown()


async def test_a_restarted_node_supersedes_its_old_incarnation_at_once(
    host: Host, follower: Follower
) -> None:
    """Its connection closed, and nobody answers where it listened."""
    old, _ = registration(host, follower, heartbeat_ms=60_000)
    first = await old.register()
    await old.unfenced()
    await killed(old)
    new, _ = registration(host, follower, registration_timeout_ms=5_000)
    assert await new.register() > first
    await new.unfenced()
    assert host.image.brokers[1].incarnation_id == new.machine.identity.incarnation_id
    await new.shutdown()


async def killed(broker: Registration) -> None:
    """The process ends without a word."""
    broker._timed.stop()
    await broker._channel.close()


async def test_whose_place_was_taken_stops(host: Host, follower: Follower) -> None:
    """It was silent for a whole session, and another process is the broker since."""
    old, stops = registration(host, follower)
    await old.register()
    await old.unfenced()
    taken = host.image.brokers[1]
    await host.commit(
        RegisterBrokerRecord(
            broker_id=1, incarnation_id=b"another process.", broker_epoch=taken.epoch + 100,
            log_dirs=list(taken.log_dirs),
        )
    )  # fmt: skip
    await eventually(lambda: stops)
    assert "another process registered as broker 1" in stops[0]
    await old.shutdown()


async def test_a_broker_that_was_unregistered_registers_again(
    host: Host, follower: Follower
) -> None:
    broker, stops = registration(host, follower)
    epoch = await broker.register()
    await broker.unfenced()
    await host.commit(UnregisterBrokerRecord(broker_id=1, broker_epoch=epoch))
    await eventually(lambda: broker.broker_epoch > epoch)
    await eventually(lambda: 1 in host.image.brokers and not host.image.brokers[1].fenced)
    assert host.image.brokers[1].epoch == broker.broker_epoch
    assert stops == []
    await broker.shutdown()


async def test_a_broker_that_registers_again_before_it_acts_on_metadata_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its metadata shows the second epoch when it first shows it: that one it waits for."""
    settings = settings_of(tmp_path / "node", **{"broker.heartbeat.interval.ms": "20"})
    may_follow = asyncio.Event()
    go_on = MetadataFollower._go_on

    async def later(follower: MetadataFollower) -> None:
        await may_follow.wait()
        await go_on(follower)

    monkeypatch.setattr(MetadataFollower, "_go_on", later)
    node = Node(load_config(None, settings))
    starting = asyncio.create_task(node.start())
    await eventually(lambda: node.broker is not None and node.broker.is_registered)
    assert node.broker is not None and node.controller is not None and node._channel is not None
    first = node.broker.broker.broker_epoch
    await node._channel.send(UnregisterBrokerRequest(broker_id=1))
    await eventually(lambda: node.broker.broker.broker_epoch > first)
    may_follow.set()
    try:
        async with asyncio.timeout(10):
            await asyncio.shield(starting)
        brokers = node.controller.controller.image.brokers
        assert not brokers[1].fenced and brokers[1].epoch == node.broker.broker.broker_epoch
    finally:
        starting.cancel()
        await node.stop()


async def test_another_cluster_s_controller_refuses_at_once(host: Host, follower: Follower) -> None:
    broker, _ = registration(host, follower, cluster_id="mine")
    with pytest.raises(ApiError, match=r"another cluster than this node \(mine\)") as raised:
        await broker.register()
    assert raised.value.code == ErrorCode.INCONSISTENT_CLUSTER_ID
    assert not host.image.brokers
    await broker.shutdown()


async def test_a_controller_that_is_away_is_said_in_time(follower: Follower) -> None:
    port = unused_port()
    channel = ControllerChannel(lambda: [("127.0.0.1", port)], "test")
    broker, _ = registration(
        None,  # type: ignore[arg-type]
        follower,
        channel=channel,
        registration_timeout_ms=SOON_MS,
    )
    with pytest.raises(ApiError) as raised:
        await broker.register()
    assert raised.value.message == (
        f"broker 1 could not register within {SOON_MS} ms "
        f"(initial.broker.registration.timeout.ms): 127.0.0.1:{port} cannot be reached: nothing "
        "listens there; check that a controller runs at one of controller.quorum.bootstrap.servers"
    )
    await broker.shutdown()


@pytest.mark.parametrize(
    ("epochs", "expected"),
    [((7,), 7), ((7, 7), 7), ((7, 8), -1), ((7, None), -1), ((None,), -1), ((-1, -1), -1)],
)
def test_the_epoch_of_a_clean_stop_is_what_every_folder_says(
    tmp_path: Path, epochs: tuple[int | None, ...], expected: int
) -> None:
    folders = []
    for number, epoch in enumerate(epochs):
        folder = tmp_path / str(number)
        folder.mkdir()
        if epoch is not None:
            (folder / CLEAN_SHUTDOWN).write_bytes(format_clean_shutdown(epoch))
        folders.append(str(folder))
    assert previous_broker_epoch(RealFiles(), folders) == expected


async def test_a_failed_folder_is_told_at_once_and_left_out_of_a_registration(
    host: Host, follower: Follower
) -> None:
    folders = {"/d": b"d" * 16, "/e": b"e" * 16}
    broker, _ = registration(host, follower, directories=folders, heartbeat_ms=60_000)
    await broker.register()
    await broker.unfenced()
    assert host.image.brokers[1].log_dirs == tuple(folders.values())
    standing_of(broker).partitions.offline_folders.add("/e")
    broker.folders_changed()
    await eventually(lambda: host.image.brokers[1].log_dirs == (folders["/d"],))
    epoch = broker.broker_epoch
    await host.commit(UnregisterBrokerRecord(broker_id=1, broker_epoch=epoch))
    broker.controller_found()
    await eventually(lambda: broker.broker_epoch > epoch)
    assert host.image.brokers[1].log_dirs == (folders["/d"],)
    await broker.shutdown()


async def test_a_broker_stops_when_nobody_hears_of_its_failed_folder(
    host: Host, follower: Follower
) -> None:
    broker, sentences = registration(host, follower, heartbeat_ms=60_000, folder_failure_ms=50)
    await broker.register()
    await broker.unfenced()
    await host.hang_up()
    standing_of(broker).partitions.offline_folders.add("/d")
    broker.folders_changed()
    await eventually(lambda: bool(sentences))
    assert sentences == [
        "a log folder failed, and no controller could be informed within 50 ms "
        "(log.dir.failure.timeout.ms)"
    ]
    await broker.shutdown()
