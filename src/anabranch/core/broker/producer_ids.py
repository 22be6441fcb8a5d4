"""Producer ids of one broker: handed out one by one from blocks that the controller grants.

What: `take` gives the next id, or None when a block must come first, and has the next block asked
for before the present one is used up. `ask` is called with each request; what came of it is told
with `answered`. Source: KIP-730. Rules kept: an id is handed out once; one request is under way at
a time, and is sent again until a block is granted; a block that was granted while the broker
registered anew is good, for blocks never overlap. Not here: which ids a block has
(`core/controller/producer_ids.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from anabranch.core.wire.messages.allocate_producer_ids import AllocateProducerIdsRequest

if TYPE_CHECKING:
    from anabranch.core.wire.messages.allocate_producer_ids import AllocateProducerIdsResponse

PREFETCH_LEFT = 100
"""Ids left in a block when the next one is asked for (a tenth of Kafka's block of 1,000)."""
ASK_AGAIN_MS = 100
"""After an answer that grants nothing, or none."""
NOTHING = range(0)

Ask = Callable[[AllocateProducerIdsRequest], None]


class ProducerIds:
    """The block in use, and the one behind it. `identity` gives the broker's id and epoch."""

    def __init__(self, identity: Callable[[], tuple[int, int]], ask: Ask) -> None:
        self._identity = identity
        self._ask = ask
        self._block = self._following = NOTHING
        self._is_asking = False

    def take(self) -> int | None:
        """The next id; None when a block must come first."""
        if not self._block:
            self._block, self._following = self._following, NOTHING
        if len(self._block) <= PREFETCH_LEFT and not self._following and not self._is_asking:
            self._is_asking = True
            self.ask()
        if not self._block:
            return None
        taken, self._block = self._block[0], self._block[1:]
        return taken

    def ask(self) -> None:
        """Ask for a block; to be called again ASK_AGAIN_MS after one that was not granted."""
        broker_id, broker_epoch = self._identity()
        self._ask(AllocateProducerIdsRequest(broker_id=broker_id, broker_epoch=broker_epoch))

    def answered(self, answer: AllocateProducerIdsResponse | None) -> bool:
        """What the controller said, None for nothing. Whether there are ids now for those who wait
        for one; else it is to be asked again."""
        if answer is None or answer.error_code or answer.producer_id_len <= 0:
            return False
        first = answer.producer_id_start
        self._following = range(first, first + answer.producer_id_len)
        self._is_asking = False
        return True
