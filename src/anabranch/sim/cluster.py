"""A simulated cluster: some nodes, a network between them, and a metadata store.

What: `Cluster` builds the nodes in a world, starts them, and carries calls of simulated clients to
them. Watchers are told after each event whose it was, and of what no look at the state could show:
what the store committed, which log got shorter, which process started or ended.

Rule kept: a cluster owns no chance and no clock; both are the world's. Not here: what clients do,
which faults come when, and what must hold.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from anabranch.core.access.principal import ANONYMOUS, Principal
from anabranch.core.metadata.features import (
    CONTROLLERS_SINCE,
    METADATA_VERSION,
    SUPPORTED_FEATURES,
)
from anabranch.core.metadata.image import MetadataImage
from anabranch.core.settings.broker import BrokerConfig
from anabranch.core.types import TopicPartition
from anabranch.core.wire.metadata_records import (
    ControllerFeature,
    FeatureLevelRecord,
    MetadataRecord,
    RegisterControllerRecord,
)
from anabranch.sim.batches import MetadataBatches
from anabranch.sim.liveness_probe import close
from anabranch.sim.network import LinkFault, Network
from anabranch.sim.node import SimNode
from anabranch.sim.processes import Process, State
from anabranch.sim.remotes import Remotes
from anabranch.sim.rpc import BROKER, CONTROLLER, Calls
from anabranch.sim.store import Lease, SimStore, Snapshot, StoredBatch
from anabranch.sim.twins import Twin
from anabranch.sim.world import World

CLUSTER_ID = "simulated-cluster-0000"
CALL_US = 5_000_000
FIRST_STARTS_EARLIER_US = 100_000

_CONFIGS: dict[tuple[Any, ...], BrokerConfig] = {}
CONFIGS_KEPT = 2_000


class Watcher:
    """Somebody who looks on. Override what is of interest."""

    def event_ended(self, node: SimNode | None) -> None:
        """An event is over; `node` is whose it was, None when it was not a node's."""

    def committed(
        self,
        records: tuple[MetadataRecord, ...],
        first_offset: int,
        end_offset: int,
        epoch: int,
    ) -> None:
        """The store committed a batch (no records: the mark of a new epoch)."""

    def truncated(self, node: SimNode, place: TopicPartition, before: int, after: int) -> None:
        """A log is about to be cut from end offset `before` to `after`."""

    def compacted(self, node: SimNode, place: TopicPartition, upto: int) -> None:
        """Segments of a log were exchanged for what compaction made of what it read, up to an
        offset."""

    def compacts(self, node: SimNode, place: TopicPartition, upto: int | None) -> None:
        """A pass of compaction begins, or, with an offset, has read so far and now exchanges
        segments."""

    def lease_confirmed(self, node: SimNode, lease: Lease) -> None:
        """The store did something that only this lease's holder may ask for; a node's call did."""

    def controller_acts(self, node: SimNode) -> None:
        """A node that believes that it is the active controller is about to answer something."""

    def answered(self, node: SimNode, end_offset: int) -> None:
        """A decision is answered that stands on everything before an offset."""

    def snapshot_stored(self, snapshot: Snapshot) -> None:
        """A snapshot of the metadata is about to be stored."""

    def copy_changed(self, node: SimNode, what: str) -> None:
        """A node's copy of the metadata log was opened, was loaded from a snapshot, got a snapshot,
        or was trimmed."""

    def node_changed(self, node: SimNode, what: str) -> None:
        """A process: start, serving, crash, power, pause, resume, stopping, stop, wipe."""


class Cluster:
    """The nodes by id, and what lies between them."""

    def __init__(
        self,
        world: World,
        brokers: int | Sequence[int] = 3,
        config: Mapping[str, str] | None = None,
        racks: Mapping[int, str] | None = None,
        folders: int = 1,
        controller: int | None = None,
        levels: Mapping[str, int] | None = None,
        *,
        is_diskless: bool = False,
        has_remote_logs: bool = False,
        has_tiering: bool = False,
    ) -> None:
        """`levels` are the feature levels of the new cluster where they are not the newest."""
        ids = list(range(1, brokers + 1)) if isinstance(brokers, int) else list(brokers)
        self.world = world
        self.cluster_id = CLUSTER_ID
        self.network = Network(world)
        self.calls = Calls(world, self.network)
        self.store = SimStore(world)
        self.remotes: Remotes | None = None
        """The object store and the coordinator, where topics are diskless or have remote logs."""
        if is_diskless or has_remote_logs:
            self.remotes = Remotes(
                world, CLUSTER_ID, has_remote_logs=has_remote_logs, has_tiering=has_tiering
            )
        self.batches = MetadataBatches()
        self.checks: list[Watcher] = []
        self.twins: list[Twin] = []
        """Processes that were started on copies of nodes' folders."""
        self.order = ids
        self.levels = dict(levels or {})
        self.first = ids[0] if controller is None else controller
        texts = dict(config or {})
        racks = racks or {}
        self.nodes = {
            node_id: SimNode(
                self, node_id, racks.get(node_id),
                known_config({**texts, "node.id": str(node_id)}), folders,
            )
            for node_id in ids
        }  # fmt: skip
        self.store.on_committed.append(self._committed)
        self.store.on_confirmed.append(self._lease_confirmed)
        self.store.on_snapshot.append(self._snapshot_stored)
        world.ended = self._ended

    def start(self, without: Sequence[int] = ()) -> None:
        """Start every node but some, the one that shall be controller a little earlier."""
        self.nodes[self.first].start()
        for node_id in self.order:
            if node_id != self.first and node_id not in without:
                self.world.after(FIRST_STARTS_EARLIER_US, self._start, node_id)

    def _start(self, node_id: int) -> None:
        if not self.nodes[node_id].is_up:
            self.nodes[node_id].start()

    # What clients and checks ask.

    def active_controller(self) -> SimNode | None:
        """The node that may commit now: of those that think they are active, the newest."""
        active = [
            node
            for node in self.nodes.values()
            if node.state is State.RUNNING and node.controller_shell.controller.active
        ]
        return max(active, key=lambda node: node.controller_shell.controller.epoch, default=None)

    def at(self, host: str) -> SimNode | Twin | None:
        """Who can be reached at an address, None where no machine is."""
        machines: list[SimNode | Twin] = [*self.nodes.values(), *self.twins]
        return next((each for each in machines if each.name == host), None)

    @property
    def image(self) -> MetadataImage:
        """The newest committed metadata that any node has followed."""
        return max((node.followed for node in self.nodes.values()), key=lambda each: each.offset)

    def call(
        self,
        source: Process | str,
        node_id: int,
        message: Any,
        on_answer: Callable[[Any], None],
        version: int | None = None,
        timeout_us: int = CALL_US,
        to_controller: bool = False,
        client_id: str = "",
        principal: Principal = ANONYMOUS,
    ) -> None:
        """Ask a node as a client does; None is the answer when none came."""
        if isinstance(source, str):
            source = self.client(source)
        self.calls.call(
            source, self.nodes[node_id], CONTROLLER if to_controller else BROKER, message,
            on_answer, timeout_us=timeout_us, version=version, client_id=client_id,
            principal=principal,
        )  # fmt: skip

    def client(self, name: str) -> Process:
        """A client's process by name, made when first asked for."""
        process = self._clients.get(name)
        if process is None:
            process = self._clients[name] = Process(name)
            process.state = State.RUNNING
        return process

    @property
    def _clients(self) -> dict[str, Process]:
        found: dict[str, Process] = self.__dict__.setdefault("_client_processes", {})
        return found

    # Faults of links.

    def cut(self, source: int, target: int, *, plane: str = "all") -> None:
        """Nothing gets from one node to another: `data` (broker listeners), `control`, or `all`."""
        self.spoil(source, target, LinkFault(cut=True), plane=plane)

    def spoil(
        self, source: int, target: int, fault: LinkFault | None, *, plane: str = "all"
    ) -> None:
        """Give what one node sends to another a fault: requests and answers, that way only."""
        one, other = self.nodes[source], self.nodes[target]
        if plane != "control":
            self.network.set(one.name, other.name, fault)
        if plane != "data":
            self.network.set(one.name, other.controller_name, fault)
            self.network.set(one.controller_name, other.name, fault)

    def split(self, groups: Iterable[Sequence[int]]) -> None:
        """Cut groups of nodes off from each other."""
        parts = [list(group) for group in groups]
        for mine in parts:
            for others in parts:
                if others is not mine:
                    for source in mine:
                        for target in others:
                            self.cut(source, target)

    def process_ended(self, node_id: int) -> None:
        """A process ended: those that had a connection to it notice."""
        ended = self.nodes[node_id]
        for node in self.nodes.values():
            if node is not ended and node.is_up:
                close(ended, node)

    def start_twin(self, node: SimNode) -> Twin:
        """Start a second process with a node's id, on a copy of its folders."""
        twin = Twin(node, f"{node.name}-twin-{len(self.twins)}")
        self.twins.append(twin)
        twin.start()
        return twin

    # Watching.

    def _ended(self, process: Process | None) -> None:
        node = process if process.__class__ is SimNode else None
        for check in self.checks:
            check.event_ended(node)

    def _committed(self, batch: StoredBatch) -> None:
        if self.checks:
            records = self.batches.records(batch.payload)
            for check in self.checks:
                check.committed(records, batch.first_offset, batch.end_offset, batch.epoch)

    def _lease_confirmed(self, process: Process, lease: Lease) -> None:
        if isinstance(process, SimNode):
            for check in self.checks:
                check.lease_confirmed(process, lease)

    def _snapshot_stored(self, snapshot: Snapshot) -> None:
        for check in self.checks:
            check.snapshot_stored(snapshot)

    def tell_controller_acts(self, node_id: int) -> None:
        """A node acts as the active controller."""
        for check in self.checks:
            check.controller_acts(self.nodes[node_id])

    def tell_answered(self, node_id: int, end_offset: int) -> None:
        """A decision is answered."""
        for check in self.checks:
            check.answered(self.nodes[node_id], end_offset)

    def tell_truncated(self, node_id: int, place: TopicPartition, before: int, after: int) -> None:
        """A log gets shorter."""
        node = self.nodes[node_id]
        self.world.note("truncated", node.name, str(place), before=before, after=after)
        for check in self.checks:
            check.truncated(node, place, before, after)

    def tell_compacted(self, node_id: int, place: TopicPartition, upto: int) -> None:
        """Segments of a log were exchanged."""
        for check in self.checks:
            check.compacted(self.nodes[node_id], place, upto)

    def tell_pass(self, node_id: int, place: TopicPartition, upto: int | None) -> None:
        """A pass of compaction begins, or has read so far."""
        for check in self.checks:
            check.compacts(self.nodes[node_id], place, upto)

    def tell_copy_changed(self, node_id: int, what: str) -> None:
        """A copy of the metadata log was opened, loaded, trimmed, or got a snapshot."""
        node = self.nodes[node_id]
        assert node.copy is not None
        self.world.note("copy", node.name, what, end=node.copy.end_offset)
        for check in self.checks:
            check.copy_changed(node, what)

    def tell_changed(self, node_id: int, what: str) -> None:
        """A process started, ended, or changed in between."""
        for check in self.checks:
            check.node_changed(self.nodes[node_id], what)

    def first_records(self, records: Sequence[MetadataRecord]) -> tuple[MetadataRecord, ...]:
        """The first records of the cluster, with its own feature levels and its controllers, which
        are registered from the begin."""
        levels = tuple(
            replace(record, feature_level=self.levels.get(record.name, record.feature_level))
            if isinstance(record, FeatureLevelRecord)
            else record
            for record in records
            if not isinstance(record, FeatureLevelRecord) or self.levels.get(record.name, 1) > 0
        )
        if self.levels.get(METADATA_VERSION, CONTROLLERS_SINCE) < CONTROLLERS_SINCE:
            return levels
        return (*levels, *map(_controller_record, self.order))

    def dynamic_config(
        self, config: BrokerConfig, broker: Mapping[str, str], default: Mapping[str, str]
    ) -> BrokerConfig:
        """A node's configuration under other dynamic values, parsed once for all runs."""
        return known_config(config.static, broker, default)


def _controller_record(node_id: int) -> RegisterControllerRecord:
    return RegisterControllerRecord(
        controller_id=node_id,
        features=[
            ControllerFeature(name=name, min_supported_version=low, max_supported_version=high)
            for name, (low, high) in SUPPORTED_FEATURES.items()
        ],
    )


def known_config(
    static: Mapping[str, str],
    broker: Mapping[str, str] | None = None,
    default: Mapping[str, str] | None = None,
) -> BrokerConfig:
    """A parsed configuration; the same texts give the same object."""
    broker, default = broker or {}, default or {}
    key = tuple(tuple(sorted(texts.items())) for texts in (static, broker, default))
    found = _CONFIGS.get(key)
    if found is None:
        if len(_CONFIGS) >= CONFIGS_KEPT:
            _CONFIGS.clear()
        found = _CONFIGS[key] = BrokerConfig(static, broker, default)
    return found
