"""One broker that leads partitions and coordinates nothing: a test answers for the coordinator."""

from typing import Any

from tests.core.api.in_memory_node import InMemoryNode, batch

from anabranch.core.errors import ErrorCode
from anabranch.core.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
)
from anabranch.core.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from anabranch.core.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)

PRODUCER = 5
NAME = "transfers"
OLD, KNOWS_ABORTABLE, ADDS = 10, 11, 12
"""Versions of Produce: what a client of each expects of a partition (KIP-890)."""


def transactional(sequence: int = 0, *, epoch: int = 0, producer: int = PRODUCER, **how: Any):
    """A producer's batch of one record, in a transaction."""
    return batch(
        transactional=True,
        producer_id=producer,
        producer_epoch=epoch,
        base_sequence=sequence,
        **how,
    )


class Transactions:
    """An InMemoryNode with a topic of two partitions, and what is asked of the coordinator."""

    def __init__(self, **how: Any) -> None:
        replicas = how.pop("replicas", (1,))
        self.node = InMemoryNode(brokers=replicas, **how)
        self.topic_id = self.node.topic("t", 2, replicas=replicas)
        self.node.topic("__transaction_state", 3)
        self.broker = self.node.broker

    def produce(
        self,
        records: Any,
        *,
        version: int = ADDS,
        index: int = 0,
        name: str | None = NAME,
        more: Any = (),
    ) -> Any:
        """The outcome of a request with one batch, and with those of `more` by partition."""
        parts = [PartitionProduceData(index=index, records=records)]
        parts += [PartitionProduceData(index=each, records=found) for each, found in more]
        topic = {"name": "t"} if version < 13 else {"topic_id": self.topic_id}
        body = ProduceRequest(
            transactional_id=name,
            acks=-1,
            timeout_ms=1000,
            topic_data=[TopicProduceData(partition_data=parts, **topic)],
        )
        return self.node.send(body, version)

    def asked(self) -> list[Any]:
        """What the coordinator is asked now."""
        return self.broker.peers.take_effects()

    def answer(self, code: ErrorCode = ErrorCode.NONE) -> list[Any]:
        """Let the coordinator say the same of everything; the transactions that it was asked
        about."""
        told = []
        for ask in self.asked():
            told += ask.message.transactions
            self.broker.peers.answered(ask, response(ask.message, code))
        return told

    def open(self, *, epoch: int = 0, producer: int = PRODUCER, index: int = 0) -> None:
        """Begin a transaction with one record."""
        known = self.node.replica("t", index).producers
        sequence = known.next_sequence(producer, epoch)
        wait = self.produce(transactional(sequence, epoch=epoch, producer=producer), index=index)
        self.answer()
        assert codes(self.node.poll(wait)) == [0]

    def end(
        self,
        *,
        epoch: int = 0,
        commit: bool = True,
        coordinator_epoch: int = 0,
        producer: int = PRODUCER,
        version: int = 1,
        index: int = 0,
        topic: str = "t",
    ) -> Any:
        """The outcome of a marker; in version 2 the transaction is one that raises epochs."""
        marker = WritableTxnMarker(
            producer_id=producer,
            producer_epoch=epoch,
            transaction_result=commit,
            topics=[WritableTxnMarkerTopic(name=topic, partition_indexes=[index])],
            coordinator_epoch=coordinator_epoch,
            transaction_version=2 if version == 2 else 0,
        )
        return self.node.send(WriteTxnMarkersRequest(markers=[marker]), version)


def response(question: Any, code: ErrorCode) -> AddPartitionsToTxnResponse:
    """The coordinator says `code` of every partition."""
    return AddPartitionsToTxnResponse(
        results_by_transaction=[
            AddPartitionsToTxnResult(
                transactional_id=each.transactional_id,
                topic_results=[
                    AddPartitionsToTxnTopicResult(
                        name=topic.name,
                        results_by_partition=[
                            AddPartitionsToTxnPartitionResult(
                                partition_index=index, partition_error_code=code
                            )
                            for index in topic.partitions
                        ],
                    )
                    for topic in each.topics
                ],
            )
            for each in question.transactions
        ]
    )


def codes(outcome: Any) -> list[int]:
    """The error codes of a Produce answer."""
    return [each.error_code for topic in outcome.responses for each in topic.partition_responses]


def marked(outcome: Any) -> int:
    """The error code of the one marker."""
    [marker] = outcome.markers
    [topic] = marker.topics
    [partition] = topic.partitions
    return partition.error_code
