"""Transactions that this broker's partitions have no records of yet: asking their coordinators.

Why: records of a transaction of which its coordinator does not know that this partition takes part
are never decided, and hold readers back for good (KIP-890). Rules kept: the first batch of a
transaction is appended only after the coordinator has said that the partition takes part, or has
added it; batches of the same producer that come meanwhile wait for the same answer, and are
appended in the order in which they came; an answer that a marker has overtaken counts for nothing;
neither does one from before this broker led without a break. At most one question of a coordinator
is under way, as in Kafka: what comes meanwhile goes with the next one. A transaction whose
predecessor is still being ended is asked about again in a lane of its own, where the coordinator
waits for that (decision 65): others are not held up. One that answers sooner is asked again after
`add.partitions.to.txn.retry.backoff.ms`, as in Kafka.

Source: KIP-890, parts 1 (a partition is verified) and 2 (it is added); the codes are those of Kafka
4.1's ReplicaManager and AddPartitionsToTxnManager. Not here: appending (`p00_produce`), sending
(`peers`), the coordinator.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias

from anabranch.core.broker.peers import JOINS, VERIFICATIONS
from anabranch.core.coordination.transactions.topic import TRANSACTION_TOPIC, partition_of
from anabranch.core.errors import ApiError, ErrorCode
from anabranch.core.types import NO_TIME_MS, TopicPartition
from anabranch.core.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from anabranch.core.wire.own_fields import ASKED

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from anabranch.core.broker.peers import Peers
    from anabranch.core.metadata.image import MetadataImage
    from anabranch.core.partition.protocol import Partition
    from anabranch.core.settings.broker import BrokerConfig

NO_BROKER = -1
VERIFY_MS = 70_000
"""How long a request waits: two questions, of which one may be under way. A request's own time
begins with its append."""
MOST_A_MESSAGE = 1_000
"""Partitions that one question names; others go with the next one."""

_RETRIABLE = frozenset(
    {
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.NOT_COORDINATOR,
    }
)
"""What passes, and older clients would not try again after."""

Line: TypeAlias = tuple[int, str]
"""A coordinator, and the lane in which it is asked."""
Answers: TypeAlias = dict[tuple[str, TopicPartition], ErrorCode]


class VerifierHost(Protocol):
    """What a verifier needs of its broker."""

    image: MetadataImage
    config: BrokerConfig
    steady_ms: int
    changed: dict[Hashable, None]
    peers: Peers


class TransactionSupport(NamedTuple):
    """What a client's version of a request says of the client."""

    adds: bool
    """It leaves it to the partition to join the transaction."""
    knows_abortable: bool
    """It knows TRANSACTION_ABORTABLE."""


class Verification:
    """One producer's transaction in one partition, while its coordinator is asked about it.

    It is also the key that is marked when `code` is there."""

    __slots__ = (
        "asked_ms",
        "code",
        "epoch",
        "is_overtaken",
        "led_from_epoch",
        "partition",
        "producer_id",
        "retry_until_ms",
        "support",
        "transactional_id",
    )

    def __init__(
        self,
        partition: Partition,
        transactional_id: str,
        producer_id: int,
        epoch: int,
        support: TransactionSupport,
        retry_until_ms: int,
    ) -> None:
        self.partition = partition
        self.led_from_epoch = partition.led_from_epoch
        self.transactional_id = transactional_id
        self.producer_id, self.epoch = producer_id, epoch
        self.support = support
        self.retry_until_ms = retry_until_ms
        self.asked_ms = NO_TIME_MS
        """When the coordinator was last asked to wait."""
        self.code: ErrorCode | None = None
        self.is_overtaken = False

    @property
    def key(self) -> tuple[TopicPartition, int]:
        """Of a producer, one transaction at a time."""
        return self.partition.topic_partition, self.producer_id

    @property
    def asked_as(self) -> tuple[int, int, bool]:
        """What a question says of a transactional id, once."""
        return self.producer_id, self.epoch, self.support.adds

    def check(self, partition: Partition | None) -> None:
        """Raises ApiError unless a batch may be appended now."""
        if partition is not self.partition or partition.led_from_epoch != self.led_from_epoch:
            raise ApiError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER, "The partition has moved in the meantime."
            )
        code = ErrorCode.NETWORK_EXCEPTION if self.code is None else self.code
        if code is ErrorCode.NONE and self.is_overtaken:
            code = ErrorCode.INVALID_TXN_STATE
        if code is not ErrorCode.NONE:
            raise ApiError(
                self._told(code),
                f"Producer {self.producer_id} has no transaction in {partition.topic_partition} "
                f"that its coordinator knows of: {code.name}.",
            )

    def _told(self, code: ErrorCode) -> ErrorCode:
        """What the client of a version is told."""
        if code is ErrorCode.PRODUCER_FENCED:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        if code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
            return ErrorCode.INVALID_TXN_STATE
        if code is ErrorCode.TRANSACTION_ABORTABLE and not self.support.knows_abortable:
            return ErrorCode.INVALID_TXN_STATE
        is_told = self.support.adds and code is ErrorCode.CONCURRENT_TRANSACTIONS
        if code in _RETRIABLE and not is_told:
            return ErrorCode.NOT_ENOUGH_REPLICAS
        return code


class Verifier:
    """All verifications of one broker."""

    def __init__(
        self, broker: VerifierHost, after: Callable[[int, Callable[[int], None]], object]
    ) -> None:
        self._broker = broker
        self._after = after
        """Runs something when so many milliseconds have gone by."""
        self._open: dict[tuple[TopicPartition, int], Verification] = {}
        self._waiting: dict[Line, list[Verification]] = {}
        """What each coordinator is to be asked next."""
        self.failures_total = 0
        self._asked: set[Line] = set()
        """Where a question is under way."""

    def __len__(self) -> int:
        return len(self._open)

    def needed(
        self,
        partition: Partition,
        transactional_id: str,
        producer_id: int,
        epoch: int,
        support: TransactionSupport,
    ) -> Verification | None:
        """What must come before a producer's records are appended; None when a transaction of its
        is open. Raises ApiError."""
        producers = partition.producers
        if producers.is_open(producer_id, epoch):
            return None
        producers.check_epoch(producer_id, epoch)
        if not support.adds and not self._broker.config.transaction_partition_verification_enable:
            return None
        partition.check_leader()
        return self._under_way(partition, transactional_id, producer_id, epoch) or self._begin(
            partition, transactional_id, producer_id, epoch, support
        )

    def _under_way(
        self, partition: Partition, transactional_id: str, producer_id: int, epoch: int
    ) -> Verification | None:
        found = self._open.get((partition.topic_partition, producer_id))
        if found is None:
            return None
        is_old = (
            found.partition is not partition or found.led_from_epoch != partition.led_from_epoch
        )
        if is_old or found.is_overtaken or found.epoch < epoch:
            is_fenced = found.epoch < epoch
            code = ErrorCode.INVALID_PRODUCER_EPOCH if is_fenced else ErrorCode.INVALID_TXN_STATE
            self._settle(found, code)
            return None
        if found.epoch > epoch:
            raise ApiError(ErrorCode.INVALID_PRODUCER_EPOCH)
        if found.transactional_id != transactional_id:
            raise ApiError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        return found

    def _begin(
        self,
        partition: Partition,
        transactional_id: str,
        producer_id: int,
        epoch: int,
        support: TransactionSupport,
    ) -> Verification:
        broker = self._broker
        until_ms = broker.steady_ms + broker.config.add_partitions_to_txn_retry_backoff_max_ms
        begun = Verification(partition, transactional_id, producer_id, epoch, support, until_ms)
        self._open[begun.key] = begun
        self._queue(begun, VERIFICATIONS)
        return begun

    def ended(
        self, place: TopicPartition, producer_id: int, epoch: int, *, raises_epoch: bool
    ) -> None:
        """A marker was appended: what the coordinator said before it counts no more. Where markers
        raise the epoch, the marker's epoch is that of the next transaction, which may be asked
        about already."""
        found = self._open.get((place, producer_id))
        if found is not None and (found.epoch < epoch or not raises_epoch):
            found.is_overtaken = True

    # Asking.

    def _queue(self, verification: Verification, lane: str) -> None:
        broker = self._broker
        coordinator = coordinator_of(broker.image, broker.config, verification.transactional_id)
        if coordinator == NO_BROKER:
            self._settle(verification, ErrorCode.COORDINATOR_NOT_AVAILABLE)
            return
        self._waiting.setdefault((coordinator, lane), []).append(verification)
        broker.peers.ask_last(self._ask_all)

    def _ask_all(self) -> None:
        for line in tuple(self._waiting):
            self._ask(line)

    def _ask(self, line: Line) -> None:
        """Ask what waits, unless a question is under way."""
        if line in self._asked or line not in self._waiting:
            return
        asked, left = _first_of(self._waiting.pop(line))
        if left:
            self._waiting[line] = left
        self._asked.add(line)

        def told(answer: Any) -> None:
            self._asked.discard(line)
            self._take(asked, answer)
            if line in self._waiting:
                self._broker.peers.ask_last(self._ask_all)

        question = _question(asked)
        if line[1] == JOINS:
            question.unknown_tagged_fields = ASKED
            for each in asked:
                each.asked_ms = self._broker.steady_ms
        if not self._broker.peers.ask(*line, question, told):
            told(None)

    def _take(self, asked: list[Verification], answer: Any) -> None:
        if answer is None:
            default, codes = ErrorCode.NETWORK_EXCEPTION, {}
        else:
            default, codes = _known(answer.error_code), _codes(answer)
        for each in asked:
            place = each.partition.topic_partition
            code = codes.get((each.transactional_id, place), default or ErrorCode.NETWORK_EXCEPTION)
            if code is ErrorCode.CONCURRENT_TRANSACTIONS and self._retries(each):
                continue
            self._settle(each, code)

    def _retries(self, verification: Verification) -> bool:
        """The markers of the transaction before are being written: that takes milliseconds. The
        coordinator is asked to wait for them; one that does not is asked again after a pause."""
        now_ms = self._broker.steady_ms
        backoff_ms = self._broker.config.add_partitions_to_txn_retry_backoff_ms
        if not verification.support.adds or now_ms + backoff_ms > verification.retry_until_ms:
            return False

        asked_ms = verification.asked_ms
        rest_ms = 0 if asked_ms == NO_TIME_MS else asked_ms + backoff_ms - now_ms
        if rest_ms <= 0:
            self._queue(verification, JOINS)
            return True

        def again(_now_ms: int) -> None:
            if verification.code is None:
                self._queue(verification, JOINS)

        self._after(rest_ms, again)
        return True

    def _settle(self, verification: Verification, code: ErrorCode) -> None:
        if verification.code is None:
            verification.code = code
            self.failures_total += code is not ErrorCode.NONE
            self._broker.changed[verification] = None
        if self._open.get(verification.key) is verification:
            del self._open[verification.key]


def coordinator_of(image: MetadataImage, config: BrokerConfig, transactional_id: str) -> int:
    """The broker that leads a transactional id's partition; -1 when there is none."""
    index = partition_of(transactional_id, image, config)
    state = image.partition(TRANSACTION_TOPIC, index)
    return NO_BROKER if state is None else state.leader


def _first_of(waiting: list[Verification]) -> tuple[list[Verification], list[Verification]]:
    """What one question can name, and what is left: it says one thing of a transactional id."""
    said: dict[str, tuple[int, int, bool]] = {}
    asked: list[Verification] = []
    left: list[Verification] = []
    for each in waiting:
        fits = len(asked) < MOST_A_MESSAGE
        if fits and said.setdefault(each.transactional_id, each.asked_as) == each.asked_as:
            asked.append(each)
        else:
            left.append(each)
    return asked, left


def _question(asked: list[Verification]) -> AddPartitionsToTxnRequest:
    of_id: dict[str, AddPartitionsToTxnTransaction] = {}
    of_topic: dict[tuple[str, str], AddPartitionsToTxnTopic] = {}
    for each in asked:
        transaction = of_id.get(each.transactional_id)
        if transaction is None:
            transaction = of_id[each.transactional_id] = AddPartitionsToTxnTransaction(
                transactional_id=each.transactional_id,
                producer_id=each.producer_id,
                producer_epoch=each.epoch,
                verify_only=not each.support.adds,
                topics=[],
            )
        name, index = each.partition.topic_partition
        topic = of_topic.get((each.transactional_id, name))
        if topic is None:
            topic = AddPartitionsToTxnTopic(name=name, partitions=[])
            of_topic[each.transactional_id, name] = topic
            transaction.topics.append(topic)
        topic.partitions.append(index)
    return AddPartitionsToTxnRequest(transactions=list(of_id.values()))


def _codes(answer: Any) -> Answers:
    return {
        (result.transactional_id, TopicPartition(topic.name, each.partition_index)): _known(
            each.partition_error_code
        )
        for result in answer.results_by_transaction
        for topic in result.topic_results
        for each in topic.results_by_partition
    }


def _known(code: int) -> ErrorCode:
    """A newer coordinator may have codes that are not known here."""
    try:
        return ErrorCode(code)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR
