"""Fetch: limits, waiting, sessions, epochs, isolation."""

from types import SimpleNamespace

import pytest
from tests.core.api.in_memory_node import Denying, InMemoryNode, batch

from anabranch.core.access.authorize import Operation, ResourceType
from anabranch.core.api.p01_fetch import emptied
from anabranch.core.errors import CorruptLog, ErrorCode
from anabranch.core.log.files import ColdRead
from anabranch.core.outcome import Cold, Wait
from anabranch.core.types import TopicPartition
from anabranch.core.wire.batch import walk
from anabranch.core.wire.control import build_end_marker
from anabranch.core.wire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    ReplicaState,
)

BIG = 1 << 20


def part(index=0, offset=0, *, max_bytes=BIG, **how):
    return FetchPartition(
        partition=index, fetch_offset=offset, partition_max_bytes=max_bytes, **how
    )


def fetch(*parts, topic="t", topic_id=None, **how):
    named = {"topic": topic} if topic_id is None else {"topic_id": topic_id}
    topics = [FetchTopic(partitions=list(parts), **named)] if parts else []
    settings = {"max_wait_ms": 0, "min_bytes": 1, "max_bytes": BIG, **how}
    return FetchRequest(topics=topics, **settings)


def only(response):
    [topic] = response.responses
    [answer] = topic.partitions
    return answer


def append(node, count=1, index=0, topic="t", **how):
    return node.replica(topic, index).append(
        batch(count, **how), required_acks=1, now_ms=node.now_ms
    )


def offsets(answer):
    return [header.base_offset for _, header in walk(answer.records)]


@pytest.mark.parametrize("version", range(4, 19))
def test_every_version_reads(node, version):
    topic_id = node.topic()
    append(node, 3)
    named = {"topic_id": topic_id} if version > 12 else {}
    answer = only(node.send(fetch(part(), **named), version))
    assert (answer.error_code, answer.high_watermark, answer.log_start_offset) == (0, 3, 0)
    assert offsets(answer) == [0]
    assert answer.last_stable_offset == 3
    assert answer.preferred_read_replica == -1
    assert answer.aborted_transactions is None


def test_from_the_batch_that_holds_the_offset(node):
    node.topic()
    append(node, 3)
    append(node, 3)
    assert offsets(only(node.send(fetch(part(offset=4)), 12))) == [3]


def test_consumers_stop_at_the_high_watermark_and_followers_do_not():
    node = InMemoryNode(brokers=(1, 2))
    node.topic(replicas=(1, 2))
    append(node)
    consumer = only(node.send(fetch(part()), 12))
    assert (len(consumer.records), consumer.high_watermark) == (0, 0)
    follower = only(node.send(fetch(part(), replica_id=2), 12))
    assert offsets(follower) == [0]


def test_a_follower_s_fetch_raises_the_high_watermark():
    node = InMemoryNode(brokers=(1, 2))
    topic_id = node.topic(replicas=(1, 2))
    append(node)
    state = ReplicaState(replica_id=2)
    node.send(fetch(part(offset=1), topic_id=topic_id, replica_state=state), 17)
    assert node.replica().high_watermark == 1
    assert TopicPartition("t", 0) in node.broker.changed


def test_followers_need_cluster_action():
    denied = Denying((Operation.CLUSTER_ACTION, ResourceType.CLUSTER, None))
    node = InMemoryNode(brokers=(1, 2), authorizer=denied)
    node.topic(replicas=(1, 2))
    answer = only(node.send(fetch(part(), replica_id=2), 12))
    assert answer.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED


def test_consumers_need_read():
    node = InMemoryNode(authorizer=Denying((Operation.READ, ResourceType.TOPIC, "t")))
    node.topic()
    answer = only(node.send(fetch(part()), 12))
    assert answer.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert answer.high_watermark == -1


def test_the_first_batch_comes_whole_however_large(node):
    """KIP-74."""
    node.topic(partitions=2)
    for index in (0, 1):
        append(node, index=index, size=5000)
    request = fetch(part(0, max_bytes=10), part(1, max_bytes=10), max_bytes=10)
    first, second = node.send(request, 12).responses[0].partitions
    assert offsets(first) == [0]
    assert len(second.records) == 0
    assert second.error_code == 0


def test_max_bytes_holds_for_the_whole_response(node):
    node.topic(partitions=3)
    for index in range(3):
        append(node, index=index, size=1000)
    size = len(batch(size=1000))
    request = fetch(part(0), part(1), part(2), max_bytes=2 * size + 10)
    answers = node.send(request, 12).responses[0].partitions
    assert [len(answer.records) for answer in answers] == [size, size, 0]


def test_waits_for_min_bytes(node):
    node.topic()
    append(node)
    size = len(batch())
    wait = node.send(fetch(part(), min_bytes=3 * size, max_wait_ms=500), 12)
    assert isinstance(wait, Wait)
    assert wait.deadline_ms == node.now_ms + 500
    append(node)
    assert node.poll(wait) is None
    append(node)
    assert offsets(only(node.poll(wait))) == [0, 1, 2]


def test_answers_with_what_there_is_when_time_is_up(node):
    node.topic()
    wait = node.send(fetch(part(), max_wait_ms=500), 12)
    assert node.poll(wait) is None
    answer = only(node.expire(wait))
    assert (answer.error_code, len(answer.records)) == (0, 0)


def test_what_is_appended_but_not_committed_wakes_nobody():
    node = InMemoryNode(brokers=(1, 2))
    node.topic(replicas=(1, 2))
    wait = node.send(fetch(part(), max_wait_ms=500), 12)
    append(node)
    assert node.poll(wait) is None
    node.replica().follower_fetched(2, 1)
    assert offsets(only(node.poll(wait))) == [0]


@pytest.mark.parametrize(
    ("event", "code"),
    [
        (lambda node: node.remove("t"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (
            lambda node: node.change("t", leader=2, leader_epoch=1),
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ),
    ],
)
def test_a_partition_that_goes_away_ends_the_wait(event, code):
    node = InMemoryNode(brokers=(1, 2))
    node.topic(replicas=(1, 2))
    wait = node.send(fetch(part(), max_wait_ms=500), 10)
    event(node)
    assert only(node.poll(wait)).error_code == code


def test_an_error_is_answered_at_once(node):
    node.topic(partitions=2)
    append(node, 3, index=1)
    node.replica("t", 1).log.delete_records_before(3)
    request = fetch(part(0), part(1, offset=1), max_wait_ms=500)
    good, bad = node.send(request, 12).responses[0].partitions
    assert good.error_code == 0
    assert bad.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert (bad.high_watermark, bad.last_stable_offset, bad.log_start_offset) == (-1, -1, -1)


def test_unknown_partitions_only_are_answered_at_once(node):
    answer = only(node.send(fetch(part(), max_wait_ms=500), 12))
    assert answer.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_unknown_topic_id(node):
    answer = only(node.send(fetch(part(), topic_id=bytes([9]) * 16), 13))
    assert answer.error_code == ErrorCode.UNKNOWN_TOPIC_ID


@pytest.mark.parametrize(
    ("epoch", "code"),
    [
        (0, ErrorCode.FENCED_LEADER_EPOCH),
        (1, ErrorCode.NONE),
        (-1, ErrorCode.NONE),
        (2, ErrorCode.UNKNOWN_LEADER_EPOCH),
    ],
)
def test_leader_epochs_are_fenced(epoch, code):
    node = InMemoryNode()
    topic_id = node.topic()
    node.change("t", leader_epoch=1)
    request = fetch(part(current_leader_epoch=epoch), topic_id=topic_id)
    response = node.send(request, 16)
    assert only(response).error_code == code
    if code == ErrorCode.FENCED_LEADER_EPOCH:
        leader = only(response).current_leader
        assert (leader.leader_id, leader.leader_epoch) == (1, 1)
        assert [each.port for each in response.node_endpoints] == [9093]


def test_a_diverging_epoch_is_told():
    node = InMemoryNode()
    node.topic()
    append(node, 3)
    node.change("t", leader_epoch=5)
    append(node, 3)
    answer = only(node.send(fetch(part(offset=5, last_fetched_epoch=3)), 12))
    assert (answer.diverging_epoch.epoch, answer.diverging_epoch.end_offset) == (0, 3)
    assert len(answer.records) == 0


def test_read_committed_gets_the_aborted_transactions(node):
    node.topic()
    known = {"producer_id": 5, "producer_epoch": 0, "base_sequence": 0, "transactional": True}
    log = node.replica().log
    log.append_as_leader(batch(2, **known), leader_epoch=0, now_ms=node.now_ms)
    node.replica().advance()
    committed = {"isolation_level": 1}
    answer = only(node.send(fetch(part(), **committed), 12))
    assert (answer.last_stable_offset, answer.high_watermark, len(answer.records)) == (0, 2, 0)
    assert answer.aborted_transactions == []
    marker = build_end_marker(
        committed=False, producer_id=5, producer_epoch=0, coordinator_epoch=0, now_ms=node.now_ms
    )
    log.append_as_leader(marker, leader_epoch=0, now_ms=node.now_ms, client=False)
    node.replica().advance()
    answer = only(node.send(fetch(part(), **committed), 12))
    [aborted] = answer.aborted_transactions
    assert (aborted.producer_id, aborted.first_offset) == (5, 0)
    assert answer.last_stable_offset == 3


def test_a_segment_without_a_transaction_index_is_not_read_while_all_others_wait(node, monkeypatch):
    """Kafka writes no index where nothing was aborted; the batches are read in a thread."""
    node.topic()
    append(node, 3)
    log = node.replica().log
    closed = log.segments[0]
    log.roll(node.now_ms)
    log.aborted.clear()
    log.files.remove(closed.stem + ".txnindex")
    node.replica().advance()
    with monkeypatch.context() as patched:
        patched.setattr(type(closed.file), "read_blocking", None)
        outcome = node.send(fetch(part(), isolation_level=1), 12)
    assert isinstance(outcome, Cold)
    outcome.reads[0].warm()
    answer = only(outcome.again(node.now_ms))
    assert (answer.aborted_transactions, offsets(answer)) == ([], [0])


def test_a_cold_read_steps_the_session_once(node, monkeypatch):
    topic_id = node.topic()
    append(node)
    response = node.send(fetch(part(), topic_id=topic_id, session_epoch=0, session_id=0), 13)
    append(node)
    log = type(node.replica().log)
    lend, calls = log.lend, []

    def cold_first(self, offset, **how):
        calls.append(offset)
        if len(calls) == 1:
            raise ColdRead(self.active.file, 0, 10)
        return lend(self, offset, **how)

    monkeypatch.setattr(log, "lend", cold_first)
    outcome = node.send(
        fetch(part(offset=1), topic_id=topic_id, session_id=response.session_id, session_epoch=1),
        13,
    )
    assert isinstance(outcome, Cold)
    assert offsets(only(outcome.again(node.now_ms))) == [1]
    [session] = node.broker.fetch_sessions
    assert session.epoch == 2


def test_fifty_cold_partitions_cost_one_round_of_reads(node, monkeypatch):
    node.topic(partitions=50)
    for index in range(50):
        append(node, index=index)
    warm = set()
    file_type = type(node.replica().log.active.file)
    read = file_type.read

    def cold_until_warmed(self, position, length):
        if (self.path, position) not in warm:
            raise ColdRead(self, position, length)
        return read(self, position, length)

    monkeypatch.setattr(file_type, "read", cold_until_warmed)
    outcome, rounds = node.send(fetch(*(part(index) for index in range(50))), 12), 0
    while isinstance(outcome, Cold):
        rounds += 1
        warm |= {(missing.file.path, missing.position) for missing in outcome.reads}
        outcome = outcome.poll(node.now_ms, False)
    assert rounds == 1
    assert len(warm) == 50
    answers = outcome.responses[0].partitions
    assert [offsets(each) for each in answers] == [[0]] * 50


def test_a_round_of_reads_stays_within_what_the_request_wants(node, monkeypatch):
    """Cold ranges count as if they had been read, beginning with the first."""
    node.topic(partitions=50)
    for index in range(50):
        append(node, index=index)

    def cold(self, position, length):
        raise ColdRead(self, position, length)

    size = len(batch(1))
    monkeypatch.setattr(type(node.replica().log.active.file), "read", cold)
    parts = [part(index) for index in range(50)]
    outcome = node.send(fetch(*parts, max_bytes=3 * size), 12)
    assert [read.file.path.split("/")[-2] for read in outcome.reads] == ["t-0", "t-1", "t-2"]
    assert len(node.send(fetch(*parts, max_bytes=1), 12).reads) == 1


def test_rot_is_a_storage_error_and_reported(node, monkeypatch):
    node.topic()
    append(node)
    fault = CorruptLog("rot", path="x", position=0, first_offset=0, last_offset=0)

    def rotten(*_args, **_how):
        raise fault

    monkeypatch.setattr(type(node.replica().log), "lend", rotten)
    assert only(node.send(fetch(part()), 6)).error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert only(node.send(fetch(part()), 5)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert node.broker.faults[0] == (node.replica(), fault)


def begin(node, *parts, version=12, **how):
    return node.send(fetch(*parts, session_epoch=0, **how), version).session_id


def test_a_session_answers_only_with_news(node):
    """KIP-227."""
    node.topic(partitions=3)
    session = begin(node, part(0), part(1), part(2))
    assert session > 0
    append(node, index=1)
    response = node.send(fetch(session_id=session, session_epoch=1), 12)
    assert response.session_id == session
    assert only(response).partition_index == 1
    changed = fetch(part(1, offset=1), session_id=session, session_epoch=2, max_wait_ms=500)
    assert isinstance(node.send(changed, 12), Wait)


def test_partitions_that_brought_records_go_last(node):
    node.topic(partitions=2)
    for index in (0, 1):
        append(node, 1, index, size=1000)
    session = begin(node, part(0), part(1), max_bytes=1100)
    first = fetch(session_id=session, session_epoch=1, max_bytes=1100)
    assert only(node.send(first, 12)).partition_index == 0
    second = fetch(session_id=session, session_epoch=2, max_bytes=1100)
    assert only(node.send(second, 12)).partition_index == 1


def test_a_session_forgets_partitions(node):
    node.topic(partitions=2)
    session = begin(node, part(0), part(1))
    append(node, index=0)
    forget = [ForgottenTopic(topic="t", partitions=[0])]
    request = fetch(session_id=session, session_epoch=1, forgotten_topics_data=forget)
    assert node.send(request, 12).responses == []
    [held] = node.broker.fetch_sessions
    assert list(held.partitions) == [("t", 1)]


def test_a_session_without_partitions_ends(node):
    node.topic()
    session = begin(node, part(0))
    forget = [ForgottenTopic(topic="t", partitions=[0])]
    request = fetch(session_id=session, session_epoch=1, forgotten_topics_data=forget)
    assert node.send(request, 12).session_id == 0
    assert len(node.broker.fetch_sessions) == 0


def test_session_faults(node):
    topic_id = node.topic()
    session = begin(node, part())

    def code(version=12, **how):
        return node.send(fetch(**how), version).error_code

    not_found = code(session_id=99, session_epoch=1)
    assert not_found == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    wrong_epoch = code(session_id=session, session_epoch=5)
    assert wrong_epoch == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    mixed = code(version=13, session_id=session, session_epoch=1)
    assert mixed == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
    assert topic_id


def test_the_final_epoch_ends_a_session_and_begins_none(node):
    node.topic()
    session = begin(node, part())
    response = node.send(fetch(part(), session_id=session, session_epoch=-1), 12)
    assert (response.session_id, response.error_code) == (0, 0)
    assert len(node.broker.fetch_sessions) == 0


def test_a_partition_without_news_is_told_again_after_an_error():
    node = InMemoryNode(brokers=(1, 2))
    node.topic(replicas=(1, 2))
    session = begin(node, part())
    node.change("t", leader=2, leader_epoch=1)
    request = fetch(session_id=session, session_epoch=1)
    assert only(node.send(request, 10)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    node.change("t", leader=1, leader_epoch=2)
    again = fetch(session_id=session, session_epoch=2)
    assert only(node.send(again, 10)).error_code == 0


def test_slots_are_bounded_and_young_sessions_stay():
    node = InMemoryNode(session_slots=2)
    node.topic(partitions=3)
    kept = [begin(node, part()), begin(node, part())]
    assert begin(node, part()) == 0
    assert [each.session_id for each in node.broker.fetch_sessions] == kept


def test_a_stale_session_makes_room():
    node = InMemoryNode(session_slots=1)
    node.topic()
    begin(node, part())
    node.now_ms += 120_001
    assert begin(node, part()) > 0
    assert node.broker.fetch_sessions.evictions == 1


def test_a_bigger_session_takes_the_place_of_an_old_smaller_one():
    node = InMemoryNode(session_slots=1)
    node.topic(partitions=2)
    old = begin(node, part(0))
    node.now_ms += 100_000
    node.send(fetch(session_id=old, session_epoch=1), 12)
    node.now_ms += 100_000
    assert begin(node, part(0), part(1)) > 0


def test_a_follower_s_session_takes_the_place_of_a_consumer_s():
    node = InMemoryNode(session_slots=1, brokers=(1, 2))
    node.topic(replicas=(1, 2))
    begin(node, part())
    assert begin(node, part(), replica_id=2) > 0
    assert begin(node, part()) == 0


@pytest.mark.parametrize("replica_id", [2, -1])
def test_only_a_follower_s_answer_is_sent_before_others_are_looked_at(replica_id):
    node = InMemoryNode(brokers=(1, 2))
    node.topic(replicas=(1, 2))
    session = begin(node, part(), replica_id=replica_id)
    request = fetch(session_id=session, session_epoch=1, replica_id=replica_id, max_wait_ms=500)
    wait = node.send(request, 12)
    assert isinstance(wait, Wait)
    assert wait.is_urgent == (replica_id == 2)


def test_a_fetch_that_came_before_the_flush_is_woken_by_it(node):
    """What was appended before the fetch and is committed after it counts for min_bytes too."""
    node.topic(configs={"flush.messages": "1"})
    append(node)
    wait = node.send(fetch(part(), max_wait_ms=500), 12)
    assert isinstance(wait, Wait)
    node.sync()
    assert offsets(only(node.poll(wait))) == [0]


def emptied_of(node, response, **how):
    """The answer as it is sent when it is over its quota."""
    request = SimpleNamespace(body=fetch(**how))
    return emptied(node.broker, request, response)


def test_an_answer_that_is_over_its_quota_brings_nothing_and_the_next_one_all(node):
    """Also what the session had noted as told; and the session goes on."""
    node.topic("t", 2)
    append(node)
    first = node.send(fetch(part(0), part(1), session_epoch=0), 12)
    append(node, count=3)
    body = fetch(part(0, offset=1), session_id=first.session_id, session_epoch=1)
    full = node.send(body, 12)
    assert [each.partition_index for each in full.responses[0].partitions] == [0]
    sent = emptied_of(node, full, session_id=first.session_id, session_epoch=1)
    assert (sent.session_id, sent.responses, sent.error_code) == (first.session_id, [], 0)
    again = node.send(fetch(session_id=first.session_id, session_epoch=2), 12)
    (expected,) = full.responses[0].partitions
    (answer,) = again.responses[0].partitions
    assert (answer.partition_index, answer.high_watermark) == (0, expected.high_watermark)
    assert bytes(answer.records) == bytes(expected.records)


def test_a_session_does_not_begin_with_an_answer_that_is_over_its_quota(node):
    node.topic()
    append(node)
    first = node.send(fetch(part(0), session_epoch=0), 12)
    assert first.session_id and len(node.broker.fetch_sessions) == 1
    sent = emptied_of(node, first, session_epoch=0)
    assert (sent.session_id, sent.responses) == (0, [])
    assert len(node.broker.fetch_sessions) == 0


def test_an_error_stays_one_when_it_is_over_its_quota(node):
    broken = FetchResponse(error_code=ErrorCode.INVALID_FETCH_SESSION_EPOCH)
    assert emptied_of(node, broken, session_epoch=7) is broken


def test_a_quota_bounds_what_a_fetch_brings_but_not_a_follower_s():
    node = InMemoryNode()
    node.topic(replicas=(1, 2))
    for _ in range(5):
        append(node, count=10)
    node.broker.quotas = SimpleNamespace(most_bytes=lambda *_: 200.0)
    followed = only(node.send(fetch(part(0), replica_id=2), 12))
    assert len(offsets(followed)) == 5
    node.send(fetch(part(0, offset=50), replica_id=2), 12)
    assert len(offsets(only(node.send(fetch(part(0)), 12)))) == 1


def test_a_high_watermark_that_was_not_told_is_told_next(node):
    """A partition that brings nothing this time, since another one does, is named for its marks."""
    node.topic(partitions=2)
    session = begin(node, part(0), part(1))
    append(node)
    append(node, index=1)
    full = node.send(fetch(session_id=session, session_epoch=1, max_bytes=1), 12)
    emptied_of(node, full, session_id=session, session_epoch=1)
    again = node.send(fetch(session_id=session, session_epoch=2, max_bytes=1), 12)
    told = {each.partition_index: each.high_watermark for each in again.responses[0].partitions}
    assert told == {0: 1, 1: 1}
