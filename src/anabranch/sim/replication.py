"""What a simulated broker does for its replication: sends what it wants sent, and tells the time.

Rule kept: effects are performed in their order, and every answer, or that there was none, comes
back with its effect. Not here: any decision (`core/replication`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from anabranch.core.replication.effects import SendAlterPartition, SendFetch
from anabranch.core.types import TopicPartition
from anabranch.sim.alarm import Alarm

if TYPE_CHECKING:
    from anabranch.sim.node_life import NodeLife

ALTER_MS = 5_000


class ReplicationPerformer:
    """Performs what `broker.replication` wants done. One a life of a node."""

    def __init__(self, node: NodeLife) -> None:
        self.node = node
        self.world = node.world
        self.replication = node.broker.replication
        self._alarm = Alarm(node.world, node, self._due_ms, self._tick)

    def follow_states(self, places: Sequence[TopicPartition] | None) -> None:
        """The state of these partitions (None: of all) changed."""
        self.replication.follow_states(places, self.world.steady_ms)

    def perform(self) -> None:
        """Do what replication wants done by now; called when it has marked itself."""
        for effect in self.replication.take_effects():
            if isinstance(effect, SendFetch):
                self._fetch(effect)
            else:
                self._alter(effect)
        self._alarm.set()

    def _due_ms(self) -> float:
        return self.replication.next_tick_ms

    def _tick(self) -> None:
        self.node.begin()
        self.replication.tick(self.world.steady_ms)
        self.node.settle()

    def _fetch(self, effect: SendFetch) -> None:
        node = self.node

        def answered(answer: Any) -> None:
            node.begin()
            if answer is None:
                self.replication.fetch_failed(effect, self.world.steady_ms)
            else:
                self.replication.fetched(effect, answer, self.world.steady_ms)
            node.settle()

        node.ask_broker(
            effect.leader_id, effect.request, answered,
            timeout_ms=node.config.replica_socket_timeout_ms, most_version=effect.version,
        )  # fmt: skip

    def _alter(self, effect: SendAlterPartition) -> None:
        node = self.node

        def answered(answer: Any) -> None:
            node.begin()
            if answer is None:
                self.replication.alter_failed(effect, self.world.steady_ms)
            else:
                self.replication.altered(effect, answer, self.world.steady_ms)
            node.settle()

        node.link.send(effect.request, answered, patience_ms=ALTER_MS, version=effect.version)
