"""A simulated process that registers as a broker, and the cluster around it, as others see them.

What: `Registrant` is what a session, a link and a dial know of the process that they belong to: a
node, or a twin on a copy of its folders. `Surroundings` is what a process knows of its cluster. Why
apart: the cluster makes nodes, and nodes are made of parts; what all of them need stands below
them. Not here: what only nodes have (`node_life.py`).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from anabranch.core.broker.registration.active_controller import PATIENCE_MS
from anabranch.sim.rpc import Server

if TYPE_CHECKING:
    from anabranch.core.broker.registration.requests import BrokerView
    from anabranch.core.settings.broker import BrokerConfig
    from anabranch.core.types import TopicPartition
    from anabranch.core.wire.metadata_records import MetadataRecord
    from anabranch.sim.batches import MetadataBatches
    from anabranch.sim.clocks import SteadyClock
    from anabranch.sim.disk import SimDisk
    from anabranch.sim.network import Network
    from anabranch.sim.remotes import Remotes
    from anabranch.sim.rpc import Calls
    from anabranch.sim.store import SimStore
    from anabranch.sim.world import World


class Link(Protocol):
    """A process's way to the active controller."""

    def send(
        self,
        message: Any,
        on_answer: Callable[[Any], None],
        *,
        patience_ms: int | None = PATIENCE_MS,
        version: int | None = None,
    ) -> None:
        """Ask until an active controller answers; None when none did in time."""


class Surroundings(Protocol):
    """The cluster that a process is in. Processes are named by their node's id."""

    world: World
    cluster_id: str
    network: Network
    calls: Calls
    store: SimStore
    """The metadata store."""
    batches: MetadataBatches
    """The committed batches, read once for all nodes."""
    remotes: Remotes | None
    """The object store and the coordinator, where topics may be diskless."""
    order: list[int]
    """The ids of all nodes."""

    @property
    def nodes(self) -> Mapping[int, Registrant]:
        """The nodes by id."""

    def at(self, host: str) -> Registrant | None:
        """Who can be reached at an address, None where no machine is."""

    def first_records(self, records: Sequence[MetadataRecord]) -> tuple[MetadataRecord, ...]:
        """The first records of the cluster."""

    def dynamic_config(
        self, config: BrokerConfig, broker: Mapping[str, str], default: Mapping[str, str]
    ) -> BrokerConfig:
        """A node's configuration under other dynamic values."""

    def process_ended(self, node_id: int) -> None:
        """A process ended: those that were connected to it notice."""

    # What it is told, for those who look on.

    def tell_changed(self, node_id: int, what: str) -> None:
        """A process started, ended, or changed in between."""

    def tell_controller_acts(self, node_id: int) -> None:
        """A node acts as the active controller."""

    def tell_answered(self, node_id: int, end_offset: int) -> None:
        """A decision is answered."""

    def tell_truncated(self, node_id: int, place: TopicPartition, before: int, after: int) -> None:
        """A log gets shorter."""

    def tell_compacted(self, node_id: int, place: TopicPartition, upto: int) -> None:
        """Segments of a log were exchanged."""

    def tell_pass(self, node_id: int, place: TopicPartition, upto: int | None) -> None:
        """A pass of compaction begins, or has read so far."""

    def tell_copy_changed(self, node_id: int, what: str) -> None:
        """A copy of the metadata log was opened, loaded, trimmed, or got a snapshot."""


class Registrant(Server):
    """See the module."""

    cluster: Surroundings
    world: World
    node_id: int
    rack: str | None
    config: BrokerConfig
    features: dict[str, tuple[int, int]]
    listener: str
    port: int
    advertised_host: str
    disk: SimDisk
    folders: list[str]
    directory_ids: dict[str, bytes]
    """The ids of its log folders, by path."""
    clock: SteadyClock
    wall_skew_ms: int = 0
    """By how much its clock of the day is ahead, in all its lives."""
    listens: bool
    """Whether a connection to it is taken."""
    link: Link

    @property
    @abstractmethod
    def view(self) -> BrokerView:
        """What its registration reads of it."""

    @property
    @abstractmethod
    def incarnation_id(self) -> bytes:
        """Who this life is, to the controller."""

    @property
    def steady_ms(self) -> int:
        """The machine's own steady clock."""
        return self.clock.now_ms

    @property
    def wall_ms(self) -> int:
        """What the machine's clock of the day shows to a controller and at logins; all else has the
        world's."""
        return self.world.now_ms + self.wall_skew_ms

    @abstractmethod
    def registered(self, broker_epoch: int) -> None:
        """The controller gave this life its epoch."""

    @abstractmethod
    def serve(self) -> None:
        """The broker was let in, and knows it."""

    @abstractmethod
    def stop_because(self, sentence: str) -> None:
        """Something happened after which this process must not go on."""

    @abstractmethod
    def connection_closed(self, process: Registrant) -> None:
        """A connection from another process closed."""
