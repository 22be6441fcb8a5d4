"""Records that a leader has deleted cannot be compared any more: whoever leads next shows none that
were never committed in their place.

All small histories: a broker has a tail that only it has when another one is elected, which commits
its own records and deletes some of them. The first one follows it, and one of its messages, any of
them, gets no answer. Then the leader's process ends, and the follower leads if it is in sync.
"""

from itertools import product

import pytest
from tests.core.api.in_memory_node import broker_image
from tests.core.replication.peers import Peers

MESSAGES = 12
"""More than a follower that comes back needs until it is in sync and knows it."""
PRODUCER = {"producer_id": 77, "producer_epoch": 0, "base_sequence": 0}
"""The first batch of an idempotent producer."""


def shown(peer):
    """What readers may see, by offset: the batch that begins there."""
    log, found = peer.replica.log, {}
    for offset in range(log.start_offset, peer.high_watermark):
        found[offset] = bytes(log.read(offset, max_bytes=1, upto=offset + 1, at_least_one=True))
    return found


def comes_back(tail, committed, deleted, **how):
    """Broker 1 has a tail of its own; broker 2 led meanwhile, and what it showed."""
    peers = Peers(2)
    peers[1].produce()
    peers.run(3)
    peers.lose_all()
    for _ in range(tail):
        peers[1].produce(timestamp=1, **how)
    peers.lose_all()
    peers.brokers[1] = broker_image(1, fenced=True)
    peers.change(leader=2, isr=(2,))
    peers.publish(2)
    for _ in range(committed):
        peers[2].produce(timestamp=2)
    before = shown(peers[2])
    peers[2].replica.log.delete_records_before(deleted)
    peers.brokers[1] = broker_image(1)
    peers.publish()
    return peers, before


@pytest.mark.parametrize("committed", [1, 2, 3])
def test_a_producer_of_what_was_never_committed_is_unknown_where_records_were_deleted(committed):
    """Else its next attempt is answered as a duplicate, and its record is nowhere."""
    peers, _ = comes_back(1, committed, 2, **PRODUCER)
    peers.run(4)
    assert 1 in peers.state.isr
    peers.change(leader=1, isr=(1,))
    peers.publish(1)
    end = peers[1].end
    log = peers[1].replica.log
    peers[1].produce(**PRODUCER)
    assert log.start_offset == 2
    assert peers[1].end == end + 1, "its first attempt is not in the log"


@pytest.mark.parametrize("tail", [0, 1, 2, 3])
@pytest.mark.parametrize("committed", [1, 2, 3])
def test_what_was_never_committed_is_not_shown_where_records_were_deleted(tail, committed):
    joined = 0
    for deleted, lost in product(range(committed + 2), range(MESSAGES)):
        peers, before = comes_back(tail, committed, deleted)
        for message in range(MESSAGES):
            if peers.mail:
                peers.deliver(lose_answer=message == lost)
        if 1 not in peers.state.isr:
            continue
        joined += 1
        peers.change(leader=1, isr=(1,))
        peers.publish(1)
        after = shown(peers[1])
        assert after == {at: before[at] for at in after}, (deleted, lost)
        assert all(at in after for at in before if at >= deleted)
    assert joined


@pytest.mark.parametrize("tail", [0, 1, 2, 3])
@pytest.mark.parametrize("committed", [1, 2, 3])
def test_deleted_records_that_come_back_are_those_that_were_committed(tail, committed):
    joined = 0
    for deleted in range(committed + 2):
        peers, before = comes_back(tail, committed, deleted)
        peers.run(MESSAGES)
        if 1 not in peers.state.isr:
            continue
        joined += 1
        peers.crash(1)
        peers.change(leader=1, isr=(1,))
        peers.publish(1)
        after = shown(peers[1])
        assert after == {at: before[at] for at in after}, deleted
    assert joined


@pytest.mark.parametrize("length", [1, 3, 4, 6])
@pytest.mark.parametrize("start", [1, 2, 3, 4])
def test_a_copy_without_records_is_in_sync_only_with_all_that_its_leader_has(start, length):
    """A power cut took the records of both; only one log still knows where it began, at what was
    deleted before. The other was elected, and gives the same offsets again."""
    for lost in range(MESSAGES):
        peers = Peers(2)
        peers.lose_all()
        peers.brokers[1] = broker_image(1, fenced=True)
        peers.change(leader=2, isr=(2,))
        peers.publish(2)
        peers[1].replica.log.truncate_fully(start)
        for _ in range(length):
            peers[2].produce()
        peers.brokers[1] = broker_image(1)
        peers.publish()
        for message in range(MESSAGES):
            if peers.mail:
                peers.deliver(lose_answer=message == lost)
            if 1 in peers.state.isr:
                high = peers[2].high_watermark
                assert peers[1].bytes_upto(high) == peers[2].bytes_upto(high), (lost, message)
        peers.settle()
        assert 1 in peers.state.isr
        assert peers[1].bytes_upto(length) == peers[2].bytes_upto(length)


@pytest.mark.parametrize("counts", [{"isr": (1, 2)}, {"isr": (1,), "elr": (2,)}])
def test_a_copy_without_records_that_may_lead_gives_up_no_offset(counts):
    """Its leader lost where its log begins; were this one elected, it must not give those again."""
    peers = Peers(2)
    peers.lose_all()
    peers[1].produce(3, acks=1)
    peers[2].replica.log.truncate_fully(3)  # all was deleted
    peers.change(**counts)
    peers.publish()
    peers.settle()
    assert peers[2].replica.log.start_offset == peers[2].end == 3
    assert set(peers.state.isr) == {1, 2}
