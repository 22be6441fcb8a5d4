"""Reading as consumers of transactions do: what was aborted is passed over, and told by the broker.

What: a `Fetcher` that leaves out the batches of aborted transactions, by the list that comes with
an answer and by the markers in it, as the Java consumer does, and tells the history of each answer
that moved it. Source: KIP-98. Not here: positions, leaders, sessions (`fetcher.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from anabranch.core.partition.protocol import READ_COMMITTED
from anabranch.core.types import TopicPartition
from anabranch.core.wire.batch import crc_is_valid, walk
from anabranch.core.wire.control import end_marker
from anabranch.core.wire.records import decode_records
from anabranch.sim.clients.client import NOBODY, Client
from anabranch.sim.clients.fetcher import Fetcher, ReadOptions, written_as
from anabranch.sim.transaction_history import Read

if TYPE_CHECKING:
    from anabranch.core.wire.batch import BatchHeader
    from anabranch.core.wire.messages.fetch import PartitionData
    from anabranch.sim.clients.fetcher import _Position
    from anabranch.sim.transaction_history import TransactionHistory


class AbortedBatches:
    """Which batches of one answer were aborted."""

    def __init__(self, answer: PartitionData) -> None:
        listed = answer.aborted_transactions or ()
        self._coming = sorted((each.first_offset, each.producer_id) for each in listed)
        self._aborted: set[int] = set()

    def shows(self, batches: bytes, at: int, header: BatchHeader) -> bool:
        """Whether a batch has records for an application; batches come in order."""
        while self._coming and self._coming[0][0] <= header.last_offset:
            self._aborted.add(self._coming.pop(0)[1])
        if header.is_control:
            marker = end_marker(batches, at)
            if marker is not None and not marker.committed:
                self._aborted.discard(header.producer_id)
            return False
        return not (header.is_transactional and header.producer_id in self._aborted)


class TransactionalFetcher(Fetcher):
    """See the module. `on_records` hears of what is shown, and of the position after it."""

    def __init__(
        self,
        client: Client,
        reading: ReadOptions,
        history: TransactionHistory,
        on_records: Callable[[Read], None] | None = None,
    ) -> None:
        super().__init__(client, reading)
        self.told = history
        self.on_records = on_records

    def _records(self, position: _Position, answer: PartitionData) -> None:
        if not answer.records:
            return
        is_committed = self.reading.isolation == READ_COMMITTED
        passing, found = AbortedBatches(answer), []
        start = offset = position.offset
        for at, header in walk(answer.records):
            if header.next_offset <= start:
                continue
            if not crc_is_valid(answer.records, at, header.size_bytes):
                position.source = NOBODY
                break  # a reader stops there, and asks again
            shows = passing.shows(answer.records, at, header)
            if not header.is_control and (shows or not is_committed):
                for record in decode_records(answer.records, at):
                    if record.offset >= start:
                        found.append((record.offset, bytes(written_as(record))))
            offset, position.epoch = header.next_offset, header.leader_epoch
        if offset == start:
            return
        self.polls += 1
        read = Read(
            position.name, position.place, self.client.world.now_us, start, offset, tuple(found),
            is_committed, answer.last_stable_offset,
        )  # fmt: skip
        position.offset = offset
        self.told.read(read)
        if self.on_records is not None:
            self.on_records(read)


class TransactionalReader(Client):
    """A client that reads all partitions of transactions, in no group."""

    def begin(
        self, reading: ReadOptions, places: list[TopicPartition], history: TransactionHistory
    ) -> None:
        """Start to read."""
        self.fetcher = TransactionalFetcher(self, reading, history)
        for place in places:
            self.fetcher.read(place)
        self.fetcher.turn()

    def topic_changed(self, name: str) -> None:
        self.fetcher.topic_changed(name)
