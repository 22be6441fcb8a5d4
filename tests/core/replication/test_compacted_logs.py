"""R4, R15: what compaction leaves out of a leader's log changes nothing for those who follow it."""

from random import Random

import pytest
from tests.core.api.in_memory_node import START_MS
from tests.core.log.compacting import batches_of, compact
from tests.core.log.support import note_clean
from tests.core.log.test_gaps import leave_out
from tests.core.replication.peers import FOLDER, PLACE, Peers

from anabranch.core.wire.records import decode_records

COMPACTED = {"cleanup.policy": "compact", "delete.retention.ms": "1000"}


def compacted(peers, broker_id, *, now_ms=START_MS):
    """What a broker's cleaner does once the log's segment was idle."""
    peer = peers[broker_id]
    log = peer.replica.log
    if log.active.size:
        log.roll(now_ms)
    peer.broker.unsynced.add(PLACE)
    peer.finish()
    peer.folder.checkpoint()
    upto = compact(log, now_ms, peer.folder.clean_points.get(PLACE, 0))
    note_clean(peer.folder, PLACE, upto)


def killed(peers, broker_id):
    """A process that ended without a word, and came back."""
    peers.restart(broker_id)
    peers.publish(broker_id)


def emptied(peers, broker_id):
    """A replica that begins anew, as one that was moved here."""
    peer = peers[broker_id]
    peers.lose_all()
    peer.files.remove_tree(f"{FOLDER}/{PLACE}")
    peer.waits.clear()
    for name in peer.files.list(FOLDER):
        peer.files.remove(f"{FOLDER}/{name}")
    peer.begin()
    peers.publish(broker_id)


def deposed_leader(*, singly=False):
    """Broker 1 led and has five records that nobody copied; 2 leads since, and compacted."""
    peers = Peers(3, topic_config=COMPACTED)
    peers[1].produce(10)
    peers.settle()
    peers.lose_all()
    for count in (1,) * 5 if singly else (5,):
        peers[1].produce(count, acks=1)
    peers.lose_all()
    peers.elect(2, isr=(2, 3))
    for _ in range(20):
        peers[2].produce(1)
    peers.mail = [each for each in peers.mail if each[0] is not peers[1]]
    return peers


def returns(peers, leader_id):
    """The old leader comes back: it has what the leader has, and nothing of its own."""
    killed(peers, 1)
    peers.elect(leader_id, isr=tuple(each for each in (2, 3) if each in peers.state.isr))
    peers.settle()
    end = peers[leader_id].end
    assert 1 in peers.state.isr
    cuts = peers[1].broker.replication.cuts
    assert [(each.first_offset, each.end_offset) for each in cuts] == [(10, 15)]
    assert peers[1].end == end


def without_first(peers, broker_id):
    """As another broker's cleaner leaves a log: all that is superseded is gone, and said nowhere."""
    log = peers[broker_id].replica.log
    leave_out(log, set(range(10, 25)))


@pytest.mark.parametrize("taken_by", ["us", "kafka"])
def test_an_old_leader_is_told_of_the_divergence_after_a_compaction_and_a_kill(taken_by):
    """Idle roll, compaction, SIGKILL: recovery begins within the compacted segment."""
    peers = deposed_leader()
    compacted(peers, 2)
    if taken_by == "kafka":
        without_first(peers, 2)
    killed(peers, 2)
    peers.elect(2, isr=(2,))
    returns(peers, 2)
    assert peers[2].replica.log.end_offset_for_epoch(0) == (0, 10)


def test_an_old_leader_is_told_of_it_by_one_who_copied_a_compacted_log():
    """A copy has only batches to learn from where an epoch began."""
    peers = deposed_leader()
    compacted(peers, 2)
    peers.change(isr=(2,))
    peers.publish()
    emptied(peers, 3)
    peers.mail = [each for each in peers.mail if each[0] is not peers[1]]
    peers.run(20)
    assert peers[3].end == peers[2].end
    returns(peers, 3)
    assert peers[1].replica.log.end_offset_for_epoch(0) == (0, 10)


@pytest.mark.parametrize(("is_new", "is_committed"), [(True, False), (False, False), (False, True)])
def test_an_old_leader_is_told_of_it_where_the_begin_of_the_epoch_was_deleted(is_new, is_committed):
    """The first record of the epoch was kept and then deleted, and what followed it compacted: a
    copy that begins there, or that was cut to there, takes the gap for the epoch's; also one of
    which all was committed, where Kafka's compaction took the epoch's first record."""
    peers = deposed_leader(singly=True)
    for _ in range(3):
        peers.mail = [each for each in peers.mail if each[0] is not peers[1]]
        peers.run(5)
        peers.wait(100)
    compacted(peers, 2)
    peers[2].replica.log.delete_records_before(12)
    follower = 3 if is_new else 1
    peers.change(isr=(2,))
    peers.publish()
    if is_new:
        emptied(peers, 3)
        peers.mail = [each for each in peers.mail if each[0] is not peers[1]]
    else:
        if is_committed:
            peers[1].replica.high_watermark = peers[1].end
        killed(peers, 1)
    peers.run(20)
    assert peers[follower].end == peers[2].end
    told = peers[follower].replica.log.end_offset_for_epoch(0)
    assert told == peers[2].replica.log.end_offset_for_epoch(0) == (0, 12)
    killed(peers, 1)
    peers.elect(follower, isr=(2, follower))
    peers.settle()
    assert newest(peers[1]) == newest(peers[2])


@pytest.mark.parametrize("seed", range(8))
def test_a_replica_of_a_log_that_ends_in_a_tombstone_gets_in_sync(seed):
    """The tombstone's time is over, and nothing is written after it; the second copy is compacted
    before its clean point is known."""
    random = Random(seed)
    peers = Peers(3, topic_config=COMPACTED)
    peers[1].produce(random.randint(1, 5))
    peers.settle()
    peers[1].produce(1, size=None)
    peers.settle()
    end, now_ms = peers[1].end, START_MS
    for _ in range(4):
        peers.wait(10)
        leader = peers.state.leader
        now_ms += random.choice([0, 2000])
        compacted(peers, leader, now_ms=now_ms)
        other = random.choice([each for each in (1, 2, 3) if each != leader])
        peers.change(isr=tuple(each for each in peers.state.isr if each != other))
        peers.publish()
        emptied(peers, other)
        peers.settle()
        peers.settle()
        assert (peers[other].end, peers[other].high_watermark) == (end, end)
        assert sorted(peers.state.isr) == [1, 2, 3]
        peers.elect(other)
        peers.settle()


def newest(peer):
    """Key -> its newest record, as a reader of everything finds it."""
    found, log = {}, peer.replica.log
    for each in batches_of(log):
        found.update({record.key: record.value for record in decode_records(each)})
    return found


@pytest.mark.parametrize("was_killed", [False, True])
def test_a_cut_into_what_was_compacted_leaves_no_key_out(was_killed):
    """Committed records are lost on the new leader: what they superseded on another is gone, too,
    so the other has nothing that it could be cut to. One that was killed before it saved its high
    watermark knows by how far its passes went."""
    peers = Peers(3, topic_config=COMPACTED)
    for _ in range(5):
        peers[1].produce(1)
    peers[1].produce(4)
    peers.settle()
    peers[1].produce(1)
    peers.settle()
    compacted(peers, 1)
    assert newest(peers[1])[b"k0"] is not None
    peers.lose_all()
    if was_killed:
        peers.restart(1, watermark=0)
    peers.restart(2, lose_from=9)
    peers.elect(2, isr=(2,))
    peers.settle()
    assert peers[2].end == 9
    for broker_id in (1, 3):
        assert newest(peers[broker_id]) == newest(peers[2])
