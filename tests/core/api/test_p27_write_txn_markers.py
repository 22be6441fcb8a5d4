"""WriteTxnMarkers: who may end what, how often, and when that is answered."""

import pytest
from tests.core.api.in_memory_node import Denying
from tests.core.api.transactions_kit import PRODUCER, Transactions, codes, marked, transactional

from anabranch.core.access.authorize import Operation, ResourceType
from anabranch.core.errors import ErrorCode
from anabranch.core.outcome import Wait
from anabranch.core.wire.control import end_marker


@pytest.fixture
def world():
    return Transactions()


@pytest.mark.parametrize("commit", [True, False])
def test_a_marker_ends_the_transaction(world, commit):
    world.open()
    replica = world.node.replica()
    assert replica.last_stable_offset == 0
    assert marked(world.end(commit=commit, coordinator_epoch=3)) == 0
    assert replica.last_stable_offset == replica.high_watermark == 2
    batches = replica.read(1, max_bytes=1000, upto=2, at_least_one=True)
    assert end_marker(batches) == (commit, 3)
    assert replica.aborted_transactions(0, 2) == ([] if commit else [(PRODUCER, 0)])


def test_a_deposed_coordinator_and_an_old_epoch_are_refused(world):
    world.open(epoch=4)
    world.end(epoch=4, coordinator_epoch=7)
    world.open(epoch=4)
    fenced = world.end(epoch=4, coordinator_epoch=6)
    assert marked(fenced) == ErrorCode.TRANSACTION_COORDINATOR_FENCED
    old = world.end(epoch=3, coordinator_epoch=7)
    assert marked(old) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert world.node.replica().producers.open_transactions


def test_a_marker_that_raises_the_epoch_counts_once(world):
    """A coordinator that heard nothing sends it again; by then the next transaction may be open."""
    world.open()
    for _ in range(2):
        assert marked(world.end(epoch=1, version=2)) == 0
        assert world.node.replica().end_offset == 2
    wait = world.produce(transactional(epoch=1))
    world.answer()
    assert codes(world.node.poll(wait)) == [0]
    assert marked(world.end(epoch=1, version=2, commit=False)) == 0
    assert world.node.replica().producers.open_transactions == {PRODUCER: 2}


def test_a_marker_is_answered_when_every_replica_has_it():
    world = Transactions(replicas=(1, 2))
    wait = world.end()
    assert isinstance(wait, Wait)
    again = world.end(version=2)
    assert isinstance(again, Wait), "it is in the log, and may yet be lost"
    world.node.replica().follower_fetched(2, 1)
    world.broker.changed[world.node.replica().topic_partition] = None
    assert [marked(world.node.poll(each)) for each in (wait, again)] == [0, 0]
    wait = world.end(epoch=1)
    assert marked(world.node.expire(wait)) == ErrorCode.REQUEST_TIMED_OUT


def test_where_a_marker_cannot_be_written():
    world = Transactions(replicas=(1, 2))
    world.node.change("t", 1, leader=2, leader_epoch=1)
    assert marked(world.end(index=1)) == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert marked(world.end(index=7)) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert marked(world.end(topic="no")) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    wait = world.end()
    world.node.change("t", leader=2, leader_epoch=1)
    assert marked(world.node.poll(wait)) == ErrorCode.NOT_LEADER_OR_FOLLOWER


@pytest.mark.parametrize(
    ("denied", "code"),
    [
        ((Operation.CLUSTER_ACTION,), 0),
        ((Operation.ALTER,), 0),
        ((Operation.CLUSTER_ACTION, Operation.ALTER), ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
    ],
)
def test_who_may(denied, code):
    rules = [(each, ResourceType.CLUSTER, None) for each in denied]
    world = Transactions(authorizer=Denying(*rules))
    assert marked(world.end()) == code
    assert world.node.replica().end_offset == (0 if code else 1)


def test_markers_that_all_have_are_forgotten_without_a_reader(world):
    """A partition that no read_committed reader asks about keeps none of them."""
    for _ in range(20):
        world.open()
        world.end()
    assert not world.node.replica().producers.unreplicated
