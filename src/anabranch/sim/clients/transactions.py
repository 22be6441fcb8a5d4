"""A transactional id as a simulated client uses it: both flows of Kafka's clients, step by step.

What: `Session` begins to use an id, writes batches into partitions, commits offsets of a group, and
commits or aborts; `Scripted` is a client whose doings are written down as one generator after the
other. The older flow names partitions (AddPartitionsToTxn, AddOffsetsToTxn) before it writes; in
the newer one (KIP-890) partitions join with their first batch, and each end gives the next epoch.

Rules kept, as the Java producer keeps them: what was written and not acknowledged is sent again,
in order, and else the transaction is aborted; a commit is asked for again until it is answered; a
producer that is fenced writes nothing more. Not here: which transactions there are
(`transactional.py`, `transactional_loop.py`), what must hold (`checks/transactions.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from anabranch.core.errors import ErrorCode
from anabranch.core.types import TopicPartition
from anabranch.core.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from anabranch.core.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from anabranch.core.wire.messages.end_txn import EndTxnRequest
from anabranch.core.wire.messages.init_producer_id import InitProducerIdRequest
from anabranch.core.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from anabranch.core.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from anabranch.core.wire.records import build_batch
from anabranch.sim.clients.client import NOBODY, Client
from anabranch.sim.clients.group_requests import (
    KEY_OF_IDS,
    coordinator_in,
    find_coordinator,
)
from anabranch.sim.clients.transactional_records import record_of
from anabranch.sim.transaction_history import ABORTED, COMMITTED, UNKNOWN

if TYPE_CHECKING:
    from anabranch.sim.transaction_history import Transaction, TransactionHistory, Written

Steps: TypeAlias = Generator[Any, Any, Any]
NO_ANSWER = -999
"""The kind of key that FindCoordinator is asked for."""
MOST_IN_FLIGHT = 3
"""Batches of one partition that are sent without waiting."""
OLD = {0: 11, 22: 4, 24: 3, 25: 3, 26: 4, 28: 3}
NEW = {0: 12, 22: 5, 26: 5, 28: 5}
"""API key -> the version that a client of a flow speaks."""

_COME_AGAIN = frozenset(
    {
        NO_ANSWER,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
)
_FIND_AGAIN = frozenset({NO_ANSWER, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR})
_WRITE_AGAIN = frozenset(
    {
        NO_ANSWER,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
)
"""What the Java producer sends again after."""
_WRITTEN = frozenset({ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER})


class Fenced(Exception):
    """This producer may not go on: its id is another's, or the coordinator does not know it."""


class Failed(Exception):
    """This transaction cannot be committed: abort it."""


class Late(Exception):
    """Patience is over, and nobody knows what became of the request."""


@dataclass(frozen=True, slots=True)
class ProducerOptions:
    """How a producer works."""

    is_new_flow: bool
    timeout_ms: int
    pipelines: bool
    """Whether several batches of a partition are on their way at once."""


class Wish(NamedTuple):
    """One request to a broker."""

    node_id: int
    message: Any


class Scripted(Client):
    """A client that does one thing after another. A script yields milliseconds to wait, None for
    new metadata, or a list of wishes, for which it gets the list of their answers."""

    def perform(self, steps: Steps) -> None:
        """Begin a script."""
        self._go_on(steps, None)

    def _go_on(self, steps: Steps, value: Any) -> None:
        if self.stopped:
            return
        try:
            wish = steps.send(value)
        except StopIteration:
            return
        if wish is None:
            self.refresh(lambda: self._go_on(steps, None))
        elif isinstance(wish, int):
            self.later(wish, self._go_on, steps, None)
        else:
            self._ask_all(steps, wish)

    def _ask_all(self, steps: Steps, wishes: list[Wish]) -> None:
        answers: list[Any] = [None] * len(wishes)
        left = len(wishes)

        def told(index: int, answer: Any) -> None:
            nonlocal left
            answers[index], left = answer, left - 1
            if not left:
                self._go_on(steps, answers)

        for index, wish in enumerate(wishes):
            self.ask(wish.node_id, wish.message, partial(told, index))


class Group(NamedTuple):
    """Whose offsets are committed."""

    group_id: str
    coordinator: int
    generation: int
    member_id: str


class Session:
    """One process that uses a transactional id. Methods are scripts of `client`."""

    def __init__(
        self, client: Scripted, name: str, manner: ProducerOptions, history: TransactionHistory
    ) -> None:
        self.client = client
        self.name = name
        self.manner = manner
        self.history = history
        self.coordinator = NOBODY
        self.producer_id = self.epoch = -1
        self._sequences: dict[TopicPartition, int] = {}
        self._added: set[Any] = set()
        client.versions = {**client.versions, **(NEW if manner.is_new_flow else OLD)}

    # The coordinator.

    def _find(self) -> Steps:
        client = self.client
        while self.coordinator == NOBODY:
            message = find_coordinator(self.name, KEY_OF_IDS)
            (answer,) = yield [Wish(client.anybody(), message)]
            self.coordinator = coordinator_in(answer)
            if self.coordinator == NOBODY:
                yield client.backoff_ms(2)

    def _coordinated(
        self,
        message: Any,
        code_of: Callable[[Any], int],
        until_us: int,
        sending: Callable[[], None] = lambda: None,
    ) -> Steps:
        """Ask the coordinator until it says something; the answer, its code, and how often it was
        asked. Raises Late."""
        attempts = 0
        while True:
            yield from self._find()
            attempts += 1
            sending()
            (answer,) = yield [Wish(self.coordinator, message)]
            code = NO_ANSWER if answer is None else code_of(answer)
            if code not in _COME_AGAIN:
                return answer, code, attempts
            if code in _FIND_AGAIN:
                self.coordinator = NOBODY
            if self.client.world.now_us >= until_us:
                raise Late
            yield self.client.backoff_ms(min(attempts, 3))

    def _deadline_us(self) -> int:
        return self.client.world.now_us + 1_000 * self.client.patience.delivery_timeout_ms

    def start(self, *, goes_on: bool = False) -> Steps:
        """Begin to use the id: who used it before is fenced. Raises Fenced and Late."""
        message = InitProducerIdRequest(
            transactional_id=self.name,
            transaction_timeout_ms=self.manner.timeout_ms,
            producer_id=self.producer_id if goes_on else -1,
            producer_epoch=self.epoch if goes_on else -1,
        )
        until_us = self._deadline_us()
        answer, code, _ = yield from self._coordinated(message, _error_code, until_us)
        if code:
            raise Fenced
        self._become(answer.producer_id, answer.producer_epoch)
        self.history.started(self.client.name, self.name, self.producer_id, self.epoch)

    def _become(self, producer_id: int, epoch: int) -> None:
        if (producer_id, epoch) != (self.producer_id, self.epoch):
            self.producer_id, self.epoch = producer_id, epoch
            self._sequences = {}

    # A transaction.

    def begin(self) -> Transaction:
        """The next transaction."""
        self._added = set()
        return self.history.begin(self.client.name, self.name, self.producer_id, self.epoch)

    def write(self, transaction: Transaction, writes: list[list[Written]]) -> Steps:
        """Write batches; each is for one partition. Raises Failed, Fenced and Late."""
        transaction.writes += [each for batch in writes for each in batch]
        until_us = self._deadline_us()
        if not self.manner.is_new_flow:
            yield from self._add({batch[0].place for batch in writes}, until_us)
        left = [(batch, self._sequence(batch)) for batch in writes]
        rounds = 0
        while left:
            rounds += 1
            left = yield from self._round(left, rounds)
            if left and self.client.world.now_us >= until_us:
                raise Failed

    def _sequence(self, batch: list[Written]) -> int:
        place = batch[0].place
        first = self._sequences.get(place, 0)
        self._sequences[place] = first + len(batch)
        return first

    def _round(self, left: list[tuple[list[Written], int]], rounds: int) -> Steps:
        """Send what may be sent, and wait for all answers; what is to be sent again."""
        client = self.client
        sent: list[list[Written]] = []
        wishes: list[Wish] = []
        flying: dict[TopicPartition, int] = {}
        for batch, sequence in left:
            place = batch[0].place
            known = client.places.get(place)
            most = MOST_IN_FLIGHT if self.manner.pipelines and rounds == 1 else 1
            if known is not None and known.leader != NOBODY and flying.get(place, 0) < most:
                flying[place] = flying.get(place, 0) + 1
                sent.append(batch)
                wishes.append(Wish(known.leader, self._produce(batch, sequence)))
        answers = (yield wishes) if wishes else ()
        refused: set[TopicPartition] = set()
        for batch, answer in zip(sent, answers, strict=True):
            self._take(batch, answer, refused)
        again = [each for each in left if each[0][0].acknowledged_us < 0]
        if again and (refused or not sent):
            yield client.backoff_ms(rounds)
            yield None
        return again

    def _take(self, batch: list[Written], answer: Any, refused: set[TopicPartition]) -> None:
        """Note that a batch was written, or was refused and may be sent again.

        Raises Failed where it never will be written, and Fenced."""
        place = batch[0].place
        part = None if answer is None else answer.responses[0].partition_responses[0]
        code = NO_ANSWER if part is None else part.error_code
        if code in _WRITTEN:
            for index, each in enumerate(batch):
                each.acknowledged_us = self.client.world.now_us
                if part is not None and code == ErrorCode.NONE and part.base_offset >= 0:
                    each.offset = part.base_offset + index
            return
        if code == ErrorCode.PRODUCER_FENCED:
            raise Fenced
        is_behind = code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and place in refused
        if code not in _WRITE_AGAIN and not is_behind:
            raise Failed
        refused.add(place)

    def _produce(self, batch: list[Written], sequence: int) -> ProduceRequest:
        client, place = self.client, batch[0].place
        now_ms = client.world.now_ms
        topic_id = client.topic_id(place.topic)
        for each in batch:
            each.topic_id = topic_id
        records = build_batch(
            [record_of(each, index, now_ms) for index, each in enumerate(batch)],
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=sequence,
            transactional=True,
        )
        data = PartitionProduceData(index=place.partition, records=records)
        topic = TopicProduceData(name=place.topic, topic_id=topic_id, partition_data=[data])
        return ProduceRequest(
            transactional_id=self.name, acks=-1, timeout_ms=1_500, topic_data=[topic]
        )

    def _add(self, places: Iterable[TopicPartition], until_us: int) -> Steps:
        """The older flow: name the partitions."""
        new = sorted(set(places) - self._added)
        if not new:
            return
        topics: dict[str, list[int]] = {}
        for place in new:
            topics.setdefault(place.topic, []).append(place.partition)
        message = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.name,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=[
                AddPartitionsToTxnTopic(name=name, partitions=indexes)
                for name, indexes in topics.items()
            ],
        )
        self._added |= set(new)
        _, code, _ = yield from self._coordinated(message, _worst_added, until_us)
        _check(code)

    def commit_offsets(
        self, transaction: Transaction, group: Group, offsets: Mapping[TopicPartition, int]
    ) -> Steps:
        """Commit how far a group has read. Raises Failed, Fenced and Late."""
        until_us = self._deadline_us()
        if not self.manner.is_new_flow:
            message = AddOffsetsToTxnRequest(
                transactional_id=self.name,
                producer_id=self.producer_id,
                producer_epoch=self.epoch,
                group_id=group.group_id,
            )
            self._added.add(group.group_id)
            _, code, _ = yield from self._coordinated(message, _error_code, until_us)
            _check(code)
        transaction.offsets.update(offsets)
        yield from self._offsets(group, offsets, until_us)

    def _offsets(self, group: Group, offsets: Mapping[TopicPartition, int], until_us: int) -> Steps:
        topics: dict[str, list[TxnOffsetCommitRequestPartition]] = {}
        for place, offset in sorted(offsets.items()):
            part = TxnOffsetCommitRequestPartition(
                partition_index=place.partition, committed_offset=offset
            )
            topics.setdefault(place.topic, []).append(part)
        message = TxnOffsetCommitRequest(
            transactional_id=self.name,
            group_id=group.group_id,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            generation_id=group.generation,
            member_id=group.member_id,
            topics=[
                TxnOffsetCommitRequestTopic(name=name, partitions=parts)
                for name, parts in topics.items()
            ],
        )
        while True:
            (answer,) = yield [Wish(group.coordinator, message)]
            code = NO_ANSWER if answer is None else _worst_offset(answer)
            if code not in _COME_AGAIN or code in _FIND_AGAIN:
                break
            if self.client.world.now_us >= until_us:
                raise Failed
            yield self.client.backoff_ms(2)
        _check(code)

    # The end.

    def commit(self, transaction: Transaction) -> Steps:
        """Commit; the transaction's outcome says what came of it. Raises Fenced and Late."""

        def sending() -> None:
            if transaction.commit_sent_us < 0:
                transaction.commit_sent_us = self.client.world.now_us
                transaction.epoch = self.epoch
            transaction.outcome = UNKNOWN

        message = self._end(commits=True)
        until_us = self._deadline_us()
        answer, code, attempts = yield from self._coordinated(
            message, _error_code, until_us, sending
        )
        if code:
            if attempts == 1 and not self.history.doubles:
                self.history.ended(transaction, ABORTED)
            raise Fenced
        self.history.ended(transaction, COMMITTED)
        self._after_end(answer)

    def abort(self, transaction: Transaction) -> Steps:
        """Abort. Raises Fenced and Late."""
        self.history.ended(transaction, ABORTED)
        if self.manner.is_new_flow or self._added:
            until_us = self._deadline_us()
            message = self._end(commits=False)
            answer, code, _ = yield from self._coordinated(message, _error_code, until_us)
            if code and (self.manner.is_new_flow or code != ErrorCode.INVALID_TXN_STATE):
                raise Fenced
            if not code:
                self._after_end(answer)
        if not self.manner.is_new_flow:  # what is on its way still must not join the next one
            yield from self.start(goes_on=True)

    def _end(self, *, commits: bool) -> EndTxnRequest:
        return EndTxnRequest(
            transactional_id=self.name,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            committed=commits,
        )

    def _after_end(self, answer: Any) -> None:
        if self.manner.is_new_flow:
            self._become(answer.producer_id, answer.producer_epoch)


def _check(code: int) -> None:
    """Raises Fenced, or Failed, where something was refused."""
    if code == ErrorCode.PRODUCER_FENCED:
        raise Fenced
    if code:
        raise Failed


def _error_code(answer: Any) -> int:
    return int(answer.error_code)


def _worst_added(answer: Any) -> int:
    codes = [
        int(each.partition_error_code)
        for topic in answer.results_by_topic_v3_and_below
        for each in topic.results_by_partition
    ]
    return _worst(codes)


def _worst_offset(answer: Any) -> int:
    return _worst([int(each.error_code) for topic in answer.topics for each in topic.partitions])


def _worst(codes: list[int]) -> int:
    """What cannot be repaired before what passes."""
    wrong = [code for code in codes if code and code != ErrorCode.OPERATION_NOT_ATTEMPTED]
    return next((code for code in wrong if code not in _COME_AGAIN), wrong[0] if wrong else 0)
