"""Producer ids of one simulated broker, from blocks that the controller grants (KIP-730).

Rule kept: an id is handed out once; while a block is on its way there is none. The next block is
asked for when the present one is used up. Source: `server/producer_ids.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from anabranch.core.api.context import PRODUCER_IDS
from anabranch.core.wire.messages.allocate_producer_ids import AllocateProducerIdsRequest

if TYPE_CHECKING:
    from anabranch.sim.node import SimNode

RETRY_MS = 100


class ProducerIds:
    """The block in use. One a life of a node."""

    def __init__(self, node: SimNode) -> None:
        self.node = node
        self._next = 0
        self._end = 0
        self._asking = False

    def take(self) -> int | None:
        """The next id, None when a block must come first."""
        if self._next == self._end:
            if not self._asking:
                self._ask()
            return None
        self._next += 1
        return self._next - 1

    def _ask(self) -> None:
        self._asking = True
        broker = self.node.broker
        request = AllocateProducerIdsRequest(
            broker_id=broker.broker_id, broker_epoch=broker.broker_epoch
        )
        self.node.link.send(request, self._answered)

    def _answered(self, answer: Any) -> None:
        if answer is None or answer.error_code:
            self.node.later(RETRY_MS, self._ask)
            return
        self._asking = False
        self._next = answer.producer_id_start
        self._end = self._next + answer.producer_id_len
        self.node.begin()
        self.node.broker.changed.add(PRODUCER_IDS)
        self.node.settle()
