"""Followers copy a leader's log byte by byte, and learn its high watermark."""

from tests.core.replication.peers import Peers, outcome_of


def test_three_brokers_come_to_the_same_bytes():
    peers = Peers(3)
    box = peers[1].produce(5)
    peers.run(6)
    assert outcome_of(box[0]).error_code == 0
    assert [peers[each].end for each in (1, 2, 3)] == [5, 5, 5]
    assert peers[1].bytes_upto(5) == peers[2].bytes_upto(5) == peers[3].bytes_upto(5)
    assert [peers[each].high_watermark for each in (1, 2, 3)] == [5, 5, 5]
