"""DeleteRecords waits until every living replica has moved its log's start."""

import pytest
from tests.core.api.in_memory_node import broker_image
from tests.core.replication.peers import Peers

from anabranch.core.errors import ErrorCode
from anabranch.core.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)


def delete(peers, offset):
    partition = DeleteRecordsPartition(partition_index=0, offset=offset)
    topic = DeleteRecordsTopic(name="t", partitions=[partition])
    answer = peers[1].ask(DeleteRecordsRequest(topics=[topic], timeout_ms=1000), 2)
    peers[1].finish()
    return answer


def result(response):
    partition = response.topics[0].partitions[0]
    return partition.error_code, partition.low_watermark


def written():
    peers = Peers(3)
    for _ in range(3):
        peers[1].produce(2)
        peers.run(3)
    return peers


def test_it_waits_for_the_followers():
    peers = written()
    box = delete(peers, 4)
    assert box == []
    peers.run(3)
    assert result(box[0]) == (0, 4)
    assert [peers[each].replica.log.start_offset for each in (1, 2, 3)] == [4, 4, 4]


def test_a_follower_that_had_dropped_them_by_itself_says_so():
    """Retention may move a follower's log start before its leader's."""
    peers = written()
    for each in (2, 3):
        peers[each].replica.log.delete_records_before(4)
    box = delete(peers, 4)
    peers.run(3)
    assert [result(answer) for answer in box] == [(0, 4)]


def test_such_a_follower_joins_the_isr():
    peers = written()
    peers.change(isr=(1, 2))
    peers.publish()
    for each in (3, 1):
        peers[each].replica.log.delete_records_before(6)
    peers.settle()
    assert set(peers.state.isr) == {1, 2, 3}


def test_it_does_not_wait_for_a_fenced_follower():
    peers = written()
    peers.brokers[3] = broker_image(3, fenced=True)
    peers.publish(1)
    peers.mail = [each for each in peers.mail if each[0].broker_id != 3]
    box = delete(peers, 4)
    peers.run(3)
    assert result(box[0]) == (0, 4)


def test_time_and_leadership_run_out():
    peers = written()
    delete(peers, 4)
    ((wait, _),) = peers[1].waits
    assert result(wait.poll(wait.deadline_ms, True)) == (ErrorCode.REQUEST_TIMED_OUT, 0)
    box = delete(peers, 5)
    peers.elect(2)
    assert result(box[0]) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)


def test_a_new_session_hears_at_once_of_a_log_start_that_the_follower_has_not_followed():
    """Seed 730071: fetches that waited as long as their client were never answered in time."""
    peers = written()
    peers[1].replica.log.delete_records_before(6)
    peers.lose_all()
    peers.wait(5_000)
    request = next(effect.request for sender, _, effect in peers.mail if sender.broker_id == 2)
    request.max_wait_ms = 500
    answer = peers[1].ask(request, 17)
    assert not isinstance(answer, list)
    assert answer.responses[0].partitions[0].log_start_offset == 6


@pytest.mark.parametrize("crashed", [(1,), (2,), (1, 2), (2, 3)])
def test_what_was_deleted_stays_so_while_one_in_sync_replica_lives(crashed):
    """Where a log begins is on disk only a minute later."""
    peers = written()
    box = delete(peers, 4)
    peers.run(3)
    assert result(box[0]) == (0, 4)
    peers.lose_all()
    left = tuple(each for each in (1, 2, 3) if each not in crashed)
    for each in crashed:
        peers.crash(each)
    peers.change(leader=left[0], isr=left)
    peers.settle()
    assert set(peers.state.isr) == {1, 2, 3}
    for each in crashed:
        peers.elect(each)
        assert peers[each].replica.log.start_offset == 4


def test_where_all_crash_deleted_records_are_there_again_and_no_others():
    peers = written()
    before = peers[1].bytes_upto(6)
    box = delete(peers, 4)
    peers.run(3)
    assert result(box[0]) == (0, 4)
    peers.lose_all()
    for each in (1, 2, 3):
        peers.crash(each)
    peers.elect(2, isr=(2,))
    assert peers[2].replica.log.start_offset == 0
    assert peers[2].bytes_upto(6) == before
