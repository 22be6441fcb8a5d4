"""What a simulated broker does for its machines' questions to other brokers: sends them.

Rule kept: every answer, or that there was none, comes back with its ask, in a step of its own. Not
here: any decision (`core/broker/peers.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from anabranch.sim.rpc import BROKER

if TYPE_CHECKING:
    from anabranch.core.broker.peers import Ask
    from anabranch.sim.node import SimNode


class PeerPerformer:
    """Performs what `broker.peers` wants done. One a life of a node."""

    def __init__(self, node: SimNode) -> None:
        self.node = node
        self.peers = node.broker.peers

    def perform(self) -> None:
        """Send what is to be asked."""
        for ask in self.peers.take_effects():
            self._send(ask)

    def _send(self, ask: Ask) -> None:
        node = self.node

        def answered(answer: Any) -> None:
            node.begin()
            self.peers.answered(ask, answer)
            node.settle()

        peer = node.cluster.nodes.get(ask.broker_id)
        if peer is None:
            node.later(0, lambda: answered(None))
            return
        node.cluster.calls.call(
            node, peer, BROKER, ask.message, answered,
            timeout_us=ask.timeout_ms * 1000, most_version=ask.most_version,
        )  # fmt: skip
