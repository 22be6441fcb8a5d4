"""What replication asks of the broker that it works for, and leaves with it.

Why a Protocol: replication that knows no more than this can be read, tested and moved alone.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from anabranch.core.errors import StorageFault
    from anabranch.core.metadata.image import BrokerImage, MetadataImage
    from anabranch.core.replication.partitions import Partitions
    from anabranch.core.replication.replica import Replica
    from anabranch.core.settings.broker import BrokerConfig
    from anabranch.core.step import Mailbox
    from anabranch.core.types import TopicPartition


class Suspects(Protocol):
    """Brokers that do not answer: see `core.api.suspects`."""

    def __bool__(self) -> bool: ...

    def answered(self, broker_id: int) -> None:
        """A broker has answered."""

    def no_answer(self, broker: BrokerImage | None, now_ms: int) -> None:
        """A broker has not."""


class WaitingFetches(Protocol):
    """The fetches that wait at this broker: see `core.api.fetch_sessions`."""

    def called(self, now_ms: int) -> Iterable[Hashable]:
        """The keys of those of followers, which are to be answered now."""


class Host(Protocol):
    """One broker: see `core.api.context.Broker`."""

    broker_id: int
    broker_epoch: int
    config: BrokerConfig
    image: MetadataImage
    partitions: Partitions
    mailbox: Mailbox
    changed: dict[Hashable, None]
    unsynced: set[TopicPartition]
    faults: list[tuple[Replica, StorageFault]]
    steady_ms: int
    wall_ms: int

    @property
    def suspects(self) -> Suspects:
        """Brokers that do not answer this one."""

    @property
    def fetch_sessions(self) -> WaitingFetches:
        """Who fetches from this one."""
