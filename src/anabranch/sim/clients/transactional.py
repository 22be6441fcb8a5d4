"""A simulated producer with a transactional id: one transaction after the other.

What: a process of an id. It begins to use the id, carries out the transactions that it is given,
and stops when it is fenced, or when nobody says what became of a request: the next process then
goes on. One that hangs says nothing until its transaction is long overdue, and then tries to commit
it. Not here: the protocol (`transactions.py`), which transactions there are
(`transaction_plan.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from anabranch.sim.clients.client import Patience
from anabranch.sim.clients.transactions import (
    Failed,
    Fenced,
    Late,
    ProducerOptions,
    Scripted,
    Session,
    Steps,
)

if TYPE_CHECKING:
    from anabranch.core.types import TopicPartition
    from anabranch.sim.clients.transactional_records import Keying
    from anabranch.sim.cluster import Cluster
    from anabranch.sim.history import History
    from anabranch.sim.plan_parts import PlannedTransaction
    from anabranch.sim.transaction_history import Transaction, TransactionHistory, Written

ABORT, HANG = "abort", "hang"
MOST_WAITING = 3
OVERDUE = 1.6
"""How many times its timeout a transaction lasts that hangs."""


class TransactionalProducer(Scripted):
    """One process of a transactional id."""

    def __init__(
        self,
        cluster: Cluster,
        name: str,
        quiet: History,
        topics: tuple[str, ...],
        patience: Patience,
        id_name: str,
        manner: ProducerOptions,
        history: TransactionHistory,
        keying: Keying,
    ) -> None:
        super().__init__(cluster, name, quiet, topics, patience)
        self.keying = keying
        self.told = history
        self.session = Session(self, id_name, manner, history)
        self.queue: list[PlannedTransaction] = []
        self.is_working = True
        self.written = 0

    def start(self) -> None:
        """Begin to use the id."""
        self.perform(self._life())

    def give(self, deal: PlannedTransaction) -> None:
        """One transaction more, unless too many wait already."""
        if len(self.queue) < MOST_WAITING:
            self.queue.append(deal)
        if not self.is_working:
            self.is_working = True
            self.perform(self._work())

    @property
    def is_idle(self) -> bool:
        """Whether nothing is under way."""
        return self.stopped or not self.is_working

    def _life(self) -> Steps:
        yield None
        while True:
            try:
                yield from self.session.start()
            except Late:
                continue
            except Fenced:
                self.stop()
                return
            break
        yield from self._work()

    def _work(self) -> Steps:
        try:
            while self.queue:
                yield from self._carry_out(self.queue.pop(0))
        except Fenced:
            self.told.fenced += 1
            self.stop()
        except Late:
            self.stop()
        self.is_working = False

    def _carry_out(self, deal: PlannedTransaction) -> Steps:
        transaction = self.session.begin()
        batches = [
            self._batch(place, number) for place, count in deal.writes for number in range(count)
        ]
        try:
            yield from self.session.write(transaction, batches)
        except Failed:
            yield from self.session.abort(transaction)
            return
        if deal.pause_ms:
            yield deal.pause_ms
        if deal.ending == HANG:
            yield int(self.session.manner.timeout_ms * OVERDUE)
        yield from self._end(transaction, deal)

    def _end(self, transaction: Transaction, deal: PlannedTransaction) -> Steps:
        if deal.ending == ABORT:
            yield from self.session.abort(transaction)
        else:
            yield from self.session.commit(transaction)

    def _batch(self, place: TopicPartition, number: int) -> list[Written]:
        """One record, or two in every third batch."""
        written = []
        for _ in range(1 + (number == 2)):
            self.written += 1
            written.append(self.keying.written(place, f"{self.name}/{self.written}".encode()))
        return written
