"""What a coordinator asks of the broker that it works for.

Why a Protocol: a coordinator that knows no more than this can be read, tested and moved alone.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from anabranch.core.broker.peers import Peers
    from anabranch.core.coordination.timers import Action, Timer
    from anabranch.core.errors import StorageFault
    from anabranch.core.metadata.image import MetadataImage
    from anabranch.core.replication.partitions import Partitions
    from anabranch.core.settings.broker import BrokerConfig
    from anabranch.core.step import Mailbox
    from anabranch.core.types import TopicPartition


class Host(Protocol):
    """One broker: see `core.api.context.Broker`."""

    config: BrokerConfig
    image: MetadataImage
    partitions: Partitions
    mailbox: Mailbox
    changed: dict[Hashable, None]
    unsynced: set[TopicPartition]
    faults: list[tuple[Any, StorageFault]]
    peers: Peers
    steady_ms: int
    wall_ms: int

    def next_producer_id(self) -> int | None:
        """A producer id that was never used; None while a block of them is on its way."""

    def after(self, delay_ms: int, action: Action) -> Timer:
        """Run `action` when that much time has gone by."""
