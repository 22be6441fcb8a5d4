"""The open connections of one role of a node, on all its listeners.

Rules kept, as in Kafka: `max.connections` and `max.connections.per.ip` count all listeners of a
role; brokers come in on a listener of their own also while the node is full, in place of the client
that has been silent for longest, so that clients cannot part brokers from each other. Not here: the
limits (`listener.py`).
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from anabranch.server.connection import Connection


class OpenConnections:
    """See the module. `kept_open`: the listener of other brokers where clients have another one, ""
    where there is none."""

    def __init__(self, kept_open: str = "") -> None:
        self.kept_open = kept_open
        self.of_host: Counter[str] = Counter()
        self._all: dict[Connection, str] = {}

    def __len__(self) -> int:
        return len(self._all)

    def add(self, connection: Connection, listener: str) -> None:
        """One more, on a listener."""
        self._all[connection] = listener
        self.of_host[connection.host] += 1

    def remove(self, connection: Connection) -> None:
        """One less, if it is counted."""
        if self._all.pop(connection, None) is None:
            return
        self.of_host[connection.host] -= 1
        if not self.of_host[connection.host]:
            del self.of_host[connection.host]

    def make_room(self) -> None:
        """Close the client's connection that has been silent for longest, if there is one."""
        clients = (each for each, listener in self._all.items() if listener != self.kept_open)
        silent = min(clients, key=lambda each: each.last_active_ms, default=None)
        if silent is not None:
            self.remove(silent)
            silent.channel.drop()
