"""What a broker's writer does about puts that hang, and about ids that are over."""

from __future__ import annotations

import pytest
from tests.core.diskless.diskless_node import Cluster, batch
from tests.core.diskless.test_data_path import everything, produce, produced, told

from anabranch.core.diskless import effects as does
from anabranch.core.diskless.objects import ObjectsAway
from anabranch.core.diskless.writer import LATE_MS, LEASE_MS, MOST_REPEATED, MOST_UPLOADS, STOCK
from anabranch.core.errors import ErrorCode

AWAY = ObjectsAway("away")
SOON_MS = 3 * LATE_MS
CALL_MS = 30_000
"""When the shell gives up a call."""


@pytest.fixture
def node():
    cluster = Cluster()
    made = cluster.node(interval_ms=50)
    cluster.topic(partitions=2)
    assert produced(made, batch(b"first")) == (ErrorCode.NONE, 0)
    made.pass_time(50)
    return made


def hanging_puts(node, most):
    """So many puts hang: they are neither done nor answered. Those that did."""
    hung = []
    perform = node.perform

    def performed(effect, **more):
        if isinstance(effect, does.PutObject) and len(hung) < most:
            hung.append(effect)
            return None
        return perform(effect, **more)

    node.perform = performed
    return hung


def writes(node, count):
    """Requests of one batch each, an object apart."""
    waits = []
    for number in range(count):
        waits.append(produce(node, batch(b"%d" % number), index=number % 2))
        node.settle()
        node.pass_time(50)
    return waits


def answers(node, waits):
    return [node.polled(wait) for wait in waits]


def test_a_put_that_hangs_is_made_again(node):
    """Batches that come later wait for it no longer than for one that is slow."""
    hung = hanging_puts(node, 1)
    waits = writes(node, MOST_UPLOADS)
    assert len(hung) == 1
    node.pass_time(SOON_MS)
    assert all(told(answer)[0] is ErrorCode.NONE for answer in answers(node, waits))
    assert node.diskless.writing.counts.puts_repeated == 1


@pytest.mark.parametrize("most", range(1, 5))
def test_several_that_hang_end_before_their_calls_do(node, most):
    hanging_puts(node, most)
    waits = writes(node, 4)
    node.pass_time(CALL_MS // 2)
    assert all(told(answer)[0] is ErrorCode.NONE for answer in answers(node, waits))


@pytest.mark.parametrize("result", [None, AWAY], ids=["stored", "failed"])
@pytest.mark.parametrize("when", ["before", "after"])
def test_the_first_put_may_end_at_any_time(node, result, when):
    """Its success and its failure, before the second one ends and long after: records stand once,
    and in order."""
    hung = hanging_puts(node, 2 if when == "before" else 1)
    waits = writes(node, 1)
    node.pass_time(SOON_MS)
    first, *second = hung
    if result is None:
        node.cluster.store.put(first.object_key, first.buffers)
    node.diskless.answered(first, result, node.broker.steady_ms)
    node.settle()
    for put in second:
        node.cluster.store.put(put.object_key, put.buffers)
        node.diskless.answered(put, None, node.broker.steady_ms)
        node.settle()
    (answer,) = answers(node, waits)
    assert told(answer)[0] is ErrorCode.NONE
    assert [value for _, value in everything(node)] == [b"first", b"0"]
    assert not node.diskless.writing.uploads


def test_what_is_under_way_beside_the_put_that_counted_is_ended(node):
    hung = hanging_puts(node, 1)
    ended = []
    call = node.perform

    def performed(effect, **more):
        if isinstance(effect, does.EndPuts):
            ended.append(effect.object_id)
        return call(effect, **more)

    node.perform = performed
    writes(node, 1)
    node.pass_time(SOON_MS)
    assert ended == [hung[0].object_id]


def test_a_store_that_is_slow_as_a_whole_has_at_most_twice_its_work(node):
    hung = hanging_puts(node, 1_000)
    waits = writes(node, 2 * MOST_UPLOADS)
    node.pass_time(10 * CALL_MS)
    assert len(hung) <= MOST_UPLOADS + MOST_REPEATED
    assert all(answer is None for answer in answers(node, waits)[:MOST_UPLOADS])


def test_a_put_of_which_every_attempt_failed_is_given_up(node):
    node.fails[does.PutObject] = lambda _: AWAY
    (wait,) = writes(node, 1)
    node.pass_time(SOON_MS)
    assert told(node.polled(wait))[0] is ErrorCode.KAFKA_STORAGE_ERROR
    assert not node.diskless.writing.uploads


def test_a_put_that_failed_often_waits_for_the_one_under_way(node):
    hung = hanging_puts(node, 4)
    (wait,) = writes(node, 1)
    node.pass_time(20 * LATE_MS)
    assert len(hung) == 4
    for put in hung[:3]:
        node.diskless.answered(put, AWAY, node.broker.steady_ms)
        node.settle()
        assert node.polled(wait) is None
    assert not node.take()
    node.diskless.answered(hung[3], node.call(hung[3]), node.broker.steady_ms)
    node.settle()
    assert told(node.polled(wait)) == (ErrorCode.NONE, 1)


def test_ids_that_are_over_by_the_coordinators_clock_fail_once(node):
    """A laptop resumes: the wall clock went on, the steady one did not. One object is refused, and
    the others of the stock are not tried."""
    node.cluster.now_ms += LEASE_MS + 1
    codes = []
    for _ in range(STOCK):
        (wait,) = writes(node, 1)
        codes.append(told(node.polled(wait))[0])
    assert codes == [ErrorCode.KAFKA_STORAGE_ERROR] + [ErrorCode.NONE] * (STOCK - 1)
