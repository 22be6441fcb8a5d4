"""Producer ids of one simulated broker: sends what the machine asks for over the node's link.

Not here: when a block is asked for, and which id is next (`core/broker/producer_ids.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from anabranch.core.api.context import PRODUCER_IDS
from anabranch.core.broker.producer_ids import ASK_AGAIN_MS, ProducerIds

if TYPE_CHECKING:
    from anabranch.core.wire.messages.allocate_producer_ids import AllocateProducerIdsRequest
    from anabranch.sim.node_life import NodeLife


class ProducerIdPerformer:
    """One a life of a node."""

    def __init__(self, node: NodeLife) -> None:
        self.node = node
        self.machine = ProducerIds(self._identity, self._send)

    def _identity(self) -> tuple[int, int]:
        return self.node.broker.broker_id, self.node.broker.broker_epoch

    def _send(self, request: AllocateProducerIdsRequest) -> None:
        self.node.link.send(request, self._answered)

    def _answered(self, answer: Any) -> None:
        if not self.machine.answered(answer):
            self.node.later(ASK_AGAIN_MS, self.machine.ask)
            return
        self.node.begin()
        self.node.broker.changed[PRODUCER_IDS] = None
        self.node.settle()
