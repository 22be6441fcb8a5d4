"""A controller on a real SQLite store and a real loopback listener, and what follows it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from node_kit import free_port

from anabranch.core.api.registry import handlers
from anabranch.core.broker.registration.registration import Times
from anabranch.core.controller.result import Result
from anabranch.core.metadata.following.copy import MetadataCopy
from anabranch.core.metadata.following.requests import PIECE_BYTES
from anabranch.core.metadata.image import MetadataDelta, MetadataImage
from anabranch.core.outcome import Propose
from anabranch.core.settings.broker import BrokerConfig
from anabranch.core.types import TopicId
from anabranch.core.wire.metadata_records import MetadataRecord, TopicRecord
from anabranch.server.clocks import wall_ms
from anabranch.server.controller import ControllerShell
from anabranch.server.controller_channel import ControllerChannel
from anabranch.server.files import RealFiles
from anabranch.server.listener import Acceptor
from anabranch.server.metadata_log import MetadataFollower
from anabranch.server.receive_memory import ReceiveMemory
from anabranch.server.registration import Registration, new_identity
from anabranch.server.roles import ControllerRequestShell, ControllerSide
from anabranch.stores.metadata.sqlite import SqliteStore

CLUSTER = "test-cluster"
SECONDS = 30
FEW_BYTES = "metadata.log.max.record.bytes.between.snapshots"


async def eventually(condition: Callable[[], Any]) -> None:
    """Wait on a condition, not on a time."""
    async with asyncio.timeout(SECONDS):
        while not condition():  # noqa: ASYNC110 - the condition has no event of its own
            await asyncio.sleep(0.002)


def topic(number: int) -> TopicRecord:
    """A topic without partitions."""
    return TopicRecord(name=f"t{number}", topic_id=TopicId(number.to_bytes(16)))


class Host:
    """One controller process's parts; several may share a store."""

    def __init__(self, path: Path, *, node_id: int = 1, **settings: str) -> None:
        self.path = path
        self.node_id = node_id
        self.config = BrokerConfig.of(
            {name.replace("_", "."): value for name, value in settings.items()}
        )
        self.port = 0
        self.sentences: list[str] = []

    async def start(self, store: Any = None) -> Host:
        """Open the store, listen, take the lease if it is free."""
        self.store = store or await SqliteStore.open(str(self.path))
        cluster_id = await self.store.cluster_id(CLUSTER)
        side = ControllerSide()
        self.shell = ControllerShell(
            self.node_id, cluster_id, self.store, self.config,
            on_changed=side.changed, on_stop=self.sentences.append,
        )  # fmt: skip
        self.serving = ControllerRequestShell(self.shell.controller, handlers(), side)
        side.attach(self.shell, self.serving)
        await self.listen()
        await self.shell.start()
        return self

    async def listen(self) -> None:
        """Accept connections, on the port of before if there was one."""
        self.acceptor = Acceptor("CONTROLLER", self.serving, ReceiveMemory(), lambda: self.config)
        self.port = await self.acceptor.bind("127.0.0.1", self.port)

    async def hang_up(self) -> None:
        """Close every connection and the listener."""
        self.acceptor.stop_accepting()
        await self.acceptor.drain(0)

    async def stop(self) -> None:
        """Give the lease back and let go of everything."""
        await self.shell.stop()
        await self.hang_up()
        await self.serving.stop()
        await self.store.close()

    async def commit(self, *records: MetadataRecord) -> None:
        """Make records durable, as a decision."""
        await self.shell.submit(Propose(Result(tuple(records), None)))

    @property
    def image(self) -> MetadataImage:
        """The newest planned image."""
        return self.shell.controller.image

    def channel(self, *others: Host) -> ControllerChannel:
        """A channel to this controller, then to others."""
        ports = [self.port, *(host.port for host in others)]
        return ControllerChannel(lambda: [("127.0.0.1", port) for port in ports], "test")


def unused_port() -> int:
    """A port on which nobody listens."""
    return int(free_port())


class Follower:
    """A node's copy that follows a controller."""

    def __init__(
        self,
        folder: Path,
        channel: ControllerChannel,
        cluster_id: str = CLUSTER,
        *,
        piece_bytes: int = PIECE_BYTES,
        **settings: str,
    ) -> None:
        config = BrokerConfig.of(
            {name.replace("_", "."): value for name, value in settings.items()}
        )
        folder.mkdir(exist_ok=True)
        self.copy = MetadataCopy.open(RealFiles(), str(folder), wall_ms())
        self.sentences: list[str] = []
        self.deltas: list[MetadataDelta] = []
        self.moved: list[Callable[[], None]] = []
        self.image = MetadataImage.empty()
        self.loop = MetadataFollower(
            self.copy, channel, cluster_id, 7, config, self.sentences.append,
            piece_bytes=piece_bytes,
        )  # fmt: skip
        self.loop.on_image = self._take

    def _take(self, image: MetadataImage, delta: MetadataDelta) -> None:
        self.image = image
        self.deltas.append(delta)
        for tell in self.moved:
            tell()

    async def caught_up(self, host: Host) -> None:
        """Return when the copy has everything that is committed."""
        await eventually(
            lambda: self.copy.image.next_offset == host.shell.controller.log.end_offset
        )


class Standing:
    """What a registration reads of its broker: a follower's metadata, and two sets of folders."""

    def __init__(self, follower: Follower) -> None:
        self.follower = follower
        self.partitions = SimpleNamespace(offline_folders=set(), full_folders=set())

    @property
    def image(self) -> MetadataImage:
        """The newest metadata."""
        return self.follower.image


def registration(
    host: Host,
    follower: Follower,
    *,
    directories: dict[str, bytes] | None = None,
    cluster_id: str = CLUSTER,
    channel: ControllerChannel | None = None,
    previous_broker_epoch: int = -1,
    **times: int,
) -> tuple[Registration, list[str]]:
    """A broker's registration, and the sentences for which it would stop."""
    sentences: list[str] = []
    identity = new_identity(
        node_id=1,
        cluster_id=cluster_id,
        directories=directories or {"/d": b"d" * 16},
        endpoints=[("PLAINTEXT", "127.0.0.1", 9092)],
    )
    made = Registration(
        channel or host.channel(),
        identity,
        Standing(follower),
        Times(**{"heartbeat_ms": 20, **times}),
        previous_broker_epoch=previous_broker_epoch,
        on_stop=sentences.append,
    )
    follower.moved.append(made.metadata_moved)
    return made, sentences


def standing_of(broker: Registration) -> Standing:
    """What the broker of a registration tells it."""
    return broker.machine._standing
