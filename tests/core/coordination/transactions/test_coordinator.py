"""Transactions as producers see them: begun, ended, fenced, taken over, forgotten."""

from __future__ import annotations

import pytest
from tests.core.coordination.transactions.transaction_world import (
    TIMEOUT_MS,
    TV1,
    Marker,
    Producer,
    TransactionWorld,
    codes_of,
    joining,
)

from anabranch.core import sentences
from anabranch.core.api.context import METADATA
from anabranch.core.coordination.groups.offsets_topic import OFFSETS_TOPIC
from anabranch.core.coordination.transactions import refusals
from anabranch.core.coordination.transactions.loader import TransactionLoader
from anabranch.core.coordination.transactions.markers import Markers
from anabranch.core.coordination.transactions.shard import TransactionShard
from anabranch.core.coordination.transactions.topic import TRANSACTION_TOPIC
from anabranch.core.coordination.transactions.upkeep import MOST_SAID
from anabranch.core.errors import CorruptLog, ErrorCode
from anabranch.core.types import TopicPartition
from anabranch.core.wire.messages.list_transactions import ListTransactionsRequest
from anabranch.core.wire.records import Record, build_batch
from anabranch.core.wire.transaction_records import encode_key

NONE = ErrorCode.NONE
CONCURRENT = ErrorCode.CONCURRENT_TRANSACTIONS
FENCED = ErrorCode.PRODUCER_FENCED
LAST_EPOCH = 32_766
HERE, THERE = ("here", 0), ("there", 1)


@pytest.fixture
def world():
    return TransactionWorld()


def code_of(answer):
    """The one code of an answer to a request to join a transaction."""
    topics = getattr(answer, "results_by_topic_v3_and_below", None)
    return answer.error_code if topics is None else codes_of(topics)[0]


def jump_to_epoch(world, epoch, name="id"):
    """Most of a producer id's epochs have been used."""
    for shard in world.coordinator.shards.values():
        known = shard.transactions.get(name)
        if known is not None:
            shard.transactions[name] = known._replace(producer_epoch=epoch)
            return Producer(known.producer_id, epoch)
    raise AssertionError


# A whole transaction.


@pytest.mark.parametrize("commits", [True, False])
def test_a_transaction_ends_with_a_marker_in_each_partition_and_in_no_other(world, commits):
    producer = world.producer()
    assert producer.epoch == 0
    assert world.add(producer, HERE, THERE) == [NONE, NONE]
    assert world.state() == "Ongoing"
    goes_on = world.ended(producer, commits)
    assert goes_on == (producer.producer_id, 1)
    assert world.state() == ("PrepareCommit" if commits else "PrepareAbort")
    assert world.deliver() == 2
    assert world.state() == ("CompleteCommit" if commits else "CompleteAbort")
    marker = Marker(producer.producer_id, 1, commits, 0)
    assert world.markers == {TopicPartition(*place): [marker] for place in (HERE, THERE)}
    assert world.add(goes_on, HERE) == [NONE]


def test_with_an_older_client_the_epoch_stays(world):
    producer = world.producer()
    world.add(producer, HERE)
    assert world.ask_end(producer, version=TV1).error_code == NONE
    world.deliver()
    assert world.markers[TopicPartition(*HERE)] == [Marker(*producer, True, 0)]
    assert world.add(producer, HERE) == [NONE]


def test_offsets_of_a_group_get_a_marker_too(world):
    world.node.topic(OFFSETS_TOPIC, 3)
    producer = world.producer()
    assert world.add_offsets(producer, "g") == NONE
    world.end(producer)
    world.deliver()
    assert [place.topic for place in world.markers] == [OFFSETS_TOPIC]


def test_a_group_that_no_client_has_looked_for_gets_its_topic(world):
    """Clients that look for its coordinator only after this answer would ask for ever."""
    producer = world.producer()
    late, told = (world.ask_add_offsets(producer, "g") for _ in range(2))
    assert [wish.message.topics[0].name for wish in world.wishes] == [OFFSETS_TOPIC]
    assert all(wait.holds_up for wait, _box in world.waits)
    world.waits, later = world.waits[:1], world.waits[1:]
    world.expire()
    assert [code_of(each) for each in late] == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
    world.waits = later
    world.node.topic(OFFSETS_TOPIC, 3)
    world.broker.changed[METADATA] = None
    world.settle()
    assert [code_of(each) for each in told] == [NONE]
    assert world.state() == "Ongoing"


def test_many_transactions_share_a_request_to_a_broker(world):
    producers = {f"id-{n}": world.producer(f"id-{n}") for n in range(20)}
    for name, producer in producers.items():
        world.add(producer, THERE, name=name)
        world.end(producer, name=name)
    assert [len(each.message.markers) for each in world.asks] == [1]
    world.deliver()
    assert [len(each.message.markers) for each in world.asks] == [19]
    world.deliver()
    assert set(world.listed().values()) == {"CompleteCommit"}


# The next one.


def test_the_next_transaction_begins_when_the_one_before_has_its_markers(world):
    """A client that is told to come again comes after 20 ms and more: it waits here instead."""
    world.node.topic(OFFSETS_TOPIC, 3)
    producer = world.producer()
    for asked in (
        lambda: world.ask_add(producer, HERE),
        lambda: world.ask_add_offsets(producer, "g"),
    ):
        world.add(producer, HERE, THERE)
        world.end(producer, version=TV1)
        told = asked()
        assert world.deliver(broker_id=1) == 1
        assert told == []
        assert world.deliver(broker_id=2) == 1
        assert [code_of(each) for each in told] == [NONE]
        world.end(producer, version=TV1)
        world.deliver()


def test_who_waits_for_markers_too_long_is_told_to_come_again(world):
    producer = world.producer()
    world.add(producer, HERE)
    world.end(producer, version=TV1)
    told = world.ask_add(producer, HERE)
    world.expire()
    assert [code_of(each) for each in told] == [CONCURRENT]
    world.deliver()
    assert world.add(producer, HERE) == [NONE]


def test_who_waits_for_markers_hears_that_the_coordinator_moved(world):
    producer = world.producer()
    world.add(producer, HERE)
    world.end(producer, version=TV1)
    told = world.ask_add(producer, HERE)
    world.move_away()
    world.expire()
    assert [code_of(each) for each in told] == [ErrorCode.NOT_COORDINATOR]


def test_of_two_who_wait_for_markers_one_begins_and_the_other_joins(world):
    world.node.topic(OFFSETS_TOPIC, 3)
    producer = world.producer()
    world.add(producer, HERE)
    world.end(producer, version=TV1)
    told = [
        world.ask_add(producer, HERE),
        world.ask_add(producer, THERE),
        world.ask_add_offsets(producer, "g"),
    ]
    world.deliver()
    assert [[code_of(each) for each in box] for box in told] == [[NONE]] * 3


def test_an_end_does_not_overtake_the_join_that_waits(world):
    """It would be taken for another end of the transaction before, and be INVALID_TXN_STATE."""
    world.node.topic(OFFSETS_TOPIC, 3)
    producer = world.producer()
    world.add(producer, HERE)
    world.end(producer, version=TV1)
    world.ask_add(producer, HERE)
    world.ask_add_offsets(producer, "g")
    assert [wait.holds_up for wait, _ in world.waits] == [True, True]


def test_a_leader_that_asks_for_others_is_answered_at_once(world):
    """One question of a leader names many transactions: one must not hold up the others."""
    producer = world.producer()
    world.add(producer, HERE)
    world.end(producer, version=TV1)
    assert world.add_batched(producer, HERE) == [CONCURRENT]


def test_a_leader_that_asks_to_wait_is_answered_when_all_may_begin():
    """Each join is a record of its own, which may be committed while another is waited for."""
    world = TransactionWorld(replicas=(1, 2))
    producers = {}
    for name in ("a", "b", "new"):
        box = world.init(name)
        world.replicate()
        producers[name] = Producer(box[0].producer_id, box[0].producer_epoch)
    for name, place in (("a", HERE), ("b", THERE)):
        world.ask_add(producers[name], place, name=name)
        world.replicate()
        box = world.ask_end(producers[name], name=name)
        world.replicate()
        producers[name] = Producer(box[0].producer_id, box[0].producer_epoch)
    told = world.ask_and_wait(*(joining(each, HERE, name=name) for name, each in producers.items()))
    assert world.deliver(broker_id=1) == 1
    world.replicate()
    assert told == []
    assert world.deliver(broker_id=2) == 1
    world.replicate()
    (answer,) = told
    for each in answer.results_by_transaction:
        assert codes_of(each.topic_results) == [NONE], each.transactional_id
    assert len(answer.results_by_transaction) == 3


def test_a_transaction_that_waits_for_markers_holds_up_no_other_for_longer_than_a_pause():
    """A broker asks about one batch of transactions at a time: all others would wait as long as a
    record may take."""
    world = TransactionWorld(replicas=(1, 2))
    producers = {}
    for name in ("ending", "free"):
        box = world.init(name)
        world.replicate()
        producers[name] = Producer(box[0].producer_id, box[0].producer_epoch)
    world.ask_add(producers["ending"], HERE, name="ending")
    world.replicate()
    box = world.ask_end(producers["ending"], name="ending")
    world.replicate()
    producers["ending"] = Producer(box[0].producer_id, box[0].producer_epoch)
    told = world.ask_and_wait(*(joining(each, HERE, name=name) for name, each in producers.items()))
    world.replicate()
    ((wait, _),) = world.waits
    backoff_ms = world.broker.config.add_partitions_to_txn_retry_backoff_ms
    assert (told, wait.deadline_ms) == ([], world.node.now_ms + backoff_ms)
    world.expire()
    (answer,) = told
    ending, free = answer.results_by_transaction
    assert (codes_of(ending.topic_results), codes_of(free.topic_results)) == ([CONCURRENT], [NONE])


def test_a_leader_that_asks_to_wait_holds_up_nothing_and_is_answered_in_time(world):
    producer = world.producer()
    world.add(producer, HERE)
    producer = world.ended(producer)
    told = world.ask_and_wait(joining(producer, HERE))
    ((wait, _),) = world.waits
    backoff_ms = world.broker.config.add_partitions_to_txn_retry_backoff_ms
    assert (wait.holds_up, wait.deadline_ms) == (False, world.node.now_ms + backoff_ms)
    world.expire()
    assert codes_of(told[0].results_by_transaction[0].topic_results) == [CONCURRENT]


def test_a_leader_that_only_verifies_is_answered_at_once(world):
    producer = world.producer()
    world.add(producer, HERE)
    producer = world.ended(producer)
    answer = world.ask_and_wait(joining(producer, HERE, verify_only=True))
    assert codes_of(answer.results_by_transaction[0].topic_results) == [CONCURRENT]


# Who may go on.


def test_a_second_producer_fences_the_first(world):
    first = world.producer()
    second = world.producer()
    assert second == (first.producer_id, first.epoch + 1)
    assert world.add(first, HERE) == [FENCED]
    assert world.end(first) == FENCED
    assert world.add_batched(first, HERE) == [FENCED]
    assert world.add(second, HERE) == [NONE]


def test_a_second_producer_aborts_the_transaction_of_the_first(world):
    first = world.producer()
    world.add(first, HERE)
    assert world.init().error_code == CONCURRENT
    assert world.init().error_code == CONCURRENT
    world.deliver()
    assert world.markers[TopicPartition(*HERE)] == [Marker(first.producer_id, 1, False, 0)]
    second = world.producer()
    assert second == (first.producer_id, 2)
    for commits in (True, False):
        assert world.end(first, commits) == FENCED


def test_a_fenced_producer_is_not_told_the_epoch_of_its_successor(world):
    """Its EndTxn looks like one that is asked again: it is one epoch behind."""
    first = world.producer()
    world.add(first, HERE)
    world.init()
    for _ in range(2):
        assert [world.end(first, commits) for commits in (True, False)] == [FENCED, FENCED]
        world.deliver()


@pytest.mark.parametrize(
    ("api", "old_version", "new_version"), [("init", 3, 4), ("add", 1, 2), ("end", 1, 2)]
)
def test_older_clients_are_told_of_an_epoch(world, api, old_version, new_version):
    first = world.producer()
    world.producer()

    def told(version):
        if api == "init":
            return world.init(expected=first, version=version).error_code
        if api == "add":
            return world.add(first, HERE, version=version)[0]
        return world.end(first, version=version)

    if api == "init":
        world.producer()
    assert told(old_version) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert told(new_version) == FENCED


def test_a_producer_id_of_another_id_is_refused(world):
    other = world.producer("other")
    world.producer()
    mapping = ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert world.add(other, HERE) == [mapping]
    assert world.end(other) == mapping
    assert world.add((5, 0), HERE, name="unknown") == [mapping]
    assert world.end((5, 0), name="unknown") == mapping
    assert world.init(expected=other).error_code == FENCED


def test_a_producer_raises_its_own_epoch_once(world):
    """KIP-360: the second time it asks as it did the first, since the answer was lost."""
    producer = world.producer()
    for _ in range(2):
        answer = world.init(expected=producer)
        assert (answer.error_code, answer.producer_epoch) == (NONE, producer.epoch + 1)
    world.producer()
    assert world.init(expected=producer).error_code == FENCED


# The same request again.


@pytest.mark.parametrize("commits", [True, False])
@pytest.mark.parametrize("is_written", [True, False])
@pytest.mark.parametrize("is_another_process", [True, False])
def test_an_end_that_is_asked_again_is_answered_as_before(
    world, commits, is_written, is_another_process
):
    """KAFKA-14402: the epoch has gone up, so that the second request bears the old one."""
    producer = world.producer()
    world.add(producer, HERE)
    goes_on = world.ended(producer, commits)
    if is_written:
        world.deliver()
    if is_another_process:
        world.restart()
    if not is_written:
        assert world.end(producer, commits) == CONCURRENT
        assert world.end(producer, not commits) == ErrorCode.INVALID_TXN_STATE
        world.deliver()
    assert world.ended(producer, commits) == goes_on
    assert world.end(producer, not commits) == ErrorCode.INVALID_TXN_STATE
    assert world.add(goes_on, HERE) == [NONE]
    assert world.end(producer, commits) == FENCED


def test_the_next_end_is_not_taken_for_the_same_one_again(world):
    producer = world.producer()
    world.add(producer, HERE)
    goes_on = world.ended(producer)
    world.deliver()
    assert world.end(goes_on) == ErrorCode.INVALID_TXN_STATE
    assert world.ended(goes_on, commits=False).epoch == goes_on.epoch + 1


def test_an_abort_of_nothing_raises_the_epoch(world):
    """KIP-890: a batch on its way to a partition is refused there."""
    producer = world.producer()
    assert world.end(producer) == ErrorCode.INVALID_TXN_STATE
    assert world.end(producer, commits=False, version=TV1) == ErrorCode.INVALID_TXN_STATE
    goes_on = world.ended(producer, commits=False)
    assert goes_on == (producer.producer_id, 1)
    assert world.state() == "CompleteAbort"
    assert not world.asks


# Epochs run out.


def test_a_producer_whose_epochs_are_used_up_starts_with_a_new_id(world):
    producer = world.producer()
    last = jump_to_epoch(world, LAST_EPOCH)
    second = world.producer()
    assert second.epoch == 0 and second.producer_id != producer.producer_id
    assert world.add(last, HERE) == [ErrorCode.INVALID_PRODUCER_ID_MAPPING]


def test_a_producer_goes_on_with_a_new_id_after_its_last_epoch(world):
    world.producer()
    last = jump_to_epoch(world, LAST_EPOCH)
    world.add(last, HERE)
    goes_on = world.ended(last)
    assert goes_on.epoch == 0 and goes_on.producer_id != last.producer_id
    world.deliver()
    assert world.markers[TopicPartition(*HERE)] == [Marker(last.producer_id, 32_767, True, 0)]
    assert world.ended(last) == goes_on
    world.restart()
    assert world.ended(last) == goes_on
    assert world.add(goes_on, HERE) == [NONE]


def test_the_last_epoch_can_still_be_fenced(world):
    world.producer()
    last = jump_to_epoch(world, LAST_EPOCH)
    world.add(last, HERE)
    assert world.init().error_code == CONCURRENT
    world.deliver()
    assert world.markers[TopicPartition(*HERE)] == [Marker(last.producer_id, 32_767, False, 0)]
    assert world.producer().epoch == 0


def test_who_asks_before_there_are_producer_ids_waits(world):
    world.node.producer_ids = iter(())
    box = world.init()
    assert box == []
    world.node.producer_ids = iter((77,))
    world.broker.changed["producer-ids"] = None
    world.settle()
    assert (box[0].error_code, box[0].producer_id) == (NONE, 77)


# Time.


def test_a_late_transaction_is_aborted(world):
    producer = world.producer(timeout_ms=15_000)
    world.add(producer, HERE)
    world.advance(10_000)
    assert world.state() == "Ongoing"
    world.advance(10_000)
    assert world.state() == "PrepareAbort"
    world.deliver()
    assert world.markers[TopicPartition(*HERE)] == [Marker(producer.producer_id, 1, False, 0)]
    assert world.end(producer) == FENCED
    assert world.add(producer, HERE) == [FENCED]
    assert world.coordinator.statistics()["timed_out_total"] == 1


def test_a_late_transaction_is_aborted_also_by_a_new_coordinator(world):
    producer = world.producer(timeout_ms=15_000)
    world.add(producer, HERE)
    world.restart()
    world.advance(20_000)
    assert world.state() == "PrepareAbort"


def test_an_id_that_nobody_uses_is_forgotten_and_its_tombstone_stays():
    world = TransactionWorld(transactional_id_expiration_ms="7200000")
    idle = world.producer("idle")
    busy = world.producer("busy", timeout_ms=900_000)
    for _ in range(9):
        world.advance(800_000)
        world.add(busy, HERE, name="busy")
        busy = world.ended(busy, name="busy")
        world.deliver()
    world.advance(3_600_000)
    assert list(world.listed()) == ["busy"]
    world.restart()
    assert list(world.listed()) == ["busy"]
    assert world.add(idle, HERE, name="idle") == [ErrorCode.INVALID_PRODUCER_ID_MAPPING]
    assert world.producer("idle").epoch == 0


def test_an_id_with_a_transaction_does_not_expire():
    world = TransactionWorld(
        transactional_id_expiration_ms="1", transaction_max_timeout_ms="2000000000"
    )
    ongoing = world.producer("ongoing", timeout_ms=2_000_000_000)
    world.add(ongoing, HERE, name="ongoing")
    decided = world.producer("decided")
    world.add(decided, THERE, name="decided")
    world.end(decided, name="decided")
    world.advance(3_600_000)
    assert set(world.listed()) == {"ongoing", "decided"}


def test_an_id_with_a_record_on_its_way_does_not_expire():
    world = TransactionWorld(replicas=(1, 2), transactional_id_expiration_ms="1")
    world.follow()
    box = world.init()
    world.replicate()
    producer = Producer(box[0].producer_id, 0)
    world.advance(10)
    added = world.ask_add(producer, HERE)
    ends = [each.log.end_offset for each in world.state_replicas]
    world.coordinator.upkeep.expire(world.node.now_ms)
    assert [each.log.end_offset for each in world.state_replicas] == ends
    world.replicate()
    assert added and world.state() == "Ongoing"


def test_who_waits_for_an_id_that_expires_hears_when_it_is_forgotten():
    world = TransactionWorld(replicas=(1, 2), transactional_id_expiration_ms="1")
    world.follow()
    box = world.init()
    world.replicate()
    world.advance(10)
    world.coordinator.upkeep.expire(world.node.now_ms)
    told = world.ask_add(Producer(box[0].producer_id, 0), HERE)
    assert told == []
    world.replicate()
    assert [code_of(each) for each in told] == [ErrorCode.INVALID_PRODUCER_ID_MAPPING]


# What is committed counts.


def test_nothing_is_answered_and_no_marker_is_sent_before_the_record_is_committed():
    world = TransactionWorld(replicas=(1, 2))
    world.follow()
    box = world.init()
    assert box == [] and world.init().error_code == CONCURRENT
    world.replicate()
    producer = Producer(box[0].producer_id, box[0].producer_epoch)
    added = [world.ask_add(producer, HERE), world.ask_add(producer, HERE)]
    assert added == [[], []]
    world.replicate()
    assert [code_of(answer) for (answer,) in added] == [NONE, NONE]
    ended = world.ask_end(producer)
    assert ended == [] and world.end(producer) == CONCURRENT
    assert not world.asks, "a marker before the decision is committed"
    world.replicate()
    assert ended[0].error_code == NONE
    assert len(world.asks) == 1


def test_who_decided_is_answered_before_markers_are_routed(monkeypatch):
    world = TransactionWorld(replicas=(1, 2))
    box = world.init()
    world.replicate()
    producer = Producer(box[0].producer_id, box[0].producer_epoch)
    world.ask_add(producer, HERE)
    world.replicate()
    ended = world.ask_end(producer)
    route, told_by_then = Markers._route, []

    def routed(*words):
        told_by_then.extend(ended)
        route(*words)

    monkeypatch.setattr(Markers, "_route", routed)
    world.replicate()
    assert [answer.error_code for answer in told_by_then] == [NONE]
    assert len(world.asks) == 1


def test_hundreds_of_decisions_that_are_committed_at_once_are_carried_out():
    """None of them has a partition left, so each is complete, and written down, at once."""
    world = TransactionWorld(replicas=(1, 2))
    names = [f"id{number}" for number in range(400)]
    started = [world.init(name) for name in names]
    world.replicate()
    told = [
        world.ask_end((box[0].producer_id, box[0].producer_epoch), commits=False, name=name)
        for name, box in zip(names, started, strict=True)
    ]
    try:
        world.replicate()
    except RecursionError:
        raise AssertionError("they are carried out within each other") from None
    assert [box[0].error_code for box in told] == [NONE] * len(names)
    assert set(world.listed().values()) == {"CompleteAbort"}
    assert not any(
        shard.pending or shard.pending_effects for shard in world.coordinator.shards.values()
    )


def test_markers_are_sent_when_the_record_is_committed_though_no_client_waits():
    world = TransactionWorld(replicas=(1, 2))
    world.follow()
    box = world.init()
    world.replicate()
    producer = Producer(box[0].producer_id, 0)
    world.ask_add(producer, HERE)
    world.replicate()
    world.ask_end(producer)
    world.waits.clear()
    world.replicate()
    assert len(world.asks) == 1


def test_who_waits_when_the_coordinator_moves_is_told_so():
    world = TransactionWorld(replicas=(1, 2))
    world.follow()
    box = world.init()
    world.move_away()
    assert box[0].error_code == ErrorCode.NOT_COORDINATOR
    assert world.init().error_code == ErrorCode.NOT_COORDINATOR
    assert not world.coordinator.shards


def test_a_new_coordinator_says_nothing_before_all_that_it_read_is_committed():
    world = TransactionWorld(replicas=(1, 2))
    world.follow()
    box = world.init()
    world.replicate()
    producer = Producer(box[0].producer_id, 0)
    world.ask_add(producer, HERE)
    world.replicate()
    world.ask_end(producer)
    world.restart()
    assert world.end(producer) == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert not world.asks, "a marker of a decision that another election may take back"
    world.replicate()
    assert len(world.asks) == 1
    world.deliver_all()
    assert world.state() == "CompleteCommit"


# Markers that meet obstacles.


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.TRANSACTION_COORDINATOR_FENCED,
        ErrorCode.UNKNOWN_SERVER_ERROR,
        None,
    ],
)
def test_a_partition_is_asked_until_it_has_its_marker(world, code):
    producer = world.producer()
    world.add(producer, HERE, THERE)
    world.end(producer)
    world.deliver(broker_id=1)
    for _ in range(3):
        if code is None:
            world.lose()
        else:
            world.deliver(code)
        assert not world.asks, "asked again without a pause"
        assert [each.topic for each in world.described().topics] == ["there"]
        world.advance(100)
        assert [each.broker_id for each in world.asks] == [2]
    world.deliver()
    assert world.state() == "CompleteCommit"


def test_a_marker_goes_to_the_new_leader(world):
    producer = world.producer()
    world.add(producer, HERE)
    world.end(producer)
    world.node.change("here", 0, leader=2, leader_epoch=1)
    world.deliver(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    world.advance(100)
    assert [each.broker_id for each in world.asks] == [2]


def test_a_partition_without_a_leader_is_waited_for(world):
    producer = world.producer()
    world.add(producer, HERE)
    world.node.change("here", 0, leader=-1, leader_epoch=1)
    world.end(producer)
    world.advance(100)
    assert not world.asks and world.state() == "PrepareCommit"
    world.node.change("here", 0, leader=1, leader_epoch=2)
    world.advance(100)
    world.deliver()
    assert world.state() == "CompleteCommit"


def test_a_topic_that_is_deleted_holds_nothing_up(world):
    producer = world.producer()
    world.add(producer, HERE, THERE)
    world.end(producer)
    world.lose()
    world.node.remove("there")
    world.advance(100)
    world.deliver()
    assert world.state() == "CompleteCommit"
    assert [place.topic for place in world.markers] == ["here"]


def test_a_diskless_topic_of_the_same_name_holds_nothing_up(world):
    producer = world.producer()
    world.add(producer, HERE, THERE)
    world.end(producer)
    world.lose()
    world.node.remove("there")
    world.node.topic("there", 4, replicas=(2,), leader=2, configs={"diskless.enable": "true"})
    world.advance(100)
    world.deliver()
    assert world.state() == "CompleteCommit"
    assert [place.topic for place in world.markers] == ["here"]


def test_a_deposed_coordinator_sends_nothing_more(world):
    producer = world.producer()
    world.add(producer, HERE)
    world.end(producer)
    world.lose()
    world.move_away()
    world.advance(1_000)
    assert not world.asks


def test_the_epoch_of_a_marker_is_that_of_the_coordinators_partition(world):
    for index in range(2):
        world.node.change(TRANSACTION_TOPIC, index, leader_epoch=9)
    world.follow()
    producer = world.producer()
    world.add(producer, HERE)
    world.end(producer)
    world.deliver()
    assert world.markers[TopicPartition(*HERE)][0].coordinator_epoch == 9


def test_a_log_that_takes_nothing_completes_the_transaction_later():
    world = TransactionWorld(replicas=(1, 2), min_insync_replicas="2")
    world.follow()
    box = world.init()
    world.replicate()
    producer = Producer(box[0].producer_id, 0)
    world.ask_add(producer, HERE)
    world.replicate()
    world.ask_end(producer)
    world.replicate()
    change_in_sync(world, (1,))
    world.deliver()
    assert world.state() == "PrepareCommit"
    assert world.init().error_code == CONCURRENT
    change_in_sync(world, (1, 2))
    world.advance(100)
    world.replicate()
    assert world.state() == "CompleteCommit"


def change_in_sync(world, isr):
    for index in range(2):
        world.node.change(TRANSACTION_TOPIC, index, isr=isr)
    world.follow()


# Tools.


def test_ids_are_listed_by_state_producer_and_age(world):
    first = world.producer("first")
    second = world.producer("second")
    world.add(first, HERE, name="first")
    world.advance(1_000)
    world.add(second, HERE, name="second")
    world.producer("third")
    assert world.listed(state_filters=["Ongoing"]) == {"first": "Ongoing", "second": "Ongoing"}
    assert list(world.listed(state_filters=["Ongoing"], duration_filter=500)) == ["first"]
    assert list(world.listed(producer_id_filters=[second.producer_id])) == ["second"]


def test_an_id_is_described(world):
    producer = world.producer(timeout_ms=TIMEOUT_MS)
    world.add(producer, HERE, THERE)
    found = world.described()
    assert (found.producer_id, found.producer_epoch) == producer
    assert found.transaction_timeout_ms == TIMEOUT_MS
    assert found.transaction_start_time_ms == world.node.now_ms
    assert [(each.topic, each.partitions) for each in found.topics] == [
        ("here", [0]), ("there", [1]),
    ]  # fmt: skip
    assert world.described("unknown").error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    assert world.described("").error_code == ErrorCode.INVALID_REQUEST


# Lists by a pattern.


def test_ids_are_listed_by_a_pattern_of_whole_ids(world):
    for name in ("stream-1", "stream-22", "sink"):
        world.producer(name)
    listed = lambda pattern: sorted(world.listed(transactional_id_pattern=pattern))  # noqa: E731
    assert listed("stream-\\d") == ["stream-1"]
    assert listed("stream") == []
    assert listed("") == ["sink", "stream-1", "stream-22"]


@pytest.mark.parametrize("pattern", ["(", "(a)\\1", "(?=a)"])
def test_a_pattern_that_cannot_be_read_is_refused(world, pattern):
    world.producer()
    answer = world.ask(ListTransactionsRequest(transactional_id_pattern=pattern), 2)
    assert answer.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION


def test_the_ids_of_other_partitions_are_listed_while_one_is_read(world):
    for number in range(8):
        world.producer(f"id-{number}")
    loading, ready = world.coordinator.shards.values()
    assert loading.transactions and ready.transactions
    loading.is_ready = False
    answer = world.ask(ListTransactionsRequest(), 2)
    assert answer.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert {each.transactional_id for each in answer.transaction_states} == {*ready.transactions}


def test_ids_without_a_transaction_share_one_empty_set_of_partitions(world):
    """Each has most of the time none, and an empty set of its own is a third of what an id takes."""
    for name in ("one", "two"):
        producer = world.producer(name)
        world.add(producer, HERE, name=name)
        world.ended(producer, name=name)
        world.deliver()
    world.producer("three")

    def sets():
        shards = world.coordinator.shards.values()
        return {id(each.partitions) for shard in shards for each in shard.transactions.values()}

    assert len(sets()) == 1
    world.restart()
    assert len(sets()) == 1


# What a newer version has written, and what the log says of late transactions.


def in_the_log(world, key, value):
    """A record that stands in a partition of ids, before the coordinator is started."""
    replica = world.state_replicas[0]
    records = build_batch([Record(0, world.node.now_ms, key, value)])
    replica.append(records, required_acks=1, now_ms=world.node.now_ms, client=False)
    return TransactionLoader(TransactionShard(world.broker, replica, world.coordinator), 1 << 20)


def test_a_value_of_a_newer_version_is_a_fault_of_its_partition_and_named(world):
    """An id that was guessed wrong could commit what was aborted."""
    loader = in_the_log(world, encode_key("id"), b"\0\7" + bytes(30))
    with pytest.raises(CorruptLog, match=r"offset 0 cannot be read as transactions .*version"):
        list(loader.steps(world.node.now_ms))


def test_a_key_of_a_newer_version_is_passed_over_and_counted(world):
    loader = in_the_log(world, b"\0\7" + bytes(9), b"\0\0" + bytes(30))
    list(loader.steps(world.node.now_ms))
    assert (loader.unknown_keys, loader.transactions) == (1, {})


def test_refused_producers_are_named_in_the_log_up_to_a_number(world):
    """With the request, the producer and its client; what passes by itself is not a refusal."""
    known, said_by = world.producer("id"), world.broker.refusals
    stale, foreign = Producer(known.producer_id, known.epoch - 1), Producer(77, 0)
    assert world.end(stale, name="id") == FENCED
    assert world.add(foreign, HERE, name="id") == [ErrorCode.INVALID_PRODUCER_ID_MAPPING]
    assert said_by.take_said()[0][:4] == ("EndTxn", "id", *stale)
    for _ in range(refusals.MOST_SAID + 3):
        world.end(foreign, name="n" * 30_000)
    assert len(said_by.take_said()) == refusals.MOST_SAID - 2
    world.broker.steady_ms += refusals.WHILE_MS
    world.end(foreign, name="n" * 30_000)
    [said] = said_by.take_said()
    assert (said.unsaid, said.code) == (5, ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    assert len(said.transactional_id) == sentences.LONGEST_TEXT + 1
    assert (said.client_id, said.client_host) == ("tests", "127.0.0.1")


def test_late_transactions_are_named_in_the_log_up_to_a_number(world):
    for number in range(MOST_SAID + 3):
        producer = world.producer(f"id-{number}", timeout_ms=15_000)
        world.add(producer, HERE, name=f"id-{number}")
    assert world.coordinator.upkeep.take_said() == []
    world.advance(20_000)
    said = world.coordinator.upkeep.take_said()
    assert [each.unsaid for each in said] == [0] * (MOST_SAID - 1) + [3]
    assert said[0].lasted_ms >= 15_000
    assert world.coordinator.upkeep.take_said() == []


def test_the_log_gets_the_beginning_of_a_long_id(world):
    name = "i" * 30_000
    world.add(world.producer(name, timeout_ms=1_000), HERE, name=name)
    world.advance(15_000)
    (said,) = world.coordinator.upkeep.take_said()
    assert len(said.transactional_id) == sentences.LONGEST_TEXT + 1
