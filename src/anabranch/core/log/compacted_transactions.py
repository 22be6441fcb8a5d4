"""The transactions of a log while it is compacted: whose records count, which markers may go.

What: walks along the batches of a pass in their order, with the aborted ranges that begin there.
Why apart from `producers.py`: everything here is decided already, and nothing is checked. Rules
kept: every batch of the segments is shown once, in order, dropped or not; a marker stays as long
as a snapshot of producers says that its transaction is open. A log that is read again from that
snapshot on would hold the transaction open for ever. Source: KIP-98.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from anabranch.core.errors import ProtocolError, StorageFault
from anabranch.core.log.indexes import AbortedRange
from anabranch.core.log.producer_snapshot import open_in_snapshot
from anabranch.core.log.segment import SNAPSHOT, offset_name, offset_of
from anabranch.core.wire.batch import BatchHeader
from anabranch.core.wire.control import end_marker

if TYPE_CHECKING:
    from anabranch.core.log.files import Files


class Transactions:
    """Which batches belong to aborted transactions, and which markers have nothing left."""

    def __init__(
        self,
        aborted: Sequence[tuple[int, int, int, int]],
        snapshots: Iterable[tuple[int, frozenset[int]]] = (),
    ) -> None:
        self._coming = deque(AbortedRange(*entry) for entry in aborted)
        self._snapshots = deque(snapshots)
        self._open: set[int] = set()
        """Producers with a transaction that the last snapshot says to be open."""
        self._aborted: dict[int, AbortedRange] = {}
        self._seen: set[int] = set()
        self._committed: set[int] = set()
        self.kept: list[AbortedRange] = []
        """Ranges whose markers stay: for the new transaction index."""

    @property
    def are_open(self) -> bool:
        """Whether a transaction has records among what was shown, and its marker is not."""
        return bool(self._committed or self._seen)

    def _advance(self, offset: int) -> None:
        while self._coming and self._coming[0].first_offset <= offset:
            entry = self._coming.popleft()
            self._aborted[entry.producer_id] = entry
        while self._snapshots and self._snapshots[0][0] <= offset:
            self._open = set(self._snapshots.popleft()[1])

    def is_aborted(self, header: BatchHeader) -> bool:
        """Whether the records of a data batch do not count."""
        self._advance(header.last_offset)
        if not header.is_transactional:
            return False
        if header.producer_id in self._aborted:
            self._seen.add(header.producer_id)
            return True
        self._committed.add(header.producer_id)
        return False

    def marker(self, header: BatchHeader, chunk: bytes, at: int) -> bool:
        """A control batch: whether nothing of its transaction is left in the log."""
        self._advance(header.last_offset)
        try:
            end = end_marker(chunk, at)
        except ProtocolError:  # a kind of control record that nobody here knows: it stays
            return False
        if end is None:
            return False
        producer_id = header.producer_id
        is_open = producer_id in self._open
        self._open.discard(producer_id)
        if end.committed:
            was_seen = producer_id in self._committed
            self._committed.discard(producer_id)
            return not (was_seen or is_open)
        entry = self._aborted.pop(producer_id, None)
        was_seen = producer_id in self._seen
        self._seen.discard(producer_id)
        if entry is not None and (was_seen or is_open):
            self.kept.append(entry)
        return not is_open and (entry is None or not was_seen)


def open_at_snapshots(files: Files, folder: str, upto: int) -> Iterator[tuple[int, frozenset[int]]]:
    """(offset, producers with an open transaction) of each snapshot before an offset. Raises
    StorageFault."""
    offsets = sorted(offset_of(name, SNAPSHOT) for name in files.list(folder))
    for offset in offsets:
        if not 0 <= offset < upto:
            continue
        path = f"{folder}/{offset_name(offset, SNAPSHOT)}"
        try:
            found = open_in_snapshot(files.read(path))
        except StorageFault:
            if files.exists(path):
                raise
            continue  # it was removed meanwhile
        if found is not None:
            yield offset, found
