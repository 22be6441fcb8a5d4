"""One partition of `__transaction_state` while this broker leads it, with the ids that are in it.

What: memory that follows the log. `change` writes the next state of an id; it holds once its record
is committed, and then the given effect is done. Rules kept: an id has at most one change on its way
(`pending`); nothing is answered from here before all that was read is committed (`is_ready`), since
what lies above the high watermark after an election may be lost with this leadership. Writing and
waiting are those of every coordinator (`core.coordination.shard`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar, NamedTuple, TypeAlias

from anabranch.core.coordination.shard import AS_COORDINATOR, Coordinator, Shard
from anabranch.core.coordination.transactions.records import tombstone, transaction_record
from anabranch.core.coordination.transactions.states import ONGOING
from anabranch.core.coordination.transactions.transaction import Transaction, dying
from anabranch.core.errors import Bug, ErrorCode
from anabranch.core.metadata.features import TRANSACTION_VERSION

if TYPE_CHECKING:
    from anabranch.core.coordination.host import Host
    from anabranch.core.metadata.image import MetadataImage
    from anabranch.core.replication.replica import Replica

Then: TypeAlias = Callable[[Transaction, int], None]
"""Called with the state that is committed now, and the time of day."""


class Changed(NamedTuple):
    """The key that is marked when an id's next state, or its tombstone, is committed."""

    transactional_id: str


def server_version(image: MetadataImage) -> int:
    """The cluster's transaction.version."""
    return image.features.get(TRANSACTION_VERSION, 0)


class TransactionShard(Shard):
    """The transactional ids of one partition."""

    refusals: ClassVar[Mapping[ErrorCode, ErrorCode]] = {
        **AS_COORDINATOR,
        ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
        ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    }

    def __init__(self, broker: Host, replica: Replica, coordinator: Coordinator) -> None:
        super().__init__(broker, replica, coordinator)
        self.transactions: dict[str, Transaction] = {}
        self.pending: dict[str, Transaction] = {}
        """What is in the log and not committed yet."""
        self.ongoing: dict[str, None] = {}
        """The ids with a transaction under way, so that no search for late ones walks over all."""
        self.is_ready = False

    def take(self, transactions: dict[str, Transaction]) -> None:
        """What was read from the log."""
        self.transactions = transactions
        self.ongoing = {name: None for name, each in transactions.items() if each.state is ONGOING}

    def change(self, transactional_id: str, after: Transaction, now_ms: int, then: Then) -> None:
        """Write an id's next state; `then` is called when it is committed, perhaps at once.

        Raises ApiError with the code that a client is told; then nothing has changed."""
        if transactional_id in self.pending:
            raise Bug(f"two changes of the transactional id {transactional_id!r} at once")

        def effect(now_ms: int) -> None:
            del self.pending[transactional_id]
            self._set(transactional_id, after)
            self._broker.changed[Changed(transactional_id)] = None
            then(after, now_ms)

        version = server_version(self._broker.image)
        record = transaction_record(transactional_id, after, now_ms, version)
        self.pending[transactional_id] = after
        try:
            self.write([record], now_ms, effect)
        except BaseException:
            self.pending.pop(transactional_id, None)
            raise

    def forget(
        self, transactional_ids: Sequence[str], now_ms: int, then: Callable[[int], None]
    ) -> None:
        """Write tombstones of ids that have expired; `then` is told how many are gone."""

        def effect(_now_ms: int) -> None:
            for name in transactional_ids:
                del self.pending[name]
                del self.transactions[name]
                self._broker.changed[Changed(name)] = None
            then(len(transactional_ids))

        for name in transactional_ids:
            self.pending[name] = dying(self.transactions[name])
        try:
            self.write([tombstone(name, now_ms) for name in transactional_ids], now_ms, effect)
        except BaseException:
            for name in transactional_ids:
                self.pending.pop(name, None)
            raise

    def _set(self, transactional_id: str, after: Transaction) -> None:
        self.transactions[transactional_id] = after
        if after.state is ONGOING:
            self.ongoing[transactional_id] = None
        else:
            self.ongoing.pop(transactional_id, None)
