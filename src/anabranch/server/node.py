"""One node: its folders, its roles, and the order in which they start and stop.

What: `Node(config)` with `start` and `stop`; several may live in one process. A combined node talks
to its own controller over the real controller listener, on the path that a cluster uses.

    start: folders, own copy of the metadata, store, controller, follow, register, serve
    stop:  accept nobody, controlled shutdown, answer, flush, mark clean, controller, folders

Rules kept: nothing is bound before the folders are locked and known to be this node's; clients are
accepted only when the node is registered and its partitions are open; whatever fails at start says
in one line what and what to do, and leaves everything as it was.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import time
from functools import partial
from typing import TYPE_CHECKING, Any

from anabranch.core.api.registry import handlers
from anabranch.core.broker.registration.active_controller import addresses_of
from anabranch.core.errors import Bug, ProtocolError, StorageFault
from anabranch.core.metadata.following.copied_image import image_in
from anabranch.core.metadata.following.copy import MetadataCopy
from anabranch.core.metadata.image import RESOURCE_BROKER, MetadataImage
from anabranch.core.metadata.levels import check_supported
from anabranch.core.metadata.store import NOBODY
from anabranch.core.remote.topics import why_not_controlled
from anabranch.core.settings.listeners import WILDCARDS
from anabranch.core.settings.urls import without_secrets
from anabranch.server import folders
from anabranch.server.changed_settings import ChangedSettings
from anabranch.server.clocks import wall_ms
from anabranch.server.cluster_discovery import cluster_of_controllers
from anabranch.server.collector import QUIET
from anabranch.server.controller import ControllerShell
from anabranch.server.controller_channel import ControllerChannel
from anabranch.server.diskless.rows import LogRowsShell
from anabranch.server.diskless.startup import StoresAtStart
from anabranch.server.enrolment import Enrolment
from anabranch.server.files import RealFiles
from anabranch.server.http_guard import guard_of
from anabranch.server.listener import Acceptor
from anabranch.server.logs import logger
from anabranch.server.metadata_log import MetadataFollower
from anabranch.server.open_connections import OpenConnections
from anabranch.server.own_faults import OwnFaults, tell_unexpected
from anabranch.server.receive_memory import ReceiveMemory
from anabranch.server.request_shell import RequestShell
from anabranch.server.roles import (
    BrokerRole,
    ControllerRequestShell,
    ControllerSide,
    authorizer_of,
)
from anabranch.server.store_patience import Patience, open_for_start, waited_for
from anabranch.server.tls_transport import Handshakes
from anabranch.server.turns import LoopTurns
from anabranch.server.unserved import Unserved

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from anabranch.core.metadata.image import MetadataDelta
    from anabranch.core.quotas.connection_rates import ConnectionRates
    from anabranch.core.settings.broker import BrokerConfig
    from anabranch.core.settings.listeners import Listener
    from anabranch.server.config import NodeConfig

LOG = logger("node")

FIRST_WORD_S = 4.0
"""A start takes less as a rule; then it says what it waits for,"""
LATER_WORDS_S = 30.0
"""and again after each of these."""
DRAIN_SECONDS = 5.0
"""How long a stopping node waits for answers that are owed, and for slow readers."""


class Node:
    """One node of a cluster."""

    def __init__(self, config: NodeConfig, files: RealFiles | None = None) -> None:
        self.config = config
        self.is_ready = False
        self.own_faults = OwnFaults()
        self.cluster_id = ""
        self.files = files or RealFiles()
        self.memory = ReceiveMemory(config.broker.queued_max_request_bytes)
        self._turns = LoopTurns()
        self.changed = ChangedSettings(config, {})
        """What its listeners ask of clients, and how it speaks to nodes, from its start on."""
        self._handshakes = Handshakes()
        self.stopped: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.acceptors: list[Acceptor] = []
        own = config.inter_broker_listener_name if len(config.broker_listeners) > 1 else ""
        self._open_to_broker, self._open_to_controller = OpenConnections(own), OpenConnections()
        self.broker: BrokerRole | None = None
        self.controller: ControllerShell | None = None
        self.controller_serving: RequestShell | None = None
        self._uncontrolled = Unserved(why_not_controlled, config.broker)
        self.started_seconds = 0.0
        self._folders: folders.HeldFolders | None = None
        self._store: Any = None
        self._channel: ControllerChannel | None = None
        self._follower: MetadataFollower | None = None
        self.stores: StoresAtStart | None = None
        """Where diskless records lie, once the folders are held."""
        self._enrolment: Enrolment | None = None
        self._http: Any = None
        self._ports: dict[str, int] = {}
        self._copy: MetadataCopy | None = None
        self._image: MetadataImage | None = None
        """What the copy said before it was opened."""
        self._ending: asyncio.Task[None] | None = None

    @property
    def bootstrap_servers(self) -> str:
        """Where clients find this node: host:port of its first client listener."""
        listener = self.config.broker_listeners[0]
        return f"{listener.host or '127.0.0.1'}:{self._ports[listener.name]}"

    def port_of(self, listener: Listener) -> int:
        """The port that a listener got; as configured before it was bound."""
        return self._ports.get(listener.name, listener.port)

    @property
    def http_address(self) -> str:
        """host:port of the HTTP listener; empty when it is off."""
        return "" if self._http is None else str(self._http.address)

    def stop_because(self, sentence: str) -> None:
        """Something happened after which this node must not go on."""
        if not self.stopped.done():
            LOG.error("the node must stop", why=sentence)
            self.stopped.set_result(sentence)

    async def start(self) -> None:
        """Bring everything up; returns when clients are served. Raises with one sentence."""
        begin = time.perf_counter()
        self.own_faults.watch(asyncio.get_running_loop())
        told = asyncio.get_running_loop().create_task(self._tell_what_is_awaited())
        try:
            await self._start()
        except BaseException:
            await self.stop()
            raise
        finally:
            told.cancel()
        self.started_seconds = time.perf_counter() - begin
        self.is_ready = True
        LOG.info(
            "ready", node=self.config.node_id, cluster=self.cluster_id,
            bootstrap=self.bootstrap_servers if self.config.is_broker else "",
            seconds=f"{self.started_seconds:.3f}",
        )  # fmt: skip

    async def _start(self) -> None:
        config = self.config
        self.changed = ChangedSettings(config, config.secure_listeners)
        pages = guard_of(config)
        self._folders = folders.hold(config)
        self._channel = ControllerChannel(
            self._controller_addresses,
            f"node-{config.node_id}",
            cluster_id=lambda: self.cluster_id,
            transport=self.changed.to_controllers,
        )
        timeout_ms = config.broker.initial_broker_registration_timeout_ms
        patience = Patience(timeout_ms)
        if config.is_controller:
            self._store = await open_for_start(config.metadata_store_url, patience)
            proposed = self._folders.cluster_id_or_new()
            known = await waited_for(partial(self._store.cluster_id, proposed), patience)
            self.cluster_id = self._folders.settle(known)
        else:
            known = await cluster_of_controllers(
                self._channel, config.node_id, timeout_ms, own=self._folders.cluster_id
            )
            self.cluster_id = self._folders.settle(known, folders.THE_CONTROLLERS)
        self._copy = copy = MetadataCopy.open(
            self.files, config.metadata_log_dir, wall_ms(),
            segment_bytes=config.broker.metadata_log_segment_bytes, reading=QUIET,
        )  # fmt: skip
        check_supported(copy.image)
        self.stores = StoresAtStart(config, self.cluster_id)
        await self.stores.begin()
        if config.is_controller:
            await self._start_controller(copy, patience)
        if config.is_broker:
            await self._bind_broker()
        await self._follow(copy)
        if self.broker is not None:
            await self.broker.join()
            await self._serve_clients()
        if pages is not None:
            from anabranch.server.http import HttpListener

            at = config.http_host, config.http_port
            self._http = await HttpListener.start(self, *at, pages)

    async def _tell_what_is_awaited(self) -> None:
        """A start that takes long says what it waits for, and what would help."""
        pause_s = FIRST_WORD_S
        while True:
            await asyncio.sleep(pause_s)
            pause_s = LATER_WORDS_S
            why = "" if self._channel is None else self._channel.obstacle
            try:
                why = await self._unlisted_controller() or why
            except StorageFault as fault:
                why = str(fault)
            LOG.warning("not ready yet", why=why or "the start is still under way")

    async def _unlisted_controller(self) -> str:
        """A sentence when another controller is active where this node does not look for one."""
        lease = await self._store.lease() if self._store is not None else None
        if lease is None or not lease.endpoint or lease.holder in (NOBODY, self.config.node_id):
            return ""
        host, _, port = lease.endpoint.rpartition(":")
        if (host, int(port)) in self._controller_addresses():
            return ""
        return (
            f"node {lease.holder} is the active controller and listens on {lease.endpoint}; add "
            "that to controller.quorum.bootstrap.servers of this node"
        )

    async def _start_controller(self, copy: MetadataCopy, patience: Patience) -> None:
        assert self._channel is not None and self._folders is not None
        config = self.config
        side = ControllerSide()
        shell = ControllerShell(
            config.node_id, self.cluster_id, self._store, config.broker,
            on_changed=side.changed, copy=copy.end, on_stop=self.stop_because,
            store_url=without_secrets(config.metadata_store_url), home=self._folders.home,
            patience=patience, first_users=config.first_users,
        )  # fmt: skip
        controller = shell.controller
        if config.broker.authorizer_class_name:
            controller.authorizer = authorizer_of(config, lambda: controller.known)
        controller.logins = self.changed.listeners.logins(lambda: controller.known)
        controller.refuse_listeners = self.changed.refuse
        serving = ControllerRequestShell(shell.controller, handlers(), side)
        side.attach(shell, serving)
        if self.stores is not None and self.stores.is_on:
            has_remote = config.broker.remote_log_storage_system_enable
            shell.rows = rows = LogRowsShell(has_remote=has_remote)
            self.stores.then(
                lambda opened: rows.opened(opened.coordinator, opened.remote, opened.seals)
            )
            rows.machine.heard = shell.heard_of_seals
        self.controller, self.controller_serving = shell, serving
        for each in config.controller_listeners:
            await self._listen(each, serving)
        told = self._told_controllers()
        host, port = next(iter(told.values()))
        if config.advertised_controllers[0].host not in WILDCARDS:  # else it may be another's
            shell.tenure.candidacy.endpoint = f"{host}:{port}"
        shell.controller.endpoint = (host, port)
        shell.controller.inter_broker_listener = config.inter_broker_listener_name
        self._enrolment = Enrolment(self._channel, config.node_id, told, self.stop_because)
        await shell.start()

    async def _bind_broker(self) -> None:
        assert self._channel is not None and self._folders is not None
        self.broker = BrokerRole(self, self._channel, self._folders)
        for each in self.config.broker_listeners:
            await self._listen(each, self.broker.serving, is_open=False)

    async def _follow(self, copy: MetadataCopy) -> None:
        assert self._channel is not None
        config = self.config
        self._follower = follower = MetadataFollower(
            copy, self._channel, self.cluster_id, config.node_id, config.broker,
            self.stop_because, is_broker=config.is_broker,
        )  # fmt: skip
        if self.controller is not None:
            follower.on_image = self._on_image
        if self.broker is not None:
            follower.on_met = self.broker.controller_found
            follower.on_act = self.broker.act
            self.broker.on_registered = follower.registered
            rooms, folder = self.broker.partitions.rooms, config.metadata_log_dir
            follower.make_room = lambda fault: rooms.make_room(folder, fault)
            if path := getattr(self._store, "path", None):  # a file, on one of our volumes perhaps
                beside = os.path.dirname(path) or "."
                self._store.make_room = lambda fault: rooms.make_room(beside, fault)
        await follower.start()

    def _on_image(self, image: MetadataImage, delta: MetadataDelta) -> None:
        """A controller's node: it uses what a copy from before says."""
        assert self.controller is not None and self._enrolment is not None
        if self.controller.rows is not None:
            self.controller.rows.follow(image, delta)
        self.controller.controller.followed = image
        if self.broker is None:  # else that role says it, and goes over to what changed
            self._uncontrolled.look(image, delta)
            own = (RESOURCE_BROKER, str(self.config.node_id))
            if own in delta.changed_configs:
                self.changed.take(self.config.broker.with_dynamic(image.config(*own), {}))
        if self.broker is None or self.broker.is_registered:  # else it may be a copy's
            self._enrolment.follow(image)

    async def _listen(self, listener: Any, serving: RequestShell, *, is_open: bool = True) -> None:
        # What brokers ask of controllers does not wait for the clients whose requests it is about.
        memory = ReceiveMemory() if serving is self.controller_serving else self.memory
        serving.own_faults = self.own_faults
        acceptor = Acceptor(
            listener.name, serving, memory, partial(self._limits, serving), self._turns,
            self.changed.listeners.of(listener.name), self._handshakes,
            self._connection_rates(serving), self._open_connections(serving),
        )  # fmt: skip
        self.acceptors.append(acceptor)
        self._ports[listener.name] = await acceptor.bind(
            listener.host, listener.port, serving=is_open
        )

    def _open_connections(self, serving: RequestShell) -> OpenConnections:
        """Those of the role that serves them."""
        if serving is self.controller_serving:
            return self._open_to_controller
        return self._open_to_broker

    def _connection_rates(self, serving: RequestShell) -> ConnectionRates | None:
        """A broker's; nothing keeps brokers from controllers."""
        if self.broker is None or serving is not self.broker.serving:
            return None
        return self.broker.broker.connection_rates

    def _limits(self, serving: RequestShell) -> BrokerConfig:
        """The settings that hold now. For controllers, those of the file: a limit of connections
        that shut brokers out of them could not be lifted again."""
        if self.broker is None or serving is not self.broker.serving:
            return self.config.broker
        return self.broker.broker.config

    async def _serve_clients(self) -> None:
        for acceptor in self.acceptors:
            await acceptor.serve()

    def _controller_addresses(self) -> list[tuple[str, int]]:
        given = (*self._controller_endpoints().values(), *self.config.controllers)
        image = self._copied_image() if self._copy is None else self._copy.image
        return addresses_of(given, image, self.config.controller_listener_names)

    def _copied_image(self) -> MetadataImage:
        """What a copy from before says, once no controller was found where this node was told. It
        is only read: the folder may turn out to be another cluster's."""
        if self._channel is None or not self._channel.obstacle:
            return MetadataImage.empty()
        if self._image is None:
            self._image = MetadataImage.empty()
            with contextlib.suppress(OSError, ProtocolError, StorageFault, Bug):  # opening it tells
                self._image = image_in(self.files, self.config.metadata_log_dir)
        return self._image

    def _told_controllers(self) -> dict[str, tuple[str, int]]:
        """Where other nodes reach this controller, by listener: also from other machines."""
        return {
            each.name: (
                socket.gethostname() if each.host in WILDCARDS else each.host,
                self.port_of(each) if each in self.config.listeners else each.port,
            )
            for each in self.config.advertised_controllers
        }

    def _controller_endpoints(self) -> dict[str, tuple[str, int]]:
        """Where this node calls its own controller: with TLS as other nodes do, because a
        certificate may name that alone; else where it listens, which needs no name service."""
        told = self._told_controllers()
        named = {
            each.name
            for each in self.config.advertised_controllers
            if each.encrypted and each.host not in WILDCARDS
        }
        bound = {
            each.name: (each.host or "127.0.0.1", self._ports[each.name])
            for each in self.config.controller_listeners
            if each.name in self._ports
        }
        return {name: told[name] if name in named else at for name, at in bound.items()}

    def advertised(self) -> list[tuple[str, str, int]]:
        """(listener name, host, port) as clients are told; for port 0 the one that was bound."""
        return [
            (each.name, each.host or "127.0.0.1", each.port or self._ports[each.name])
            for each in self.config.advertised_listeners
        ]

    async def stop(self) -> None:
        """Stop in order; may be called again, and after a start that failed. Returns when nothing
        of the node runs any more, also for a caller who is cancelled meanwhile: what was half
        stopped would keep its folders."""
        if self._ending is None:
            self._ending = asyncio.get_running_loop().create_task(self._stop())
        cancelled: asyncio.CancelledError | None = None
        while not self._ending.done():
            try:
                await asyncio.wait((self._ending,))
            except asyncio.CancelledError as fault:
                cancelled = fault
        if not self.stopped.done():  # in this step: a start that failed ends in it, too
            self.stopped.set_result("")
        if cancelled is not None:
            raise cancelled
        self._ending.result()

    async def _stop(self) -> None:
        """End each part, whatever became of those before it. Raises the first fault."""
        self.is_ready = False
        faults = []
        try:
            for end in self._endings():
                try:
                    await end()
                except Exception as fault:
                    tell_unexpected(fault, "stopping a part of the node")
                    LOG.error("a part of the node did not stop cleanly", why=str(fault))
                    faults.append(fault)
        finally:
            if self._folders is not None:
                self._folders.release()
        what = "stopped" if self.started_seconds else "the start was given up"
        LOG.info(what, node=self.config.node_id)
        if faults:
            raise faults[0]

    def _endings(self) -> Iterator[Callable[[], Awaitable[None]]]:
        """How each part that was made is ended, in order."""
        broker_acceptors = self._acceptors_of(self.config.broker_listeners)
        for acceptor in broker_acceptors:
            acceptor.stop_accepting()
        if self._http is not None:
            yield self._http.stop
        if self.broker is not None:
            yield self.broker.leave
            for acceptor in broker_acceptors:
                acceptor.stop_reading()
            for acceptor in broker_acceptors:
                yield partial(acceptor.drain, DRAIN_SECONDS)
            yield self.broker.close
        if self._enrolment is not None:
            yield self._enrolment.stop
        if self._follower is not None:
            yield self._follower.stop
        elif self._copy is not None:
            self._copy.log.close(clean=False)
        if self._channel is not None:
            yield self._channel.close
        yield from self._endings_of_controller()
        yield self._end_handshakes
        if self._store is not None:
            yield self._store.close
        if self.stores is not None:
            yield self.stores.stop

    async def _end_handshakes(self) -> None:
        self._handshakes.stop()

    def _endings_of_controller(self) -> Iterator[Callable[[], Awaitable[None]]]:
        if self.controller is not None:
            if self.controller.rows is not None:
                yield self.controller.rows.stop
            yield self.controller.stop
        for acceptor in self._acceptors_of(self.config.controller_listeners):
            acceptor.stop_accepting()
            yield partial(acceptor.drain, 0)
        if self.controller_serving is not None:
            yield self.controller_serving.stop

    def abandon(self) -> None:
        """Let go of what the system takes from a process that is killed, and write nothing. For
        tests that kill a node in their own process; its loop runs no more."""
        if self.broker is not None:
            self.broker.cleaner.abandon()
        if self._store is not None:
            self._store.abandon()
        if self.stores is not None:
            self.stores.abandon()
        if self._folders is not None:
            self._folders.release()

    def _acceptors_of(self, listeners: Any) -> list[Acceptor]:
        names = {each.name for each in listeners}
        return [each for each in self.acceptors if each.name in names]
