"""What a simulated broker does for its machines' questions to other brokers: sends them.

Rule kept: every answer, or that there was none, comes back with its ask, in a step of its own. Not
here: any decision (`core/broker/peers.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from anabranch.core.broker.peers import Ask
    from anabranch.sim.node_life import NodeLife


class PeerPerformer:
    """Performs what `broker.peers` wants done. One a life of a node."""

    def __init__(self, node: NodeLife) -> None:
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

        node.ask_broker(
            ask.broker_id, ask.message, answered,
            timeout_ms=ask.timeout_ms, most_version=ask.most_version,
        )  # fmt: skip
