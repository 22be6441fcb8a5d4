"""Producing to diskless partitions, and reading them, through any broker."""

from __future__ import annotations

from functools import partial
from struct import pack_into

import pytest
from tests.core.diskless.diskless_node import CLUSTER_ID, EPOCH, START_MS, Cluster, batch, received

from anabranch.core.api.p02_list_offsets import MOST_FAR_BYTES
from anabranch.core.diskless import buffer
from anabranch.core.diskless import effects as does
from anabranch.core.diskless.broker import MOST_DELETED, WATCH_PAUSE_MS
from anabranch.core.diskless.coordinator import CoordinatorAway, OlderCopy
from anabranch.core.diskless.manifests import ManifestLog, decode_manifest
from anabranch.core.diskless.objects import ObjectsAway
from anabranch.core.diskless.rows import VERDICTS_KEPT_MS, LogKey, NewLogs, Wanted
from anabranch.core.errors import ErrorCode
from anabranch.core.outcome import MOST_READS, NoAnswer, Wait
from anabranch.core.types import MAX_TIMESTAMP, NEVER_MS
from anabranch.core.wire.batch import ATTRIBUTES_AT, BATCH_OVERHEAD, renew_crc, walk
from anabranch.core.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from anabranch.core.wire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ReplicaState,
)
from anabranch.core.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from anabranch.core.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from anabranch.core.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from anabranch.core.wire.records import decode_records

NONE, STORAGE = ErrorCode.NONE, ErrorCode.KAFKA_STORAGE_ERROR


@pytest.fixture
def cluster():
    return Cluster()


def produce(node, records, *, topic="t", index=0, acks=-1, timeout_ms=30_000):
    """The outcome of a Produce request of one batch, before any effect is performed."""
    data = PartitionProduceData(index=index, records=bytes(records))
    body = [TopicProduceData(name=topic, partition_data=[data])]
    return node.ask(ProduceRequest(acks=acks, timeout_ms=timeout_ms, topic_data=body), 9)


def told(response):
    """(code, base offset) of the one partition that was produced to."""
    assert response is not None, "still waiting"
    (topic,) = response.responses
    (answer,) = topic.partition_responses
    return ErrorCode(answer.error_code), answer.base_offset


def produced(node, records, **more):
    """(code, base offset) after everything was performed."""
    outcome = produce(node, records, **more)
    if isinstance(outcome, Wait):
        node.settle()
        outcome = node.polled(outcome)
        assert outcome is not None, "not acknowledged"
    return told(outcome)


def fetch(node, offset, *, topic="t", index=0, max_bytes=1 << 20, min_bytes=1, max_wait_ms=500):
    wanted = FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=max_bytes)
    request = FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=1 << 22,
        topics=[FetchTopic(topic=topic, partitions=[wanted])],
    )
    return node.ask(request, 12)


def got(response):
    """(code, values, high watermark) of the one partition that was fetched."""
    assert response is not None, "still waiting"
    (topic,) = response.responses
    (answer,) = topic.partitions
    values = []
    for position, header in walk(answer.records or b""):
        assert header.leader_epoch == 0
        values += [
            (each.offset, bytes(each.value)) for each in decode_records(answer.records, position)
        ]
    return ErrorCode(answer.error_code), values, answer.high_watermark


def everything(node):
    """(offset, value) of all records, as a consumer gets them."""
    values, offset, end = [], 0, 1
    while offset < end:
        code, found, end = got(fetch(node, offset))
        assert code is NONE
        assert found
        values += found
        offset = found[-1][0] + 1
    return values


def list_offset(node, timestamp):
    partition = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
    topics = [ListOffsetsTopic(name="t", partitions=[partition])]
    response = node.ask(ListOffsetsRequest(replica_id=-1, topics=topics), 8)
    answer = response.topics[0].partitions[0]
    return ErrorCode(answer.error_code), answer.offset, answer.timestamp


def test_what_one_broker_commits_every_broker_serves(cluster):
    one, two = cluster.node(), cluster.node()
    cluster.topic()
    assert produced(one, batch(b"a", b"b")) == (NONE, 0)
    assert produced(two, batch(b"c")) == (NONE, 2)
    for node in (one, two):
        assert everything(node) == [(0, b"a"), (1, b"b"), (2, b"c")]
        assert got(fetch(node, 1))[1][-1] == (2, b"c")


def test_a_commit_through_one_broker_wakes_a_fetch_parked_at_another(cluster):
    one, two = cluster.node(), cluster.node()
    cluster.topic()
    parked = fetch(two, 0)
    assert isinstance(parked, Wait)
    assert two.polled(parked) is None
    produced(one, batch(b"a"))
    assert got(two.polled(parked)) == (NONE, [(0, b"a")], 1)


def test_nothing_is_acknowledged_before_its_commit_is_known(cluster):
    node = cluster.node()
    cluster.topic()
    waits = [produce(node, batch(b"a"), acks=acks) for acks in (-1, 1)]
    assert all(isinstance(each, Wait) for each in waits)
    assert isinstance(produce(node, batch(b"a"), acks=0), NoAnswer)
    node.perform(node.next(does.AskStates))
    node.perform(node.next(does.PrepareObjects))
    put = node.next(does.PutObject)
    assert not [each for each in node.take() if isinstance(each, does.CommitObject)]
    node.perform(put)
    commit = node.next(does.CommitObject)
    assert [node.polled(wait) for wait in waits] == [None, None]
    assert node.diskless.get("t", 0).high_watermark == 0
    node.perform(commit)
    assert [told(node.polled(wait)) for wait in waits] == [(NONE, 0), (NONE, 1)]


def test_objects_are_committed_in_the_order_in_which_they_were_cut(cluster):
    node = cluster.node(config={"diskless.produce.buffer.max.bytes": "1024"})
    cluster.topic()
    produced(node, batch(b"warm"))
    waits = [produce(node, batch(value * 1100)) for value in (b"1", b"2", b"3")]
    puts = [node.next(does.PutObject) for _ in waits]
    for put in reversed(puts):
        node.perform(put)
    commits = [each for each in node.take() if isinstance(each, does.CommitObject)]
    assert [each.commit.object_id for each in commits] == [puts[0].object_id]
    node.settle()
    assert [told(node.polled(wait)) for wait in waits] == [(NONE, 1), (NONE, 2), (NONE, 3)]


@pytest.mark.parametrize("is_done", [True, False])
def test_a_commit_without_an_answer_is_looked_up_and_counts_once(cluster, is_done):
    node = cluster.node()
    cluster.topic()
    produced(node, batch(b"warm"))
    wait = produce(node, batch(b"a"))
    node.perform(node.next(does.PutObject))
    commit = node.next(does.CommitObject)
    if is_done:
        node.perform(commit, answer=False)
    node.diskless.answered(commit, CoordinatorAway("gone"), node.broker.steady_ms)
    assert not [each for each in node.take() if isinstance(each, does.CommitObject)]
    assert node.polled(wait) is None
    asked = []
    node.fails[does.AskOutcome] = lambda _: (
        asked.append(1) or (CoordinatorAway("still") if len(asked) < 3 else None)
    )
    node.pass_time(5_000)
    assert len(asked) == 3
    assert told(node.polled(wait)) == (NONE, 1)
    assert everything(node) == [(0, b"warm"), (1, b"a")]


def test_a_commit_whose_offsets_are_forgotten_is_in_no_manifest_and_counted(cluster):
    """The broker did not reach the coordinator for an hour, in which others did."""
    node = cluster.node()
    cluster.topic()
    produced(node, batch(b"warm"))
    notes = ManifestLog(CLUSTER_ID, 1, EPOCH, lambda _: "t")
    node.diskless.note_commit = lambda commit, answer: notes.committed(commit, answer, 0)
    wait = produce(node, batch(b"a"))
    node.perform(node.next(does.PutObject))
    commit = node.next(does.CommitObject)
    node.perform(commit, answer=False)
    node.diskless.answered(commit, CoordinatorAway("gone"), node.broker.steady_ms)
    cluster.now_ms += VERDICTS_KEPT_MS
    while cluster.coordinator.mark_expired(9):
        pass
    node.pass_time(5_000)
    assert told(node.polled(wait)) == (STORAGE, -1)
    assert (notes.given_up_objects, notes.tick(0, at_once=True)) == (1, None)
    assert everything(node) == [(0, b"warm"), (1, b"a")]


def test_a_refused_object_is_a_retriable_error(cluster):
    node = cluster.node()
    cluster.topic()
    produced(node, batch(b"warm"))
    wait = produce(node, batch(b"a"))
    put = node.next(does.PutObject)
    cluster.coordinator.refuse([put.object_id])
    node.perform(put)
    node.settle()
    assert told(node.polled(wait)) == (STORAGE, -1)
    assert produced(node, batch(b"b")) == (NONE, 1)


@pytest.mark.parametrize("performed", range(0, 14, 2))
@pytest.mark.parametrize("answers", [True, False])
def test_what_waits_for_a_coordinator_that_is_refused_fails_wherever_it_is(
    cluster, performed, answers
):
    """In the buffer, before its row, its put, its turn, its commit, or what became of that."""
    node = cluster.node(config={"diskless.produce.buffer.max.bytes": "1024"})
    cluster.topic()
    produced(node, batch(b"warm"))
    cluster.topic("later", rows=False)
    waits = [produce(node, batch(b"x" * 600), topic=name) for name in ("t", "later") * 9]
    for _ in range(performed):
        if not node.take():
            break  # what follows waits for a pause
        effect = node.next()
        if isinstance(effect, does.AskStates | does.PutObject) or answers:
            node.perform(effect)
        else:
            node.diskless.answered(effect, CoordinatorAway("lost"), node.broker.steady_ms)
    waits = [wait for wait in waits if node.polled(wait) is None]
    node.diskless.refuse(OlderCopy("it is an older copy"), node.broker.steady_ms)
    codes = {told(node.polled(wait))[0] for wait in waits}
    assert codes <= {STORAGE, ErrorCode.REQUEST_TIMED_OUT}
    writing = node.diskless.writing
    assert (writing.waiting_bytes, len(writing.buffer), len(writing.uploads)) == (0, 0, 0)
    node.fails = dict.fromkeys((does.CommitObject, does.PutObject), lambda _: CoordinatorAway("x"))
    node.settle()  # the answers that come late
    assert node.diskless.next_tick_ms == NEVER_MS
    assert produced(node, batch(b"more"))[0] != NONE


def test_a_put_that_fails_for_good_frees_its_id_and_later_ones_go_on(cluster):
    node = cluster.node()
    cluster.topic()
    produced(node, batch(b"warm"))
    node.fails[does.PutObject] = lambda _: ObjectsAway("full")
    wait = produce(node, batch(b"a"))
    node.settle()
    node.pass_time(5_000)
    assert told(node.polled(wait)) == (STORAGE, -1)
    assert cluster.coordinator.to_delete(0, 10)
    node.fails.clear()
    assert produced(node, batch(b"b")) == (NONE, 1)


def test_a_put_that_was_done_and_not_answered_is_no_failure(cluster):
    node = cluster.node()
    cluster.topic()
    produced(node, batch(b"warm"))
    wait = produce(node, batch(b"a"))
    put = node.next(does.PutObject)
    node.perform(put, answer=False)
    node.diskless.answered(put, ObjectsAway("no answer"), node.broker.steady_ms)
    node.pass_time(1_000)
    assert told(node.polled(wait)) == (NONE, 1)


@pytest.mark.parametrize("lost_attempts", [0, 1, 2])
def test_a_name_that_is_taken_by_other_bytes_shows_an_older_copy(cluster, lost_attempts):
    """A coordinator that was set back to a backup gives names a second time: nothing more is asked
    of it, and the object stays. Puts that were lost before the name is found taken are no reason to
    take it for one's own."""
    node = cluster.node()
    cluster.topic()
    produced(node, batch(b"warm"))
    wait = produce(node, batch(b"a"))
    put = node.next(does.PutObject)
    for _ in range(lost_attempts):
        node.diskless.answered(put, ObjectsAway("no answer"), node.broker.steady_ms)
        node.broker.steady_ms += 1_000
        node.diskless.tick(node.broker.steady_ms)
        put = node.next(does.PutObject)
    cluster.store.put(put.object_key, [b"another's"])
    node.perform(put)
    node.settle()
    node.pass_time(1_000)
    assert told(node.polled(wait)) == (STORAGE, -1)
    assert cluster.coordinator.to_delete(0, 10) == []
    assert f"{put.object_key} is there, with other bytes: it was replaced" in node.diskless.why_off
    assert told(produce(node, batch(b"b")))[0] != NONE


def test_five_batches_of_an_idempotent_producer_may_come_twice_and_by_another_broker(cluster):
    one, two = cluster.node(), cluster.node()
    cluster.topic()
    batches = [batch(b"%d" % at, producer_id=7, epoch=0, sequence=at) for at in range(5)]
    assert [produced(one, each) for each in batches] == [(NONE, at) for at in range(5)]
    assert [produced(two, each) for each in batches] == [(NONE, at) for at in range(5)]
    assert produced(two, batch(b"5", producer_id=7, epoch=0, sequence=5)) == (NONE, 5)
    assert everything(one) == [(at, b"%d" % at) for at in range(6)]


def test_a_gap_of_sequences_is_waited_for_before_it_is_told(cluster):
    node = cluster.node()
    cluster.topic()
    assert produced(node, batch(b"0", producer_id=7, epoch=0, sequence=0)) == (NONE, 0)
    later = batch(b"2", producer_id=7, epoch=0, sequence=2)
    assert produced(node, later) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)
    assert produced(node, batch(b"1", producer_id=7, epoch=0, sequence=1)) == (NONE, 1)
    assert produced(node, later) == (NONE, 2)
    far = batch(b"9", producer_id=7, epoch=0, sequence=9)
    assert produced(node, far) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)
    node.pass_time(10_001)
    assert produced(node, far) == (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)


def numbered(value: bytes, sequence: int, *, producer_id: int = 7, epoch: int = 0) -> bytes:
    """A batch of one record of an idempotent producer."""
    return batch(value, producer_id=producer_id, epoch=epoch, sequence=sequence)


def forgets(cluster) -> None:
    """The coordinator forgets all producers."""
    cluster.now_ms += 10_000
    assert cluster.coordinator.forget_producers(10_000, 100)


def test_a_forgotten_producer_goes_on_after_a_wait(cluster):
    node = cluster.node()
    cluster.topic()
    assert produced(node, numbered(b"0", 0)) == (NONE, 0)
    forgets(cluster)
    for _ in range(2):
        assert produced(node, numbered(b"1", 1)) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)
        node.pass_time(9_999)
    node.pass_time(2)
    assert produced(node, numbered(b"1", 1)) == (NONE, 1)
    assert produced(node, numbered(b"2", 2)) == (NONE, 2)
    assert produced(node, numbered(b"1", 1)) == (NONE, 1), "it is known again"


@pytest.mark.parametrize("sequence", [1, 2**30 + 1, 2**31 - 1])
def test_a_producer_goes_on_in_a_topic_that_was_made_again(cluster, sequence):
    node = cluster.node()
    former = cluster.topic()
    assert produced(node, numbered(b"0", 0)) == (NONE, 0)
    cluster.coordinator.delete_topics(1, [former])
    key = LogKey(cluster.topic("again", rows=False), 0)
    cluster.coordinator.create_logs(1, [NewLogs(key.topic_id, "t", 0, 1)])
    sent = numbered(b"1", sequence)
    assert produced(node, sent, topic="again") == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)
    node.pass_time(10_001)
    assert produced(node, sent, topic="again") == (NONE, 0)
    following = numbered(b"2", (sequence + 1) % 2**31)
    assert produced(node, following, topic="again") == (NONE, 1)


def test_a_producer_that_was_never_forgotten_does_not_go_on(cluster):
    node = cluster.node()
    cluster.topic()
    assert produced(node, numbered(b"0", 0, producer_id=6)) == (NONE, 0)
    forgets(cluster)
    assert produced(node, numbered(b"1", 1)) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)
    node.pass_time(10_001)
    assert produced(node, numbered(b"1", 1)) == (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)


def test_what_may_be_behind_a_late_first_batch_is_never_taken_before_it(cluster):
    """The producer waits for its first batch, which another broker has: the batches behind it come
    one after another, and none comes again."""
    one, two = cluster.node(), cluster.node()
    cluster.topic()
    assert produced(two, numbered(b"x", 0, producer_id=9)) == (NONE, 0)
    forgets(cluster)  # as far as ids tell, the producer may have been forgotten
    late = produce(one, numbered(b"0", 0))
    refused = (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)
    for sequence in (1, 2, 3, 4):
        assert produced(two, numbered(b"%d" % sequence, sequence)) == refused
        two.pass_time(6_000)
    one.settle()
    assert told(one.polled(late)) == (NONE, 1)
    for sequence in (1, 2, 3, 4):
        assert produced(two, numbered(b"%d" % sequence, sequence)) == (NONE, 1 + sequence)


def test_the_earliest_batch_of_a_forgotten_producer_is_the_one_that_is_waited_with(cluster):
    node = cluster.node()
    cluster.topic()
    assert produced(node, numbered(b"0", 0)) == (NONE, 0)
    forgets(cluster)
    refused = (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)
    assert produced(node, numbered(b"2", 2)) == refused
    node.pass_time(9_000)
    assert produced(node, numbered(b"1", 1)) == refused
    node.pass_time(9_000)
    for sequence in (2, 1):
        assert produced(node, numbered(b"%d" % sequence, sequence)) == refused
    node.pass_time(1_001)
    assert produced(node, numbered(b"2", 2)) == refused
    assert produced(node, numbered(b"1", 1)) == (NONE, 1)
    assert produced(node, numbered(b"2", 2)) == (NONE, 2)


def test_a_batch_that_came_before_the_wait_was_over_shows_nothing(cluster):
    """Its client may have sent it before it was refused; the object is committed late."""
    node = cluster.node()
    cluster.topic()
    assert produced(node, numbered(b"0", 0)) == (NONE, 0)
    forgets(cluster)
    assert produced(node, numbered(b"1", 1)) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)
    node.pass_time(9_000)
    waits = produce(node, numbered(b"1", 1), timeout_ms=60_000)
    node.broker.steady_ms += 2_000
    node.settle()
    assert told(node.polled(waits)) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)
    assert produced(node, numbered(b"1", 1)) == (NONE, 1)


def test_a_known_producer_never_jumps_however_long_it_waits(cluster):
    node = cluster.node()
    cluster.topic()
    assert produced(node, numbered(b"0", 0)) == (NONE, 0)
    forgets(cluster)
    assert produced(node, numbered(b"0", 0)) == (NONE, 1)
    for sent in (numbered(b"9", 9), numbered(b"1", 1, epoch=1)):
        assert produced(node, sent) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)
        node.pass_time(10_001)
        assert produced(node, sent) == (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)


def test_ids_that_were_asked_for_before_a_new_registration_are_not_used(cluster):
    """The coordinator refuses what another epoch prepared, for as many objects as there are ids."""
    one = cluster.node()
    cluster.topic()
    outcome = produce(one, batch(b"a"))
    one.perform(one.next(does.AskStates))
    asked = one.next(does.PrepareObjects)
    prepared = one.perform(asked, answer=False)
    cluster.coordinator.register(1, EPOCH + 1)
    one.diskless.registered(CLUSTER_ID, EPOCH + 1, one.broker.steady_ms)
    one.diskless.answered(asked, prepared, one.broker.steady_ms)
    one.settle()
    assert told(one.polled(outcome)) == (NONE, 0)


def test_transactional_batches_are_refused(cluster):
    node = cluster.node()
    cluster.topic()
    records = batch(b"a", producer_id=7, epoch=0, sequence=0, transactional=True)
    data = PartitionProduceData(index=0, records=bytes(records))
    body = [TopicProduceData(name="t", partition_data=[data])]
    request = ProduceRequest(transactional_id="x", acks=-1, timeout_ms=1000, topic_data=body)
    assert told(node.ask(request, 9)) == (ErrorCode.INVALID_REQUEST, -1)
    assert not node.take()


def test_until_there_is_a_row_nothing_is_uploaded_and_patience_ends(cluster):
    node = cluster.node()
    topic_id = cluster.topic(rows=False)
    wait = produce(node, batch(b"a"))
    node.pass_time(1_000)
    assert node.polled(wait) is None
    assert not cluster.store.objects
    cluster.coordinator.create_logs(1, [NewLogs(topic_id, "t", 0, 1)])
    node.settle()
    assert told(node.polled(wait)) == (NONE, 0)
    cluster.topic("later", rows=False)
    wait = produce(node, batch(b"a"), topic="later")
    node.pass_time(6_000)
    assert told(node.polled(wait)) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)


def test_what_is_due_at_a_time_is_not_due_any_more_after_a_step_at_that_time(cluster):
    node = cluster.node(interval_ms=250)
    cluster.topic()
    node.settle()
    node.fails = {does.PrepareObjects: lambda _: CoordinatorAway("away")}
    node.diskless.registered("cluster", 1, node.broker.steady_ms)
    wait = produce(node, batch(b"a"))
    while node.polled(wait) is None:
        node.settle()
        due_ms = node.diskless.next_tick_ms
        assert due_ms > node.broker.steady_ms, "a timer would ring for ever"
        node.pass_time(due_ms - node.broker.steady_ms)
    assert node.broker.steady_ms < 60_000


def test_objects_that_are_not_full_keep_their_distance(cluster):
    node = cluster.node(interval_ms=250)
    cluster.topic()
    assert produced(node, batch(b"a")) == (NONE, 0)
    waits = [produce(node, batch(b"b")) for _ in range(3)]
    node.settle()
    assert len(cluster.store.objects) == 1
    node.pass_time(249)
    assert len(cluster.store.objects) == 1
    node.pass_time(2)
    assert len(cluster.store.objects) == 2
    assert [told(node.polled(wait)) for wait in waits] == [(NONE, 1), (NONE, 2), (NONE, 3)]


def test_what_waits_is_bounded_and_producers_are_held_up(cluster):
    node = cluster.node(config={"diskless.produce.buffer.max.bytes": "1024"})
    cluster.topic()
    produced(node, batch(b"warm"))
    count = 0
    while not node.broker.mailbox.is_crowded:
        produce(node, batch(b"x" * 500))
        node.take()
        count += 1
        assert count < 100
    writing = node.diskless.writing
    assert len(writing.uploads) <= 6
    assert 6 * 1024 <= writing.waiting_bytes < 8 * 1024
    effects = []
    while node.take():
        effects.append(type(node.unperformed[0]))
        node.perform(node.unperformed.pop(0))
    assert does.ReadOn in effects
    assert writing.waiting_bytes == 0


@pytest.mark.parametrize(("arrived", "waits"), [(500, 5), (2_048, 4), (1 << 30, 4)])
def test_what_has_partly_arrived_takes_room_but_never_all_of_it(cluster, arrived, waits):
    """Requests that are not all there stay in memory while their producers are held up."""
    node = cluster.node(config={"diskless.produce.buffer.max.bytes": "1024"})
    cluster.topic()
    produced(node, batch(b"warm"))
    node.broker.mailbox.arriving_bytes = lambda: arrived
    while not node.broker.mailbox.is_crowded:
        produce(node, batch(b"x" * 100))
        node.take()
    writing = node.diskless.writing
    assert waits * 1024 <= writing.waiting_bytes < (waits + 1) * 1024
    assert writing.waiting_bytes + min(arrived, 2_048) < 6 * 1024 + 500
    effects = []
    while node.take():
        effects.append(type(node.unperformed[0]))
        node.perform(node.unperformed.pop(0))
    assert does.ReadOn in effects


@pytest.mark.parametrize("offset", [0, 1, 99])
@pytest.mark.parametrize("version", [12, 17])
def test_whoever_calls_itself_a_follower_is_told_that_brokers_copy_nothing(
    cluster, offset, version
):
    """A broker with an older image may ask, as may any client."""
    node = cluster.node()
    topic_id = cluster.topic()
    assert produced(node, batch(b"a")) == (NONE, 0)
    body = FetchRequest(max_wait_ms=0, min_bytes=1, topics=[])
    if version < 15:
        body.replica_id = 5
    else:
        body.replica_state = ReplicaState(replica_id=5)
    partitions = [FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=100)]
    name = {"topic": "t"} if version < 13 else {"topic_id": topic_id}
    body.topics.append(FetchTopic(partitions=partitions, **name))
    (topic,) = node.ask(body, version).responses
    code = ErrorCode(topic.partitions[0].error_code)
    is_there = offset <= 1
    assert code == (ErrorCode.NOT_LEADER_OR_FOLLOWER if is_there else ErrorCode.OFFSET_OUT_OF_RANGE)
    assert not topic.partitions[0].records


def test_an_offset_is_out_of_range_only_when_the_coordinator_says_so(cluster):
    one, two = cluster.node(), cluster.node()
    cluster.topic()
    produced(one, batch(b"a"))
    assert got(fetch(two, 0))[1] == [(0, b"a")]
    two.break_watch()
    produced(one, batch(b"b", b"c"))
    assert two.diskless.get("t", 0).high_watermark == 1
    assert got(fetch(two, 2)) == (NONE, [(1, b"b"), (2, b"c")], 3)
    assert got(fetch(two, 9))[0] == ErrorCode.OFFSET_OUT_OF_RANGE


def test_what_a_broken_watch_missed_is_asked_for_when_it_goes_again(cluster):
    one, two = cluster.node(), cluster.node()
    cluster.topic()
    produced(one, batch(b"a"))
    assert got(fetch(two, 0))[1] == [(0, b"a")]
    parked = fetch(two, 1)
    two.break_watch()
    produced(one, batch(b"b"))
    two.settle()
    assert two.polled(parked) is None
    two.open_watch()
    two.settle()
    assert got(two.polled(parked)) == (NONE, [(1, b"b")], 2)


@pytest.mark.parametrize("failures", [1, 4])
def test_what_a_broken_watch_missed_is_asked_for_until_it_is_answered(cluster, failures):
    one, two = cluster.node(), cluster.node()
    cluster.topic()
    produced(one, batch(b"a"))
    assert got(fetch(two, 0))[1] == [(0, b"a")]
    parked = fetch(two, 1)
    two.break_watch()
    produced(one, batch(b"b"))
    left = [CoordinatorAway("away")] * failures
    two.fails[does.AskStates] = lambda _: left.pop() if left else None
    two.open_watch()
    two.settle()
    two.pass_time(10_000)
    assert not left
    assert got(two.polled(parked)) == (NONE, [(1, b"b")], 2)
    assert two.diskless.next_tick_ms > two.broker.steady_ms + 10_000, "it asks no more"


def test_a_watch_that_ends_is_opened_at_once_and_never_without_a_pause(cluster):
    """Neither one that cannot be opened nor one that ends at once is opened in a busy loop."""
    node = cluster.node()
    machine, first_ms = node.diskless, node.broker.steady_ms
    node.broker.steady_ms = first_ms + WATCH_PAUSE_MS + 5
    assert machine.watch_broken() == 0, "it went for long enough"
    assert machine.watch_broken() == WATCH_PAUSE_MS, "it could not be opened"
    machine.watch_opened()
    node.broker.steady_ms += 100
    assert machine.watch_broken() == WATCH_PAUSE_MS - 100


def test_a_watch_that_tells_nothing_is_made_good_by_the_next_measurement(cluster):
    """It seems to go, as one does that listens to a server which is no longer the primary."""
    one, two = cluster.node(), cluster.node()
    topic_id = cluster.topic()
    assert list_offset(two, -1) == (NONE, 0, -1)
    two.end_watch()
    parked = fetch(two, 0)
    produced(one, batch(b"a"))
    two.settle()
    assert two.polled(parked) is None
    key = LogKey(topic_id, 0)
    two.diskless.measured([key], cluster.coordinator.states([key]))
    assert two.diskless.lags.all()[0].coordinator_lag == 1, "it was behind"
    assert got(two.polled(parked)) == (NONE, [(0, b"a")], 1)


@pytest.mark.parametrize("known", range(5))
def test_a_fetch_ends_however_little_stays_in_memory(cluster, known):
    """Of four partitions more is wanted than the cache keeps from one round of reads to the next;
    where the records of some lie is known before."""
    one = cluster.node()
    topic_id = cluster.topic(partitions=4)
    for _ in range(2):
        for index in range(4):
            produced(one, batch(b"x" * 400_000), index=index)
    two = cluster.node(config={"diskless.fetch.cache.max.bytes": "1048576"})
    cluster.nodes.remove(one)
    two.topic("t", 4, configs={"diskless.enable": "true"})
    for index in range(known):
        key = LogKey(topic_id, index)
        (found,) = cluster.coordinator.find([Wanted(key, 0, 1 << 30)])
        two.diskless.coordinates.found(key, found.runs, 0)
    offsets = dict.fromkeys(range(4), 0)
    for _ in range(20):
        wanted = [
            FetchPartition(partition=index, fetch_offset=at, partition_max_bytes=1 << 20)
            for index, at in offsets.items()
            if at < 2
        ]
        if not wanted:
            break
        topics = [FetchTopic(topic="t", partitions=wanted)]
        (topic,) = two.ask(FetchRequest(max_wait_ms=500, min_bytes=1, topics=topics), 12).responses
        assert sorted(each.partition_index for each in topic.partitions) == sorted(
            each.partition for each in wanted
        )
        for each in topic.partitions:
            assert each.error_code == NONE
            for _, header in walk(each.records or b""):
                assert header.base_offset == offsets[each.partition_index]
                offsets[each.partition_index] += 1
    assert set(offsets.values()) == {2}


def lose_runs(cluster, topic_id, lost):
    """Delete the rows that begin at these offsets, as a restore leaves them out."""
    cluster.coordinator.do(
        "DELETE FROM runs WHERE topic_id = ? AND base_offset >= ? AND base_offset < ?",
        (topic_id, lost.start, lost.stop),
    )


@pytest.mark.parametrize("lost", [range(1, 2), range(1, 4), range(2, 5)])
def test_records_behind_offsets_that_a_restore_left_out_are_read_and_found_by_time(cluster, lost):
    one = cluster.node()
    topic_id = cluster.topic()
    for at in range(6):
        produced(one, batch(b"%d" % at, timestamp=START_MS + at))
    lose_runs(cluster, topic_id, lost)
    two = cluster.node()
    cluster.nodes.remove(one)
    two.topic("t", 1, configs={"diskless.enable": "true"})
    there = [at for at in range(6) if at not in lost]
    assert everything(two) == [(at, b"%d" % at) for at in there]
    for at in range(6):
        first = min(each for each in there if each >= at)
        assert list_offset(two, START_MS + at) == (NONE, first, START_MS + first)


@pytest.mark.parametrize("first_lost", range(6))
def test_a_consumer_gets_to_the_end_where_a_restore_found_no_records(cluster, first_lost):
    """The last ones are gone: an empty batch leads past them, and what comes later is read."""
    one = cluster.node()
    topic_id = cluster.topic()
    for at in range(6):
        produced(one, batch(b"%d" % at))
    lose_runs(cluster, topic_id, range(first_lost, 6))
    two = cluster.node()
    cluster.nodes.remove(one)
    two.topic("t", 1, configs={"diskless.enable": "true"})
    there = [b"%d" % at for at in range(first_lost)]
    assert consumed(two, 0, 6) == there
    assert produced(two, batch(b"later")) == (NONE, 6)
    assert consumed(two, 0, 7) == [*there, b"later"]


def consumed(node, offset, end):
    """The values of all records up to an end, as a consumer that passes empty batches gets them."""
    values = []
    for _ in range(20):
        code, found, high_watermark = got(response := fetch(node, offset))
        assert (code, high_watermark) == (NONE, end)
        values += [value for _, value in found]
        (partition,) = response.responses[0].partitions
        batches = [header for _, header in walk(partition.records)]
        assert found or [each.record_count for each in batches] == [0]
        offset = batches[-1].next_offset
        if offset == end:
            return values
    raise AssertionError(f"still at {offset}")


def test_offsets_are_listed_as_they_are_now_and_exactly_by_time(cluster):
    one, two = cluster.node(), cluster.node()
    cluster.topic()
    assert list_offset(two, -1) == (NONE, 0, -1)
    two.break_watch()
    produced(one, batch(b"a", b"b", b"c", timestamp=START_MS))
    produced(one, batch(b"d", b"e", timestamp=START_MS + 100))
    assert list_offset(two, -1) == (NONE, 5, -1)
    assert list_offset(two, -2) == (NONE, 0, -1)
    assert list_offset(two, START_MS + 1) == (NONE, 1, START_MS + 1)
    assert list_offset(two, START_MS + 50) == (NONE, 3, START_MS + 100)
    assert list_offset(two, START_MS + 101) == (NONE, 4, START_MS + 101)
    assert list_offset(two, START_MS + 102) == (NONE, -1, -1)
    assert list_offset(two, -3) == (NONE, 4, START_MS + 101)


def deleted_before(node, offset):
    """Delete the records of the one partition before an offset."""
    partition = DeleteRecordsPartition(partition_index=0, offset=offset)
    topics = [DeleteRecordsTopic(name="t", partitions=[partition])]
    wait = node.ask(DeleteRecordsRequest(topics=topics, timeout_ms=1000), 2)
    node.settle()
    return node.polled(wait)


def test_a_time_is_found_however_far_behind_a_deleted_record_of_the_future(cluster):
    one = cluster.node(interval_ms=250)
    key = LogKey(cluster.topic(), 0)
    one.settle()
    future = batch(b"future", timestamp=START_MS + 10**6)
    waits = [produce(one, future), produce(one, batch(b"a"))]
    one.pass_time(500)
    assert [told(one.polled(each)) for each in waits] == [(NONE, 0), (NONE, 1)]
    for at in range(2, 200):
        waits = produce(one, batch(b"%d" % at, timestamp=START_MS + at))
        one.pass_time(250)
        assert told(one.polled(waits)) == (NONE, at)
    assert len(cluster.coordinator.runs(key)) == 199
    deleted_before(one, 1)
    assert list_offset(one, START_MS + 150) == (NONE, 150, START_MS + 150)
    assert list_offset(one, START_MS + 10**5) == (NONE, -1, -1)
    assert list_offset(one, START_MS) == (NONE, 1, START_MS)


def test_batches_of_more_records_than_an_object_counts_go_into_several(cluster, monkeypatch):
    monkeypatch.setattr(buffer, "MOST_RECORDS", 3)
    one = cluster.node(interval_ms=250)
    cluster.topic()
    one.settle()
    waits = [produce(one, batch(b"a", b"b")) for _ in range(4)]
    one.pass_time(1_000)
    assert [told(one.polled(each)) for each in waits] == [(NONE, 2 * at) for at in range(4)]
    assert len(cluster.store.objects) == 4
    assert one.diskless.writing.waiting_bytes == 0


def claiming(count, records):
    """A batch whose header says that it has so many records."""
    claim = bytearray(records)
    pack_into(">i", claim, ATTRIBUTES_AT + 2, count - 1)
    pack_into(">i", claim, BATCH_OVERHEAD - 4, count)
    renew_crc(claim, 0, len(claim))
    return claim


def produced_to_each(node, partitions, records):
    """Have each partition get a batch."""
    data = [PartitionProduceData(index=at, records=bytes(records)) for at in range(partitions)]
    body = [TopicProduceData(name="t", partition_data=data)]
    wait = node.ask(ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=body), 9)
    node.settle()
    assert node.polled(wait) is not None


def times_of(partitions, timestamp):
    """A request for the offset of a time in many partitions."""
    wanted = [
        ListOffsetsPartition(partition_index=at, timestamp=timestamp) for at in range(partitions)
    ]
    topics = [ListOffsetsTopic(name="t", partitions=wanted)]
    return ListOffsetsRequest(replica_id=-1, topics=topics)


def test_a_time_is_looked_up_in_more_partitions_than_one_round_asks_about(cluster):
    one = cluster.node()
    partitions = 2 * MOST_READS + 1
    cluster.topic(partitions=partitions)
    produced_to_each(one, partitions, batch(b"a", b"b", timestamp=START_MS))
    response = one.ask(times_of(partitions, START_MS + 1), 8)
    answers = [(each.error_code, each.offset) for each in response.topics[0].partitions]
    assert answers == [(0, 1)] * partitions


def test_a_time_in_many_partitions_is_looked_up_in_bounded_memory(cluster, monkeypatch):
    one = cluster.node()
    two = cluster.node(config={"diskless.fetch.cache.max.bytes": "1048576"})
    cluster.topic(partitions=40)
    produced_to_each(one, 40, batch(bytes(512 << 10)))
    sizes = []
    ended = two.diskless.answered
    monkeypatch.setattr(
        two.diskless,
        "answered",
        lambda *given: (ended(*given), sizes.append(two.diskless.blocks.size_bytes)),
    )
    response = two.ask(times_of(40, START_MS), 8)
    assert [each.offset for each in response.topics[0].partitions] == [0] * 40
    assert max(sizes) < MOST_FAR_BYTES + (2 << 20)


def test_records_are_deleted_before_an_offset(cluster):
    one, two = cluster.node(), cluster.node()
    cluster.topic()
    produced(one, batch(b"a", b"b", b"c", timestamp=START_MS))
    partition = DeleteRecordsPartition(partition_index=0, offset=2)
    topics = [DeleteRecordsTopic(name="t", partitions=[partition])]
    wait = two.ask(DeleteRecordsRequest(topics=topics, timeout_ms=1000), 2)
    two.settle()
    (topic,) = two.polled(wait).topics
    assert (topic.partitions[0].error_code, topic.partitions[0].low_watermark) == (0, 2)
    assert list_offset(one, -2) == (NONE, 2, -1)
    assert list_offset(one, START_MS) == (NONE, 2, START_MS + 2)
    assert got(fetch(one, 0))[0] == ErrorCode.OFFSET_OUT_OF_RANGE
    assert got(fetch(one, 2))[1][-1] == (2, b"c")
    partition.offset = 9
    (topic,) = two.ask(DeleteRecordsRequest(topics=topics, timeout_ms=1000), 2).topics
    assert topic.partitions[0].error_code == ErrorCode.OFFSET_OUT_OF_RANGE


@pytest.mark.parametrize("told_by", ["watch", "answer", "question", "measurement"])
def test_a_start_is_noted_by_every_broker_that_learns_of_it_and_before_it_is_told(cluster, told_by):
    """Whatever failed: the call has no answer, or the watch is broken."""
    nodes = [cluster.node(), cluster.node()]
    topic_id = cluster.topic()
    notes = [ManifestLog("cluster", number, 7, {topic_id: "t"}.get) for number in range(2)]
    for node, noting in zip(nodes, notes, strict=True):
        node.diskless.note_changes = partial(ManifestLog.heard, noting, now_ms=0)
    produced(nodes[0], batch(b"a", b"b", b"c"))
    for node in nodes:
        assert list_offset(node, -2) == (NONE, 0, -1)
    partition = DeleteRecordsPartition(partition_index=0, offset=2)
    topics = [DeleteRecordsTopic(name="t", partitions=[partition])]
    wait = nodes[0].ask(DeleteRecordsRequest(topics=topics, timeout_ms=1000), 2)
    if told_by != "watch":
        for node in nodes:
            node.break_watch()
    nodes[0].perform(nodes[0].next(does.DeleteBefore), answer=told_by == "answer")
    key = LogKey(topic_id, 0)
    for node in nodes:
        if told_by == "question":
            node.open_watch()
            node.settle()
        elif told_by == "measurement":
            node.diskless.measured([key], cluster.coordinator.states([key]))
    (topic,) = nodes[0].polled(wait).topics
    assert topic.partitions[0].low_watermark == 2
    for noting in notes[: 1 if told_by == "answer" else 2]:
        frozen = noting.tick(0, at_once=True)
        assert frozen is not None, "nothing was noted"
        assert decode_manifest(frozen.content, frozen.key).starts == [(key, 2)]


def test_a_start_whose_notes_died_with_all_brokers_is_noted_when_it_is_learned_again(cluster):
    one = cluster.node()
    topic_id = cluster.topic()
    produced(one, batch(b"a", b"b", b"c"))
    cluster.coordinator.delete_before([(LogKey(topic_id, 0), 2)])
    cluster.nodes.remove(one)
    two = cluster.node()
    two.topic("t", 1, configs={"diskless.enable": "true"})
    noting = ManifestLog("cluster", 1, 8, {topic_id: "t"}.get)
    two.diskless.note_changes = partial(ManifestLog.heard, noting, now_ms=0)
    assert list_offset(two, -2) == (NONE, 2, -1)
    frozen = noting.tick(0, at_once=True)
    assert decode_manifest(frozen.content, frozen.key).starts == [(LogKey(topic_id, 0), 2)]


def test_a_topic_that_is_deleted_is_noted_by_every_broker_that_hears_of_it(cluster):
    node = cluster.node()
    topic_id = cluster.topic(partitions=3)
    noting = ManifestLog("cluster", 1, 7, {}.get)
    node.diskless.note_changes = partial(ManifestLog.heard, noting, now_ms=0)
    cluster.coordinator.delete_topics(1, [topic_id])
    frozen = noting.tick(0, at_once=True)
    assert decode_manifest(frozen.content, frozen.key).deleted == [topic_id]


def test_records_of_many_partitions_are_deleted_in_few_calls_one_after_the_other(cluster):
    one = cluster.node()
    cluster.topic(partitions=2 * MOST_DELETED + 1)
    indexes = range(2 * MOST_DELETED + 1)
    produced_to_each(one, len(indexes), batch(b"a", b"b"))
    partitions = [DeleteRecordsPartition(partition_index=at, offset=1) for at in indexes]
    topics = [DeleteRecordsTopic(name="t", partitions=partitions)]
    wait = one.ask(DeleteRecordsRequest(topics=topics, timeout_ms=1000), 2)
    for count in (MOST_DELETED, MOST_DELETED, 1):
        call = one.next(does.DeleteBefore)
        assert len(call.wanted) == count
        assert one.take() == []
        one.perform(call)
    (topic,) = one.polled(wait).topics
    assert [(each.error_code, each.low_watermark) for each in topic.partitions] == [
        (0, 1) for _ in indexes
    ]


def test_a_call_that_deletes_and_fails_holds_up_no_other(cluster):
    one = cluster.node()
    cluster.topic(partitions=2)
    produced_to_each(one, 2, batch(b"a", b"b"))
    one.fails[does.DeleteBefore] = lambda _: CoordinatorAway("away")
    deleted_before(one, 1)
    del one.fails[does.DeleteBefore]
    (topic,) = deleted_before(one, 1).topics
    assert topic.partitions[0].low_watermark == 1


@pytest.mark.parametrize("epoch", [0, 3, 99])
def test_no_reader_is_ever_told_to_truncate(cluster, epoch):
    one, two = cluster.node(), cluster.node()
    cluster.topic()
    produced(one, batch(b"a", b"b"))
    asked = OffsetForLeaderPartition(partition=0, current_leader_epoch=5, leader_epoch=epoch)
    topics = [OffsetForLeaderTopic(topic="t", partitions=[asked])]
    (topic,) = two.ask(OffsetForLeaderEpochRequest(replica_id=-1, topics=topics), 4).topics
    answer = topic.partitions[0]
    assert (answer.error_code, answer.leader_epoch, answer.end_offset) == (0, epoch, 2)


@pytest.mark.parametrize("harm", ["gone", "cut", "overwritten"])
def test_an_object_that_is_damaged_is_a_storage_error_and_what_is_before_it_is_served(
    cluster, harm
):
    one = cluster.node(config={"diskless.fetch.cache.max.bytes": "1048576"})
    cluster.topic()
    produced(one, batch(b"a"))
    produced(one, batch(b"b"))
    two = cluster.node()
    cluster.nodes.remove(one)
    two.broker.image = one.broker.image
    keys = list(cluster.store.objects)
    held = cluster.store.objects
    if harm == "gone":
        del held[keys[1]]
    elif harm == "cut":
        held[keys[1]] = held[keys[1]][:80]
    else:
        held[keys[1]] = bytes(len(held[keys[1]]))
    assert got(fetch(two, 0))[:2] == (NONE, [(0, b"a")])
    assert got(fetch(two, 1))[0] == STORAGE
    (complaint,) = two.diskless.complaints
    assert keys[1] in complaint[0] + complaint[1]


def test_records_that_are_none_are_the_producers_fault_and_not_the_objects(cluster):
    """A sound checksum over anything: a lookup by time says so, and no object is to be restored."""
    node = cluster.node()
    cluster.topic()
    poison = batch(b"value")
    poison[BATCH_OVERHEAD:] = b"\xff" * (len(poison) - BATCH_OVERHEAD)
    renew_crc(poison, 0, len(poison))
    assert produced(node, poison) == (NONE, 0)
    assert produced(node, batch(b"sound", timestamp=START_MS + 5)) == (NONE, 1)
    for timestamp in (START_MS, START_MS + 5, MAX_TIMESTAMP):
        code, offset, _ = list_offset(node, timestamp)
        expected = (NONE, 1) if timestamp != START_MS else (ErrorCode.CORRUPT_MESSAGE, -1)
        assert (code, offset) == expected
    assert not node.diskless.complaints


def test_a_batch_that_claims_more_records_than_it_can_hold_takes_no_offsets(cluster):
    node = cluster.node()
    cluster.topic()
    claims = claiming((1 << 31) - 1, batch(b"value"))
    assert produced(node, claims)[0] is ErrorCode.INVALID_RECORD
    assert produced(node, batch(b"next")) == (NONE, 0)


def test_many_readers_of_one_object_cost_one_read(cluster):
    one = cluster.node()
    cluster.topic(partitions=3)
    node = cluster.node()
    node.topic("t", 3, configs={"diskless.enable": "true"})
    data = [PartitionProduceData(index=at, records=bytes(batch(b"x"))) for at in range(3)]
    body = [TopicProduceData(name="t", partition_data=data)]
    one.ask(ProduceRequest(acks=-1, timeout_ms=1000, topic_data=body), 9)
    one.settle()
    assert len(cluster.store.objects) == 1
    cold = [node.send(_fetch_request(at % 3), 12) for at in range(6)]
    ended = []
    for each in cold:
        node.diskless.bring(each.reads, lambda: ended.append(1))
    node.settle()
    assert len(ended) == 6
    cold = [each.poll(0, False) for each in cold]
    for each in cold:
        node.diskless.bring(each.reads, lambda: ended.append(1))
    node.settle()
    cold = [each.poll(0, False) for each in cold]
    for each in cold:
        node.diskless.bring(each.reads, lambda: ended.append(1))
    node.settle()
    assert [got(received(each.poll(0, False)))[1] for each in cold] == [[(0, b"x")]] * 6
    assert len(cluster.store.reads) == 1


def _fetch_request(index):
    wanted = FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=1 << 20)
    topics = [FetchTopic(topic="t", partitions=[wanted])]
    return FetchRequest(max_wait_ms=500, min_bytes=1, max_bytes=1 << 22, topics=topics)


def test_a_deleted_topic_answers_those_who_wait(cluster):
    node = cluster.node()
    topic_id = cluster.topic()
    produced(node, batch(b"a"))
    parked, waiting = fetch(node, 1), produce(node, batch(b"b"))
    node.remove("t")
    cluster.coordinator.delete_topics(1, [topic_id])
    assert got(node.polled(parked))[0] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert told(node.polled(waiting))[0] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    node.settle()
    assert LogKey(topic_id, 0) not in node.diskless.by_key


def test_a_deleted_topic_answers_who_waits_for_records_to_be_deleted(cluster):
    """At once, as a topic with replicas does."""
    node = cluster.node()
    cluster.topic()
    produced(node, batch(b"a"))
    topics = [
        DeleteRecordsTopic(
            name="t", partitions=[DeleteRecordsPartition(partition_index=0, offset=1)]
        )
    ]
    parked = node.ask(DeleteRecordsRequest(topics=topics, timeout_ms=1000), 2)
    node.remove("t")
    (topic,) = node.polled(parked).topics
    (result,) = topic.partitions
    assert (result.error_code, result.low_watermark) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)


def test_a_broker_without_the_storage_system_says_so(cluster):
    node = cluster.node()
    cluster.topic()
    node.diskless.is_on = False
    assert told(produce(node, batch(b"a")))[0] == STORAGE
    assert got(fetch(node, 0))[0] == STORAGE


def test_the_cache_keeps_no_large_request_for_a_small_batch(cluster):
    node = cluster.node()
    cluster.topic()
    produced(node, batch(b"warm"))
    small = memoryview(bytearray(1 << 20))[: len(batch(b"a"))]
    small[:] = batch(b"a")
    large = memoryview(bytearray(batch(b"b" * 1000)))
    partition = node.diskless.get("t", 0)
    for records in (small, large):
        partition.append(records, required_acks=-1, now_ms=START_MS)
    node.settle()
    pieces = [piece for each in node.diskless.blocks._objects.values() for piece in each.pieces]
    held = [memoryview(piece).obj for piece in pieces]
    assert large.obj in held
    assert all(len(each) < 1 << 20 for each in held)
    assert everything(node) == [(0, b"warm"), (1, b"a"), (2, b"b" * 1000)]


def test_what_deleted_and_made_anew_under_its_name_is_another_topic(cluster):
    node = cluster.node()
    old = cluster.topic()
    produced(node, batch(b"old"))
    node.remove("t")
    cluster.coordinator.delete_topics(1, [old])
    new = node.topic("t", configs={"diskless.enable": "true"}, incarnation=2)
    assert new != old
    cluster.coordinator.create_logs(1, [NewLogs(new, "t", 0, 1)])
    assert produced(node, batch(b"new")) == (NONE, 0)
    assert everything(node) == [(0, b"new")]


def test_while_the_coordinator_is_away_what_is_cached_is_served_and_nothing_is_invented(cluster):
    one, two = cluster.node(), cluster.node()
    cluster.topic()
    produced(one, batch(b"a"))
    assert everything(two) == [(0, b"a")]
    kinds = (does.AskStates, does.FindRuns, does.FindByTime, does.CommitObject, does.AskOutcome)
    for node in (one, two):
        node.break_watch()
        for kind in kinds:
            node.fails[kind] = lambda _: CoordinatorAway("down")
    for node in (one, two):
        assert got(fetch(node, 0)) == (NONE, [(0, b"a")], 1)
    assert isinstance(fetch(one, 1), Wait)
    assert got(fetch(one, 2))[0] == STORAGE  # not out of range: who knows
    assert list_offset(one, -1)[0] == STORAGE
    waiting = produce(one, batch(b"b"))
    one.pass_time(1_000)
    assert one.polled(waiting) is None
    for node in (one, two):
        node.fails.clear()
        node.open_watch()
    one.pass_time(5_000)
    two.settle()
    assert told(one.polled(waiting)) == (NONE, 1)
    assert everything(one) == everything(two) == [(0, b"a"), (1, b"b")]
    assert list_offset(two, -1) == (NONE, 2, -1)
