"""A coordinator of transactional ids, producers that ask it, and leaders that take its markers.

Markers are answered by the test (`deliver`), which keeps them by partition: what a log would hold.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Any, NamedTuple

from tests.core.api.in_memory_node import InMemoryNode

from anabranch.core.coordination.transactions.topic import TRANSACTION_TOPIC
from anabranch.core.due import PEERS
from anabranch.core.errors import ErrorCode
from anabranch.core.outcome import Wait
from anabranch.core.step import Performer, Wish, drain
from anabranch.core.types import TopicPartition
from anabranch.core.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from anabranch.core.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from anabranch.core.wire.messages.describe_transactions import DescribeTransactionsRequest
from anabranch.core.wire.messages.end_txn import EndTxnRequest
from anabranch.core.wire.messages.init_producer_id import InitProducerIdRequest
from anabranch.core.wire.messages.list_transactions import ListTransactionsRequest
from anabranch.core.wire.messages.write_txn_markers import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersResponse,
)
from anabranch.core.wire.own_fields import ASKED

TIMEOUT_MS = 60_000
TV1, TV2 = 4, 5
"""Versions of EndTxn: the last without, and the first with, an epoch for each transaction."""


class Producer(NamedTuple):
    producer_id: int
    epoch: int


class Marker(NamedTuple):
    producer_id: int
    epoch: int
    commits: bool
    coordinator_epoch: int


def taken(message: Any, code: int = ErrorCode.NONE) -> Any:
    """What a leader answers that gives each marker the same code."""
    return WriteTxnMarkersResponse(
        markers=[
            WritableTxnMarkerResult(
                producer_id=marker.producer_id,
                topics=[
                    WritableTxnMarkerTopicResult(
                        name=topic.name,
                        partitions=[
                            WritableTxnMarkerPartitionResult(partition_index=index, error_code=code)
                            for index in topic.partition_indexes
                        ],
                    )
                    for topic in marker.topics
                ],
            )
            for marker in message.markers
        ]
    )


def written(message: Any) -> dict[TopicPartition, list[Marker]]:
    """The markers of a request, by partition."""
    found: dict[TopicPartition, list[Marker]] = {}
    for each in message.markers:
        marker = Marker(
            each.producer_id, each.producer_epoch, each.transaction_result, each.coordinator_epoch
        )
        for topic in each.topics:
            for index in topic.partition_indexes:
                found.setdefault(TopicPartition(topic.name, index), []).append(marker)
    return found


class TransactionWorld(Performer):
    """One coordinator. `asks` holds requests for markers that are not answered yet."""

    def __init__(self, *, replicas: tuple[int, ...] = (1,), brokers: Any = (1, 2), **config: str):
        settings = {name.replace("_", "."): text for name, text in config.items()}
        self.node = InMemoryNode(config=settings, brokers=brokers)
        self.broker = self.node.broker
        self.broker.steady_ms = 1_000_000
        self.node.topic(
            TRANSACTION_TOPIC, 2, replicas=replicas, configs={"cleanup.policy": "compact"}
        )
        self.node.topic("here", 4)
        self.node.topic("there", 4, replicas=(2,), leader=2)
        self.waits: list[tuple[Wait, list[Any]]] = []
        self.asks: list[Any] = []
        self.wishes: list[Wish] = []
        self.markers: dict[TopicPartition, list[Marker]] = {}
        self.broker.mailbox.due.performs(PEERS, self.perform)

    @property
    def coordinator(self) -> Any:
        return self.broker.transactions

    # Steps.

    def ask(self, message: Any, version: int) -> Any:
        """The answer, or a list that will hold it."""
        self.broker.wall_ms = self.node.now_ms
        outcome = self.node.send(message, version)
        box: list[Any] = []
        if isinstance(outcome, Wait):
            self.waits.append((outcome, box))
        self.settle()
        if isinstance(outcome, Wait):
            return box[0] if box else box
        return outcome

    def settle(self) -> None:
        """End a step."""
        drain(self.broker.mailbox, self)

    def wake_waiting(self, keys: Iterable[Hashable]) -> None:
        changed = set(keys)
        for wait, box in list(self.waits):
            if not box and not changed.isdisjoint(wait.keys):
                answer = wait.poll(self.node.now_ms, False)
                if isinstance(answer, Wait):
                    self.waits.append((answer, box))
                    self.waits.remove((wait, box))
                elif answer is not None:
                    box.append(answer)
        self.waits = [(wait, box) for wait, box in self.waits if not box]

    def expire(self) -> None:
        """Time is over for all who wait."""
        waits, self.waits = self.waits, []
        for wait, box in waits:
            answer = wait.poll(self.node.now_ms, True)
            if isinstance(answer, Wait):
                self.waits.append((answer, box))
            else:
                box.append(answer)

    def sync_logs(self) -> None:
        self.broker.unsynced.clear()

    def load_groups(self) -> None:
        self.broker.groups.load(self.node.now_ms)

    def perform(self) -> None:
        self.asks += self.broker.peers.take_effects()

    def grant(self, wish: Wish) -> None:
        self.wishes.append(wish)

    def advance(self, milliseconds: int) -> None:
        """Let time go by."""
        self.node.now_ms += milliseconds
        self.broker.steady_ms += milliseconds
        self.broker.wall_ms = self.node.now_ms
        self.broker.groups.tick(self.node.now_ms)
        self.settle()

    def follow(self) -> None:
        """The metadata changed, or replicas did."""
        self.broker.wall_ms = self.node.now_ms
        self.broker.follow_leadership(self.node.now_ms)
        self.settle()

    def replicate(self) -> None:
        """The other replicas have fetched everything, also what is written because of that."""
        while sum(map(self._fetched, self.state_replicas)):
            self.settle()

    @property
    def state_replicas(self) -> list[Any]:
        return list(self.broker.partitions.by_name[TRANSACTION_TOPIC].values())

    def _fetched(self, replica: Any) -> bool:
        others = [each for each in replica.in_sync_replicas if each != self.broker.broker_id]
        moved = [replica.follower_fetched(each, replica.log.end_offset) for each in others]
        if any(moved):
            self.broker.changed[replica.topic_partition] = None
        return any(moved)

    def restart(self) -> None:
        """The process ends, and another one reads what it has written."""
        self.broker.groups.__init__(self.broker)
        self.broker.transactions.__init__(self.broker)
        self.waits.clear()
        self.asks.clear()
        self.broker.peers.__init__(self.broker.mailbox.due.marker(PEERS))
        self.follow()

    def move_away(self) -> None:
        """Another broker leads every partition of ids."""
        for index in range(2):
            self.node.change(TRANSACTION_TOPIC, index, leader=2, leader_epoch=5)
            self.broker.changed[TopicPartition(TRANSACTION_TOPIC, index)] = None
        self.follow()

    # Markers.

    def deliver(self, code: int = ErrorCode.NONE, *, broker_id: int | None = None) -> int:
        """Answer what was asked; how many requests that were."""
        asks = [each for each in self.asks if broker_id in (None, each.broker_id)]
        self.asks = [each for each in self.asks if each not in asks]
        for each in asks:
            if code == ErrorCode.NONE:
                for place, markers in written(each.message).items():
                    self.markers.setdefault(place, []).extend(markers)
            self.broker.peers.answered(each, taken(each.message, code))
            self.settle()
        return len(asks)

    def lose(self) -> None:
        """No leader answers."""
        asks, self.asks = self.asks, []
        for each in asks:
            self.broker.peers.answered(each, None)
            self.settle()

    def deliver_all(self) -> None:
        while self.asks:
            self.deliver()
            self.replicate()

    # Producers.

    def init(
        self,
        name: str = "id",
        expected: tuple[int, int] | None = None,
        *,
        timeout_ms: int = TIMEOUT_MS,
        version: int = 5,
    ) -> Any:
        """The response, or a list that will hold it."""
        message = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=timeout_ms)
        if expected is not None:
            message.producer_id, message.producer_epoch = expected
        return self.ask(message, version)

    def producer(self, name: str = "id", **how: Any) -> Producer:
        """A producer that has started."""
        answer = self.init(name, **how)
        assert answer.error_code == ErrorCode.NONE, ErrorCode(answer.error_code)
        return Producer(answer.producer_id, answer.producer_epoch)

    def ask_add(
        self,
        producer: tuple[int, int],
        *places: tuple[str, int],
        name: str = "id",
        version: int = 3,
    ) -> Any:
        topics: dict[str, list[int]] = {}
        for topic, index in places:
            topics.setdefault(topic, []).append(index)
        message = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=name,
            v3_and_below_producer_id=producer[0],
            v3_and_below_producer_epoch=producer[1],
            v3_and_below_topics=[
                AddPartitionsToTxnTopic(name=topic, partitions=found)
                for topic, found in topics.items()
            ],
        )
        return self.ask(message, version)

    def add(self, producer: tuple[int, int], *places: tuple[str, int], **how: Any) -> list[int]:
        """The codes of partitions that join."""
        return codes_of(self.ask_add(producer, *places, **how).results_by_topic_v3_and_below)

    def add_batched(
        self,
        producer: tuple[int, int],
        *places: tuple[str, int],
        name: str = "id",
        verify_only: bool = False,
    ) -> list[int]:
        """The same as a broker asks."""
        asked = joining(producer, *places, name=name, verify_only=verify_only)
        answer = self.ask(AddPartitionsToTxnRequest(transactions=[asked]), 5)
        return codes_of(answer.results_by_transaction[0].topic_results)

    def ask_and_wait(self, *asked: AddPartitionsToTxnTransaction) -> Any:
        """A broker's question about transactions, of which some are being ended as it knows."""
        message = AddPartitionsToTxnRequest(transactions=list(asked), unknown_tagged_fields=ASKED)
        return self.ask(message, 5)

    def add_offsets(self, producer: tuple[int, int], group_id: str, name: str = "id") -> int:
        return self.ask_add_offsets(producer, group_id, name).error_code

    def ask_add_offsets(self, producer: tuple[int, int], group_id: str, name: str = "id") -> Any:
        message = AddOffsetsToTxnRequest(
            transactional_id=name,
            producer_id=producer[0],
            producer_epoch=producer[1],
            group_id=group_id,
        )
        return self.ask(message, 3)

    def ask_end(
        self,
        producer: tuple[int, int],
        commits: bool = True,
        *,
        name: str = "id",
        version: int = TV2,
    ) -> Any:
        message = EndTxnRequest(
            transactional_id=name,
            producer_id=producer[0],
            producer_epoch=producer[1],
            committed=commits,
        )
        return self.ask(message, version)

    def end(self, producer: tuple[int, int], commits: bool = True, **how: Any) -> int:
        return self.ask_end(producer, commits, **how).error_code

    def ended(self, producer: tuple[int, int], commits: bool = True, **how: Any) -> Producer:
        """The producer as it goes on."""
        answer = self.ask_end(producer, commits, **how)
        assert answer.error_code == ErrorCode.NONE, ErrorCode(answer.error_code)
        return Producer(answer.producer_id, answer.producer_epoch)

    # What tools see.

    def described(self, name: str = "id") -> Any:
        answer = self.ask(DescribeTransactionsRequest(transactional_ids=[name]), 0)
        return answer.transaction_states[0]

    def state(self, name: str = "id") -> str:
        return self.described(name).transaction_state

    def listed(self, **filters: Any) -> dict[str, str]:
        answer = self.ask(ListTransactionsRequest(**filters), 2)
        assert answer.error_code == ErrorCode.NONE
        return {each.transactional_id: each.transaction_state for each in answer.transaction_states}


def joining(
    producer: tuple[int, int],
    *places: tuple[str, int],
    name: str = "id",
    verify_only: bool = False,
) -> AddPartitionsToTxnTransaction:
    """What a broker asks about a transaction."""
    return AddPartitionsToTxnTransaction(
        transactional_id=name,
        producer_id=producer[0],
        producer_epoch=producer[1],
        verify_only=verify_only,
        topics=[AddPartitionsToTxnTopic(name=topic, partitions=[index]) for topic, index in places],
    )


def codes_of(topics: Any) -> list[int]:
    return [each.partition_error_code for topic in topics for each in topic.results_by_partition]
