"""R8: a consumer is sent to a replica in its rack that has what it wants, and served there."""

import pytest
from tests.core.api.in_memory_node import broker_image
from tests.core.replication.peers import Peers

from anabranch.core.errors import ErrorCode
from anabranch.core.replication.selection import LEADER_SELECTOR, RACK_AWARE_SELECTOR
from anabranch.core.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic

RACKS = {1: "a", 2: "b", 3: "c", 4: "c"}
LAG_MS = 30_000


def peers_in_racks(count=3, *, selector=RACK_AWARE_SELECTOR, racks=RACKS, **how):
    """Brokers in racks; 1 leads. Two records are everywhere and committed."""
    config = {"replica.selector.class": selector} if selector else {}
    peers = Peers(count, config=config, publish=False, **how)
    for each in peers.brokers:
        peers.brokers[each] = broker_image(each, rack=racks[each])
    peers.publish()
    peers[1].produce(2)
    peers.run(4)
    return peers


def read(peer, offset, rack, *, version=12, **how):
    partition = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
    request = FetchRequest(
        topics=[FetchTopic(topic="t", partitions=[partition])],
        max_bytes=1 << 20,
        rack_id=rack,
        **how,
    )
    return peer.ask(request, version)


def answer_to(*words, **how):
    return read(*words, **how).responses[0].partitions[0]


def nearer(*words, **how):
    return answer_to(*words, **how).preferred_read_replica


def test_the_leader_names_the_replica_in_the_consumer_s_rack_and_sends_no_records():
    peers = peers_in_racks()
    answer = answer_to(peers[1], 0, "b")
    assert (answer.error_code, answer.preferred_read_replica, answer.records) == (0, 2, b"")
    assert (answer.high_watermark, answer.log_start_offset) == (2, 0)
    served = answer_to(peers[2], 0, "b")
    assert bytes(served.records) == peers[1].bytes_upto(2)
    assert served.preferred_read_replica == -1


@pytest.mark.parametrize("rack", ["", "a", "elsewhere"])
def test_the_leader_serves_its_own_rack_and_those_that_have_nobody(rack):
    peers = peers_in_racks()
    answer = answer_to(peers[1], 0, rack)
    assert answer.preferred_read_replica == -1
    assert bytes(answer.records) == peers[1].bytes_upto(2)


def test_the_leader_serves_its_rack_also_when_a_follower_is_there():
    peers = peers_in_racks(racks={1: "a", 2: "a", 3: "a"})
    assert nearer(peers[1], 0, "a") == -1


@pytest.mark.parametrize("selector", [None, LEADER_SELECTOR])
def test_by_default_the_leader_serves_everybody(selector):
    assert nearer(peers_in_racks(selector=selector)[1], 0, "b") == -1


def test_consumers_before_version_11_have_no_rack():
    peers = peers_in_racks()
    partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    topic = FetchTopic(topic="t", partitions=[partition])
    answer = peers[1].ask(FetchRequest(topics=[topic], max_bytes=1 << 20), 10)
    assert bytes(answer.responses[0].partitions[0].records) == peers[1].bytes_upto(2)


def test_of_two_in_the_rack_the_one_that_has_more_is_named():
    peers = peers_in_racks(4)
    assert nearer(peers[1], 0, "c") == 4, "the higher id, when nothing else parts them"
    peers.mail = [each for each in peers.mail if each[0].broker_id != 4]  # 4 falls silent
    peers[1].produce(1, acks=1)
    peers.run(3)
    assert nearer(peers[1], 0, "c") == 3


def test_a_replica_that_does_not_have_the_offset_is_not_named():
    peers = peers_in_racks()
    peers.mail.clear()
    peers[1].produce(1, acks=1)
    assert nearer(peers[1], 2, "b") == 2
    assert nearer(peers[1], 3, "b") == -1


def test_a_replica_whose_log_begins_later_is_not_named():
    peers = peers_in_racks()
    peers[1].replica.followers[2].start_offset = 1
    assert nearer(peers[1], 0, "b") == -1
    assert nearer(peers[1], 1, "b") == 2


def test_a_replica_out_of_sync_is_not_named():
    peers = peers_in_racks()
    peers.change(isr=(1, 3))
    peers.publish(1)
    assert nearer(peers[1], 0, "b") == -1


def test_a_fenced_or_leaving_replica_is_not_named():
    peers = peers_in_racks()
    peers.brokers[2] = broker_image(2, rack="b", fenced=True)
    peers.publish(1)
    assert nearer(peers[1], 0, "b") == -1


def test_an_observer_that_keeps_up_is_named_and_one_that_lags_is_not():
    peers = peers_in_racks(observers=(3,))
    assert nearer(peers[1], 0, "c") == 3
    peers.mail = [each for each in peers.mail if each[0].broker_id != 3]
    peers[1].produce(1)
    peers.wait(LAG_MS + 1)
    peers.run(2)
    assert nearer(peers[1], 0, "c") == -1


def test_in_a_session_who_is_nearer_is_told_each_time():
    peers = peers_in_racks()
    first = read(peers[1], 0, "b", session_id=0, session_epoch=0)
    assert first.session_id > 0
    again = FetchRequest(
        session_id=first.session_id, session_epoch=1, max_bytes=1 << 20, rack_id="b"
    )
    second = peers[1].ask(again, 12)
    assert second.responses[0].partitions[0].preferred_read_replica == 2


def test_the_consumer_is_sent_away_at_once_also_when_it_would_wait():
    peers = peers_in_racks()
    answer = read(peers[1], 2, "b", max_wait_ms=500, min_bytes=1)
    assert answer.responses[0].partitions[0].preferred_read_replica == 2


def test_a_follower_leaves_it_to_the_leader_to_say_what_lies_beyond_its_log():
    peers = peers_in_racks()
    assert answer_to(peers[2], 3, "b").error_code == ErrorCode.OFFSET_NOT_AVAILABLE
    peers.elect(3)
    assert answer_to(peers[2], 3, "b").error_code == ErrorCode.OFFSET_NOT_AVAILABLE


def test_what_is_below_the_follower_s_log_is_out_of_range_there():
    peers = peers_in_racks()
    peers[2].replica.log.delete_records_before(1)
    assert answer_to(peers[2], 0, "b").error_code == ErrorCode.OFFSET_OUT_OF_RANGE
