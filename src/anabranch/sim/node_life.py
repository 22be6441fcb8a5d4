"""What the parts of a simulated node know of it, so that a part imports no node.

Not here: the machine (`machine.py`), the node (`node.py`).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from anabranch.core.broker.registration.active_controller import PATIENCE_MS
from anabranch.sim.rpc import Server

if TYPE_CHECKING:
    from anabranch.core.api.context import Broker
    from anabranch.core.metadata.image import MetadataImage
    from anabranch.core.settings.broker import BrokerConfig
    from anabranch.sim.batches import MetadataBatches
    from anabranch.sim.disk import SimDisk
    from anabranch.sim.store import SimStore
    from anabranch.sim.world import World


class Link(Protocol):
    """A node's way to the active controller."""

    def send(
        self,
        message: Any,
        on_answer: Callable[[Any], None],
        *,
        patience_ms: int | None = PATIENCE_MS,
        version: int | None = None,
    ) -> None:
        """Ask until an active controller answers; None when none did in time."""


class NodeLife(Server):
    """A node in its present life, as its parts see it."""

    world: World
    store: SimStore
    """The metadata store of its cluster."""
    batches: MetadataBatches
    """The committed batches, read once for all nodes of the cluster."""
    node_id: int
    config: BrokerConfig
    broker: Broker
    link: Link
    disk: SimDisk
    disk_delay_us: int
    """How much longer than on a healthy disk a sync takes."""
    directory_ids: dict[str, bytes]
    """The ids of its log folders, by path."""

    @property
    @abstractmethod
    def image(self) -> MetadataImage:
        """The newest metadata that it knows."""

    @abstractmethod
    def begin(self) -> None:
        """Begin a step."""

    @abstractmethod
    def settle(self) -> None:
        """End a step."""

    @abstractmethod
    def later(self, delay_ms: int, action: Callable[[], None]) -> None:
        """Do something in this life when that much time has gone by."""

    @abstractmethod
    def ask_broker(
        self,
        broker_id: int,
        message: Any,
        on_answer: Callable[[Any], None],
        *,
        timeout_ms: int,
        most_version: int | None = None,
    ) -> None:
        """Ask another broker once; None when no answer came, or there is no such broker."""
