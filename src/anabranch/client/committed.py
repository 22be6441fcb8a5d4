"""Which fetched batches a reader of committed records may see.

Brokers send the batches of aborted transactions along with a list of those: (producer id, first
offset). A transaction's batches are hidden from its first offset to its marker. Rule kept: control
batches are never shown, whatever the isolation level. Source: KIP-98, the Java consumer's order.
"""

from __future__ import annotations

from collections.abc import Iterable

from anabranch.core.errors import ProtocolError
from anabranch.core.types import Buffer
from anabranch.core.wire.batch import BatchHeader
from anabranch.core.wire.control import end_marker


class Committed:
    """What is hidden of one fetched part, batch by batch in the order of offsets."""

    def __init__(self, aborted: Iterable[tuple[int, int]]) -> None:
        self._coming = sorted((first, producer) for producer, first in aborted)[::-1]
        self._aborting: dict[int, int] = {}

    @property
    def left(self) -> tuple[tuple[int, int], ...]:
        """The aborted transactions whose marker has not come: (producer id, first offset)."""
        coming = ((producer, first) for first, producer in self._coming)
        return (*self._aborting.items(), *coming)

    def shows(self, header: BatchHeader, records: Buffer, position: int) -> bool:
        """Whether the batch at `position` has records for a reader of committed ones."""
        while self._coming and self._coming[-1][0] <= header.last_offset:
            first, producer = self._coming.pop()
            self._aborting[producer] = first
        if header.is_control:
            if _ends_a_transaction(records, position):
                self._aborting.pop(header.producer_id, None)
            return False
        return not (header.is_transactional and header.producer_id in self._aborting)


def _ends_a_transaction(records: Buffer, position: int) -> bool:
    try:
        return end_marker(records, position) is not None
    except ProtocolError:
        return False
