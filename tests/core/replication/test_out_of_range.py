"""No broker says of an acknowledged offset that it is out of range, or that its epoch is unknown.

Clients believe it and start over, and with them their groups. So whatever is lost, delayed or told
to some brokers only: who asks any broker for an offset that was acknowledged before is never told
that there is no such offset. Where there is none, the leader says so, and does not wait for ever.
"""

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule
from tests.core.replication.peers import Peers
from tests.core.replication.test_convergence import Replicating

from anabranch.core.errors import ErrorCode
from anabranch.core.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from anabranch.core.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)

FROM_LEADERS_ONLY, FROM_ANY = 10, 12
EVER = 1_000_000
"""Milliseconds by which every wait is over."""


def fetch(peer, offset, *, version=FROM_LEADERS_ONLY, last_epoch=-1, max_wait_ms=0):
    """Ask as a consumer that knows no leader epoch: the answer, or the box that it comes into."""
    partition = FetchPartition(
        partition=0,
        fetch_offset=offset,
        last_fetched_epoch=last_epoch if version >= FROM_ANY else -1,
        partition_max_bytes=1 << 20,
    )
    request = FetchRequest(
        topics=[FetchTopic(topic="t", partitions=[partition])],
        max_bytes=1 << 20,
        max_wait_ms=max_wait_ms,
    )
    return asked(peer, request, version)


def epoch_end(peer, epoch):
    """Ask where a leader epoch ended."""
    part = OffsetForLeaderPartition(partition=0, current_leader_epoch=-1, leader_epoch=epoch)
    topic = OffsetForLeaderTopic(topic="t", partitions=[part])
    return asked(peer, OffsetForLeaderEpochRequest(replica_id=-1, topics=[topic]), 3)


def asked(peer, request, version):
    answer = peer.ask(request, version)
    peer.finish()
    return answer if isinstance(answer, list) else [answer]


def outcome(box):
    """The partition's answer in a box, None as long as it is empty."""
    if not box:
        return None
    answer = box[0]
    topics = answer.responses if hasattr(answer, "responses") else answer.topics
    return topics[0].partitions[0]


def code_of(box):
    return outcome(box).error_code


def expire(peers):
    """Have everything that waits answered: its time is up."""
    peers.now_ms += EVER
    for peer in peers.peers.values():
        peer.clock()
        for wait, box in peer.waits:
            if not box:
                box.append(wait.poll(peer.broker.wall_ms, True))


def parted():
    """Broker 1 was deposed and does not know; broker 2 acknowledged two records more."""
    peers = Peers(3)
    peers[1].produce(2)
    peers.run(4)
    peers.change(leader=2, isr=(2, 3))
    peers.publish(2, 3)
    peers.mail = [each for each in peers.mail if each[0].broker_id != 1]
    peers[2].produce(2)
    peers.run(6)
    assert (peers[2].high_watermark, peers[1].end) == (4, 2)
    assert peers[1].replica.is_leader
    return peers


@pytest.mark.parametrize("version", [FROM_LEADERS_ONLY, FROM_ANY])
def test_a_deposed_leader_says_that_it_does_not_lead(version):
    peers = parted()
    box = fetch(peers[1], 4, version=version)
    expire(peers)
    assert code_of(box) == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_the_controller_s_refusal_ends_no_wait_and_proves_nothing():
    peers = parted()
    box = fetch(peers[1], 4)
    peers.run(6)
    assert outcome(box) is None
    peers.publish(1)
    assert code_of(box) == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_deposed_leader_does_not_say_that_it_knows_no_such_epoch():
    peers = parted()
    box = epoch_end(peers[1], 1)
    expire(peers)
    assert code_of(box) == ErrorCode.NOT_LEADER_OR_FOLLOWER
    last = fetch(peers[1], 2, version=FROM_ANY, last_epoch=1)
    expire(peers)
    assert code_of(last) == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_one_that_has_learnt_that_it_follows_leaves_the_answer_to_the_leader():
    peers = parted()
    peers.publish(1)
    assert code_of(fetch(peers[1], 4, version=FROM_ANY)) == ErrorCode.OFFSET_NOT_AVAILABLE


def test_a_leader_says_what_is_out_of_range_once_the_controller_has_confirmed_it():
    peers = Peers(3)
    peers[1].produce(2)
    peers.run(4)
    box = fetch(peers[1], 3)
    assert outcome(box) is None
    peers.run(2)
    assert code_of(box) == ErrorCode.OFFSET_OUT_OF_RANGE


def test_an_epoch_that_nobody_led_is_unknown_once_the_controller_has_confirmed_it():
    peers = Peers(3)
    box = epoch_end(peers[1], 5)
    assert outcome(box) is None
    peers.run(2)
    answer = outcome(box)
    assert (answer.error_code, answer.leader_epoch, answer.end_offset) == (0, -1, -1)


def test_an_answer_to_an_earlier_question_proves_nothing():
    peers = Peers(3)
    early = fetch(peers[1], 1)
    late = fetch(peers[1], 2)  # the question for the first one is on its way already
    at = next(at for at, (_, _, effect) in enumerate(peers.mail) if hasattr(effect, "proposals"))
    peers.deliver(at)
    assert code_of(early) == ErrorCode.OFFSET_OUT_OF_RANGE
    assert outcome(late) is None
    peers.run(2)
    assert code_of(late) == ErrorCode.OFFSET_OUT_OF_RANGE


def test_a_question_that_was_lost_is_asked_again():
    peers = Peers(3)
    box = fetch(peers[1], 1)
    peers.lose_all()
    peers.wait(60)
    peers.run(2)
    assert code_of(box) == ErrorCode.OFFSET_OUT_OF_RANGE


def test_the_question_changes_nothing_and_holds_no_change_up():
    peers = Peers(3)
    before = peers.state.isr
    fetch(peers[1], 1)
    assert peers[1].replica.proposal is None
    peers.run(2)
    assert peers.state.isr == before


def test_what_is_appended_meanwhile_is_in_range():
    peers = Peers(1)
    box = fetch(peers[1], 1)
    peers[1].produce(2)
    expire(peers)
    assert code_of(box) == ErrorCode.NONE


class Reading(Replicating):
    """Consumers ask any broker for what any broker has shown."""

    def __init__(self):
        super().__init__()
        self.told = []

    @precondition(lambda self: self.shown)
    @rule(picked=st.data(), version=st.sampled_from([FROM_LEADERS_ONLY, FROM_ANY]))
    def read(self, picked, version):
        broker_id = picked.draw(st.sampled_from(sorted(self.peers.peers)))
        offset = picked.draw(st.integers(0, self.shown))
        epoch = picked.draw(st.sampled_from([-1, self.peers.state.leader_epoch]))
        if broker_id in self.dead or self.peers[broker_id].broker.partitions.get("t", 0) is None:
            return
        self.ask(broker_id, offset, epoch, version)

    def ask(self, broker_id, offset, epoch, version):
        peer = self.peers[broker_id]
        self.told.append(fetch(peer, offset, version=version, last_epoch=epoch))
        if epoch >= 0:
            self.told.append(epoch_end(peer, epoch))

    @precondition(lambda self: not self.dead and self.peers.state.leader > 0)
    @rule(picked=st.data(), version=st.sampled_from([FROM_LEADERS_ONLY, FROM_ANY]))
    def part(self, picked, version):
        """The leader is cut off; another one leads, and acknowledges more. A reader of that goes
        to the old one."""
        old = self.peers.state.leader
        rest = tuple(each for each in self.peers.state.isr if each != old)
        if rest and len(rest) >= self.peers[old].replica.required_in_sync:
            new = picked.draw(st.sampled_from(rest))
            self.peers.change(leader=new, isr=rest)
            others = [each for each in self.peers.peers if each != old]
            self.peers.publish(*others)
            self.peers[new].produce(1, acks=1)
            for _ in range(6):
                self.deliver_to(others)
            epoch = self.peers.state.leader_epoch
            self.ask(
                old,
                self.peers[new].high_watermark,
                picked.draw(st.sampled_from([-1, epoch])),
                version,
            )

    def deliver_to(self, brokers):
        """All that these brokers have under way among themselves."""
        for entry in [each for each in self.peers.mail if each[0].broker_id in brokers]:
            if getattr(entry[2], "leader_id", None) in (None, *brokers):
                self.peers.deliver(self.peers.mail.index(entry))

    @rule()
    def end_of_patience(self):
        expire(self.peers)

    @invariant()
    def nobody_is_sent_back(self):
        for box in self.told:
            answer = outcome(box)
            if answer is not None:
                assert answer.error_code != ErrorCode.OFFSET_OUT_OF_RANGE
                is_end = hasattr(answer, "end_offset") and not answer.error_code
                assert not is_end or answer.end_offset >= 0
        self.told = [box for box in self.told if not box]


Reading.TestCase.settings = settings(
    max_examples=60,
    stateful_step_count=60,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
TestReading = Reading.TestCase
