"""R1: what a broker sends: sessions, retries, how many requests are under way, when nothing is."""

import msgspec
import pytest
from tests.core.api.in_memory_node import take_offline
from tests.core.replication.peers import PLACE, Peers
from tests.core.replication.test_in_sync import deliver_fetch_of, only

from anabranch.core.api.fetch_followers import FollowerFetch
from anabranch.core.replication.calls import CALLS
from anabranch.core.replication.effects import SendAlterPartition, SendFetch
from anabranch.core.replication.selection import RACK_AWARE_SELECTOR
from anabranch.core.types import NEVER_MS, TopicPartition


def fetches_of(peers, broker_id):
    return [
        effect
        for sender, _, effect in peers.mail
        if sender.broker_id == broker_id and isinstance(effect, SendFetch)
    ]


def named(effect):
    """Partitions in a request, and those that it forgets."""
    told = sorted(part.partition for topic in effect.request.topics for part in topic.partitions)
    gone = sorted(
        index for topic in effect.request.forgotten_topics_data for index in topic.partitions
    )
    return told, gone


def test_one_request_a_leader_is_under_way():
    peers = Peers(3, partitions=4)
    assert [len(fetches_of(peers, each)) for each in (1, 2, 3)] == [0, 1, 1]
    peers.publish()
    assert len(fetches_of(peers, 2)) == 1


def test_several_fetchers_share_a_leader_s_partitions():
    peers = Peers(2, partitions=4, config={"num.replica.fetchers": "2"})
    first, second = fetches_of(peers, 2)
    assert {first.fetcher, second.fetcher} == {0, 1}
    assert sorted(named(first)[0] + named(second)[0]) == [0, 1, 2, 3]


def test_a_session_names_only_what_has_news():
    peers = Peers(2, partitions=3)
    assert named(fetches_of(peers, 2)[0]) == ([0, 1, 2], [])
    peers[1].produce(1)
    deliver_fetch_of(peers, 2)
    (following,) = fetches_of(peers, 2)
    assert named(following) == ([0], [])
    assert (following.request.session_epoch, following.request.session_id != 0) == (1, True)
    deliver_fetch_of(peers, 2)
    assert named(fetches_of(peers, 2)[0]) == ([], [])


def test_a_request_says_who_asks_and_what_is_there():
    peers = Peers(2)
    peers[1].produce(2)
    deliver_fetch_of(peers, 2)
    (effect,) = fetches_of(peers, 2)
    request, part = effect.request, effect.request.topics[0].partitions[0]
    assert (request.replica_state.replica_id, request.replica_state.replica_epoch) == (2, 7)
    assert (part.fetch_offset, part.current_leader_epoch, part.last_fetched_epoch) == (2, 0, 0)
    assert effect.version == 18


@pytest.mark.parametrize(("timeout_ms", "wait_ms"), [(30_000, 500), (600, 450), (500, 375)])
def test_an_answer_without_records_comes_before_the_follower_gives_up(timeout_ms, wait_ms):
    """Kafka allows both to be the same; each fetch of an idle leader would end its session."""
    config = {"replica.fetch.wait.max.ms": "500", "replica.socket.timeout.ms": str(timeout_ms)}
    (effect,) = fetches_of(Peers(2, config=config), 2)
    assert effect.request.max_wait_ms == wait_ms


def test_rounds_are_as_large_as_the_leader_is_far():
    """What is in sync waits no longer than a near leader's round; distance costs no throughput."""
    peers = Peers(2)
    asked = []
    for needs_ms in (0, 3, 40, 2, 40):
        (effect,) = fetches_of(peers, 2)
        asked.append(effect.request.max_bytes)
        peers.now_ms += needs_ms
        peers[1].produce(1)
        deliver_fetch_of(peers, 2)
    assert asked == [1 << 20] * 5
    for needs_ms in (1000, 1000, 41, 39, 3):  # a new session each time
        deliver_fetch_of(peers, 2, lose=True)
        peers.wait(1000)
        peers.now_ms += needs_ms
        peers[1].produce(1)
        deliver_fetch_of(peers, 2)
        asked.append(fetches_of(peers, 2)[0].request.max_bytes)
    assert asked[5:] == [10485760, 10485760, 10 << 20, 9 << 20, 1 << 20]


def test_a_round_is_no_larger_than_configured():
    peers = Peers(2, config={"replica.fetch.response.max.bytes": "65536"})
    assert fetches_of(peers, 2)[0].request.max_bytes == 65536


def test_no_answer_is_followed_by_a_new_session_after_a_pause():
    peers = Peers(2, partitions=2)
    deliver_fetch_of(peers, 2)
    deliver_fetch_of(peers, 2, lose=True)
    assert fetches_of(peers, 2) == []
    assert peers[2].broker.replication.next_tick_ms == peers.now_ms + 1000
    peers.wait(1000)
    (effect,) = fetches_of(peers, 2)
    assert (effect.request.session_epoch, named(effect)) == (0, ([0, 1], []))


def test_a_session_that_the_leader_forgot_begins_anew_at_once():
    peers = Peers(2, partitions=2)
    deliver_fetch_of(peers, 2)
    for session in list(peers[1].broker.fetch_sessions):
        peers[1].broker.fetch_sessions.close(session.session_id)
    deliver_fetch_of(peers, 2)
    (effect,) = fetches_of(peers, 2)
    assert (effect.request.session_epoch, named(effect)) == (0, ([0, 1], []))


def test_a_leader_without_room_for_sessions_is_told_all_each_time():
    peers = Peers(2, partitions=2)
    peers[1].broker.fetch_sessions.slots = 0
    for _ in range(3):
        deliver_fetch_of(peers, 2)
        assert named(fetches_of(peers, 2)[0]) == ([0, 1], [])


def test_a_partition_that_moves_is_forgotten():
    peers = Peers(3, partitions=2)
    deliver_fetch_of(peers, 3)
    peers.change(leader=2)
    peers.publish(2, 3)
    deliver_fetch_of(peers, 3)
    told = {effect.leader_id: named(effect) for effect in fetches_of(peers, 3)}
    assert told == {1: ([], [0]), 2: ([0], [])}


def test_a_partition_in_error_rests_and_the_others_go_on():
    peers = Peers(2, partitions=2)
    take_offline(peers[1].broker.partitions, peers[1].replica)
    deliver_fetch_of(peers, 2)
    assert named(fetches_of(peers, 2)[0]) == ([], [0])
    deliver_fetch_of(peers, 2)
    peers.wait(1000)
    deliver_fetch_of(peers, 2)
    assert named(fetches_of(peers, 2)[0]) == ([0], [])


def test_why_a_partition_is_not_copied_is_told_once():
    peers = Peers(2)
    take_offline(peers[1].broker.partitions, peers[1].replica)
    for _ in range(3):
        deliver_fetch_of(peers, 2)
        peers.wait(1000)
    (obstacle,) = peers[2].broker.replication.obstacles
    assert obstacle == (PLACE, 1, "the leader refuses it with KAFKA_STORAGE_ERROR")


def test_why_a_partition_is_not_copied_again_is_told_again():
    peers = Peers(2, partitions=2)
    lead = peers[1].replica
    for _ in range(2):
        take_offline(peers[1].broker.partitions, lead)
        peers[1].broker.changed[PLACE] = None
        peers[1].finish()
        deliver_fetch_of(peers, 2)
        peers.wait(1000)
        peers[1].broker.partitions.host(lead)
        lead.take_state(peers.state)
        deliver_fetch_of(peers, 2)
        deliver_fetch_of(peers, 2)
    assert len(peers[2].broker.replication.obstacles) == 2


def test_records_that_do_not_fit_are_told_and_asked_for_again():
    peers = Peers(2)
    peers[1].produce(1, acks=1)
    (_, broker, effect) = peers.mail.pop(only(peers, SendFetch)[0])
    answer = peers._answer(effect)
    answer.responses[0].partitions[0].records[-1] ^= 1
    broker.replication.fetched(effect, answer, peers.now_ms)
    (obstacle,) = broker.replication.obstacles
    assert "does not match its checksum" in obstacle.why
    peers.wait(1000)
    deliver_fetch_of(peers, 2)
    assert peers[2].end == 1


@pytest.mark.parametrize("of_all", [False, True])
def test_a_code_of_a_later_version_of_kafka_is_an_error_like_others(of_all):
    peers = Peers(2)
    peers[1].produce(1, acks=1)
    (_, broker, effect) = peers.mail.pop(only(peers, SendFetch)[0])
    answer = peers._answer(effect)
    (answer if of_all else answer.responses[0].partitions[0]).error_code = 30_000
    broker.replication.fetched(effect, answer, peers.now_ms)
    peers.wait(1000)
    deliver_fetch_of(peers, 2)
    assert peers[2].end == 1


def test_what_passes_by_itself_is_told_nobody():
    peers = Peers(2)
    peers.change(leader=2)
    peers.publish(1)
    deliver_fetch_of(peers, 2)
    assert not peers[2].broker.replication.obstacles


def test_a_late_answer_is_left_alone():
    peers = Peers(2)
    peers[1].produce(1, acks=1)
    (_, broker, effect) = peers.mail.pop(only(peers, SendFetch)[0])
    answer = peers._answer(effect)
    broker.replication.fetch_failed(effect, peers.now_ms)
    broker.replication.fetched(effect, answer, peers.now_ms)
    assert peers[2].end == 0


def test_a_dropped_or_offline_partition_is_followed_no_more():
    peers = Peers(2)
    broker = peers[2].broker
    take_offline(broker.partitions, peers[2].replica)
    broker.replication.follow_states([TopicPartition("t", 0)], 0)
    assert broker.replication.statistics()["followed"] == 0
    peers[1].produce(1, acks=1)
    deliver_fetch_of(peers, 2)
    assert fetches_of(peers, 2) == []


def test_everything_can_be_followed_again_from_nothing():
    """`follow_states(None)`: what a shell does when it has lost track of what changed."""
    peers = Peers(3, partitions=3)
    before = [effect.version for effect in fetches_of(peers, 2)]
    for peer in peers.peers.values():
        peer.broker.replication.follow_states(None, peers.now_ms)
        peer.finish()
    assert [effect.version for effect in fetches_of(peers, 2)] == before
    peers[1].produce(1)
    peers.run(4)
    assert peers[1].high_watermark == 1


def test_one_request_to_the_controller_is_under_way_and_carries_all_that_waits():
    peers = Peers(2, partitions=5, publish=False)
    for index in range(5):
        peers.change(index, isr=(1,))
    peers.publish()
    deliver_fetch_of(peers, 2)
    (at,) = only(peers, SendAlterPartition)
    assert len(peers.mail[at][2].proposals) == 5
    peers.deliver(at, lose=True)
    assert only(peers, SendAlterPartition) == []
    peers.wait(50)
    peers.deliver(only(peers, SendAlterPartition)[0])
    assert {peers.states[index].isr for index in range(5)} == {(1, 2)}
    counts = peers[1].broker.replication.statistics()
    assert (counts["isr_expands"], counts["isr_shrinks"]) == (5, 0)


def test_nothing_is_due_where_nothing_is_shared():
    peers = Peers(1, partitions=3)
    assert peers[1].broker.replication.next_tick_ms == NEVER_MS
    assert peers[1].broker.replication.take_effects() == []


def test_a_parked_fetch_is_answered_when_records_come():
    peers = Peers(2, config={"replica.fetch.wait.max.ms": "500"})
    leader, follower = peers[1], peers[2]
    (_, broker, effect) = peers.mail.pop(0)
    box = leader.ask(effect.request, effect.version)
    assert box == []
    leader.produce(1, acks=1)
    assert bytes(box[0].responses[0].partitions[0].records) == leader.bytes_upto(1)
    broker.replication.fetched(effect, box[0], peers.now_ms)
    assert follower.end == 1


def test_a_mark_that_a_follower_had_to_drop_is_told_again():
    """The answer was to a question of the epoch before; the session goes on."""
    peers = Peers(2)
    peers[1].produce(2)
    deliver_fetch_of(peers, 2)
    peers.change(leader=1)
    peers.publish(2)
    deliver_fetch_of(peers, 2)
    assert (peers[1].high_watermark, peers[2].high_watermark) == (2, 0)
    peers.publish(1)
    deliver_fetch_of(peers, 2)
    assert peers[2].high_watermark == 2


def test_a_log_start_that_a_follower_had_to_drop_is_told_again():
    """Else an idle partition's deleted records would stay with the follower, and come back with it."""
    peers = Peers(2)
    peers[1].produce(2)
    peers.run(4)
    peers[1].replica.log.delete_records_before(1)
    peers[1].broker.changed[PLACE] = None
    peers[1].finish()
    peers.change(leader=1)
    peers.publish(2)
    deliver_fetch_of(peers, 2)
    peers.publish(1)
    peers.run(4)
    assert peers[2].replica.log.start_offset == 1


def test_nobody_copies_from_itself():
    """It is named as leader in an epoch that is older than its records, and does not lead."""
    peers = Peers(2)
    peers.lose_all()
    peers[1].replica.log.epochs.assign(5, 0)
    peers.change(leader=1)
    peers.publish(1)
    assert not peers[1].replica.is_leader
    assert fetches_of(peers, 1) == []


def test_idle_partitions_are_not_named_and_still_count_as_caught_up():
    """Most of what a follower asks for is idle: nothing is said of it, and nobody is taken out."""
    peers = Peers(2, partitions=3)
    for _ in range(3):
        deliver_fetch_of(peers, 2)
    at = only(peers, SendFetch)[0]
    effect = peers.mail[at][2]
    peers.now_ms += 25_000
    answer = peers._answer(effect)
    assert answer.responses == []
    peers.mail.pop(at)
    peers[2].broker.replication.fetched(effect, answer, peers.now_ms)
    peers[2].finish()
    peers[1].produce(1, acks=1)
    peers.wait(20_000)
    assert only(peers, SendAlterPartition) == []


def test_an_idle_partition_s_new_marks_are_told():
    peers = Peers(3)
    peers[1].produce(1)
    for each in (2, 2, 3, 3, 2):
        deliver_fetch_of(peers, each)
    assert (peers[1].high_watermark, peers[2].high_watermark) == (1, 1)


def parked(peers, broker_id):
    """The only fetch of a follower, delivered: the box that its answer comes into."""
    (at,) = (
        index
        for index, (sender, _, effect) in enumerate(peers.mail)
        if sender.broker_id == broker_id and isinstance(effect, SendFetch)
    )
    _, _, effect = peers.mail.pop(at)
    return effect, peers[effect.leader_id].ask(effect.request, effect.version)


def quiet_peers(partitions=3, **config):
    """Broker 2 has everything, was told everything, and its next fetch is parked."""
    config = {"replica.fetch.wait.max.ms": "500", **config}
    peers = Peers(2, partitions=partitions, config=config)
    for _ in range(CALLS):
        peers.wait(200)  # nobody is called to new leaderships any more
    effect, _ = parked(peers, 2)
    wait, _ = peers[1].waits.pop()
    answer = wait.poll(peers[1].broker.wall_ms, True)
    peers[2].broker.replication.fetched(effect, answer, peers.now_ms)
    peers[2].finish()
    effect, box = parked(peers, 2)
    assert box == []
    return peers, effect, box


def test_a_follower_s_session_looks_only_at_what_moved():
    """R1: of 100,000 partitions nearly all are idle, and a fetch must not cost a look at each."""
    peers, _, box = quiet_peers(partitions=50)
    (session,) = peers[1].broker.fetch_sessions
    assert (len(session.partitions), list(session.news)) == (50, [])
    peers[1].produce(1, acks=1)
    assert [wanted.index for wanted in session.news] == [0]
    assert len(box) == 1


def taken(peers, effect, box):
    """The follower takes an answer: its next fetch."""
    (answer,) = box
    peers[2].broker.replication.fetched(effect, answer, peers.now_ms)
    peers[2].finish()
    return parked(peers, 2)


def marks_in(box):
    """Partition -> high watermark, and whether records came, as an answer says."""
    (answer,) = box
    return {
        each.partition_index: (each.high_watermark, len(each.records) > 0)
        for topic in answer.responses
        for each in topic.partitions
    }


SELECTS = {"replica.selector.class": RACK_AWARE_SELECTOR}


@pytest.mark.parametrize(("config", "late_ms"), [({}, 50), (SELECTS, 5)])
def test_a_mark_that_moved_alone_is_told_soon_and_not_at_once(config, late_ms):
    """KIP-1166: version 18 says which high watermark the follower knows."""
    peers, effect, box = quiet_peers(**config)
    peers[1].produce(1)
    effect, box = taken(peers, effect, box)
    assert (peers[1].high_watermark, box) == (1, [])
    peers.wait(late_ms - 1)
    assert box == []
    peers.wait(1)
    assert marks_in(box) == {0: (1, False)}
    _, box = taken(peers, effect, box)
    peers.wait(late_ms)
    assert box == [], "nothing is left to tell"


def test_a_log_start_that_moved_is_told_sooner_than_a_high_watermark():
    peers, effect, box = quiet_peers()
    peers[1].produce(1)
    effect, box = taken(peers, effect, box)
    peers[1].replica.log.delete_records_before(1)
    peers[1].broker.changed[PLACE] = None
    peers.wait(0)
    peers.wait(5)
    assert marks_in(box) == {0: (1, False)}


def test_records_of_other_partitions_do_not_bring_marks_along_until_these_are_due():
    """Producers wait for those records, and nobody waits for the marks."""
    peers, effect, box = quiet_peers()
    peers[1].produce(1)
    effect, box = taken(peers, effect, box)
    for _ in range(5):
        peers.wait(9)
        peers[1].produce(1, index=1)
        assert list(marks_in(box)) == [1]
        effect, box = taken(peers, effect, box)
    assert (peers[2].replica.high_watermark, box) == (0, [])
    peers.wait(5)
    assert marks_in(box) == {0: (1, False), 1: (5, False)}


def test_a_mark_that_is_due_while_no_fetch_waits_is_told_at_once_when_one_comes():
    peers, effect, box = quiet_peers()
    peers[1].produce(1)
    effect, box = taken(peers, effect, box)
    peers[1].produce(1, index=1)
    peers.wait(60)
    _, answer = taken(peers, effect, box)
    assert marks_in([answer])[0] == (1, False)


def test_a_mark_that_goes_with_records_is_not_told_again():
    peers, effect, box = quiet_peers()
    peers[1].produce(1)
    effect, box = taken(peers, effect, box)
    peers.wait(10)
    peers[1].produce(1)
    assert marks_in(box) == {0: (1, True)}
    effect, box = taken(peers, effect, box)
    peers.wait(40)
    assert box == [], "this mark is younger"
    peers.wait(10)
    assert marks_in(box) == {0: (2, False)}


def test_who_begins_a_session_is_told_its_marks_at_once():
    """Otherwise after a whole wait: who waits no longer than that for an answer, as settings may
    say, would begin sessions for ever."""
    peers, effect, box = quiet_peers()
    peers[1].produce(1)
    effect, box = taken(peers, effect, box)
    assert (peers[2].replica.high_watermark, box) == (0, [])
    peers[2].broker.replication.fetch_failed(effect, peers.now_ms)
    peers[2].finish()
    peers.wait(1000)
    effect, answer = parked(peers, 2)
    assert effect.request.session_epoch == 0
    assert answer != [], "it waits"
    assert marks_in([answer])[0] == (1, False)
    effect, box = taken(peers, effect, [answer])
    assert (peers[2].replica.high_watermark, box) == (1, [])
    peers[2].broker.replication.fetch_failed(effect, peers.now_ms)
    peers[2].finish()
    peers.wait(1000)
    effect, box = parked(peers, 2)
    assert (effect.request.session_epoch, box) == (0, []), "it knows all marks"


def test_who_begins_a_session_waits_for_marks_that_it_has_no_records_for(monkeypatch):
    """A throttle holds them back: it would ask again at once, as long as that does."""
    peers, effect, _ = quiet_peers()
    monkeypatch.setattr(peers[1].broker.replication, "holds_back", lambda *_: True)
    peers[1].produce(1, acks=1)
    monkeypatch.setattr(peers[1].replica, "high_watermark", 1)
    peers[2].broker.replication.fetch_failed(effect, peers.now_ms)
    peers[2].finish()
    peers.wait(1000)
    effect, box = parked(peers, 2)
    assert (effect.request.session_epoch, box) == (0, [])


def test_the_last_answer_of_a_wait_tells_all_marks():
    peers, effect, box = quiet_peers()
    peers[1].produce(1)
    taken(peers, effect, box)
    wait, _ = peers[1].waits.pop()
    answer = wait.poll(peers[1].broker.wall_ms, True)
    assert marks_in([answer]) == {0: (1, False)}


def test_a_mark_that_is_due_while_no_fetch_waits_is_told_though_its_partition_changed():
    peers, effect, box = quiet_peers()
    peers[1].produce(1)
    effect, box = taken(peers, effect, box)
    peers[1].produce(1, index=1)
    peers[1].broker.changed[PLACE] = None
    peers[1].finish()
    peers.wait(60)
    _, answer = taken(peers, effect, box)
    assert marks_in([answer])[0] == (1, False)


@pytest.mark.parametrize("config", [{}, SELECTS])
def test_records_of_other_partitions_bring_the_marks_of_who_is_kept_out_of_the_isr(config):
    """A consumer that reads there still waits for them: nothing else would ever tell them."""
    peers, effect, box = quiet_peers(**config)
    peers[1].produce(1)
    effect, box = taken(peers, effect, box)
    assert (peers[1].high_watermark, peers[2].replica.high_watermark) == (1, 0)
    peers.brokers[2] = msgspec.structs.replace(peers.brokers[2], fenced=True)
    peers.change(0, isr=(1,))
    peers.publish()
    for _ in range(5):
        peers.wait(3)
        peers[1].produce(1, index=1)
        if box:
            effect, box = taken(peers, effect, box)
    assert peers[1].replica.in_sync_replicas == (1,)
    assert peers[2].replica.high_watermark == 1


def test_a_log_is_not_read_for_a_mark_that_the_fetch_itself_has_moved(monkeypatch):
    """Producers wait for that mark, and the follower hears of it later."""
    peers, effect, box = quiet_peers()
    peers[1].produce(1)
    peers[2].broker.replication.fetched(effect, box[0], peers.now_ms)
    peers[2].finish()
    reads, read = [], FollowerFetch.read_partition
    monkeypatch.setattr(
        FollowerFetch, "read_partition", lambda self, *of: (reads.append(of), read(self, *of))[1]
    )
    _, box = parked(peers, 2)
    assert (peers[1].high_watermark, reads) == (1, [])
    peers.wait(50)
    assert box[0].responses[0].partitions[0].high_watermark == 1


def test_an_older_follower_learns_a_mark_with_the_next_answer():
    peers, effect, box = quiet_peers()
    peers[1].produce(1)
    peers[2].broker.replication.fetched(effect, box[0], peers.now_ms)
    peers[2].finish()
    (_, _, effect) = peers.mail.pop(0)
    box = peers[1].ask(effect.request, 17)
    peers.wait(100)
    assert box == []


def test_who_said_nothing_new_was_caught_up_when_it_last_fetched():
    peers, effect, _ = quiet_peers()
    follower, (wait, _) = peers[1].replica.followers[2], peers[1].waits.pop()
    peers.now_ms += 60_000
    answer = wait.poll(peers[1].broker.wall_ms, True)
    peers[2].broker.replication.fetched(effect, answer, peers.now_ms)
    peers[2].finish()
    parked(peers, 2)
    heard_ms = peers.now_ms
    peers.now_ms += 300
    assert follower.caught_up_ms < heard_ms - 50_000
    peers[1].produce(1, acks=1)
    assert follower.caught_up_ms == heard_ms
    peers.wait(29_000)
    assert only(peers, SendAlterPartition) == []
    peers.wait(16_000)
    assert only(peers, SendAlterPartition) != []


def test_a_follower_is_not_heard_of_where_it_has_let_go_of_a_partition():
    """It still fetches others in its session; waiting for it would hold up every acknowledgement."""
    peers = Peers(2, partitions=2)
    for _ in range(3):
        deliver_fetch_of(peers, 2)
    take_offline(peers[2].broker.partitions, peers[2].replica)
    peers[2].broker.replication.follow_states([PLACE], peers.now_ms)
    for _ in range(6):
        peers.now_ms += 10_000
        peers[1].clock()
        deliver_fetch_of(peers, 2)
    peers[1].produce(1, acks=1)
    peers.wait(1_000)
    (at,) = only(peers, SendAlterPartition)
    assert peers.mail[at][2].proposals[0][1].isr == (1,)


def test_a_follower_that_lets_go_of_an_idle_partition_was_heard_of_until_then():
    """It said nothing of it for a minute, since there was nothing: it is not late for that."""
    peers = Peers(2, partitions=2)
    for _ in range(6):
        deliver_fetch_of(peers, 2)
        peers.now_ms += 10_000
        peers[1].clock()
    take_offline(peers[2].broker.partitions, peers[2].replica)
    peers[2].broker.replication.follow_states([PLACE], peers.now_ms)
    for _ in range(2):
        deliver_fetch_of(peers, 2)
    assert named(fetches_of(peers, 2)[0]) == ([], [])
    peers[1].produce(1, acks=1)
    peers.wait(15_000)
    assert only(peers, SendAlterPartition) == []
    peers.wait(30_000)
    assert len(only(peers, SendAlterPartition)) == 1


def test_a_follower_that_registered_anew_says_so_of_every_partition():
    peers, effect, _ = quiet_peers()
    (session,) = peers[1].broker.fetch_sessions
    session.hear(8, peers.now_ms)
    assert len(session.news) == 3
    assert effect.version == 18


def test_a_forgotten_partition_is_watched_no_more():
    peers, _, _ = quiet_peers(partitions=2)
    sessions = peers[1].broker.fetch_sessions
    (session,) = sessions
    sessions.close(session.session_id)
    assert list(sessions.moved(TopicPartition("t", 0))) == []


def test_a_session_that_was_closed_under_its_fetch_is_told_nothing():
    peers, _, _ = quiet_peers(partitions=2)
    sessions = peers[1].broker.fetch_sessions
    (session,) = sessions
    sessions.close(session.session_id)
    for wanted in session.partitions.values():
        wanted.is_watched = False  # as a partition that its fetch has not come to yet
        sessions.watch(session, wanted)
    assert list(sessions.moved(PLACE)) == []


def test_records_are_answered_at_once_also_where_a_mark_waits_to_be_told():
    """A partition that is written to from its first moment on is never quiet."""
    peers = Peers(2, partitions=3, config={"replica.fetch.wait.max.ms": "500"})
    peers[1].produce(1)
    effect, answer = parked(peers, 2)
    for end in range(2, 5):
        peers[2].broker.replication.fetched(effect, answer, peers.now_ms)
        peers[2].finish()
        effect, box = parked(peers, 2)
        assert box == [], "what has moved is a mark"
        peers[1].produce(1)
        (answer,) = box  # without a timer
        assert peers[1].end == end
