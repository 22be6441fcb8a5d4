"""R5, document 002: every cell of acks x min.insync.replicas at replication factor 3.

For each number of brokers that are in sync and alive: whether the write is taken, when it is
answered, whether readers see it, and whether it survives the loss of the leader.
"""

import pytest
from tests.core.replication.peers import Peers, outcome_of

from anabranch.core.errors import ErrorCode
from anabranch.core.outcome import NoAnswer

CELLS = [
    # acks, min.insync.replicas, in sync: accepted?, acknowledged by, visible at last?
    (0, 1, 3, True, "nobody", True),
    (0, 1, 2, True, "nobody", True),
    (0, 1, 1, True, "nobody", True),
    (0, 2, 3, True, "nobody", True),
    (0, 2, 2, True, "nobody", True),
    (0, 2, 1, True, "nobody", False),
    (0, 3, 3, True, "nobody", True),
    (0, 3, 2, True, "nobody", False),
    (0, 3, 1, True, "nobody", False),
    (1, 1, 3, True, "leader", True),
    (1, 1, 2, True, "leader", True),
    (1, 1, 1, True, "leader", True),
    (1, 2, 3, True, "leader", True),
    (1, 2, 2, True, "leader", True),
    (1, 2, 1, True, "leader", False),
    (1, 3, 3, True, "leader", True),
    (1, 3, 2, True, "leader", False),
    (1, 3, 1, True, "leader", False),
    (-1, 1, 3, True, "all", True),
    (-1, 1, 2, True, "all", True),
    (-1, 1, 1, True, "leader", True),  # the document's false sense of safety
    (-1, 2, 3, True, "all", True),
    (-1, 2, 2, True, "all", True),
    (-1, 2, 1, False, "nobody", False),
    (-1, 3, 3, True, "all", True),
    (-1, 3, 2, False, "nobody", False),
    (-1, 3, 1, False, "nobody", False),
]


def partition(minimum, in_sync):
    """A partition of three replicas of which the first `in_sync` are alive and in sync."""
    peers = Peers(3, publish=False, topic_config={"min.insync.replicas": str(minimum)})
    alive = tuple(range(1, in_sync + 1))
    peers.change(isr=alive)
    peers.publish(*alive)
    return peers


@pytest.mark.parametrize(("acks", "minimum", "in_sync", "taken", "by", "visible"), CELLS)
def test_a_cell(acks, minimum, in_sync, taken, by, visible):
    peers = partition(minimum, in_sync)
    answer = send(peers, acks)
    if not taken:
        assert answer.error_code == ErrorCode.NOT_ENOUGH_REPLICAS
        assert peers[1].end == 0, "refused before it was written"
        return
    assert peers[1].end == 1
    if by == "nobody":
        assert isinstance(answer, NoAnswer)
    elif by == "leader":
        assert answer.error_code == ErrorCode.NONE
    else:
        assert answer == [], "it waits for the others"
        peers.run(6)
        assert outcome_of(answer[0]).error_code == ErrorCode.NONE
        others = [peers[each].end for each in range(2, in_sync + 1)]
        assert others == [1] * (in_sync - 1), "on every in-sync replica before the answer"
    peers.run(6)
    assert peers[1].high_watermark == int(visible)


def send(peers, acks):
    if acks != 0:
        return peers[1].produce(1, acks=acks)
    outcome = []
    ask = peers[1].ask
    peers[1].ask = lambda *how: outcome.append(ask(*how)) or []
    peers[1].produce(1, acks=acks)
    del peers[1].ask
    return outcome[0]


@pytest.mark.parametrize("minimum", [1, 2, 3])
def test_the_isr_shrinks_under_a_request_that_waits(minimum):
    """It is there, and on fewer replicas than was promised: NotEnoughReplicasAfterAppend."""
    peers = partition(minimum, 3)
    answer = peers[1].produce(1)
    peers.mail = [each for each in peers.mail if each[0].broker_id == 2]
    peers.run(4)
    assert answer == [], "3 has not answered"
    peers.change(isr=(1, 2))
    peers.publish(1)
    if minimum < 3:
        assert outcome_of(answer[0]).error_code == ErrorCode.NONE
        return
    assert answer == [], "the high watermark waits for the minimum"
    assert peers[1].high_watermark == 0


def test_committed_and_then_too_few_is_said_after_the_append():
    """The mark had moved before the ISR shrank; the answer had not gone out yet."""
    peers = partition(2, 2)
    answer = peers[1].produce(1)
    waits, peers[1].waits = peers[1].waits, []
    peers.run(2)
    assert peers[1].high_watermark == 1
    peers.change(isr=(1,))
    peers[1].waits = waits
    peers.publish(1)
    assert outcome_of(answer[0]).error_code == ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND


def test_more_than_the_replicas_is_never_asked_for():
    peers = Peers(1, topic_config={"min.insync.replicas": "3"})
    assert peers[1].produce(1).error_code == ErrorCode.NONE
    assert peers[1].high_watermark == 1


def test_observers_are_not_counted_for_the_minimum():
    config = {"min.insync.replicas": "2"}
    peers = Peers(3, observers=(3,), topic_config=config, publish=False)
    peers.change(isr=(1,))
    peers.publish(1, 3)
    assert peers[1].produce(1).error_code == ErrorCode.NOT_ENOUGH_REPLICAS
    assert peers[1].produce(1, acks=1).error_code == ErrorCode.NONE
    peers.run(4)
    assert (peers[3].end, peers[1].high_watermark) == (1, 0)


def test_acks_all_with_a_flush_each_message_waits_for_the_followers_disks():
    """flush.messages=1: a follower says that it has a record only when it is flushed."""
    peers = Peers(2, topic_config={"flush.messages": "1"})
    peers.syncs = False
    answer = peers[1].produce(1)
    target = peers[1].replica.log.sync_target()
    peers[1].replica.synced(target[0])
    peers.run(6)
    assert (peers[2].end, answer, peers[1].high_watermark) == (1, [], 0)
    peers.syncs = True
    peers[2].finish()
    peers.run(4)
    assert outcome_of(answer[0]).error_code == ErrorCode.NONE
