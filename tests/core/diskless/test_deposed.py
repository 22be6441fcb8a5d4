"""What waits at a broker whose epoch the coordinator refuses is answered at once."""

from __future__ import annotations

import pytest
from tests.core.diskless.diskless_node import CLUSTER_ID, EPOCH, Cluster, batch
from tests.core.diskless.test_data_path import everything, produce, produced, told

from anabranch.core.diskless import effects as does
from anabranch.core.diskless.admission import Admitted, Refused, Register, admission
from anabranch.core.diskless.coordinator import CoordinatorAway
from anabranch.core.errors import ErrorCode, StorageFault
from anabranch.core.outcome import Wait

NONE, NOT_HERE = ErrorCode.NONE, ErrorCode.NOT_LEADER_OR_FOLLOWER


@pytest.fixture
def cluster():
    return Cluster()


def admit(node):
    """Have the coordinator know the broker's epoch, as its shell does."""
    chain, result = admission(node.broker), None
    while True:
        try:
            step = chain.throw(result) if isinstance(result, StorageFault) else chain.send(result)
        except StopIteration:
            return
        result = None
        match step:
            case Register(_, epoch):
                try:
                    node.cluster.coordinator.register(node.number, epoch)
                except StorageFault as fault:
                    result = fault
            case Admitted(epoch):
                node.diskless.registered(CLUSTER_ID, epoch, node.broker.steady_ms)
            case Refused(epoch, why):
                node.diskless.deposed(epoch, why, node.broker.steady_ms)


def newer_life(cluster, node):
    """Another process of this broker has registered at the coordinator."""
    cluster.coordinator.register(node.number, EPOCH + 1)


def answers(node, waits):
    """What requests were answered by now."""
    polled = [node.polled(wait) for wait in waits]
    return [None if each is None else told(each)[0] for each in polled]


@pytest.mark.parametrize("performed", range(12))
@pytest.mark.parametrize("is_answered", [True, False])
def test_what_waits_is_answered_as_soon_as_the_epoch_is_refused(cluster, performed, is_answered):
    """In the buffer, before its row, its put, its turn, its commit, or what became of that."""
    node = cluster.node(config={"diskless.produce.buffer.max.bytes": "1024"})
    cluster.topic()
    cluster.topic("later", rows=False)
    waits = [produce(node, batch(b"x" * 600), topic=name) for name in ("t", "later") * 9]
    for _ in range(performed):
        if not node.take():
            break  # what follows waits for a pause
        effect = node.next()
        if isinstance(effect, does.CommitObject) and not is_answered:
            node.perform(effect, answer=False)
            node.diskless.answered(effect, CoordinatorAway("lost"), node.broker.steady_ms)
        else:
            node.perform(effect)
    newer_life(cluster, node)
    node.diskless.writing._stock.clear()  # it asks for more
    node.pass_time(100)  # a commit without an answer is asked for after a pause
    codes = answers(node, waits)
    assert set(codes) <= {NONE, NOT_HERE, ErrorCode.KAFKA_STORAGE_ERROR}, codes
    assert not node.diskless.writing.waiting_bytes


def test_a_broker_that_was_never_admitted_keeps_nothing(cluster):
    node = cluster.node()
    cluster.topic()
    newer_life(cluster, node)
    node.broker.broker_epoch = EPOCH
    waits = [produce(node, batch(b"a"))]
    node.perform(node.next(does.AskStates))
    node.unperformed.clear()  # its ids are asked for, and not there yet
    assert answers(node, waits) == [None]
    admit(node)
    assert answers(node, waits) == [NOT_HERE]


def test_what_comes_later_is_refused_at_once(cluster):
    node = cluster.node()
    cluster.topic()
    newer_life(cluster, node)
    admit(node)
    response = produce(node, batch(b"a"))
    assert not isinstance(response, Wait)
    assert told(response) == (NOT_HERE, -1)
    assert "another process has this broker's place" in node.diskless.why_deposed
    assert not [each for each in node.take() if isinstance(each, does.PrepareObjects)]


def test_what_is_committed_is_still_read(cluster):
    node = cluster.node()
    cluster.topic()
    assert produced(node, batch(b"a")) == (NONE, 0)
    newer_life(cluster, node)
    admit(node)
    assert everything(node) == [(0, b"a")]


def test_a_newer_epoch_of_the_same_process_is_taken_again(cluster):
    node = cluster.node()
    cluster.topic()
    newer_life(cluster, node)
    admit(node)
    assert told(produce(node, batch(b"a"))) == (NOT_HERE, -1)
    node.broker.broker_epoch = EPOCH + 2
    admit(node)
    assert produced(node, batch(b"a")) == (NONE, 0)


def test_the_refusal_of_an_epoch_that_is_over_fails_nothing(cluster):
    """The controller gave this process a newer one, which the coordinator knows already, and the
    process does not know that it does."""
    node = cluster.node()
    cluster.topic()
    wait = produce(node, batch(b"a"))
    node.perform(node.next(does.AskStates))
    node.broker.broker_epoch = EPOCH + 1
    newer_life(cluster, node)
    node.perform(node.next(does.PrepareObjects))
    assert answers(node, [wait]) == [None]
    node.diskless.deposed(EPOCH, "epoch 2", node.broker.steady_ms)
    assert answers(node, [wait]) == [None]
    admit(node)
    node.settle()
    assert answers(node, [wait]) == [NONE]


def test_an_answer_under_the_epoch_before_fails_nothing(cluster):
    """Ids were asked for under an epoch that was over before the coordinator read the question, and
    the process is known by its next one when the answer comes."""
    node = cluster.node()
    cluster.topic()
    wait = produce(node, batch(b"a"))
    node.perform(node.next(does.AskStates))
    asked = node.next(does.PrepareObjects)
    newer_life(cluster, node)
    refused = node.perform(asked, answer=False)
    node.broker.broker_epoch = EPOCH + 1
    admit(node)
    node.diskless.answered(asked, refused, node.broker.steady_ms)
    assert answers(node, [wait]) == [None]
    node.pass_time(100)
    assert answers(node, [wait]) == [NONE]
