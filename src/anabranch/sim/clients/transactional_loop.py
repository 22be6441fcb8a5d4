"""A simulated member of a group that reads, writes and commits its offsets in one transaction.

What: what it has read since its last transaction becomes one record each of another topic, and with
them it commits how far it has read (KIP-447: as a member of its generation). When a transaction
fails it drops what it has read and begins again where the group has committed, and waits there
until that is decided. Rule kept: a record that was read is written once a transaction. Not here:
being a member (`member.py`), the protocol of transactions (`transactions.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from anabranch.core.types import TopicPartition
from anabranch.sim.clients.fetcher import Fetcher
from anabranch.sim.clients.group_requests import committed_offsets, offsets_in
from anabranch.sim.clients.member import Member
from anabranch.sim.clients.transactional_reader import TransactionalFetcher
from anabranch.sim.clients.transactions import (
    Failed,
    Fenced,
    Group,
    Late,
    ProducerOptions,
    Scripted,
    Session,
    Steps,
)

if TYPE_CHECKING:
    from anabranch.sim.clients.transactional_records import Keying
    from anabranch.sim.transaction_history import Read, TransactionHistory, Written


class TransactionalMember(Member, Scripted):
    """See the module. Call `set_up` before `start`."""

    def set_up(
        self,
        manner: ProducerOptions,
        history: TransactionHistory,
        targets: list[TopicPartition],
        keying: Keying,
    ) -> None:
        """What it writes, and how."""
        self.manner = manner
        self.told = history
        self.targets = targets
        self.keying = keying
        self.session: Session | None = None
        self.is_busy = False
        self._read: list[tuple[TopicPartition, int]] = []
        self._ends: dict[TopicPartition, int] = {}

    def _divided_places(self) -> list[TopicPartition]:
        written = {place.topic for place in self.targets}
        return [place for place in sorted(self.places) if place.topic not in written]

    def _new_fetcher(self) -> Fetcher:
        self._read, self._ends = [], {}
        return TransactionalFetcher(self, self.reading, self.told, self._take)

    def _take(self, read: Read) -> None:
        self._ends[read.place] = read.end
        self._read += [(read.place, offset) for offset, _ in read.records]

    @property
    def has_read_on(self) -> bool:
        """Whether anything is read and not committed yet."""
        return bool(self._read) or self.is_busy

    # Beginning where the group has committed, once that is decided.

    def _fetch_offsets(self, turn: int, places: list[TopicPartition]) -> None:
        if turn != self._turn:
            return
        if self.is_busy:  # one thread does both: it has no partitions before that is over
            self.later(self.backoff_ms(2), self._fetch_offsets, turn, places)
            return

        def told(response: Any) -> None:
            if turn != self._turn or self.fetcher is None:
                return
            offsets = offsets_in(response)
            if offsets is None:
                self.later(self.backoff_ms(2), self._fetch_offsets, turn, places)
                return
            for place, offset in offsets.items():
                self.fetcher.read(place, offset)
            self.fetcher.turn()

        message = committed_offsets(self.membership.group, places, stable=True)
        self.ask(self.coordinator, message, told)

    # Transactions.

    def _commit(self, turn: int) -> None:
        if turn != self._turn:
            return
        if self.is_busy or not self._read:
            self.later(self.membership.commit_ms, self._commit, turn)
            return
        self.is_busy = True
        self.perform(self._run(turn))

    def _run(self, turn: int) -> Steps:
        try:
            yield from self._transact()
            is_done = True
        except Failed:
            is_done = False
        except (Fenced, Late):
            self.session, is_done = None, False
        self.is_busy = False
        if turn != self._turn:
            return
        if is_done:
            self.later(self.membership.commit_ms, self._commit, turn)
        else:
            self._again(find=True)

    def _transact(self) -> Steps:
        read, self._read = self._read, []
        ends = dict(self._ends)
        group = Group(self.membership.group, self.coordinator, self.generation, self.member_id)
        session = self.session
        if session is None:
            session = Session(self, f"of-{self.name}", self.manner, self.told)
            yield from session.start()
            self.session = session
        transaction = session.begin()
        transaction.consumed = read
        try:
            yield from session.write(
                transaction, [[self._output(transaction.label, *each)] for each in read]
            )
            yield from session.commit_offsets(transaction, group, ends)
        except Failed:
            yield from session.abort(transaction)
            raise
        yield from session.commit(transaction)

    def _output(self, label: str, place: TopicPartition, offset: int) -> Written:
        target = self.targets[(place.partition + offset) % len(self.targets)]
        value = f"{label}|{place.topic}|{place.partition}@{offset}".encode()
        return self.keying.written(target, value)
