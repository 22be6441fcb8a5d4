"""A leader that has only the later part of its log on its disk: followers copy that part."""

from __future__ import annotations

from random import Random

import msgspec
import pytest
from tests.core.replication.peers import PLACE, Peers

from anabranch.core.errors import ApiError, ErrorCode
from anabranch.core.log.log import Log
from anabranch.core.partition.tail import NO_TAIL, NoTail
from anabranch.core.replication.follower import FollowedPartition
from anabranch.core.wire.batch import read_header
from anabranch.core.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)


def tier(peers: Peers, *brokers: int) -> None:
    """Have the partition's older part be in another store."""
    for each in brokers or peers.brokers:
        log = peers[each].replica.log
        log.config = msgspec.structs.replace(log.config, has_remote=True)


def copied(peers: Peers, broker_id: int) -> None:
    """All that a leader has committed is in the other store, and leaves its disk."""
    log = peers[broker_id].replica.log
    log.roll(0)
    log.noted_start_offset = log.start_offset
    log.drop_local(peers[broker_id].high_watermark, 0, peers[broker_id].high_watermark)


def leader_with_a_local_part(peers: Peers) -> None:
    """Offsets 0 to 8 are in another store, 9 to 11 on broker 1's disk."""
    tier(peers)
    for _ in range(3):
        peers[1].produce(3, acks=1)
    peers.change(isr=(1,))
    peers.publish(1)
    copied(peers, 1)
    peers[1].produce(3, acks=1)
    log = peers[1].replica.log
    assert (log.start_offset, log.local_start_offset, log.end_offset) == (0, 9, 12)


def test_a_new_follower_begins_where_its_leader_s_disk_does() -> None:
    peers = Peers(2)
    peers.lose_all()
    leader_with_a_local_part(peers)
    peers.settle()
    log = peers[2].replica.log
    assert (log.start_offset, log.local_start_offset, log.end_offset) == (0, 9, 12)
    assert set(peers.state.isr) == {1, 2}
    assert peers[2].high_watermark == 12


def test_it_takes_one_answer_to_know_where(monkeypatch: pytest.MonkeyPatch) -> None:
    peers = Peers(2)
    peers.lose_all()
    leader_with_a_local_part(peers)
    refusals = []
    refused = FollowedPartition._refused

    def noted(self, answer, wall_ms):
        refusals.append(ErrorCode(answer.error_code))
        return refused(self, answer, wall_ms)

    monkeypatch.setattr(FollowedPartition, "_refused", noted)
    peers.settle()
    assert refusals == [ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE]


def test_a_follower_whose_log_was_deleted_begins_with_the_whole_log_s_start() -> None:
    peers = Peers(2)
    peers.lose_all()
    peers[1].produce(3, acks=1)
    peers.run(2)
    leader_log = peers[1].replica.log
    leader_with_more = leader_log.end_offset
    tier(peers)
    peers[1].produce(3, acks=1)
    peers.change(isr=(1,))
    peers.publish(1)
    leader_log.delete_records_before(leader_with_more + 1)
    copied(peers, 1)
    peers[1].produce(2, acks=1)
    peers.settle()
    log = peers[2].replica.log
    assert (log.start_offset, log.local_start_offset) == (
        leader_log.start_offset,
        leader_log.local_start_offset,
    )
    assert log.start_offset < log.local_start_offset


class UpTo9(NoTail):
    end_offset = 9


@pytest.mark.parametrize("ask", [
    lambda replica: replica.read(5, max_bytes=100, upto=12, at_least_one=True),
    lambda replica: replica.aborted_transactions(2, 4),
    lambda replica: replica.offset_for_timestamp(0),
])  # fmt: skip
def test_a_follower_that_begins_further_on_tells_nothing_of_a_remote_part_that_it_knew(ask) -> None:
    """What it knew ends before the new begin: a record between is not gone, and is not skipped."""
    peers = Peers(2)
    peers.lose_all()
    tier(peers)
    peers[2].replica.older = NoTail()  # of facts that were read when nothing was remote
    leader_with_a_local_part(peers)
    peers.settle()
    replica = peers[2].replica
    assert replica.log.start_offset < 5 < replica.log.local_start_offset
    with pytest.raises(ApiError) as caught:
        ask(replica)
    assert caught.value.code == ErrorCode.KAFKA_STORAGE_ERROR


def listed(peers: Peers, timestamp: int) -> int:
    part = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
    topics = [ListOffsetsTopic(name="t", partitions=[part])]
    answer = peers[1].ask(ListOffsetsRequest(replica_id=-1, topics=topics), 10)
    return answer.topics[0].partitions[0].offset


def test_the_places_of_a_log_that_consumers_ask_for() -> None:
    peers = Peers(1)
    leader_with_a_local_part(peers)
    peers[1].replica.older = UpTo9()
    earliest, earliest_local, latest_tiered, latest = -2, -4, -5, -1
    places = [listed(peers, each) for each in (earliest, earliest_local, latest_tiered, latest)]
    assert places == [0, 9, 8, 12]
    peers[1].replica.older = NO_TAIL
    assert listed(peers, latest_tiered) == -1


def held(log: Log, offset: int) -> bytes:
    """The batches from an offset on, however segments divide them."""
    found = b""
    while offset < log.end_offset:
        part = bytes(log.read(offset, max_bytes=1, upto=log.end_offset, at_least_one=True))
        found, offset = found + part, read_header(memoryview(part)).next_offset
    return found


@pytest.mark.parametrize("seed", range(40))
def test_copies_have_the_leader_s_start_and_all_of_its_disk(seed: int) -> None:
    random, peers = Random(seed), Peers(3)
    tier(peers)
    for _ in range(25):
        leader = peers[peers.state.leader]
        act = random.choice(["produce", "produce", "copied", "delete", "lose", "elect", "settle"])
        if act == "produce":
            leader.produce(random.randint(1, 4), acks=1)
        elif act == "copied":
            copied(peers, peers.state.leader)
        elif act == "delete":
            start = leader.replica.log.start_offset
            if leader.high_watermark >= start:
                wanted = random.randint(start, leader.high_watermark)
                leader.replica.log.delete_records_before(wanted)
                leader.broker.changed[PLACE] = None
        elif act == "lose":
            peers.lose_all()
        elif act == "elect":
            peers.settle()
            peers.elect(random.choice(peers.state.isr))
            tier(peers)
        peers.run(random.randint(0, 3))
    peers.settle()
    leader = peers[peers.state.leader].replica.log
    for each in (1, 2, 3):
        log = peers[each].replica.log
        assert (log.start_offset, log.end_offset) == (leader.start_offset, leader.end_offset)
        assert log.start_offset <= log.local_start_offset
        offset = max(log.local_start_offset, leader.local_start_offset)
        assert held(log, offset) == held(leader, offset)
