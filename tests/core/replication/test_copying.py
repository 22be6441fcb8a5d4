"""Followers copy a leader's log byte by byte, and learn its high watermark."""

from tests.core.replication.peers import Peers, outcome_of

from anabranch.core.replication.effects import SendFetch


def test_three_brokers_come_to_the_same_bytes():
    peers = Peers(3)
    box = peers[1].produce(5)
    peers.run(6)
    assert outcome_of(box[0]).error_code == 0
    assert [peers[each].end for each in (1, 2, 3)] == [5, 5, 5]
    assert peers[1].bytes_upto(5) == peers[2].bytes_upto(5) == peers[3].bytes_upto(5)
    assert [peers[each].high_watermark for each in (1, 2, 3)] == [5, 5, 5]


def test_a_follower_without_room_asks_for_nothing_until_it_has_room():
    """What it asked for it would throw away."""
    peers = Peers(3)
    peers[1].produce(1)
    peers.run(6)
    peers[2].folder.room.refused(peers.now_ms)
    peers[1].produce(5)
    peers.run(6)
    asked = []
    for _ in range(50):
        peers.wait(100)
        asked += [each for each, _, effect in peers.mail if isinstance(effect, SendFetch)]
        peers.run(1)
    assert peers[3] in asked and peers[2] not in asked
    assert [peers[each].end for each in (1, 2, 3)] == [6, 1, 6]
    peers[2].folder.room.returns(peers.now_ms)
    peers[2].folder.room.reserved(peers.now_ms)
    peers.settle()
    assert peers[2].end == 6
