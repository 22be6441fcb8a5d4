"""R4: where histories part, by leader epochs; what a follower cuts, and what it never cuts."""

import pytest
from tests.core.replication.peers import PLACE, Peers
from tests.core.replication.test_in_sync import deliver_fetch_of, only

from anabranch.core.errors import ErrorCode, StorageFault
from anabranch.core.log.epochs import LeaderEpochs
from anabranch.core.log.files import DiskFull
from anabranch.core.replication.effects import Cut, SendFetch
from anabranch.core.replication.follower import truncation_offset


class Epochs:
    """A log as far as truncation looks at it."""

    def __init__(self, entries, end_offset):
        self.end_offset = end_offset
        self.epochs = LeaderEpochs(entries)

    def end_offset_for_epoch(self, epoch):
        return self.epochs.end_offset(epoch, self.end_offset)


@pytest.mark.parametrize(
    ("entries", "end", "answer", "cut_to"),
    [
        ([(0, 0), (1, 5)], 9, (1, 7), 7),  # the same epoch, ours is longer
        ([(0, 0), (1, 5)], 9, (1, 12), 9),  # the same epoch, theirs is longer: nothing
        ([(0, 0), (2, 5)], 9, (1, 8), 5),  # KIP-279: their epoch 1 we never saw
        ([(0, 0), (2, 5)], 9, (1, 3), 5),  # one step at a time: the next fetch finds 3
        ([(0, 0), (3, 5)], 9, (0, 4), 4),  # their epoch 0 ended before ours did
        ([(5, 100)], 120, (3, 130), 100),  # all that we have is of an epoch they never had
    ],
)
def test_where_a_log_is_cut(entries, end, answer, cut_to):
    assert truncation_offset(Epochs(entries, end), *answer) == cut_to


def epochs_of(peer):
    return peer.replica.log.epochs.entries


def test_an_old_leader_drops_what_nobody_copied():
    """Document 002: the old leader's offset 5 conflicts with the new leader's."""
    peers = Peers(2)
    peers[1].produce(5)
    peers.run(3)
    peers[1].produce(2, acks=1, size=20)  # only here
    peers.elect(2, isr=(2,))
    peers[2].produce(3)
    peers.settle()
    assert peers[1].bytes_upto(8) == peers[2].bytes_upto(8)
    assert epochs_of(peers[1]) == epochs_of(peers[2]) == [(0, 0), (1, 5)]
    replication = peers[1].broker.replication
    assert list(replication.cuts) == [Cut(PLACE, 2, 1, first_offset=5, end_offset=7)]
    assert replication.statistics()["truncations"] == 1
    assert not peers[2].broker.replication.cuts


def test_a_follower_never_cuts_to_its_high_watermark():
    """KIP-101's first hole: committed records lie beyond the mark that a follower knows."""
    peers = Peers(2)
    peers[1].produce(3)
    peers.run(1)
    assert (peers[2].end, peers[2].high_watermark) == (3, 0)
    peers.restart(2)
    peers.publish(2)
    assert peers[2].end == 3
    peers.elect(2, isr=(2,))
    assert (peers[2].end, peers[2].high_watermark) == (3, 3)


def test_the_second_hole_histories_that_crossed():
    """KIP-279: leaders of 0, 1 and 2 each wrote what the others did not see."""
    peers = Peers(2)
    peers[1].produce(2)
    peers.run(3)
    peers[1].produce(3, acks=1)  # epoch 0, only on 1
    peers.lose_all()
    peers.elect(2, isr=(2,))
    peers[2].produce(1)  # epoch 1, only on 2
    peers.lose_all()
    peers.elect(1, isr=(1,))  # unclean
    peers[1].produce(1)  # epoch 2
    peers.settle()
    assert peers[1].bytes_upto(6) == peers[2].bytes_upto(6)
    assert epochs_of(peers[2]) == epochs_of(peers[1]) == [(0, 0), (2, 5)]


def test_an_epoch_without_records_is_forgotten():
    """It led, wrote nothing, and is told where its leader's history stands."""
    peers = Peers(2)
    peers[1].produce(2)
    peers.run(3)
    peers.elect(2)
    peers.elect(1)
    peers[1].produce(1)
    peers.settle()
    assert epochs_of(peers[2]) == epochs_of(peers[1]) == [(0, 0), (2, 2)]
    assert peers[2].end == 3


def test_a_diverging_follower_s_offset_does_not_count():
    peers = Peers(2)
    peers[1].produce(4, acks=1)  # only here
    peers.lose_all()
    peers.elect(2, isr=(2,))
    peers[2].produce(1)
    peers.change(isr=(2, 1))
    peers.publish()
    deliver_fetch_of(peers, 1)
    assert peers[2].replica.followers[1].end_offset == -1
    assert peers[1].end == 0, "it cut what was not the leader's"


def test_the_mark_goes_back_only_with_the_log():
    peers = Peers(2)
    peers[1].produce(4)
    peers.run(4)
    assert peers[2].high_watermark == 4
    peers[1].replica.log.truncate_to(0)  # the disk of 1 lost everything
    peers[1].replica.truncated()
    peers.elect(1, isr=(1,))  # unclean
    peers[1].produce(1)
    peers.settle()
    assert (peers[2].end, peers[2].high_watermark) == (1, 1)


def test_a_follower_before_the_leader_s_start_begins_there():
    peers = Peers(2, topic_config={"segment.bytes": "1048576"})
    peers.lose_all()
    for _ in range(3):
        peers[1].produce(2, acks=1)
    peers.change(isr=(1,))
    peers.publish(1)
    peers[1].replica.log.delete_records_before(4)
    peers.restart(2)
    peers.settle()
    log = peers[2].replica.log
    assert (log.start_offset, log.end_offset) == (4, 6)
    assert peers[2].bytes_upto(6) == peers[1].bytes_upto(6)
    assert peers[2].high_watermark == 6


def test_a_leader_s_log_may_start_within_a_batch():
    """DeleteRecords may name any offset; the batch that holds it is copied whole."""
    peers = Peers(2)
    peers.lose_all()
    for _ in range(3):
        peers[1].produce(4, acks=1)
    peers.change(isr=(1,))
    peers.publish(1)
    peers[1].replica.log.delete_records_before(6)
    peers.settle()
    log = peers[2].replica.log
    assert (log.start_offset, log.segments[0].base_offset, log.end_offset) == (6, 4, 12)
    assert peers[2].bytes_upto(12) == peers[1].bytes_upto(12)
    assert set(peers.state.isr) == {1, 2}


def test_a_full_disk_brings_no_log_start_back(monkeypatch):
    """The copy begins where the batch does; without the batch, where the leader's log starts."""
    peers = Peers(2)
    peers.lose_all()
    for _ in range(3):
        peers[1].produce(4, acks=1)
    peers.change(isr=(1,))
    peers.publish(1)
    peers[1].replica.log.delete_records_before(6)
    log = peers[2].replica.log
    with monkeypatch.context() as patched:

        def refuse(*_how):
            raise DiskFull("no room")

        patched.setattr("anabranch.core.log.appends._write", refuse)
        for _ in range(3):
            peers.run(3)
            peers.wait(1000)
        assert isinstance(peers[2].faults[-1][1], DiskFull)
        assert (log.start_offset, log.end_offset) == (6, 6)
    peers.settle()
    assert (log.start_offset, log.segments[0].base_offset, log.end_offset) == (6, 4, 12)
    assert peers[2].bytes_upto(12) == peers[1].bytes_upto(12)


def test_the_log_start_follows_the_leader_s():
    peers = Peers(3, observers=(3,))
    for _ in range(3):
        peers[1].produce(2)
        peers.run(3)
    peers[1].replica.log.delete_records_before(4)
    peers[1].broker.changed[PLACE] = None
    peers.run(2)
    assert [peers[each].replica.log.start_offset for each in (1, 2, 3)] == [4, 4, 4]
    peers.run(1)
    assert peers[1].replica.followers[2].start_offset == 4


def test_an_empty_follower_beyond_the_leader_s_end_begins_anew():
    peers = Peers(2)
    peers[2].replica.log.truncate_fully(50)
    peers[1].produce(2, acks=1)
    peers.settle()
    assert peers[2].bytes_upto(2) == peers[1].bytes_upto(2)
    assert peers[2].replica.log.start_offset == 0


def test_a_follower_of_an_older_epoch_is_fenced_and_waits_for_metadata():
    peers = Peers(3)
    peers.lose_all()
    peers.elect(2)
    peers.change(leader=2)
    peers.publish(2)
    deliver_fetch_of(peers, 3)
    assert peers[2].replica.followers[3].end_offset == -1
    peers.wait(10_000)
    assert [at for at in only(peers, SendFetch) if peers.mail[at][0].broker_id == 3] == []
    peers.publish(3)
    deliver_fetch_of(peers, 3)
    assert peers[2].replica.followers[3].end_offset == 0


def test_a_leader_that_does_not_know_the_epoch_yet_is_asked_again():
    peers = Peers(3)
    peers.lose_all()
    peers.change(leader=2)
    peers.publish(3)
    deliver_fetch_of(peers, 3)
    assert only(peers, SendFetch) == []
    peers.publish(2)
    peers.wait(1000)
    deliver_fetch_of(peers, 3)
    assert peers[2].replica.followers[3].end_offset == 0


def test_an_answer_from_the_leader_before_touches_nothing():
    peers = Peers(3)
    peers[1].produce(2, acks=1)
    peers.change(leader=2)
    peers.publish(2, 3)
    deliver_fetch_of(peers, 3)  # asked of 1, in epoch 0
    assert peers[3].end == 0


@pytest.mark.parametrize("fault", [DiskFull("no room"), StorageFault("no disk")])
def test_a_disk_that_refuses_is_left_to_the_shell_and_tried_again(fault, monkeypatch):
    peers = Peers(2)
    peers[1].produce(1, acks=1)
    with monkeypatch.context() as patched:

        def refuse(*_how):
            raise fault

        patched.setattr("anabranch.core.log.appends.as_follower", refuse)
        deliver_fetch_of(peers, 2)
    assert peers[2].faults == [(peers[2].replica, fault)]
    assert only(peers, SendFetch) == []
    peers.wait(1000)
    peers.run(2)
    assert peers[2].end == 1


def test_records_that_do_not_fit_are_not_taken(monkeypatch):
    peers = Peers(2)
    peers[1].produce(1, acks=1)
    log = peers[1].replica.log
    read = bytearray(log.read(0, max_bytes=1 << 20, upto=1, at_least_one=True))
    read[-1] ^= 1
    with monkeypatch.context() as patched:
        patched.setattr("anabranch.core.log.log.Log.read", lambda *_, **__: bytes(read))
        deliver_fetch_of(peers, 2)
    assert (peers[2].end, only(peers, SendFetch)) == (0, [])
    peers.wait(1000)
    peers.run(2)
    assert peers[2].end == 1


def test_an_epoch_s_end_is_asked_by_epoch():
    """OffsetForLeaderEpoch: the largest epoch not above, and where it ended."""
    from anabranch.core.wire.messages.offset_for_leader_epoch import (
        OffsetForLeaderEpochRequest,
        OffsetForLeaderPartition,
        OffsetForLeaderTopic,
    )

    peers = Peers(2)
    peers[1].produce(3)
    peers.run(3)
    peers.elect(2)
    peers.elect(1)
    peers[1].produce(2)

    def ask(epoch, current=-1):
        partition = OffsetForLeaderPartition(
            partition=0, current_leader_epoch=current, leader_epoch=epoch
        )
        request = OffsetForLeaderEpochRequest(
            replica_id=2,
            topics=[OffsetForLeaderTopic(topic=PLACE.topic, partitions=[partition])],
        )
        answer = peers[1].ask(request, 4).topics[0].partitions[0]
        return answer.error_code, answer.leader_epoch, answer.end_offset

    assert ask(0) == (0, 0, 3)
    assert ask(1) == (0, 0, 3)
    assert ask(2) == (0, 2, 5)
    assert ask(3) == (0, -1, -1)
    assert ask(2, current=1)[0] == ErrorCode.FENCED_LEADER_EPOCH
    assert ask(2, current=3)[0] == ErrorCode.UNKNOWN_LEADER_EPOCH


def test_a_crash_soon_after_a_power_cut_shows_nothing_that_was_not_committed():
    """What a power cut took was committed; what is written in its place is not."""
    peers = Peers(2)
    peers[1].produce(1)
    peers[1].produce(2)
    peers.settle()
    assert peers[1].high_watermark == 3
    peers.restart(2, lose_from=1)
    peers.restart(1, lose_from=1)
    peers.publish()
    assert peers[1].high_watermark == 1
    peers.elect(1)
    peers.lose_all()
    peers[1].produce(2, size=20)  # only here
    assert (peers[1].end, peers[1].high_watermark) == (3, 1)
    peers[1].begin()  # no checkpoint was written since
    peers.publish(1)
    assert (peers[1].end, peers[1].high_watermark) == (3, 1)
