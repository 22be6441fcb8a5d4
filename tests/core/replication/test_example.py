"""The worked example of docs/concepts/replication.md, step by step."""

from tests.core.replication.peers import Peers, outcome_of
from tests.core.replication.test_in_sync import deliver_fetch_of


def ends(peers):
    return tuple(peers[each].end for each in (1, 2, 3))


def test_the_example():
    peers = Peers(3, topic_config={"min.insync.replicas": "2"})
    one, two = peers[1], peers[2]
    one.produce(5)
    peers.run(3)
    assert (ends(peers), one.high_watermark) == ((5, 5, 5), 5)

    box = one.produce(2)
    assert (ends(peers), one.high_watermark, box) == ((7, 5, 5), 5, [])
    deliver_fetch_of(peers, 2)
    assert (ends(peers), one.high_watermark) == ((7, 7, 5), 5)
    deliver_fetch_of(peers, 2)
    assert one.high_watermark == 5
    deliver_fetch_of(peers, 3)
    deliver_fetch_of(peers, 3)
    assert (ends(peers), one.high_watermark) == ((7, 7, 7), 7)
    assert outcome_of(box[0]).error_code == 0

    one.produce(2, acks=1)
    deliver_fetch_of(peers, 2)
    assert (ends(peers), one.high_watermark) == ((9, 9, 7), 7)
    peers.lose_all()
    peers.change(leader=2, isr=(2, 3))
    peers.publish(2, 3)
    assert two.high_watermark <= 7
    deliver_fetch_of(peers, 3)
    deliver_fetch_of(peers, 3)
    assert (ends(peers), two.high_watermark) == ((9, 9, 9), 9)

    peers.restart(1)
    peers.settle()
    assert ends(peers) == (9, 9, 9)
    assert set(peers.state.isr) == {1, 2, 3}


def test_the_tenth_record_that_nobody_fetched_is_cut():
    peers = Peers(3)
    peers[1].produce(9)
    peers.run(3)
    peers[1].produce(1, acks=1)
    peers.lose_all()
    peers.elect(2, isr=(2, 3))
    assert peers[1].end == 10
    deliver_fetch_of(peers, 1)
    assert peers[1].end == 9
