"""What hosting asks of the broker whose logs it holds.

Why a Protocol: it can be read, tested and moved without what handlers are given.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from anabranch.core.errors import StorageFault
    from anabranch.core.metadata.image import MetadataImage
    from anabranch.core.replication.partitions import Partitions
    from anabranch.core.replication.replica import Replica
    from anabranch.core.settings.broker import BrokerConfig
    from anabranch.core.types import TopicPartition


class Copying(Protocol):
    """What copies logs: see `core.replication.replication`."""

    def log_synced(self) -> None:
        """A sync round of some log has ended."""


class Host(Protocol):
    """One broker: see `core.api.context.Broker`."""

    broker_id: int
    broker_epoch: int
    config: BrokerConfig
    image: MetadataImage
    partitions: Partitions
    changed: dict[Hashable, None]
    unsynced: set[TopicPartition]
    faults: list[tuple[Replica, StorageFault]]

    @property
    def replication(self) -> Copying:
        """What this broker copies from leaders."""
