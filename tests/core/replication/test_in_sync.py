"""R2, R3: who is in sync, one change at a time, and what the high watermark waits for."""

import pytest
from tests.core.replication.peers import Peers, outcome_of

from anabranch.core.errors import ErrorCode
from anabranch.core.metadata.image import RECOVERING
from anabranch.core.replication.effects import SendAlterPartition, SendFetch
from anabranch.core.replication.replica import Role

LAG_MS = 30_000


def lone_leader(**how):
    """Broker 1 leads and is alone in sync; 2 and 3 have not fetched yet."""
    peers = Peers(3, publish=False, **how)
    peers.change(isr=(1,))
    return peers


def only(peers, kind):
    return [at for at, (_, _, effect) in enumerate(peers.mail) if isinstance(effect, kind)]


def deliver(peers, kind, **how):
    """Deliver the first message of a kind."""
    peers.deliver(only(peers, kind)[0], **how)


def deliver_fetch_of(peers, broker_id, **how):
    at = [
        at
        for at, (sender, _, effect) in enumerate(peers.mail)
        if sender.broker_id == broker_id and isinstance(effect, SendFetch)
    ]
    peers.deliver(at[0], **how)


def test_a_follower_that_has_everything_joins():
    peers = lone_leader()
    peers.publish()
    peers.run(4)
    assert set(peers.state.isr) == {1, 2, 3}
    assert set(peers[1].replica.in_sync_replicas) == {1, 2, 3}


def test_one_change_is_under_way_at_a_time():
    peers = lone_leader()
    peers.publish()
    deliver_fetch_of(peers, 2)
    deliver_fetch_of(peers, 3)
    assert len(only(peers, SendAlterPartition)) == 1
    assert peers[1].replica.proposal.isr == (1, 2)
    deliver(peers, SendAlterPartition)
    assert peers[1].replica.in_sync_replicas == (1, 2)
    deliver_fetch_of(peers, 3)
    assert peers[1].replica.proposal.isr == (1, 2, 3)


def test_a_follower_behind_the_high_watermark_does_not_join():
    peers = lone_leader()
    peers.publish(1)
    peers[1].produce(3)
    assert peers[1].high_watermark == 3
    peers.publish(2)
    deliver_fetch_of(peers, 2)
    assert peers[1].replica.proposal is None
    deliver_fetch_of(peers, 2)
    assert peers[1].replica.proposal.isr == (1, 2)


def test_a_follower_joins_only_when_it_reached_the_start_of_the_leader_s_epoch():
    """The high watermark that a new leader knows may be behind what is committed."""
    peers = Peers(3, publish=False)
    peers.change(isr=(1, 2))
    peers.publish(1, 2)
    peers[1].produce(4)
    deliver_fetch_of(peers, 2)
    peers.elect(2)
    assert (peers[2].end, peers[2].high_watermark) == (4, 0)
    deliver_fetch_of(peers, 3)
    assert peers[2].replica.followers[3].end_offset == 0
    assert peers[2].replica.proposal is None
    deliver_fetch_of(peers, 3)
    assert peers[2].replica.proposal.isr == (1, 2, 3)


def test_a_pending_member_holds_the_high_watermark_before_the_controller_answers():
    peers = lone_leader()
    peers.publish()
    deliver_fetch_of(peers, 2)
    assert peers[1].replica.proposal.isr == (1, 2)
    peers[1].produce(2)
    assert peers[1].high_watermark == 0
    deliver_fetch_of(peers, 2)
    deliver_fetch_of(peers, 2)
    assert peers[1].high_watermark == 2
    assert peers[1].replica.in_sync_replicas == (1,)


def test_a_fenced_or_leaving_follower_does_not_join():
    for change in ({"fenced": True}, {"in_controlled_shutdown": True}):
        peers = lone_leader()
        broker = peers.brokers[2]
        fields = {name: getattr(broker, name) for name in broker.__struct_fields__}
        peers.brokers[2] = type(broker)(**{**fields, **change})
        peers.publish()
        deliver_fetch_of(peers, 2)
        assert peers[1].replica.proposal is None


def test_a_fetch_from_before_a_broker_s_restart_is_refused():
    """KIP-903: the log it speaks of may be gone."""
    peers = lone_leader()
    peers.publish()
    old = peers.brokers[2]
    fields = {name: getattr(old, name) for name in old.__struct_fields__}
    peers.brokers[2] = type(old)(**{**fields, "epoch": old.epoch + 1})
    peers.publish(1)
    deliver_fetch_of(peers, 2)
    assert 2 not in peers[1].replica.followers
    assert peers[1].replica.proposal is None


def test_an_epoch_that_the_leader_does_not_know_yet_does_not_make_a_member():
    peers = lone_leader()
    peers.publish(1)
    old = peers.brokers[2]
    fields = {name: getattr(old, name) for name in old.__struct_fields__}
    peers.brokers[2] = type(old)(**{**fields, "epoch": old.epoch + 1})
    peers[2].begin()
    peers.publish(2)
    deliver_fetch_of(peers, 2)
    assert peers[1].replica.proposal is None


def test_a_follower_that_lags_is_taken_out():
    peers = Peers(3)
    peers[1].produce(1)
    for _ in range(3):
        deliver_fetch_of(peers, 2)
    peers.wait(LAG_MS)
    assert only(peers, SendAlterPartition) == []
    deliver_fetch_of(peers, 2)
    peers.wait(LAG_MS // 2)
    deliver(peers, SendAlterPartition)
    assert peers.state.isr == (1, 2)
    peers.publish(1)
    assert peers[1].high_watermark == 1


def test_a_follower_that_has_everything_is_never_taken_out():
    peers = Peers(3)
    for each in (2, 3):
        deliver_fetch_of(peers, each)
    for _ in range(5):
        peers.wait(LAG_MS)
    assert only(peers, SendAlterPartition) == []


def test_a_follower_a_moment_behind_is_caught_up():
    """It has at each fetch what was the end at the fetch before: a busy leader keeps it."""
    peers = Peers(2)
    for _ in range(10):
        peers[1].produce(1, acks=1)
        deliver_fetch_of(peers, 2)
        peers[1].produce(1, acks=1)
        peers.wait(10_000)
    assert only(peers, SendAlterPartition) == []


def test_a_proposed_leave_changes_nothing_until_it_is_committed():
    peers = Peers(2)
    peers[1].produce(1)
    peers.wait(LAG_MS + LAG_MS // 2)
    assert peers[1].replica.proposal.isr == (1,)
    assert (peers[1].replica.in_sync_replicas, peers[1].high_watermark) == ((1, 2), 0)
    deliver(peers, SendAlterPartition)
    assert (peers[1].replica.in_sync_replicas, peers[1].high_watermark) == ((1,), 0)
    peers.publish(1)
    assert peers[1].high_watermark == 1, "the metadata tells it too: nothing came in between"


WAITING = [
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.INVALID_UPDATE_VERSION,
    ErrorCode.INVALID_REQUEST,
    ErrorCode.NEW_LEADER_ELECTED,
]


@pytest.mark.parametrize("code", WAITING)
def test_after_these_answers_the_leader_waits_for_the_metadata(code):
    peers = lone_leader()
    peers.publish()
    deliver_fetch_of(peers, 2)
    peers.refusals.append(code)
    deliver(peers, SendAlterPartition)
    assert peers[1].replica.proposal.isr == (1, 2)
    peers[1].produce(1)
    assert peers[1].high_watermark == 0, "the change may have been committed"
    peers.wait(1000)
    assert only(peers, SendAlterPartition) == []
    peers.change(isr=(1,))
    peers.publish(1)
    assert peers[1].replica.proposal is None
    assert peers[1].high_watermark == 1


@pytest.mark.parametrize("code", [ErrorCode.INELIGIBLE_REPLICA, ErrorCode.OPERATION_NOT_ATTEMPTED])
def test_after_these_answers_the_committed_isr_holds_again(code):
    peers = lone_leader()
    peers.publish()
    deliver_fetch_of(peers, 2)
    peers[1].produce(1)
    peers.refusals.append(code)
    deliver(peers, SendAlterPartition)
    assert (peers[1].replica.proposal, peers[1].high_watermark) == (None, 1)


@pytest.mark.parametrize(
    "code", [ErrorCode.NOT_CONTROLLER, ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.REQUEST_TIMED_OUT]
)
def test_after_any_other_answer_the_leader_asks_again(code):
    peers = lone_leader()
    peers.publish()
    deliver_fetch_of(peers, 2)
    peers.refusals.append(code)
    deliver(peers, SendAlterPartition)
    assert only(peers, SendAlterPartition) == []
    peers.wait(50)
    deliver(peers, SendAlterPartition)
    assert peers[1].replica.in_sync_replicas == (1, 2)


def test_a_lost_answer_is_learnt_from_the_metadata():
    peers = lone_leader()
    peers.publish()
    deliver_fetch_of(peers, 2)
    deliver(peers, SendAlterPartition, lose_answer=True)
    assert peers.state.isr == (1, 2)
    peers.wait(50)
    deliver(peers, SendAlterPartition)  # INVALID_UPDATE_VERSION: it was committed before
    assert peers[1].replica.proposal is not None
    peers.publish(1)
    assert peers[1].replica.proposal is None
    assert peers[1].replica.in_sync_replicas == (1, 2)


def test_an_answer_to_a_proposal_that_the_metadata_overtook_is_left_alone():
    peers = lone_leader()
    peers.publish()
    deliver_fetch_of(peers, 2)
    peers.change(isr=(1, 3))
    peers.publish(1)
    deliver(peers, SendAlterPartition)
    assert peers[1].replica.in_sync_replicas == (1, 3)


def test_what_a_follower_had_under_another_leader_counts_for_nothing():
    peers = Peers(2)
    for _ in range(2):
        peers[1].produce(2)
        peers.settle()
    assert peers[1].replica.followers[2].end_offset == 4
    peers[2].replica.log.truncate_to(2)  # its disk lost half of it, and it is elected uncleanly
    peers[2].replica.truncated()
    peers.elect(2, isr=(2,))
    peers.settle()
    peers.lose_all()
    peers.elect(1, isr=(1, 2))
    peers[1].produce(2, acks=1)
    assert (peers[1].end, peers[2].end, peers[1].high_watermark) == (4, 2, 2)


def test_the_high_watermark_waits_for_the_minimum_isr():
    """KIP-966: with acks=1 the record is there, and nobody sees it."""
    peers = lone_leader(topic_config={"min.insync.replicas": "2"})
    peers.publish(1)
    assert peers[1].produce(1, acks=1).error_code == 0
    assert (peers[1].end, peers[1].high_watermark) == (1, 0)
    peers.publish(2)
    deliver_fetch_of(peers, 2)
    deliver_fetch_of(peers, 2)
    deliver(peers, SendAlterPartition)
    assert peers[1].high_watermark == 0
    peers.publish(1)
    assert peers[1].high_watermark == 1


def test_a_new_leader_keeps_the_high_watermark_that_it_knew():
    peers = Peers(3)
    peers[1].produce(4)
    peers.run(4)
    peers[1].produce(2)
    deliver_fetch_of(peers, 2)
    assert (peers[2].end, peers[2].high_watermark) == (6, 4)
    peers.elect(2, isr=(2, 3))
    assert (peers[2].end, peers[2].high_watermark) == (6, 4)
    peers.run(4)
    assert (peers[3].end, peers[2].high_watermark) == (6, 6)


def test_after_an_unclean_election_the_leader_says_that_it_has_recovered():
    peers = Peers(3)
    peers.elect(2, isr=(2,), recovery_state=RECOVERING)
    message = next(effect for *_, effect in peers.mail if isinstance(effect, SendAlterPartition))
    asked = message.request.topics[0].partitions[0]
    assert [each.broker_id for each in asked.new_isr_with_epochs] == [2]
    assert asked.leader_recovery_state == 0
    deliver(peers, SendAlterPartition)
    assert (peers.state.isr, peers.state.recovery_state) == ((2,), 0)
    assert peers[2].replica.recovery_state == 0


def test_a_request_that_waits_fails_when_leadership_moves():
    peers = Peers(3)
    box = peers[1].produce(1)
    peers.elect(2)
    assert outcome_of(box[0]).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_request_that_waits_fails_also_when_leadership_came_back_meanwhile():
    """Between, other records may have taken its offsets."""
    peers = Peers(3)
    box = peers[1].produce(1)
    waits, peers[1].waits = peers[1].waits, []
    peers.elect(2)
    peers.elect(1)
    peers[1].waits = waits
    peers.run(4)
    assert outcome_of(box[0]).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_roles():
    peers = Peers(3, observers=(3,))
    assert [peers[each].replica.role for each in (1, 2, 3)] == [
        Role.LEADER,
        Role.FOLLOWER,
        Role.OBSERVER,
    ]


def test_r19_changes_are_counted_also_when_the_metadata_tells_them_first():
    peers = Peers(3)
    peers[1].produce(1)
    peers.run(4)
    peers.mail = [each for each in peers.mail if each[0].broker_id == 2]  # 3 falls silent
    peers[1].produce(1)
    for _ in range(3):
        peers.wait(LAG_MS // 2 + 1)
        peers.run(2)
        for at in only(peers, SendAlterPartition):
            _, broker, effect = peers.mail.pop(at)
            answer = peers._answer(effect)
            peers.publish(1)
            broker.replication.altered(effect, answer, peers.now_ms)
    counts = peers[1].broker.replication.statistics()
    assert peers.state.isr == (1, 2)
    assert (counts["isr_shrinks"], counts["isr_expands"], counts["isr_failures"]) == (1, 0, 0)
