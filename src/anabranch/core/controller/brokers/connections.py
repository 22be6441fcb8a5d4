"""Over which connection each registered broker sent its last heartbeat.

Why: a process that ends closes its connections, and the controller's machine hears that at once.
Rules kept: only the registered epoch counts; a connection that ends tells of a broker whose last
heartbeat came over it, and of none that has connected anew since. Not here: what follows from a
connection that ended (`hints.py`).
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from anabranch.core.metadata.image import BrokerImage


class HeartbeatConnections:
    """Those of one controller. A connection is whatever tells it from others."""

    def __init__(self) -> None:
        self._heard: dict[int, tuple[Hashable, int]] = {}
        """Id of a registered broker -> the connection of its last heartbeat, and its epoch."""

    def heard(
        self,
        brokers: Mapping[int, BrokerImage],
        connection: Hashable,
        broker_id: int,
        broker_epoch: int,
    ) -> None:
        """A heartbeat came; `brokers` are those that are registered."""
        registered = brokers.get(broker_id)
        if registered is not None and registered.epoch == broker_epoch:
            self._heard[broker_id] = connection, broker_epoch

    def closed(self, connection: Hashable) -> list[tuple[int, int]]:
        """A connection has ended, for any cause: the ids and epochs of the brokers it tells of."""
        told = [
            (broker_id, epoch)
            for broker_id, (heard_on, epoch) in self._heard.items()
            if heard_on == connection
        ]
        for broker_id, _ in told:
            del self._heard[broker_id]
        return told
