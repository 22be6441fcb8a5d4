"""Offsets that transactions commit: who may, when they count, and what survives (KIP-98, KIP-447)."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from tests.core.api.in_memory_node import Denying
from tests.core.api.transactions_kit import response
from tests.core.coordination.groups.group_world import GroupWorld
from tests.core.log.compacting import compact

from anabranch.core.access.authorize import Operation, ResourceType
from anabranch.core.coordination.groups import offsets
from anabranch.core.coordination.groups.offsets_topic import OFFSETS_TOPIC
from anabranch.core.coordination.internal_topics import java_hash
from anabranch.core.due import PEERS
from anabranch.core.errors import ErrorCode
from anabranch.core.outcome import Wait
from anabranch.core.wire.messages.delete_groups import DeleteGroupsRequest
from anabranch.core.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from anabranch.core.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from anabranch.core.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from anabranch.core.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from anabranch.core.wire.offsets_records import (
    OffsetCommitKey,
    OffsetCommitValue,
    encode_key,
    encode_value,
)
from anabranch.core.wire.records import Record, build_batch

PRODUCER = 7
UNSTABLE = ErrorCode.UNSTABLE_OFFSET_COMMIT
DAYS_MS = 8 * 24 * 3_600_000


class World(GroupWorld):
    """A coordinator of groups whose producers' coordinator says yes to everything."""

    def __init__(self, *args: Any, **config: str) -> None:
        super().__init__(*args, **config)
        self.node.topic("__transaction_state", 1)
        self.said = ErrorCode.NONE
        self.questions: list[Any] = []
        self.broker.mailbox.due.performs(PEERS, self.perform)

    def perform(self) -> None:
        for ask in self.broker.peers.take_effects():
            self.questions.append(ask.message)
            self.broker.peers.answered(ask, response(ask.message, self.said))

    def ask(self, message: Any, version: int, **who: Any) -> Any:
        """As a broker does it: parked before the step ends, and once more where a wait follows."""
        outcome, box = self.node.send(message, version, **who), []
        while isinstance(outcome, Wait) and not box:
            self.waits.append((outcome, box))
            self.wake()
            if box and isinstance(box[0], Wait):
                outcome = box.pop()
            elif not box:
                return box
        return box[0] if box else outcome

    def commit_txn(
        self,
        values: dict[int, int],
        *,
        producer: int = PRODUCER,
        epoch: int = 0,
        group_id: str = "g",
        topic: str = "t",
        version: int = 5,
        **member: Any,
    ) -> Any:
        """The answer, or the box that it will come into."""
        message = TxnOffsetCommitRequest(
            transactional_id="x",
            group_id=group_id,
            producer_id=producer,
            producer_epoch=epoch,
            topics=[
                TxnOffsetCommitRequestTopic(
                    name=topic,
                    partitions=[
                        TxnOffsetCommitRequestPartition(partition_index=i, committed_offset=value)
                        for i, value in values.items()
                    ],
                )
            ],
            **member,
        )
        return self.ask(message, version)

    def kafka_commits(self, value: int, *, index: int = 0, producer: int | None = PRODUCER) -> None:
        """A Kafka that led before has written an offset of group `g`: in version 4, without the
        topic's id; in a transaction unless `producer` is None."""
        key = encode_key(OffsetCommitKey(group="g", topic="t", partition=index))
        said = OffsetCommitValue(offset=value, commit_timestamp=self.node.now_ms)
        record = Record(0, self.node.now_ms, key, encode_value(said, 4))
        how = {"producer_id": producer, "producer_epoch": 0, "transactional": True}
        shard = self.groups.shard_of("g", self.node.now_ms)
        batch = build_batch([record], **(how if producer is not None else {}))
        shard.replica.append(batch, required_acks=-1, now_ms=self.node.now_ms, client=False)

    def end(
        self, *, commit: bool = True, producer: int = PRODUCER, epoch: int = 0, group_id: str = "g"
    ) -> Any:
        index = java_hash(group_id) % len(self.offsets_partitions)
        topics = [WritableTxnMarkerTopic(name=OFFSETS_TOPIC, partition_indexes=[index])]
        marker = WritableTxnMarker(
            producer_id=producer, producer_epoch=epoch, transaction_result=commit, topics=topics
        )
        return self.ask(WriteTxnMarkersRequest(markers=[marker]), 1)

    def stable(self, index: int = 0, group_id: str = "g") -> tuple[int, int]:
        """Offset and error of a reader that wants stable offsets."""
        topics = [OffsetFetchRequestTopics(name="t", partition_indexes=[index])]
        group = OffsetFetchRequestGroup(group_id=group_id, topics=topics)
        answer = self.ask(OffsetFetchRequest(groups=[group], require_stable=True), 9)
        [found] = answer.groups[0].topics[0].partitions
        return found.committed_offset, found.error_code


def code(answer: Any) -> int:
    return answer.topics[0].partitions[0].error_code


@pytest.fixture
def world() -> World:
    return World()


@pytest.mark.parametrize("version", range(6))
@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("commit", [True, False])
def test_offsets_count_when_the_transaction_is_committed(
    world: World, version: int, restarts: bool, commit: bool
) -> None:
    world.commit({0: 1})
    assert code(world.commit_txn({0: 9, 1: 5}, version=version)) == 0
    assert world.questions[0].transactions[0].verify_only == (version < 5)
    if restarts:
        world.restart()
    assert world.fetch()[0] == 1
    assert [world.stable(index) for index in (0, 1, 2)] == [(-1, UNSTABLE), (-1, UNSTABLE), (-1, 0)]
    world.end(commit=commit)
    if restarts:
        world.restart()
    expected = [(9, 0), (5, 0)] if commit else [(1, 0), (-1, 0)]
    assert [world.stable(index) for index in (0, 1)] == expected


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("commit", [True, False])
def test_a_transaction_that_was_open_when_kafka_stopped(
    world: World, restarts: bool, commit: bool
) -> None:
    """Its records say no topic id: they are of the topic that has the name."""
    world.kafka_commits(1, producer=None)
    world.kafka_commits(9)
    world.kafka_commits(5, index=1)
    world.restart()
    assert [world.stable(index) for index in (0, 1, 2)] == [(-1, UNSTABLE), (-1, UNSTABLE), (-1, 0)]
    world.end(commit=commit)
    if restarts:
        world.restart()
    expected = [(9, 0), (5, 0)] if commit else [(1, 0), (-1, 0)]
    assert [world.stable(index) for index in (0, 1)] == expected
    offsets.expire(world.groups, world.node.now_ms)
    assert [world.stable(index) for index in (0, 1)] == expected


@pytest.mark.parametrize("made_again", ["while it is read", "after that"])
def test_a_topic_made_again_has_no_offset_of_kafkas_transaction(
    world: World, made_again: str
) -> None:
    """The one that had the name when this broker began to lead is meant."""
    world.kafka_commits(9)
    world.groups.__init__(world.broker)  # type: ignore[misc]
    world.groups.follow_leadership(world.node.now_ms)
    if made_again == "after that":
        world.groups.load(world.node.now_ms)
    world.node.remove("t")
    offsets.topics_deleted(world.groups, {"t"}, world.node.now_ms)
    world.node.topic("t", 8, incarnation=2)
    world.groups.load(world.node.now_ms)
    world.end()
    for _ in range(2):
        assert world.stable() == (-1, 0)
        world.restart()


def test_an_offset_of_kafkas_for_a_topic_that_is_no_more(world: World) -> None:
    """No topic of that name that comes later has it."""
    world.kafka_commits(9)
    world.node.remove("t")
    world.restart()
    world.node.topic("t", 8, incarnation=2)
    world.end()
    for _ in range(2):
        assert world.stable() == (-1, 0)
        world.restart()


def test_what_is_gone_takes_no_undecided_offset_with_it(world: World) -> None:
    """Of a place, the older offset is of a topic that was deleted unseen, the newer of the one
    that is there now."""
    world.commit({0: 1})
    world.commit_txn({1: 2}, producer=8)
    world.node.remove("t")
    world.node.topic("t", 8, incarnation=2)
    world.commit_txn({0: 9})
    world.commit({1: 7})
    world.restart()
    world.end(producer=8)
    world.end()
    for _ in range(2):
        assert [world.stable(index) for index in (0, 1)] == [(9, 0), (7, 0)]
        world.restart()


def test_nothing_is_visible_before_the_marker_is_committed() -> None:
    world = World(1)
    world.node.change(OFFSETS_TOPIC, replicas=(1, 2), isr=(1, 2))
    world.follow()
    box = world.commit_txn({0: 9})
    assert box == [], "not replicated"
    world.commit_to_replicas()
    assert code(box[0]) == 0
    marker = world.end()
    assert marker == []
    assert world.groups.groups["g"].offsets == {}
    assert set(world.groups.shards[0].undecided.of("g")) == {("t", 0)}
    world.commit_to_replicas()
    assert marker[0].markers[0].topics[0].partitions[0].error_code == 0
    assert world.groups.shards[0].catch_up(0)
    assert world.groups.groups["g"].offsets["t"][0].offset == 9


def test_what_the_coordinator_refuses_is_not_written(world: World) -> None:
    told = {
        ErrorCode.NOT_COORDINATOR: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.PRODUCER_FENCED: ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.TRANSACTION_ABORTABLE: ErrorCode.TRANSACTION_ABORTABLE,
    }
    for said, expected in told.items():
        world.said = said
        assert code(world.commit_txn({0: 9})) == expected
    world.said = ErrorCode.NOT_COORDINATOR
    assert code(world.commit_txn({0: 9}, version=1)) == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert not world.group()
    assert world.stable() == (-1, 0)


def test_an_epoch_that_a_marker_has_fenced(world: World) -> None:
    world.commit_txn({0: 9})
    world.end(epoch=1)
    assert code(world.commit_txn({0: 10})) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert world.stable() == (9, 0)


def test_only_the_member_of_this_generation_may_commit(world: World) -> None:
    """KIP-447: a zombie's transaction is refused although its producer is not."""
    member = world.enter().member_id
    world.sync(member, 1, {member: b""})
    generation, unknown = ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID
    asked = [
        ({"generation_id": 1, "member_id": member}, 0),
        ({"generation_id": 0, "member_id": member}, generation),
        ({"generation_id": 1, "member_id": "other"}, unknown),
        ({"generation_id": 1, "member_id": member, "group_instance_id": "i"}, unknown),
        ({}, 0),
        ({"group_id": "none", "generation_id": 3, "member_id": "m"}, generation),
    ]
    assert [code(world.commit_txn({0: 9}, version=3, **who)) for who, _ in asked] == [
        each for _, each in asked
    ]


def test_a_static_member_that_was_replaced_is_fenced(world: World) -> None:
    member = world.enter(instance_id="i").member_id
    world.sync(member, 1, {member: b""}, instance_id="i")
    who = {"generation_id": 1, "group_instance_id": "i"}
    assert code(world.commit_txn({0: 9}, member_id=member, **who)) == 0
    fenced = ErrorCode.FENCED_INSTANCE_ID
    assert code(world.commit_txn({0: 9}, member_id="before", **who)) == fenced


def test_partitions_and_names_are_checked(world: World) -> None:
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert code(world.commit_txn({99: 1})) == unknown
    assert code(world.commit_txn({0: 1}, topic="no")) == unknown
    assert code(world.commit_txn({0: 1}, group_id="")) == ErrorCode.INVALID_GROUP_ID
    for resource, expected in (
        (ResourceType.TRANSACTIONAL_ID, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
        (ResourceType.GROUP, ErrorCode.GROUP_AUTHORIZATION_FAILED),
        (ResourceType.TOPIC, ErrorCode.TOPIC_AUTHORIZATION_FAILED),
    ):
        operations = (Operation.WRITE, Operation.READ)
        world.broker.authorizer = Denying(*((each, resource, None) for each in operations))
        assert code(world.commit_txn({0: 1})) == expected


def test_what_comes_after_an_undecided_offset_stands(world: World) -> None:
    """As in the log: the marker decides about the transaction's offset, which is the older one."""
    world.commit_txn({0: 9, 1: 9, 2: 9})
    world.commit({0: 20})
    deleted = [OffsetDeleteRequestPartition(partition_index=1)]
    topics = [OffsetDeleteRequestTopic(name="t", partitions=deleted)]
    world.ask(OffsetDeleteRequest(group_id="g", topics=topics), 0)
    assert world.stable() == (-1, UNSTABLE)
    world.end()
    for _ in range(2):
        assert [world.stable(index) for index in (0, 1, 2)] == [(20, 0), (-1, 0), (9, 0)]
        world.restart()


def test_deleted_groups_and_topics_take_undecided_offsets_with_them(world: World) -> None:
    world.commit_txn({0: 9})
    world.ask(DeleteGroupsRequest(groups_names=["g"]), 2)
    world.end()
    assert world.stable() == (-1, 0)
    world.commit_txn({0: 9}, epoch=1)
    world.node.remove("t")
    offsets.topics_deleted(world.groups, {"t"}, world.node.now_ms)
    world.node.topic("t", 8, incarnation=2)
    world.end(epoch=1)
    for _ in range(2):
        assert world.stable() == (-1, 0)
        world.restart()


def test_expiry_leaves_undecided_offsets_alone(world: World) -> None:
    world.commit({0: 1})
    world.commit_txn({0: 9})
    world.advance(DAYS_MS)
    offsets.expire(world.groups, world.node.now_ms)
    assert world.fetch()[0] == 1
    world.end()
    assert world.stable() == (9, 0)
    offsets.expire(world.groups, world.node.now_ms)
    assert world.group() is None


def test_a_group_of_an_aborted_transaction_is_forgotten(world: World) -> None:
    world.commit_txn({0: 9})
    assert world.group() is not None
    world.end(commit=False)
    assert world.group() is None


def test_a_marker_for_a_partition_that_is_being_read_waits(world: World) -> None:
    world.commit_txn({0: 9})
    world.groups.__init__(world.broker)  # type: ignore[misc]
    world.groups.follow_leadership(world.node.now_ms)
    marker = world.end()
    refused = marker.markers[0].topics[0].partitions[0].error_code
    assert refused == ErrorCode.NOT_LEADER_OR_FOLLOWER, "the coordinator asks again"
    world.groups.load(world.node.now_ms)
    world.end()
    assert world.stable() == (9, 0)


def compacted(world: World) -> None:
    """What the cleaner leaves of what was written so far."""
    log = world.node.replica(OFFSETS_TOPIC).log
    log.roll(world.node.now_ms)
    compact(log, world.node.now_ms)


@pytest.mark.parametrize("seed", range(30))
def test_any_order_is_as_the_log_says(seed: int) -> None:
    """What lives is what another coordinator reads, also from a log that was compacted, and what a
    list of all that was written says: of two offsets the one that was written later."""
    random, world = Random(seed), World(1)
    epochs = {1: 0, 2: 0}
    known: dict[int, int] = {}
    undecided: dict[int, dict[int, int | None]] = {1: {}, 2: {}}
    for value in range(40):
        steps = [*["txn"] * 6, *["end"] * 3, "plain", "delete", "restart", "compact"]
        step, index = random.choice(steps), value % 3
        producer = random.choice([1, 2])
        if step == "txn":
            world.commit_txn({index: value}, producer=producer, epoch=epochs[producer])
            undecided[producer][index] = value
        elif step == "end":
            commit = random.random() < 0.6
            epochs[producer] += 1
            world.end(producer=producer, epoch=epochs[producer], commit=commit)
            kept = {i: v for i, v in undecided[producer].items() if v is not None}
            undecided[producer] = {}
            later = {i: v for i, v in kept.items() if v > known.get(i, -1)}
            known |= later if commit else {}
        elif step == "plain":
            if world.commit({index: value}).topics[0].partitions[0].error_code == 0:
                known[index] = value
                for each in undecided.values():
                    each |= {index: None} if index in each else {}
        elif step == "delete":
            deleted = [OffsetDeleteRequestPartition(partition_index=index)]
            topics = [OffsetDeleteRequestTopic(name="t", partitions=deleted)]
            world.ask(OffsetDeleteRequest(group_id="g", topics=topics), 0)
            known.pop(index, None)
            for each in undecided.values():
                each |= {index: None} if index in each else {}
        else:
            if step == "compact":
                compacted(world)
            world.restart()
        open_places = {index for each in undecided.values() for index in each}
        for index in range(3):
            expected = (-1, UNSTABLE) if index in open_places else (known.get(index, -1), 0)
            assert world.stable(index) == expected, (seed, value, step)
