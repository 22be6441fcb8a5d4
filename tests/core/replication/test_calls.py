"""R1: a new leadership's first records wait for no fetch that was sent before it, and no long pause."""

import pytest
from tests.core.replication.peers import Peers
from tests.core.replication.test_fetching import fetches_of, named, parked, quiet_peers

from anabranch.core.api.fetch_sessions import NOTHING_TO_TELL
from anabranch.core.log.files import ColdRead
from anabranch.core.log.log import Log
from anabranch.core.outcome import Cold, Wait


def answered(peers, effect, box):
    """Give a follower its answer, and park the fetch that it sends next."""
    (answer,) = box
    peers[2].broker.replication.fetched(effect, answer, peers.now_ms)
    peers[2].finish()
    return parked(peers, 2)


def test_who_has_something_new_to_follow_is_called():
    peers, effect, box = quiet_peers(partitions=1)
    peers.states[1] = peers.states[0]
    peers.publish()
    peers.wait(9)
    assert (box, fetches_of(peers, 2)) == ([], [])
    peers.wait(1)
    effect, box = answered(peers, effect, box)
    assert named(effect) == ([1], [])


def test_who_hears_of_it_late_is_called_again_but_not_for_ever():
    peers, effect, box = quiet_peers(partitions=1)
    peers.states[1] = peers.states[0]
    peers.publish(1)
    for pause_ms in (10, 40, 160):
        assert peers[1].broker.replication.next_tick_ms == peers.now_ms + pause_ms
        peers.wait(pause_ms - 1)
        assert box == []
        peers.wait(1)
        effect, box = answered(peers, effect, box)
    peers.wait(400)
    assert box == []


def test_leaderships_that_begin_one_after_the_other_do_not_put_the_call_off():
    peers, _, box = quiet_peers(partitions=1)
    for index in (1, 2):
        peers.states[index] = peers.states[0]
        peers.publish(1)
        assert box == []
        peers.wait(5)
    assert len(box) == 1


def test_a_call_that_found_nothing_waiting_is_over_with_the_next_fetch():
    """Else the next mark that moves alone would take it for its own reminder."""
    peers, _, _ = quiet_peers(partitions=1)
    sessions = peers[1].broker.fetch_sessions
    (session,) = sessions.called(peers.now_ms)
    session.hear(session.broker_epoch, peers.now_ms)
    assert session.tell_ms == NOTHING_TO_TELL
    session.tell_ms = peers.now_ms + 1
    session.hear(session.broker_epoch, peers.now_ms)
    assert session.tell_ms == peers.now_ms + 1


@pytest.mark.parametrize("while_warming", [False, True])
def test_a_call_is_not_lost_where_records_are_read_from_the_disk(monkeypatch, while_warming):
    """They may be too few to answer, or a throttle may hold them back."""
    peers, _, box = quiet_peers(partitions=1, **{"replica.fetch.min.bytes": "100000"})
    leader = peers[1].broker
    peers[1].produce(1, acks=1)
    assert box == []
    (session,) = leader.fetch_sessions
    log, read = peers[1].replica.log, Log.read
    cold = [ColdRead(log.active.file, 0, 10)]

    def read_cold(self, offset, **how):
        if self is log and cold:
            raise cold.pop()
        return read(self, offset, **how)

    monkeypatch.setattr(Log, "read", read_cold)
    ((wait, _),) = peers[1].waits
    if not while_warming:
        leader.fetch_sessions.called(peers.now_ms)
    warming = wait.poll(leader.wall_ms, False)
    assert isinstance(warming, Cold)
    if while_warming:
        leader.fetch_sessions.called(peers.now_ms)
    answer = warming.again(leader.wall_ms)
    assert not isinstance(answer, Wait)
    assert session.tell_ms == NOTHING_TO_TELL
    assert answer.responses[0].partitions[0].records


def test_a_leader_that_does_not_know_of_it_yet_is_asked_again_soon():
    peers = Peers(2, publish=False)
    peers.publish(2)
    for pause_ms in (20, 80, 320, 1000, 1000):
        peers.deliver()
        peers.wait(pause_ms - 1)
        assert peers.mail == []
        peers.wait(1)
        assert len(peers.mail) == 1


@pytest.mark.parametrize("backoff_ms", [0, 50])
def test_no_pause_is_longer_than_the_setting_says(backoff_ms):
    peers = Peers(2, publish=False, config={"replica.fetch.backoff.ms": str(backoff_ms)})
    peers.publish(2)
    for pause_ms in (min(20, backoff_ms), backoff_ms, backoff_ms):
        peers.deliver()
        peers.wait(pause_ms)
        assert len(peers.mail) == 1
