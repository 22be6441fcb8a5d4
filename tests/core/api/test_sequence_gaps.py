"""R5: a producer's batch is missing: what it sent behind that one waits for it."""

from __future__ import annotations

from contextlib import contextmanager

import pytest
from tests.core.api.in_memory_node import batch
from tests.core.replication.peers import START_MS, Peers

from anabranch.core.errors import ErrorCode
from anabranch.core.log import sequence_gaps
from anabranch.core.log.files import DiskFull
from anabranch.core.log.sequence_gaps import FORGOTTEN_MS, GAP_MS, MISSING_MS
from anabranch.core.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)

NONE, FULL = ErrorCode.NONE, ErrorCode.KAFKA_STORAGE_ERROR
OUT_OF_ORDER = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
NOT_LEADER, UNKNOWN = ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
TOO_FEW = ErrorCode.NOT_ENOUGH_REPLICAS


@pytest.fixture
def peers():
    """One broker: the order of what is in flight is decided where it is appended."""
    return Peers(1)


@contextmanager
def full_disk():
    def refuse(*_how):
        raise DiskFull("no room")

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("anabranch.core.log.appends._write", refuse)
        yield


def send(peers, sequence, *, to=1, producer_id=7, epoch=0):
    batch = {"base_sequence": sequence, "producer_id": producer_id, "producer_epoch": epoch}
    return code_of(peers[to].produce(1, **batch))


def code_of(answer):
    """A batch that is committed only once followers have it has no code yet."""
    return NONE if isinstance(answer, list) else answer.error_code


def held(peers):
    """The producers that are held up."""
    return [producer_id for _, producer_id, _ in peers[1].broker.sequence_gaps.first]


def refuse(peers, sequence, **whose):
    with full_disk():
        assert send(peers, sequence, **whose) == FULL


def test_what_comes_behind_a_batch_that_a_full_disk_refused_is_refused_alike(peers):
    """Told OUT_OF_ORDER_SEQUENCE_NUMBER, librdkafka raises its epoch and doubles what others have."""
    assert send(peers, 0) == NONE
    refuse(peers, 1)
    assert send(peers, 2) == FULL
    assert send(peers, 1) == NONE
    assert send(peers, 2) == NONE
    assert peers[1].end == 3


def test_the_second_batch_of_a_new_producer_does_not_overtake_its_refused_first(peers):
    """The log knows nothing of the producer yet, and would let it begin anywhere."""
    refuse(peers, 0)
    assert send(peers, 1) == FULL
    assert send(peers, 0) == NONE
    assert send(peers, 1) == NONE
    assert peers[1].end == 2


def test_what_was_taken_before_the_refused_batch_is_still_known(peers):
    assert send(peers, 0) == NONE
    refuse(peers, 1)
    assert send(peers, 0) == NONE
    assert send(peers, 2) == FULL
    assert peers[1].end == 1


def test_nobody_else_waits(peers):
    refuse(peers, 1)
    assert send(peers, 5, producer_id=8) == NONE
    assert send(peers, -1, producer_id=-1, epoch=-1) == NONE


def test_a_newer_epoch_of_the_producer_does_not_wait(peers):
    assert send(peers, 0) == NONE
    refuse(peers, 1)
    assert send(peers, 0, epoch=1) == NONE
    assert send(peers, 1, epoch=1) == NONE


def test_what_a_newer_epoch_has_fenced_does_not_wait(peers):
    assert send(peers, 0) == NONE
    refuse(peers, 1)
    assert send(peers, 0, epoch=1) == NONE
    assert send(peers, 2) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert not held(peers)


def test_a_batch_that_never_comes_again_is_not_waited_for_for_ever(peers):
    assert send(peers, 0) == NONE
    refuse(peers, 1)
    peers.now_ms += MISSING_MS
    assert send(peers, 2) == NOT_LEADER, "a gap"
    peers.now_ms += GAP_MS
    assert send(peers, 2) == OUT_OF_ORDER


def test_refused_batches_are_forgotten_in_time(peers):
    for producer_id in range(100):
        refuse(peers, 1, producer_id=producer_id)
        peers.now_ms += FORGOTTEN_MS // 10
    assert len(held(peers)) == 10
    peers.now_ms += FORGOTTEN_MS
    assert send(peers, 0, producer_id=100) == NONE, "also when nothing is refused any more"
    assert not held(peers)


def test_a_refused_batch_that_comes_again_is_younger_than_others(peers):
    for producer_id in (7, 8):
        refuse(peers, 1, producer_id=producer_id)
    peers.now_ms += FORGOTTEN_MS // 2
    refuse(peers, 1, producer_id=7)
    peers.now_ms += FORGOTTEN_MS // 2
    refuse(peers, 1, producer_id=9)
    assert held(peers) == [7, 9]


def test_the_time_of_day_may_go_back(peers, monkeypatch):
    refuse(peers, 0)
    monkeypatch.setattr("tests.core.replication.peers.START_MS", START_MS - 3_600_000)
    assert send(peers, 1) == FULL
    assert [send(peers, each) for each in (0, 1)] == [NONE, NONE]
    assert send(peers, 3) == NOT_LEADER
    monkeypatch.setattr("tests.core.replication.peers.START_MS", START_MS - 7_200_000)
    assert send(peers, 3) == NOT_LEADER


def test_sequences_go_on_behind_the_largest_at_0(peers):
    largest = (1 << 31) - 1
    assert send(peers, largest - 1) == NONE
    refuse(peers, largest)
    assert send(peers, 0) == FULL
    assert [send(peers, each) for each in (largest, 0)] == [NONE, NONE]


def test_who_leads_on_or_again_still_waits(peers):
    """A move that ends, or an election that changes nothing, gives the same leader a new epoch."""
    refuse(peers, 0)
    peers.elect(1)
    assert send(peers, 1) == FULL
    peers.elect(-1)
    peers.elect(1)
    assert send(peers, 1) == FULL
    assert [send(peers, each) for each in (0, 1)] == [NONE, NONE]


def test_who_learns_between_two_batches_that_it_leads_takes_the_first_first():
    """A client may hear of a new leader before the leader does."""
    peers = Peers(3)
    assert [send(peers, each) for each in (0, 1)] == [NONE, NONE]
    peers.settle()
    peers.change(leader=2)
    assert [send(peers, each, to=2) for each in (2, 3)] == [NOT_LEADER, NOT_LEADER]
    peers.publish()
    assert send(peers, 4, to=2) == NOT_LEADER
    assert [send(peers, each, to=2) for each in (2, 3, 4)] == [NONE, NONE, NONE]


def test_a_new_producer_begins_with_its_first_batch_where_the_partition_is_new():
    """Otherwise the log would begin with the second batch, and refuse the first for ever."""
    peers = Peers(1, publish=False)
    assert send(peers, 0) == UNKNOWN
    peers.publish()
    assert send(peers, 1) == UNKNOWN
    assert [send(peers, each) for each in (0, 1)] == [NONE, NONE]
    assert peers[1].end == 2


def test_what_comes_behind_a_batch_that_too_few_replicas_refused_waits_for_it():
    peers = Peers(2, topic_config={"min.insync.replicas": "2"})
    assert send(peers, 0) == NONE
    peers.settle()
    peers.change(isr=(1,))
    peers.publish()
    assert send(peers, 1) == TOO_FEW
    peers.change(isr=(1, 2))
    peers.publish()
    assert send(peers, 2) == TOO_FEW
    assert [send(peers, each) for each in (1, 2)] == [NONE, NONE]


def test_nobody_waits_for_a_batch_that_the_log_has_by_way_of_another_leader():
    peers = Peers(3)
    peers.change(leader=2)
    peers.publish(2, 3)
    assert send(peers, 0, to=1) == NONE  # it does not know that it is deposed
    assert send(peers, 0, to=3) == NOT_LEADER
    assert [send(peers, each, to=2) for each in (0, 1)] == [NONE, NONE]
    peers.publish()
    peers.settle()
    peers.elect(3)
    assert send(peers, 2, to=3) == NONE
    assert not peers[3].broker.sequence_gaps.first


def test_what_a_client_will_not_send_again_is_not_waited_for(peers):
    assert [send(peers, each) for each in range(7)] == [NONE] * 7
    assert send(peers, 1) == OUT_OF_ORDER, "it came before, and is no duplicate that is known"
    assert send(peers, 7, epoch=-1) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert not held(peers)


def test_a_gap_is_waited_for_and_closed_by_the_batch_that_another_broker_refused(peers):
    """Why it is missing is known elsewhere: another leader refused it, or lost it when deposed."""
    assert send(peers, 0) == NONE
    assert [send(peers, each) for each in (2, 3)] == [NOT_LEADER, NOT_LEADER]
    assert [send(peers, each) for each in (1, 2, 3)] == [NONE, NONE, NONE]
    assert peers[1].end == 4


def test_a_gap_that_stays_is_told(peers):
    assert send(peers, 0) == NONE
    assert send(peers, 2) == NOT_LEADER
    peers.now_ms += GAP_MS - 1
    assert [send(peers, each) for each in (3, 2)] == [NOT_LEADER, NOT_LEADER]
    peers.now_ms += 1
    assert [send(peers, each) for each in (2, 3, 2)] == [OUT_OF_ORDER] * 3
    assert [send(peers, each, epoch=1) for each in (0, 1)] == [NONE, NONE]


def test_each_gap_has_its_own_time(peers):
    assert send(peers, 0) == NONE
    assert send(peers, 2) == NOT_LEADER
    peers.now_ms += GAP_MS
    assert send(peers, 1) == NONE
    assert send(peers, 3) == NOT_LEADER
    peers.now_ms += GAP_MS
    assert send(peers, 3) == OUT_OF_ORDER


def test_refusals_meanwhile_make_the_wait_for_a_gap_no_longer():
    peers = Peers(2, topic_config={"min.insync.replicas": "2"})
    assert send(peers, 0) == NONE
    peers.settle()
    assert send(peers, 2) == NOT_LEADER
    peers.now_ms += GAP_MS
    peers.change(isr=(1,))
    peers.publish()
    assert send(peers, 2) == TOO_FEW
    peers.change(isr=(1, 2))
    peers.publish()
    assert send(peers, 2) == OUT_OF_ORDER


def test_who_waits_is_not_told_to_ask_this_broker_again(peers):
    """It leads: told so beside the error, franz-go asks without a pause."""
    assert send(peers, 0) == NONE
    told = peers[1].produce(1, base_sequence=2, producer_id=7, producer_epoch=0)
    assert told.error_code == NOT_LEADER
    assert told.current_leader.leader_id == -1


def test_a_gap_is_counted_as_refused_each_time_it_is_sent(peers):
    failed = peers[1].broker.failed_produces
    assert send(peers, 0) == NONE
    assert not sum(failed.values())
    assert send(peers, 2) == NOT_LEADER
    peers.now_ms += GAP_MS
    assert send(peers, 2) == OUT_OF_ORDER
    assert sum(failed.values()) == 2


def test_a_gap_that_opens_earlier_has_its_own_time():
    """A leader that was deposed meanwhile, and leads again, lacks more than before."""
    peers = Peers(3)
    assert send(peers, 0) == NONE
    peers.settle()
    assert send(peers, 1) == NONE  # nobody else has it
    assert send(peers, 3) == NOT_LEADER
    peers.now_ms += GAP_MS
    peers.elect(2)
    peers.settle()
    peers.elect(1)
    assert send(peers, 3) == NOT_LEADER
    assert [send(peers, each) for each in (1, 2, 3)] == [NONE, NONE, NONE]


def test_a_new_epoch_that_begins_with_its_second_batch_waits_for_its_first(peers):
    assert send(peers, 0) == NONE
    assert send(peers, 1, epoch=1) == NOT_LEADER
    assert [send(peers, each, epoch=1) for each in (0, 1)] == [NONE, NONE]


def test_what_the_leader_lost_with_its_leadership_is_sent_again_before_what_was_behind_it():
    """Deposed and leading again, it has cut off the first batch when the second one comes."""
    peers = Peers(3)
    assert send(peers, 0) == NONE
    peers.settle()
    assert send(peers, 1) == NONE  # nobody else has it yet
    peers.elect(2)
    peers.settle()
    assert peers[1].end == 1
    peers.elect(1)
    assert send(peers, 2) == NOT_LEADER
    assert [send(peers, each) for each in (1, 2)] == [NONE, NONE]


def test_a_batch_without_a_sequence_is_not_waited_for():
    peers = Peers(1, publish=False)
    assert send(peers, -1) == UNKNOWN
    assert not held(peers)


def test_a_topic_that_cannot_be_is_not_waited_for(peers):
    """Names of 30 KB would be kept otherwise, of whoever asks."""
    data = PartitionProduceData(
        index=0, records=batch(1, producer_id=7, producer_epoch=0, base_sequence=0)
    )
    topics = [TopicProduceData(name=name, partition_data=[data]) for name in ("n" * 30_000, "n")]
    peers[1].ask(ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=topics), 11)
    assert [place for place, *_ in peers[1].broker.sequence_gaps.first] == [("n", 0)]


def test_no_more_than_so_many_are_held_up(peers, monkeypatch):
    monkeypatch.setattr(sequence_gaps, "MOST_HELD", 3)
    for producer_id in range(5):
        refuse(peers, 1, producer_id=producer_id)
    assert held(peers) == [2, 3, 4]
    assert send(peers, 2, producer_id=2) == FULL
    assert send(peers, 2, producer_id=1) == NONE
