"""What the parts of a simulated node know of it, so that a part imports no node.

Not here: what it has in common with a twin (`registrant.py`), the machine (`machine.py`), the node
(`node.py`).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, Any

from anabranch.sim.registrant import Registrant

if TYPE_CHECKING:
    from anabranch.core.api.context import Broker
    from anabranch.core.broker.hosting.effects import TellHosted, TellUnusable
    from anabranch.core.metadata.following.copy import MetadataCopy
    from anabranch.core.metadata.following.effects import Act
    from anabranch.core.metadata.image import MetadataDelta, MetadataImage
    from anabranch.core.types import TopicPartition
    from anabranch.sim.batches import MetadataBatches
    from anabranch.sim.controller_link import ControllerLink
    from anabranch.sim.disk import SimDisk
    from anabranch.sim.session import Session
    from anabranch.sim.store import SimStore


class NodeLife(Registrant):
    """A node in its present life, as its parts see it."""

    store: SimStore
    """The metadata store of its cluster."""
    batches: MetadataBatches
    """The committed batches, read once for all nodes of the cluster."""
    broker: Broker
    link: ControllerLink
    session: Session
    disk_delay_us: int
    """How much longer than on a healthy disk a sync takes."""
    copy: MetadataCopy | None
    """The copy of the metadata log, once it was opened."""
    metadata_disk: SimDisk
    metadata_log_dir: str

    @property
    @abstractmethod
    def image(self) -> MetadataImage:
        """The newest metadata that it knows."""

    @property
    @abstractmethod
    def followed(self) -> MetadataImage:
        """The newest metadata that its machine's last process had in its copy."""

    # Steps.

    @abstractmethod
    def begin(self) -> None:
        """Begin a step."""

    @abstractmethod
    def settle(self) -> None:
        """End a step."""

    @abstractmethod
    def tell_of_folders(self, effect: TellHosted | TellUnusable) -> None:
        """The controller is to hear where a replica lies, or that some cannot serve."""

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

    # What one part tells the others.

    @abstractmethod
    def on_committed(self, image: MetadataImage, delta: MetadataDelta) -> None:
        """The copy has newer metadata: what the active controller keeps follows it."""

    @abstractmethod
    def on_image(self, moved: Act) -> None:
        """The broker acts on newer metadata."""

    @abstractmethod
    def wake_controller(self, key: Hashable) -> None:
        """Committed batches moved, or the controller resigned."""

    @abstractmethod
    def lost(self, places: Sequence[TopicPartition]) -> None:
        """Replicas went offline: their waiters, replication and groups hear of it."""
