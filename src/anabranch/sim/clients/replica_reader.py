"""A reader of committed records that asks one broker alone, whoever leads.

Why: what a replica would show as a leader it also shows as a follower; so each replica of a
cluster at rest is looked at, not only those that lead by then. Not here: reading
(`transactional_reader.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from anabranch.sim.clients.client import NOBODY
from anabranch.sim.clients.transactional_reader import TransactionalFetcher, TransactionalReader

if TYPE_CHECKING:
    from anabranch.core.types import TopicPartition
    from anabranch.sim.clients.fetcher import ReadOptions, _Position
    from anabranch.sim.transaction_history import TransactionHistory


class ReplicaFetcher(TransactionalFetcher):
    """See the module."""

    node_id: int

    def _source(self, position: _Position) -> int:
        if position.source == NOBODY:
            position.source = self.node_id
        return position.source


class ReplicaReader(TransactionalReader):
    """See the module. Call `begin_at`."""

    def begin_at(
        self,
        node_id: int,
        reading: ReadOptions,
        places: list[TopicPartition],
        history: TransactionHistory,
    ) -> None:
        """Start to read what a broker has."""
        self.fetcher = fetcher = ReplicaFetcher(self, reading, history)
        fetcher.node_id = node_id
        for place in places:
            fetcher.read(place)
        fetcher.turn()
