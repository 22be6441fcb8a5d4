"""What producers and administrators say to a coordinator of transactions, and what they are told.

A dialogue is a function of a `Talk`; what it is answered is compared with what Apache Kafka 4.1
answered to the same requests (`kafka_answers.json`). Rules kept: an answer is written down whole
but for times, offsets and addresses; producer ids are written as P1, P2 … in the order in which
they first appear; CONCURRENT_TRANSACTIONS is how long something takes, so it is asked again until
that is over, and not written down.

Not here: how requests travel. `test_kafka_answers.py` asks handlers in memory, and
`tests/clients/test_transaction_dialogues.py` a node or Kafka over the wire, and records.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from anabranch.core.errors import ErrorCode
from anabranch.core.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from anabranch.core.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from anabranch.core.wire.messages.describe_transactions import DescribeTransactionsRequest
from anabranch.core.wire.messages.end_txn import EndTxnRequest
from anabranch.core.wire.messages.init_producer_id import InitProducerIdRequest
from anabranch.core.wire.messages.list_transactions import ListTransactionsRequest
from anabranch.core.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
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
from anabranch.core.wire.records import Record, build_batch

TOPIC = "dialogue"
PARTITIONS = 2
SETTINGS = {
    "transaction.max.timeout.ms": "60000",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "200",
}
OLD, NEW = 4, 5
"""The last versions of EndTxn without, and the first with, an epoch for each transaction."""
NEVER_SAID = {
    "throttle_time_ms", "unknown_tagged_fields", "transaction_start_time_ms", "base_offset",
    "log_append_time_ms", "log_start_offset", "error_message", "current_leader", "node_endpoints",
    "topic_id",
}  # fmt: skip
BUSY = {
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
}
PAUSE_MS = 20
MOST_PAUSES = 500

Dialogue = Callable[["Talk"], None]
DIALOGUES: dict[str, Dialogue] = {}


class Producer(NamedTuple):
    """A producer id and its epoch."""

    producer_id: int
    epoch: int

    @property
    def before(self) -> Producer:
        return self._replace(epoch=self.epoch - 1)

    @property
    def after(self) -> Producer:
        return self._replace(epoch=self.epoch + 1)


STRANGER = Producer(987_654_321, 0)


def dialogue(function: Dialogue) -> Dialogue:
    """Enter a dialogue under its name."""
    DIALOGUES[function.__name__] = function
    return function


class Sender(Protocol):
    """Carries requests."""

    def send(self, message: Any, version: int) -> Any:
        """The answer."""

    def advance(self, milliseconds: int) -> None:
        """Let time go by."""


class Talk:
    """One dialogue with one coordinator: `said` is what was answered, in order."""

    def __init__(self, sender: Sender, name: str) -> None:
        self.name = name
        self.said: list[Any] = []
        self._sender = sender
        self._names: dict[int, str] = {-1: "-1"}

    def ask(self, message: Any, version: int) -> Any:
        """The answer, once the coordinator is not busy with this id."""
        for _ in range(MOST_PAUSES):
            answer = self._sender.send(message, version)
            if not _codes(answer) & BUSY:
                self.said.append([type(message).__name__, self.plain(answer)])
                return answer
            self.advance(PAUSE_MS)
        raise AssertionError(f"still busy: {answer}")

    def advance(self, milliseconds: int) -> None:
        self._sender.advance(milliseconds)

    def plain(self, value: Any, name: str = "") -> Any:
        """As JSON has it."""
        if name == "producer_id":
            return self._names.setdefault(value, f"P{len(self._names)}")
        if isinstance(value, str):
            return value.replace(self.name, "NAME")
        if isinstance(value, list | tuple):
            return sorted((self.plain(each) for each in value), key=json.dumps)
        if hasattr(value, "__struct_fields__"):
            return {
                field: self.plain(getattr(value, field), field)
                for field in value.__struct_fields__
                if field not in NEVER_SAID
            }
        return value

    # Requests.

    def init(
        self,
        expected: Producer | None = None,
        *,
        version: int = 5,
        timeout_ms: int = 30_000,
        name: str | None = None,
    ) -> Producer:
        message = InitProducerIdRequest(
            transactional_id=self.name if name is None else name,
            transaction_timeout_ms=timeout_ms,
            producer_id=-1 if expected is None else expected.producer_id,
            producer_epoch=-1 if expected is None else expected.epoch,
        )
        answer = self.ask(message, version)
        return Producer(answer.producer_id, answer.producer_epoch)

    def add(
        self,
        producer: Producer,
        *indexes: int,
        topic: str = TOPIC,
        version: int = 3,
        name: str = "",
    ) -> Any:
        message = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=name or self.name,
            v3_and_below_producer_id=producer.producer_id,
            v3_and_below_producer_epoch=producer.epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=topic, partitions=list(indexes))],
        )
        return self.ask(message, version)

    def add_offsets(self, producer: Producer, *, version: int = 3, group: str = "") -> Any:
        message = AddOffsetsToTxnRequest(
            transactional_id=self.name,
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            group_id=group or self.name,
        )
        return self.ask(message, version)

    def produce(
        self, producer: Producer, sequence: int = 0, *, index: int = 0, version: int = 12
    ) -> Any:
        records = build_batch(
            [Record(0, 1_700_000_000_000, None, b"v")],
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            base_sequence=sequence,
            transactional=True,
        )
        data = [PartitionProduceData(index=index, records=records)]
        message = ProduceRequest(
            transactional_id=self.name,
            acks=-1,
            timeout_ms=5_000,
            topic_data=[TopicProduceData(name=TOPIC, partition_data=data)],
        )
        return self.ask(message, version)

    def end(
        self, producer: Producer, *, commits: bool, version: int = NEW, name: str = ""
    ) -> Producer:
        message = EndTxnRequest(
            transactional_id=name or self.name,
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            committed=commits,
        )
        answer = self.ask(message, version)
        return Producer(answer.producer_id, answer.producer_epoch)

    def commit_offsets(
        self,
        producer: Producer,
        offset: int = 7,
        *,
        version: int = 5,
        generation: int = -1,
        member: str = "",
    ) -> Any:
        parts = [TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=offset)]
        message = TxnOffsetCommitRequest(
            transactional_id=self.name,
            group_id=self.name,
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            generation_id=generation,
            member_id=member,
            topics=[TxnOffsetCommitRequestTopic(name=TOPIC, partitions=parts)],
        )
        return self.ask(message, version)

    def offsets(self, *, stable: bool) -> Any:
        topics = [OffsetFetchRequestTopics(name=TOPIC, partition_indexes=[0])]
        groups = [OffsetFetchRequestGroup(group_id=self.name, topics=topics)]
        return self.ask(OffsetFetchRequest(groups=groups, require_stable=stable), 8)

    def describe(self, *names: str) -> Any:
        """Asked until no end is under way, which takes as long as it takes."""
        message = DescribeTransactionsRequest(transactional_ids=list(names or (self.name,)))
        for _ in range(MOST_PAUSES):
            answer = self._sender.send(message, 0)
            states = {each.transaction_state for each in answer.transaction_states}
            if not states & {"PrepareCommit", "PrepareAbort"}:
                self.said.append([type(message).__name__, self.plain(answer)])
                return answer
            self.advance(PAUSE_MS)
        raise AssertionError(f"not ended: {answer}")

    def listed(self, **filters: Any) -> Any:
        """What a list says of this dialogue's id alone."""
        answer = self._sender.send(ListTransactionsRequest(**filters), 1)
        answer.transaction_states = [
            each for each in answer.transaction_states if each.transactional_id == self.name
        ]
        self.said.append([ListTransactionsRequest.__name__, self.plain(answer)])
        return answer


def _codes(value: Any) -> set[int]:
    """Every error code of an answer."""
    if isinstance(value, list | tuple):
        return set().union(*map(_codes, value))
    if not hasattr(value, "__struct_fields__"):
        return set()
    codes: set[int] = set()
    for field in value.__struct_fields__:
        found = getattr(value, field)
        codes |= {found} if field.endswith("error_code") else _codes(found)
    return codes


# The older flow.


@dialogue
def older_clients_commit(talk):
    producer = talk.init(version=4)
    talk.add(producer, 0, 1)
    talk.produce(producer, version=11)
    talk.describe()
    talk.end(producer, commits=True, version=OLD)
    talk.describe()
    talk.end(producer, commits=True, version=OLD)
    talk.end(producer, commits=False, version=OLD)
    talk.add(producer, 0)
    talk.end(producer, commits=False, version=OLD)
    talk.end(producer, commits=False, version=OLD)
    talk.end(producer, commits=True, version=OLD)
    talk.describe()


@dialogue
def older_clients_end_nothing(talk):
    producer = talk.init(version=4)
    talk.end(producer, commits=True, version=OLD)
    talk.end(producer, commits=False, version=OLD)
    talk.describe()


@dialogue
def a_partition_that_was_not_named(talk):
    producer = talk.init(version=4)
    talk.produce(producer, version=10)
    talk.produce(producer, version=11)
    talk.add(producer, 0)
    talk.produce(producer, index=1, version=11)
    talk.produce(producer, version=11)
    talk.end(producer, commits=True, version=OLD)
    talk.describe()
    talk.produce(producer, 1, version=10)
    talk.produce(producer, 1, version=11)


# The newer flow (KIP-890).


@dialogue
def newer_clients_commit(talk):
    producer = talk.init()
    talk.produce(producer)
    talk.produce(producer, index=1)
    talk.describe()
    after = talk.end(producer, commits=True)
    talk.end(producer, commits=True)
    talk.end(producer, commits=False)
    talk.describe()
    talk.produce(producer, 1)
    talk.produce(after)
    talk.end(after, commits=False)
    talk.end(after, commits=False)
    talk.end(after, commits=True)
    talk.describe()


@dialogue
def newer_clients_end_nothing(talk):
    producer = talk.init()
    talk.end(producer, commits=True)
    after = talk.end(producer, commits=False)
    talk.end(producer, commits=False)
    talk.describe()
    after = talk.end(after, commits=False)
    talk.end(after, commits=True)
    talk.describe()


@dialogue
def an_older_client_after_a_newer_one(talk):
    producer = talk.init()
    talk.produce(producer)
    producer = talk.end(producer, commits=True)
    talk.add(producer, 0)
    talk.produce(producer, version=11)
    talk.end(producer, commits=True, version=OLD)
    talk.end(producer, commits=True, version=OLD)
    talk.describe()


# Who may go on.


@dialogue
def a_second_producer_fences_the_first(talk):
    first = talk.init()
    talk.produce(first)
    second = talk.init()
    talk.describe()
    talk.add(first, 0)
    talk.add(first, 0, version=1)
    talk.add_offsets(first)
    talk.add_offsets(first, version=1)
    talk.end(first, commits=True, version=1)
    talk.end(first, commits=True, version=OLD)
    talk.end(first, commits=True)
    talk.produce(first, 1)
    talk.produce(first, 1, version=11)
    talk.produce(second)
    talk.end(second, commits=True)


@dialogue
def strangers(talk):
    producer = talk.init()
    for other in (STRANGER, producer.after):
        talk.add(other, 0)
        talk.add_offsets(other)
        talk.end(other, commits=True, version=OLD)
        talk.end(other, commits=False)
        talk.produce(other)
    talk.add(producer, 0, name="nobody-has-this-id")
    talk.end(producer, commits=True, name="nobody-has-this-id")
    talk.describe("nobody-has-this-id")


@dialogue
def a_producer_goes_on(talk):
    """KIP-360."""
    first = talk.init(version=4)
    second = talk.init(first, version=4)
    talk.init(first, version=4)
    third = talk.init(second, version=4)
    talk.init(first, version=4)
    talk.init(first, version=3)
    talk.init(third.after, version=4)
    talk.init(STRANGER, version=4)
    talk.init(Producer(third.producer_id, -1), version=4)
    talk.init(Producer(-1, 3), version=4)
    talk.describe()


@dialogue
def a_producer_goes_on_in_a_transaction(talk):
    first = talk.init(version=4)
    talk.add(first, 0)
    second = talk.init(first, version=4)
    talk.describe()
    talk.end(first, commits=True, version=OLD)
    talk.add(second, 0)
    talk.end(second, commits=True, version=OLD)


@dialogue
def timeouts_and_names(talk):
    talk.init(timeout_ms=0)
    talk.init(timeout_ms=-1)
    talk.init(timeout_ms=60_001)
    talk.init(name="")
    producer = talk.init(timeout_ms=60_000)
    talk.describe()
    talk.end(producer, commits=False, name="another")


@dialogue
def a_late_transaction(talk):
    producer = talk.init(timeout_ms=100)
    talk.produce(producer)
    talk.advance(2_000)
    talk.describe()
    talk.end(producer, commits=True)
    talk.end(producer, commits=False)
    talk.produce(producer, 1)
    talk.init(producer, version=4)
    talk.init()


# What may join.


@dialogue
def unknown_and_internal_topics(talk):
    producer = talk.init(version=4)
    talk.add(producer, 0, topic="there-is-no-such-topic")
    talk.add(producer, 1, PARTITIONS)
    talk.add(producer, 0, topic="__consumer_offsets")
    talk.describe()
    talk.add(producer, 0)
    talk.add(producer, 0, 1)
    talk.add(producer, 1)
    talk.describe()
    talk.end(producer, commits=False, version=OLD)


# Offsets of groups.


@dialogue
def offsets_of_a_group(talk):
    producer = talk.init()
    talk.offsets(stable=True)
    talk.commit_offsets(producer)
    talk.offsets(stable=False)
    talk.offsets(stable=True)
    talk.describe()
    after = talk.end(producer, commits=True)
    talk.describe()
    talk.offsets(stable=False)
    talk.commit_offsets(after, 9)
    talk.end(after, commits=False)
    talk.describe()
    talk.offsets(stable=False)


@dialogue
def offsets_of_older_clients(talk):
    producer = talk.init(version=4)
    talk.commit_offsets(producer, version=3)
    talk.add_offsets(producer)
    talk.commit_offsets(producer, version=3)
    talk.end(producer, commits=True, version=OLD)
    talk.describe()
    talk.offsets(stable=False)


@dialogue
def offsets_of_members_that_are_none(talk):
    producer = talk.init()
    talk.commit_offsets(producer, generation=3)
    talk.commit_offsets(producer, member="nobody")
    talk.commit_offsets(producer, generation=3, member="nobody")
    talk.end(producer, commits=False)


# Looking.


@dialogue
def lists(talk):
    producer = talk.init()
    talk.listed()
    talk.listed(state_filters=["Empty"])
    talk.listed(state_filters=["Ongoing", "NoSuchState"])
    talk.produce(producer)
    talk.listed(state_filters=["Ongoing"])
    talk.listed(producer_id_filters=[producer.producer_id])
    talk.listed(producer_id_filters=[STRANGER.producer_id])
    talk.listed(duration_filter=600_000)
    talk.end(producer, commits=True)
    talk.describe()
    talk.listed(state_filters=["CompleteCommit"])
