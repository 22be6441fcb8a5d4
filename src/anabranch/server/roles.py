"""The two roles of a node: what happens around the handlers of their requests.

`BrokerRole` owns what a broker's handlers look at (`core.api.context.Broker`), its partitions, its
flush rounds and its registration. `ControllerSide` sits between the controller's shell and the
controller listener. Neither decides anything.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Hashable, Iterable
from dataclasses import replace
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any, Protocol

from anabranch.core.access.authorize import Authorizer
from anabranch.core.api.context import Broker
from anabranch.core.api.fetch_sessions import FetchSessions
from anabranch.core.api.handler import Handler, Run
from anabranch.core.api.registry import BROKER, CONTROLLER, handlers
from anabranch.core.broker import authorizer
from anabranch.core.broker.hosting.effects import Ready, TellController, TellHosted, TellUnusable
from anabranch.core.broker.registration.registration import Times
from anabranch.core.controller.brokers.connections import HeartbeatConnections
from anabranch.core.due import (
    COORDINATORS,
    DISKLESS,
    LATE,
    PEERS,
    REFUSALS,
    REPLICATION,
)
from anabranch.core.errors import Bug, StorageFault
from anabranch.core.log.incarnations import FolderNotes, previous_broker_epoch
from anabranch.core.metadata.following.effects import Act
from anabranch.core.metadata.image import MetadataImage
from anabranch.core.node.channel import Channel
from anabranch.core.outcome import Propose
from anabranch.core.remote.topics import why_not_served
from anabranch.core.replication.partitions import Partitions
from anabranch.core.request import Request
from anabranch.core.settings.broker import BrokerConfig
from anabranch.core.step import Mailbox, Wish
from anabranch.core.tiering.tiered_tail import tiered_tail
from anabranch.core.wire.messages.broker_heartbeat import BrokerHeartbeatRequest
from anabranch.server.audit_log import audit
from anabranch.server.broker_statistics import BrokerStatistics, transaction_counts
from anabranch.server.cleaner import Cleaner
from anabranch.server.clocks import both_ms, steady_ms, wall_ms
from anabranch.server.directory_assignments import AssignmentShell
from anabranch.server.diskless.shell import DisklessShell
from anabranch.server.diskless.stores import has_stores
from anabranch.server.flush import Flusher
from anabranch.server.group_lags import GroupLagShell
from anabranch.server.groups import GroupShell
from anabranch.server.late_transactions import say_late, say_refusal
from anabranch.server.logs import LogLevels, logger
from anabranch.server.own_faults import tell_unexpected
from anabranch.server.partitions import PartitionShell
from anabranch.server.peers import PeerConnections, PeerShell
from anabranch.server.producer_ids import ProducerIdShell
from anabranch.server.registration import Registration, new_identity
from anabranch.server.remote.remote_logs import RemoteLogs
from anabranch.server.remote.remote_reads import RemoteReads
from anabranch.server.replication import ReplicationShell
from anabranch.server.request_shell import RequestShell
from anabranch.server.unserved import Unserved
from anabranch.server.upkeep import Upkeep

if TYPE_CHECKING:
    from anabranch.core.controller.controller import Controller
    from anabranch.server.changed_settings import ChangedSettings
    from anabranch.server.config import NodeConfig
    from anabranch.server.controller import ControllerShell
    from anabranch.server.controller_channel import ControllerChannel
    from anabranch.server.diskless.startup import StoresAtStart
    from anabranch.server.files import RealFiles
    from anabranch.server.folders import HeldFolders
    from anabranch.server.receive_memory import ReceiveMemory

LOG = logger("broker")

HEARTBEAT_KEY = BrokerHeartbeatRequest.api_key


class BrokerHost(Protocol):
    """What a broker needs of the node that it is a role of: see `node.Node`."""

    config: NodeConfig
    cluster_id: str
    files: RealFiles
    memory: ReceiveMemory
    stores: StoresAtStart | None
    changed: ChangedSettings

    def advertised(self) -> list[tuple[str, str, int]]:
        """(listener name, host, port) as clients are told."""

    def stop_because(self, sentence: str) -> None:
        """Something happened after which the node must not go on."""


class BrokerRole:
    """A node that keeps partitions and serves clients."""

    def __init__(self, node: BrokerHost, channel: ControllerChannel, held: HeldFolders) -> None:
        config = node.config
        self._node = node
        self._channel = channel
        self._held = held
        self._tasks: set[asyncio.Task[None]] = set()
        self.registration: Registration | None = None
        self.producer_ids = ProducerIdShell(channel, self._identity, self._woken)
        self.broker = Broker(
            broker_id=config.node_id,
            broker_epoch=-1,
            cluster_id=node.cluster_id,
            config=config.broker,
            image=MetadataImage.empty(),
            partitions=Partitions(config.node_id),
            fetch_sessions=FetchSessions(
                config.broker.max_incremental_fetch_session_cache_slots, Random()
            ),
            authorizer=authorizer_of(config, lambda: self.broker.image),
            logins=node.changed.listeners.logins(lambda: self.broker.image),
            refuse_listeners=node.changed.refuse,
            allocate_producer_id=self.producer_ids.machine.take,
            volume=volume_of,
            loggers=LogLevels(),
        )
        self.serving = BrokerRequestShell(self.broker, handlers(), self)
        self.groups = GroupShell(self.broker, self.serving.begin, self.serving.settle)
        self.connections = PeerConnections(
            self.broker, config.inter_broker_listener_name, node.changed.to_brokers
        )
        self.peers = PeerShell(
            self.broker, self.connections, self.serving.begin, self.serving.settle
        )
        self.group_lags = GroupLagShell(self.broker, self.connections)
        self.replicating = ReplicationShell(
            self.broker,
            channel,
            self.connections,
            self.serving.begin,
            self.serving.settle,
        )
        self.broker.mailbox.arriving_bytes = lambda: node.memory.arrived_bytes
        self.diskless = DisklessShell(
            self.broker, self.serving.begin, self.serving.settle, self.serving.read_on
        )
        self._perform_what_is_due()
        self.partitions = PartitionShell(self.broker, node.files, config.log_dirs, clock_ms=wall_ms)
        self.broker.partitions.offline_folders |= held.unusable.keys()
        self.broker.partitions.directory_ids = held.directories
        self.partitions.on_changed = self._partitions_changed
        self.partitions.on_fatal = node.stop_because
        self.assignments = AssignmentShell(self.broker, channel, held.directories)
        self.partitions.performs(TellHosted, self.assignments.tell)
        self.partitions.performs(TellUnusable, self.assignments.tell)
        self.partitions.performs(TellController, self._folders_changed)
        self._ready = asyncio.Event()
        self.partitions.performs(Ready, lambda _: self._ready.set())
        self.cleaner = Cleaner(self.broker, self.partitions, clock_ms=wall_ms)
        self.upkeep = Upkeep(self.broker, self.partitions, clock_ms=wall_ms)
        reads = RemoteReads(self.broker, self.serving.begin, self.serving.settle)
        self.remote = RemoteLogs(self.broker, self.partitions, reads)
        self._unserved = Unserved(why_not_served, node.config.broker)
        self.broker.diskless.make_tail = partial(tiered_tail, self.broker.cluster_id, reads.cache)
        self.flusher = Flusher(self.partitions, self.serving.wake)
        self.on_registered: Callable[[int], None] = _nothing
        """Called with each epoch that the controller gave this process."""
        if not held.unusable:
            known = previous_broker_epoch(node.files, config.log_dirs)
            self.partitions.hosting.previous_epoch = known

    async def join(self) -> None:
        """Register, open what this broker hosts, and only then have the controller let it in."""
        node = self._node
        self.registration = Registration(
            self._channel,
            new_identity(
                node_id=node.config.node_id,
                cluster_id=node.cluster_id,
                directories=self._held.directories,
                endpoints=node.advertised(),
                rack=node.config.rack,
            ),
            self.broker,
            Times.of(node.config.broker),
            notes=FolderNotes(node.files, self._held.directories),
            previous_broker_epoch=self.partitions.hosting.previous_epoch,
            on_registered=self._registered,
            on_stop=node.stop_because,
        )
        await self.registration.register()
        if node.stores is not None:
            self._await_stores(node.stores)
        await self._ready.wait()
        if why := why_not_served(self.broker.image, node.config.broker):
            raise StorageFault(why)
        await self.registration.unfenced()
        self.upkeep.start()
        self.cleaner.start()
        self.groups.start()

    def _await_stores(self, stores: StoresAtStart) -> None:
        """Begin what needs the stores once they are there; say why not until then."""
        cluster_id, config = self._node.cluster_id, self._node.config.broker
        if has_stores(config):
            stores.then(lambda opened: self.remote.start(opened, cluster_id))
        if not config.diskless_storage_system_enable:
            return
        stores.on_waiting = self.diskless.wait
        if stores.why:
            self.diskless.wait(stores.why)
        stores.then(lambda opened: self.diskless.start(opened, cluster_id))

    @property
    def is_registered(self) -> bool:
        """Whether the controller took this process for the broker."""
        return self.registration is not None and self.registration.broker_epoch >= 0

    async def leave(self) -> None:
        """Controlled shutdown: tell the controller, then answer everybody who waits."""
        if self.registration is not None:
            await self.registration.shutdown()
        await self.diskless.leave()
        await self.serving.stop()

    async def close(self) -> None:
        """Nothing is appended any more: flush, write checkpoints, mark the folders clean."""
        self.producer_ids.stop()
        await self.assignments.stop()
        self.groups.stop()
        self.group_lags.stop()
        self.peers.stop()
        await self.replicating.stop()
        await self.connections.stop()
        await self.diskless.stop()
        await self.remote.stop()
        for task in tuple(self._tasks):
            task.cancel()
        self.partitions.stop_following()
        await self.flusher.stop()
        self.upkeep.stop()
        await self.cleaner.stop()
        await self.partitions.stop()

    def controller_found(self) -> None:
        """Another controller may be active: it shall hear of this broker at once."""
        if self.registration is not None:
            self.registration.controller_found()

    def act(self, moved: Act) -> None:
        """The metadata moved, and shows this process's own registration: follow it."""
        image, delta, published = moved.image, moved.delta, moved.published
        before = self.broker.config
        self.broker.take_config(image, delta, BrokerConfig.with_dynamic)
        if self.broker.config is not before:
            self._node.changed.take(self.broker.config)
        self.assignments.follow(image, published)
        self.partitions.publish(moved)
        self.serving.begin()
        self.broker.take_image(delta, published, self.serving.requests.now_ms)
        self.serving.requests.quotas = self.broker.quotas
        self.serving.settle()
        if self.registration is not None:
            self.registration.metadata_moved()
        self._unserved.look(image, delta)

    def _partitions_changed(self) -> None:
        """Replicas came, went, or changed hands: groups follow, and who waits is woken."""
        self.serving.begin()
        self.broker.follow_leadership(self.serving.requests.now_ms)
        self.serving.settle()

    def _folders_changed(self, _told: TellController) -> None:
        if self.registration is not None:
            self.registration.folders_changed()

    def _registered(self, broker_epoch: int) -> None:
        self.broker.registered(broker_epoch)
        self.diskless.registered()
        self.on_registered(broker_epoch)

    def statistics(self) -> BrokerStatistics:
        """What metrics tell."""
        broker, hosted = self.broker, self.broker.partitions
        return BrokerStatistics(
            broker_id=broker.broker_id,
            replicas=list(hosted),
            offline_replicas=len(hosted.offline),
            offline_folders=len(hosted.offline_folders),
            folders_full={
                each.path: each.room.is_full for each in self.partitions.folders.values()
            },
            failed_produces=broker.failed_produces,
            replication=broker.replication.statistics(),
            groups=broker.groups.statistics(),
            group_lags=self.group_lags.newest,
            transactions=transaction_counts(broker, list(hosted), wall_ms()),
            cleaner=self.cleaner.statistics(),
            diskless_upkeep=self.diskless.statistics(),
            flush_rounds=self.flusher.rounds_total,
            diskless=broker.diskless.statistics(steady_ms()),
            diskless_lags=broker.diskless.lags.series(),
            tiering_lags=self.diskless.tiering_lags(),
            compaction_lags=self.diskless.compaction_lags(),
            remote=self.remote.statistics(),
            image=broker.image,
            quotas=tuple(broker.client_quotas.series(steady_ms())),
            zones=broker.metadata_cache.zones,
            served=broker.metadata_cache.served,
        )

    # What requests ask for.

    def grant(self, wish: Wish) -> None:
        """Ask the active controller for something that no client waits for."""
        task = asyncio.get_running_loop().create_task(self._grant(wish))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def submit(self, _proposal: Propose) -> asyncio.Future[Any]:
        """A broker decides nothing about metadata."""
        raise Bug("a broker's handler proposed a change of metadata")

    async def forward(self, frame: memoryview, request: Request) -> bytes:
        """Pass a request on to the active controller in an Envelope (KIP-590)."""
        return await self._channel.forward(frame, request.principal, request.client_host)

    async def _grant(self, wish: Wish) -> None:
        try:
            await self._channel.send(wish.message)
        except Exception as fault:
            tell_unexpected(fault, "asking the controller")
            LOG.warning("the controller did not accept a request", why=str(fault))
        finally:
            wish.done()

    def _perform_what_is_due(self) -> None:
        """Say who performs what the broker's machines want done, in this order."""
        due = self.broker.mailbox.due
        due.performs(REPLICATION, self.replicating.perform)
        due.performs(PEERS, self.peers.perform)
        due.performs(DISKLESS, self.diskless.perform)
        due.performs(LATE, self._say_late)
        due.performs(REFUSALS, self._say_refusals)
        due.performs(COORDINATORS, self.groups.arm)

    def _say_late(self) -> None:
        for late in self.broker.transactions.upkeep.take_said():
            say_late(late)

    def _say_refusals(self) -> None:
        for refusal in self.broker.refusals.take_said():
            say_refusal(refusal)

    def _identity(self) -> tuple[int, int]:
        return self.broker.broker_id, self.broker.broker_epoch

    def _woken(self, key: str) -> None:
        self.serving.wake(key)


class BrokerRequestShell(RequestShell):
    """What acts for the requests of client listeners: a step leaves more than keys, and machines
    know its clocks, too."""

    def __init__(self, broker: Broker, handlers: dict[int, Handler], role: BrokerRole) -> None:
        self._broker = broker
        self._role = role
        super().__init__(
            BROKER, broker, handlers, broker.mailbox, submit=role.submit, pass_on=role.forward
        )

    def begin(self) -> None:
        """Read both clocks, once for everything that this step does."""
        requests, broker = self.requests, self._broker
        requests.now_ms, requests.steady_ms = broker.wall_ms, broker.steady_ms = both_ms()

    def take_faults(self) -> None:
        self._role.partitions.take_faults()

    def sync_logs(self) -> None:
        self._role.flusher.start_rounds()

    def load_groups(self) -> None:
        self._role.groups.load()

    def grant(self, wish: Wish) -> None:
        self._role.grant(wish)


class ControllerRequestShell(RequestShell):
    """What acts for the requests of the controller listener: handlers are told the steady clock.

    Why: heartbeats are stamped with what handlers are told, and sessions are compared with the
    shell's steady clock; a wall clock that is set must fence nobody.
    """

    def __init__(
        self, controller: Controller, handlers: dict[int, Handler], side: ControllerSide
    ) -> None:
        heartbeat = replace(handlers[HEARTBEAT_KEY], controller=side.hearing(handlers))
        handlers = {**handlers, HEARTBEAT_KEY: heartbeat}
        self._side = side
        super().__init__(
            CONTROLLER, controller, handlers, Mailbox(), submit=side.submit, pass_on=side.forward
        )

    def begin(self) -> None:
        """Read both clocks, once for everything that this step does, and look at the lease."""
        requests = self.requests
        requests.world.wall_ms, requests.steady_ms = both_ms()
        requests.now_ms = requests.steady_ms
        requests.quotas = requests.world.quotas
        self._side.look_at_lease()

    def left(self, connection: Channel) -> None:
        """A connection has ended: it may have been a broker's."""
        self._side.left(connection.identity)


class ControllerSide:
    """What the requests of the controller listener need from the controller's shell."""

    def __init__(self) -> None:
        self.shell: ControllerShell | None = None
        self._serving: RequestShell | None = None
        self._connections = HeartbeatConnections()

    def attach(self, shell: ControllerShell, serving: RequestShell) -> None:
        """Tie the three together."""
        self.shell = shell
        self._serving = serving

    def changed(self, keys: Iterable[Hashable]) -> None:
        """Committed batches moved: wake who waits for them."""
        if self._serving is not None:
            self._serving.wake(*keys)

    def hearing(self, handlers: dict[int, Handler]) -> Run:
        """The handler of heartbeats, noting over which connection a broker sends them."""
        run = handlers[HEARTBEAT_KEY].controller
        assert run is not None

        def heartbeat(controller: Controller, request: Request, now_ms: int) -> Any:
            body, heard = request.body, self._connections.heard
            brokers = controller.image.brokers
            heard(brokers, request.connection_id, body.broker_id, body.broker_epoch)
            return run(controller, request, now_ms)

        return heartbeat

    def look_at_lease(self) -> None:
        """Who holds no lease any more shall know it before it answers, whatever it is asked."""
        if self.shell is not None:
            self.shell.look_at_lease()

    def left(self, connection_id: int) -> None:
        """A connection of the controller listener has ended: it may have been a broker's."""
        for broker_id, epoch in self._connections.closed(connection_id):
            if self.shell is not None:
                self.shell.connection_closed(broker_id, epoch)

    def submit(self, proposal: Propose) -> asyncio.Future[Any]:
        """Make a decision durable."""
        assert self.shell is not None
        return self.shell.submit(proposal)

    async def forward(self, _frame: memoryview, _request: Request) -> bytes:
        """A controller has nobody to ask."""
        raise Bug("a controller's handler forwarded a request")


def _nothing(_broker_epoch: int) -> None:
    """No metadata is followed yet."""


def authorizer_of(config: NodeConfig, image: Callable[[], MetadataImage]) -> Authorizer:
    """Who may do what on the listeners of a role that acts on `image`."""
    is_apart = len(config.broker_listeners) > 1
    return authorizer.authorizer_of(
        config.broker,
        image,
        brokers_apart=config.inter_broker_listener_name if is_apart else "",
        trusted=config.trusted_listener_names,
        audit=audit,
    )


def volume_of(folder: str) -> tuple[int, int]:
    """Total and usable bytes of the volume that holds a folder; (-1, -1) when it cannot be told."""
    try:
        volume = os.statvfs(folder)
    except OSError:
        return -1, -1
    return volume.f_blocks * volume.f_frsize, volume.f_bavail * volume.f_frsize
