"""What time does to transactional ids: late transactions are aborted, unused ids are forgotten.

Rules kept: the time is the wall clock's, as it stands in the log; only a committed state is looked
at, and none that has a change on its way. A round runs at intervals, so that a transaction ends
within its timeout and one interval. Source: KIP-98, KIP-447, Kafka's settings. Not here: what an
abort does (`coordinator`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from anabranch.core.coordination.shard import in_writes
from anabranch.core.coordination.transactions.shard import TransactionShard, server_version
from anabranch.core.coordination.transactions.transaction import Transaction, fenced
from anabranch.core.due import LATE
from anabranch.core.errors import ApiError
from anabranch.core.sentences import shortened

if TYPE_CHECKING:
    from anabranch.core.coordination.host import Host

MOST_SAID = 20
"""Late transactions that a round names: a log is for people, and the rest is counted."""


class Late(NamedTuple):
    """A transaction that outlived its timeout, for the log."""

    transactional_id: str
    transaction: Transaction
    lasted_ms: int
    unsaid: int
    """How many others of this round are not named."""


Abort: TypeAlias = Callable[[TransactionShard, str, Transaction, int], None]
"""Writes that an id's transaction is aborted; raises ApiError."""


class Upkeep:
    """Two rounds that repeat for as long as this broker coordinates anything."""

    def __init__(self, broker: Host, shards: Mapping[int, TransactionShard], abort: Abort) -> None:
        self.timed_out_total = 0
        self.expired_total = 0
        self._mark = broker.mailbox.due.marker(LATE)
        self.said: list[Late] = []
        """What the shell has yet to write into its log."""
        self._broker = broker
        self._by_index = shards
        self._abort = abort
        self._is_running = False

    def begin(self) -> None:
        """This broker coordinates something."""
        if not self._is_running:
            self._is_running = True
            self._plan()

    def _plan(self) -> None:
        config, after = self._broker.config, self._broker.after
        after(config.transaction_abort_timed_out_transaction_cleanup_interval_ms, self._late)
        after(config.transaction_remove_expired_transaction_cleanup_interval_ms, self._expire_round)

    def _late(self, now_ms: int) -> None:
        self.abort_late(now_ms)
        config = self._broker.config
        self._broker.after(
            config.transaction_abort_timed_out_transaction_cleanup_interval_ms, self._late
        )

    def _expire_round(self, now_ms: int) -> None:
        self.expire(now_ms)
        config = self._broker.config
        self._broker.after(
            config.transaction_remove_expired_transaction_cleanup_interval_ms, self._expire_round
        )

    def _shards(self) -> list[TransactionShard]:
        shards = self._by_index.values()
        return [shard for shard in shards if shard.is_ready and shard.is_current]

    def abort_late(self, now_ms: int) -> None:
        """Abort each transaction that has lasted longer than its producer wanted."""
        self.said = []
        for shard in self._shards():
            for name in list(shard.ongoing):
                transaction = shard.transactions[name]
                if name in shard.pending or not transaction.is_overdue(now_ms):
                    continue
                after = fenced(transaction, now_ms, server_version(self._broker.image))
                try:
                    self._abort(shard, name, after, now_ms)
                except ApiError:
                    break  # its log takes nothing now: the next round tries again
                self.timed_out_total += 1
                self._say(name, transaction, now_ms)

    def _say(self, name: str, transaction: Transaction, now_ms: int) -> None:
        if len(self.said) < MOST_SAID:
            lasted_ms = now_ms - transaction.started_ms
            self.said.append(Late(shortened(name), transaction, lasted_ms, 0))
            self._mark()
        else:
            last = self.said[-1]
            self.said[-1] = last._replace(unsaid=last.unsaid + 1)

    def take_said(self) -> list[Late]:
        """What is to be written into the log, once."""
        said, self.said = self.said, []
        return said

    def expire(self, now_ms: int) -> None:
        """Forget the ids that were left alone for transactional.id.expiration.ms."""
        expiration_ms = self._broker.config.transactional_id_expiration_ms
        for shard in self._shards():
            expired = [
                name
                for name, transaction in shard.transactions.items()
                if transaction.is_expired(now_ms, expiration_ms) and name not in shard.pending
            ]
            try:
                for some in in_writes(expired):
                    shard.forget(some, now_ms, self._count)
            except ApiError:
                continue  # as above

    def _count(self, forgotten: int) -> None:
        self.expired_total += forgotten
