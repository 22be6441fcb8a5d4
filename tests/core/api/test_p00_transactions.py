"""Transactional batches: the coordinator is asked before the first one (KIP-890)."""

import pytest
from tests.core.api.in_memory_node import batch
from tests.core.api.transactions_kit import (
    ADDS,
    KNOWS_ABORTABLE,
    OLD,
    PRODUCER,
    Transactions,
    codes,
    marked,
    response,
    transactional,
)

from anabranch.core.broker.peers import JOINS, VERIFICATIONS
from anabranch.core.errors import ErrorCode
from anabranch.core.outcome import Wait
from anabranch.core.wire.own_fields import has_own

CONCURRENT = ErrorCode.CONCURRENT_TRANSACTIONS


@pytest.fixture
def world():
    return Transactions()


def end_offset(world, index=0):
    return world.node.replica("t", index).end_offset


@pytest.mark.parametrize(
    ("version", "verify_only"), [(OLD, True), (11, True), (12, False), (13, False)]
)
def test_the_first_batch_waits_for_the_coordinator(world, version, verify_only):
    wait = world.produce(transactional(), version=version)
    assert isinstance(wait, Wait)
    assert end_offset(world) == 0
    [asked] = world.answer()
    assert (asked.transactional_id, asked.producer_id, asked.producer_epoch) == ("transfers", 5, 0)
    assert asked.verify_only == verify_only
    assert [(each.name, each.partitions) for each in asked.topics] == [("t", [0])]
    assert codes(world.node.poll(wait)) == [0]
    assert codes(world.produce(transactional(1), version=version)) == [0], "it is open now"
    assert not world.asked()
    assert end_offset(world) == 2


def test_batches_behind_the_first_one_keep_their_order_and_others_do_not_wait(world):
    first = world.produce(transactional())
    [ask] = world.asked()
    second = world.produce(transactional(1), more=[(1, transactional())])
    assert codes(world.produce(batch(), name=None)) == [0], "of no transaction"
    third = world.produce(transactional(2))
    assert not world.asked()
    assert len(ask.message.transactions[0].topics[0].partitions) == 1, "one question at a time"
    world.broker.peers.answered(ask, response(ask.message, ErrorCode.NONE))
    assert codes(world.node.poll(first)) == [0]
    assert world.node.poll(second) is None, "its other partition is being asked about"
    assert codes(world.node.poll(third)) == [0]
    world.answer()
    assert codes(world.node.poll(second)) == [0, 0]
    assert [end_offset(world, index) for index in (0, 1)] == [4, 1]


def test_partitions_of_one_request_are_asked_about_in_one_question(world):
    wait = world.produce(transactional(), more=[(1, transactional())])
    asked = [topic for each in world.answer() for topic in each.topics]
    assert [(each.name, each.partitions) for each in asked] == [("t", [0, 1])]
    assert codes(world.node.poll(wait)) == [0, 0]


@pytest.mark.parametrize(
    ("said", "version", "told"),
    [
        (ErrorCode.NOT_COORDINATOR, OLD, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ADDS, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.CONCURRENT_TRANSACTIONS, OLD, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.PRODUCER_FENCED, ADDS, ErrorCode.INVALID_PRODUCER_EPOCH),
        (ErrorCode.INVALID_TXN_STATE, OLD, ErrorCode.INVALID_TXN_STATE),
        (ErrorCode.TRANSACTION_ABORTABLE, OLD, ErrorCode.INVALID_TXN_STATE),
        (ErrorCode.TRANSACTION_ABORTABLE, KNOWS_ABORTABLE, ErrorCode.TRANSACTION_ABORTABLE),
        (ErrorCode.INVALID_PRODUCER_ID_MAPPING, OLD, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
    ],
)
def test_what_the_coordinator_refuses_is_not_appended(world, said, version, told):
    wait = world.produce(transactional(), version=version)
    world.answer(said)
    assert codes(world.node.poll(wait)) == [told]
    assert end_offset(world) == 0
    assert world.produce(transactional(), version=version).__class__ is Wait, "asked again"


def test_a_transaction_whose_predecessor_is_being_ended_is_tried_again_for_a_while(world):
    wait = world.produce(transactional())
    for _ in range(5):
        world.answer(ErrorCode.CONCURRENT_TRANSACTIONS)
        assert world.node.poll(wait) is None
        world.broker.steady_ms += 20
        world.broker.groups.tick(world.node.now_ms)
    world.answer(ErrorCode.CONCURRENT_TRANSACTIONS)
    assert codes(world.node.poll(wait)) == [ErrorCode.CONCURRENT_TRANSACTIONS]


def test_the_coordinator_is_asked_to_wait_for_the_end_of_the_transaction_before(world):
    """A pause would go on for long after the last marker is there."""
    wait = world.produce(transactional(), more=[(1, transactional())])
    (ask,) = world.asked()
    assert (ask.lane, has_own(ask.message)) == (VERIFICATIONS, False)
    world.broker.peers.answered(ask, response(ask.message, CONCURRENT))
    joins = world.asked()
    assert [(each.lane, has_own(each.message)) for each in joins] == [(JOINS, True)]
    (join,) = joins
    assert join.message.transactions == ask.message.transactions
    world.broker.steady_ms += 3
    world.broker.peers.answered(join, response(join.message, ErrorCode.NONE))
    assert codes(world.node.poll(wait)) == [0, 0]


def test_who_waits_for_the_end_of_the_transaction_before_holds_up_no_other(world):
    world.produce(transactional())
    world.answer(CONCURRENT)
    (join,) = world.asked()
    assert join.lane == JOINS
    other = world.produce(transactional(producer=6), name="other", index=1)
    assert [each.transactional_id for each in world.answer()] == ["other"]
    assert codes(world.node.poll(other)) == [0]


def test_a_coordinator_that_does_not_wait_is_asked_again_after_a_pause(world):
    """It may be of an older version: else a few hundred questions would go by in vain."""
    wait = world.produce(transactional())
    for pause_ms in (0, 0, 20, 20, 20):
        for _ in range(pause_ms):
            assert not world.asked()
            world.broker.steady_ms += 1
            world.broker.groups.tick(world.node.now_ms)
        assert len(world.answer(CONCURRENT)) == 1
    assert world.node.poll(wait) is None


def test_no_answer_and_no_coordinator_pass(world):
    wait = world.produce(transactional())
    [ask] = world.asked()
    world.broker.peers.answered(ask, None)
    assert codes(world.node.poll(wait)) == [ErrorCode.NOT_ENOUGH_REPLICAS]
    world.node.remove("__transaction_state")
    wait = world.produce(transactional())
    assert codes(world.node.poll(wait)) == [ErrorCode.NOT_ENOUGH_REPLICAS]
    assert len(world.broker.verifier) == 0


def test_a_marker_overtakes_what_the_coordinator_said_before(world):
    """Else the batch would begin a transaction that no one ends."""
    wait = world.produce(transactional(), version=OLD)
    assert marked(world.end(commit=False)) == 0
    world.answer()
    assert codes(world.node.poll(wait)) == [ErrorCode.INVALID_TXN_STATE]
    assert not world.node.replica().producers.open_transactions


def test_the_marker_of_the_transaction_before_overtakes_nothing(world):
    """A client goes on as soon as its commit is decided; the marker may come behind its batches."""
    world.open()
    first = world.produce(transactional(epoch=1))
    world.answer(ErrorCode.CONCURRENT_TRANSACTIONS)
    assert marked(world.end(epoch=1, version=2)) == 0
    second = world.produce(transactional(1, epoch=1))
    world.broker.steady_ms += 20
    world.broker.groups.tick(world.node.now_ms)
    world.answer()
    assert [codes(world.node.poll(each)) for each in (first, second)] == [[0], [0]]


def test_who_comes_after_a_marker_asks_anew(world):
    before = world.produce(transactional(), version=OLD)
    world.end(commit=False)
    after = world.produce(transactional(), version=OLD)
    assert codes(world.node.poll(before)) == [ErrorCode.INVALID_TXN_STATE]
    for _ in range(2):
        world.answer()
    assert codes(world.node.poll(after)) == [0]


def test_a_late_batch_after_a_marker_is_refused(world):
    """KIP-890's hanging transaction: the marker raised the epoch, the batch is of the old one."""
    world.open()
    assert marked(world.end(epoch=1, version=2)) == 0
    late = world.produce(transactional(1))
    assert codes(late) == [ErrorCode.INVALID_PRODUCER_EPOCH]
    assert not world.node.replica().producers.open_transactions
    assert world.node.replica().last_stable_offset == 2


def test_a_new_leadership_asks_again():
    world = Transactions(replicas=(1, 2))
    world.node.change("t", isr=(1,))
    wait = world.produce(transactional())
    world.node.change("t", leader=2, leader_epoch=1)
    world.node.change("t", leader=1, leader_epoch=2)
    world.answer()
    assert codes(world.node.poll(wait)) == [ErrorCode.NOT_LEADER_OR_FOLLOWER]


def test_a_newer_epoch_replaces_what_is_asked(world):
    old = world.produce(transactional())
    new = world.produce(transactional(epoch=1))
    assert codes(world.produce(transactional(epoch=0))) == [ErrorCode.INVALID_PRODUCER_EPOCH]
    assert codes(world.node.poll(old)) == [ErrorCode.INVALID_PRODUCER_EPOCH]
    for _ in range(2):
        world.answer()
    assert codes(world.node.poll(new)) == [0]


def test_a_batch_that_came_before_is_recognised_after_its_transaction_ended(world):
    world.open()
    world.end()
    assert codes(world.produce(transactional(), version=OLD)) == [0]
    assert not world.asked()
    assert end_offset(world) == 2


def test_verification_can_be_switched_off_for_old_clients_only():
    world = Transactions(config={"transaction.partition.verification.enable": "false"})
    assert codes(world.produce(transactional(), version=OLD)) == [0]
    assert isinstance(world.produce(transactional(), index=1), Wait)


def test_who_writes_without_a_transaction_while_one_is_open(world):
    world.open()
    plain = batch(producer_id=PRODUCER, producer_epoch=0, base_sequence=1)
    assert codes(world.produce(plain)) == [ErrorCode.INVALID_TXN_STATE]
    nobody = batch(transactional=True)
    assert codes(world.produce(nobody)) == [ErrorCode.INVALID_RECORD]


def test_a_transaction_that_fails_here_waits_for_its_first_batch(world):
    """The second batch may not land before the first one, which is sent again."""
    first = world.produce(transactional())
    world.answer(ErrorCode.NOT_COORDINATOR)
    assert codes(world.node.poll(first)) == [ErrorCode.NOT_ENOUGH_REPLICAS]
    assert codes(world.produce(transactional(1))) == [ErrorCode.NOT_ENOUGH_REPLICAS]
    again = world.produce(transactional())
    world.answer()
    assert codes(world.node.poll(again)) == [0]


def test_acks_are_waited_for_after_the_coordinator():
    world = Transactions(replicas=(1, 2))
    wait = world.produce(transactional())
    world.answer()
    acknowledged = world.node.poll(wait)
    assert isinstance(acknowledged, Wait)
    world.node.replica().follower_fetched(2, 1)
    world.broker.changed[world.node.replica().topic_partition] = None
    assert codes(world.node.poll(acknowledged)) == [0]


def test_what_is_held_while_it_waits_counts_for_its_client(world):
    """A connection runs no more requests when those that wait hold too much."""
    records = transactional(size=5000)
    wait = world.produce(records)
    assert wait.most_bytes == len(records) > 5000


def test_many_transactions_are_asked_about_in_one_question(world):
    def begin(number):
        records = transactional(producer=number)
        return world.produce(records, name=f"t{number}", index=number % 2)

    waits = [begin(0)]
    [first] = world.asked()
    waits += map(begin, range(1, 6))
    assert not world.asked()
    world.broker.peers.answered(first, None)
    [second] = world.asked()
    ids = {each.transactional_id for each in second.message.transactions}
    assert ids == {f"t{number}" for number in range(1, 6)}
    assert codes(world.node.poll(waits[0])) == [ErrorCode.NOT_ENOUGH_REPLICAS]


def test_topics_that_take_no_transactions(world, monkeypatch):
    kind = type(world.node.replica())
    monkeypatch.setattr(kind, "takes_transactions", False)
    answer = world.produce(transactional())
    assert codes(answer) == [ErrorCode.INVALID_REQUEST]
    ((told,),) = [topic.partition_responses for topic in answer.responses]
    assert "diskless" in told.error_message and "classic" in told.error_message


def test_what_is_committed_while_another_partition_is_verified_is_not_waited_for():
    """No partition moves again for its sake: a request that waited for it was answered by time."""
    world = Transactions(replicas=(1, 2))

    def replicate(index):
        replica = world.node.replica("t", index)
        assert replica.follower_fetched(2, replica.end_offset)
        return world.broker.woken_by([replica.topic_partition])

    first = world.produce(transactional())
    world.answer()
    assert isinstance(world.node.poll(first), Wait)
    replicate(0)
    both = world.produce(transactional(1), more=[(1, transactional())])
    replicate(0)
    world.answer()
    waits = world.node.poll(both)
    woken = replicate(1)
    assert set(waits.keys) <= set(woken)
    assert codes(world.node.poll(waits)) == [0, 0]
