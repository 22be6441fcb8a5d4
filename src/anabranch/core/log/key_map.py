"""The newest offset of every key in the part of a log that compaction has not seen yet.

What: a dictionary that knows how much memory it takes. Why whole keys and not a hash of them as
Kafka has: a collision would lose a record, and nothing has to be hashed twice. The rule it keeps:
it takes no more than its budget, but for the last batch, and has room for one batch whatever its
budget is; what does not fit is left for the next pass.
"""

from __future__ import annotations

from anabranch.core.log.record_walk import note_keys
from anabranch.core.wire.batch import BatchHeader

ENTRY_BYTES = 180
"""About what an entry costs besides its key: the key's object, the offset's, and the table's."""


class KeyMap:
    """Key -> newest offset."""

    __slots__ = ("_budget_bytes", "_used_bytes", "offsets")

    def __init__(self, budget_bytes: int) -> None:
        self.offsets: dict[bytes, int] = {}
        self._budget_bytes = budget_bytes
        self._used_bytes = 0

    @property
    def is_full(self) -> bool:
        """Whether the budget is used up; then no more batches may be noted."""
        return self._used_bytes >= max(1, self._budget_bytes)

    def note(self, plain: bytes, position: int, header: BatchHeader) -> None:
        """Take the records of a batch; batches come in the order of the log."""
        before = len(self.offsets)
        total = note_keys(plain, position, header, self.offsets)
        added = len(self.offsets) - before
        if added:
            self._used_bytes += added * (ENTRY_BYTES + total // header.record_count)
