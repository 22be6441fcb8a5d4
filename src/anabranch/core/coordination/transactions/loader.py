"""Reading a partition of `__transaction_state` back.

Rule kept: the last record of an id counts, a null value forgets it; keys of a later version are
passed over and counted, as in Kafka; a value that cannot be read, also one of a later version, is
a fault of the partition, since an id that was guessed wrong could commit what was aborted.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from anabranch.core.coordination.log_reader import LogReader
from anabranch.core.coordination.transactions.records import transaction_of
from anabranch.core.coordination.transactions.transaction import Transaction
from anabranch.core.wire.batch import BatchHeader
from anabranch.core.wire.records import Record
from anabranch.core.wire.transaction_records import decode_key

if TYPE_CHECKING:
    from anabranch.core.coordination.transactions.shard import TransactionShard
    from anabranch.core.log.files import ColdRead


class TransactionLoader(LogReader):
    """The transactional ids of one shard, as far as they have been read."""

    kind = "transactions"

    def __init__(self, shard: TransactionShard, read_bytes: int) -> None:
        super().__init__(shard, read_bytes)
        self.transactions: dict[str, Transaction] = {}

    def steps(self, now_ms: int) -> Iterator[ColdRead | None]:
        """Read everything. Raises StorageFault where the log cannot be read, or is not ours."""
        yield from self.read(now_ms)

    def take(self, record: Record, _header: BatchHeader, _now_ms: int) -> None:
        transactional_id = decode_key(record.key or b"")
        if transactional_id is None:
            self.unknown_keys += 1
        elif record.value is None:
            self.transactions.pop(transactional_id, None)
        else:
            self.transactions[transactional_id] = transaction_of(bytes(record.value))
