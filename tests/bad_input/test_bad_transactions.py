"""Producers, markers and transactions that no coordinator and no partition should take."""

from __future__ import annotations

import itertools
import time

import pytest
from bad_kit import (
    GROUP,
    LATEST,
    TRANSACTION,
    Raw,
    RunningNode,
    batch,
    eventually,
    framed,
    produce,
)

from anabranch.core.coordination.internal_topics import java_hash
from anabranch.core.errors import ErrorCode
from anabranch.core.wire.frame import frame_request, read_response
from anabranch.core.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from anabranch.core.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from anabranch.core.wire.messages.describe_transactions import DescribeTransactionsRequest
from anabranch.core.wire.messages.end_txn import EndTxnRequest
from anabranch.core.wire.messages.find_coordinator import FindCoordinatorRequest
from anabranch.core.wire.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from anabranch.core.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from anabranch.core.wire.messages.produce import ProduceResponse
from anabranch.core.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from anabranch.core.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from anabranch.core.wire.transaction_records import encode_key

NONE, UNKNOWN_TOPIC, NOT_ALLOWED = 0, 3, 29
MAPPING = ErrorCode.INVALID_PRODUCER_ID_MAPPING
FENCED = ErrorCode.PRODUCER_FENCED
OLD_EPOCH = ErrorCode.INVALID_PRODUCER_EPOCH
NOT_ATTEMPTED = ErrorCode.OPERATION_NOT_ATTEMPTED
TIMEOUT_MS = 60_000
SHORT_MS = 300
FAR_ID = 10**12
STATE, ADMIN = "__transaction_state", "__admin_client"
MANY, AT_ONCE = 5_000, 500
NAMES = (f"bad-{number}" for number in itertools.count())


def begin(client, name, timeout_ms=TIMEOUT_MS):
    request = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=timeout_ms)
    return client.ask(request, 4)


@pytest.fixture
def producer(client):
    """Name, producer id and epoch of a producer that has just begun."""
    name = next(NAMES)
    answer = begin(client, name)
    assert answer.error_code == NONE
    return name, answer.producer_id, answer.producer_epoch


def add(client, name, producer_id, epoch, **topics):
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=name,
        v3_and_below_producer_id=producer_id,
        v3_and_below_producer_epoch=epoch,
        v3_and_below_topics=[
            AddPartitionsToTxnTopic(name=topic, partitions=[index])
            for topic, index in topics.items()
        ],
    )
    answer = client.ask(request, 3).results_by_topic_v3_and_below
    return {each.name: each.results_by_partition[0].partition_error_code for each in answer}


def end(client, name, producer_id, epoch):
    fields = {"transactional_id": name, "producer_id": producer_id, "producer_epoch": epoch}
    return client.ask(EndTxnRequest(committed=True, **fields), 4).error_code


def add_offsets(client, name, producer_id, epoch):
    fields = {"transactional_id": name, "producer_id": producer_id, "producer_epoch": epoch}
    return client.ask(AddOffsetsToTxnRequest(group_id="g", **fields), 3).error_code


def commit_offsets(client, name, producer_id, epoch):
    part = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=1)
    topic = TxnOffsetCommitRequestTopic(name="plain", partitions=[part])
    fields = {"transactional_id": name, "producer_id": producer_id, "producer_epoch": epoch}
    request = TxnOffsetCommitRequest(group_id="g", topics=[topic], **fields)
    return client.ask(request, 5).topics[0].partitions[0].error_code


def write(client, name, producer_id, epoch, version=12):
    records = batch(
        producer_id=producer_id, producer_epoch=epoch, base_sequence=0, transactional=True
    )
    request = produce("plain", records, acks=-1)
    request.transactional_id = name
    return client.ask(request, version).responses[0].partition_responses[0].error_code


def mark(client, topic="plain", index=0, **fields):
    told = {"producer_id": FAR_ID, "producer_epoch": 0, "coordinator_epoch": 0, **fields}
    place = WritableTxnMarkerTopic(name=topic, partition_indexes=[index])
    marker = WritableTxnMarker(transaction_result=True, topics=[place], **told)
    answer = client.ask(WriteTxnMarkersRequest(markers=[marker]), 1)
    return answer.markers[0].topics[0].partitions[0].error_code


def last_stable(client, isolation=1):
    part = ListOffsetsPartition(partition_index=0, timestamp=LATEST)
    topic = ListOffsetsTopic(name="plain", partitions=[part])
    request = ListOffsetsRequest(replica_id=-1, isolation_level=isolation, topics=[topic])
    return client.ask(request, 5).topics[0].partitions[0].offset


def state(client, name):
    answer = client.ask(DescribeTransactionsRequest(transactional_ids=[name]), 0)
    return answer.transaction_states[0].transaction_state


@pytest.mark.parametrize("ask", [end, add_offsets, commit_offsets, write])
def test_a_producer_id_of_another_producer(node, client, producer, ask):
    before = node.state("plain")
    assert ask(client, producer[0], FAR_ID, 0) == MAPPING
    assert ask(client, next(NAMES), producer[1], 0) == MAPPING
    assert node.state("plain") == before
    assert add(client, producer[0], FAR_ID, 0, plain=0) == {"plain": MAPPING}
    assert state(client, producer[0]) == "Empty"


@pytest.mark.parametrize(
    ("ask", "code"),
    [(end, FENCED), (add_offsets, FENCED), (commit_offsets, OLD_EPOCH), (write, OLD_EPOCH)],
)
def test_an_epoch_that_is_over_or_was_never_given(node, client, producer, ask, code):
    name, producer_id, epoch = producer
    before = node.state("plain")
    assert begin(client, name).producer_epoch == epoch + 1
    for other in (epoch, epoch + 2, 32_767):
        assert ask(client, name, producer_id, other) == code
        assert add(client, name, producer_id, other, plain=0) == {"plain": FENCED}
    assert node.state("plain") == before
    assert state(client, name) == "Empty"


def test_no_producer_id_at_all(node, client, producer):
    for producer_id, epoch in ((-1, 0), (-1, -1), (-5, 0)):
        assert end(client, producer[0], producer_id, epoch) == MAPPING
        assert add(client, producer[0], producer_id, epoch, plain=0) == {"plain": MAPPING}
    assert state(client, producer[0]) == "Empty"


def test_refused_producers_and_markers_are_named_in_the_log(node, client, producer):
    name, producer_id, epoch = producer
    assert begin(client, name).producer_epoch == epoch + 1
    who = f"transactional_id={name} producer_id={producer_id} producer_epoch={epoch} client_id=bad"
    asked = {
        (f"request=EndTxn {who}", "code=PRODUCER_FENCED"): lambda: end(client, *producer),
        (f"request=AddOffsetsToTxn {who}", "FENCED"): lambda: add_offsets(client, *producer),
        (f"request=TxnOffsetCommit {who}", "EPOCH"): lambda: commit_offsets(client, *producer),
        (f"request=Produce {who}", "EPOCH", "plain-0"): lambda: write(client, *producer),
        (f"request=AddPartitionsToTxn {who}", "UNKNOWN_TOPIC", "unknown-0"): (
            lambda: add(client, *producer, plain=0, unknown=0)
        ),
        ("request=WriteTxnMarkers producer_id=1", "UNKNOWN_TOPIC", "plain-7"): (
            lambda: mark(client, index=7)
        ),
    }
    for words, ask in asked.items():
        eventually(lambda: _is_said(node, ask, words), f"a line with {words}")  # noqa: B023


def _is_said(node, ask, words):
    """Ask, which a node names a few times a second, and look."""
    ask()
    return any(all(word in line for word in words) for line in node.lines)


def test_refused_producers_do_not_fill_the_log(node, client, producer):
    begin(client, producer[0])
    for _ in range(1_000):
        end(client, *producer)
    said = [line for line in node.lines if "a transactional request was refused" in line]
    assert len(said) < 300
    eventually(lambda: _is_said(node, lambda: end(client, *producer), ["unsaid="]), "a count")


@pytest.mark.parametrize("timeout_ms", [0, -1, 900_001, 2**31 - 1])
def test_a_timeout_that_cannot_be(node, client, timeout_ms):
    code = ErrorCode.INVALID_TRANSACTION_TIMEOUT
    assert begin(client, next(NAMES), timeout_ms).error_code == code


def test_an_empty_transactional_id(node, client):
    assert begin(client, "").error_code == ErrorCode.INVALID_REQUEST
    for kind, code in ((TRANSACTION, ErrorCode.NONE), (GROUP, ErrorCode.NONE)):
        request = FindCoordinatorRequest(key_type=kind, coordinator_keys=["x" * 30_000])
        assert client.ask(request, 4).coordinators[0].error_code == code


def test_partitions_that_are_not_there(node, client, producer):
    unknown = {"unknown": UNKNOWN_TOPIC, "plain": NOT_ATTEMPTED}
    assert add(client, *producer, unknown=0, plain=0) == unknown
    assert add(client, *producer, plain=1, bystander=0) == {
        "plain": UNKNOWN_TOPIC, "bystander": NOT_ATTEMPTED,
    }  # fmt: skip
    internal = add(client, *producer, __transaction_state=0, plain=0)
    assert internal == {"__transaction_state": NOT_ALLOWED, "plain": NOT_ATTEMPTED}
    assert state(client, producer[0]) == "Empty"


def test_a_transaction_that_outlives_its_timeout_holds_readers_back_no_longer(node, client):
    name = next(NAMES)
    begun = begin(client, name, SHORT_MS)
    started = time.monotonic()
    assert write(client, name, begun.producer_id, begun.producer_epoch) == NONE
    assert last_stable(client) < last_stable(client, isolation=0)
    eventually(
        lambda: last_stable(client) == last_stable(client, isolation=0), "an end of the transaction"
    )
    assert time.monotonic() - started >= SHORT_MS / 1000
    line = node.says("a transaction outlived its timeout and is aborted", name)
    assert "partitions=plain-0" in line
    assert f"timeout_ms={SHORT_MS}" in line
    assert end(client, name, begun.producer_id, begun.producer_epoch) == FENCED
    assert write(client, name, begun.producer_id, begun.producer_epoch) == OLD_EPOCH


def test_markers_of_a_client(node, client, producer):
    """Without an authorizer a client may write them, as in Kafka: they end nothing that is not."""
    assert mark(client, topic="unknown") == UNKNOWN_TOPIC
    assert mark(client, index=7) == UNKNOWN_TOPIC
    name, producer_id, epoch = producer
    assert mark(client, coordinator_epoch=5) == NONE
    code = ErrorCode.TRANSACTION_COORDINATOR_FENCED
    assert mark(client, coordinator_epoch=4) == code
    assert write(client, name, producer_id, epoch) == NONE
    assert mark(client, producer_epoch=3, coordinator_epoch=5) == NONE, "another producer's"
    assert last_stable(client) < last_stable(client, isolation=0)
    assert mark(client, producer_id=producer_id, producer_epoch=epoch - 1) == OLD_EPOCH
    assert end(client, name, producer_id, epoch) == NONE
    eventually(lambda: last_stable(client) == last_stable(client, isolation=0), "the marker")


def test_transactional_ids_that_a_newer_version_has_written(tmp_path):
    """A key is passed over and counted; a value takes its partition offline, and no other one."""
    node = RunningNode(tmp_path / "node", **{"transaction.state.log.num.partitions": "2"})
    newer = {0: (b"\0\7" + bytes(9), bytes(30)), 1: (encode_key("id"), b"\0\7" + bytes(30))}
    try:
        node.start().ready().prepare()
        with Raw(node) as client:
            for index, (key, value) in newer.items():
                request = produce(STATE, batch(key=key, value=value), index=index)
                client.send(b"".join(map(bytes, frame_request(1, ADMIN, request, 9))))
                _, answer = read_response(client.frame(), ProduceResponse, 9)
                assert answer.responses[0].partition_responses[0].error_code == NONE
        node.kill()
        node.start().ready()
        skipped = ("records that this version does not know were skipped", f"{STATE}-0", "=1")
        offline = ("a partition is offline", f"{STATE}-1", "offset 0", "no such version")
        for words in (skipped, offline):
            eventually(lambda: _is_said(node, list, words), f"a line with {words}")  # noqa: B023
        with Raw(node) as client:
            eventually(lambda: begin(client, id_of(0)).error_code == NONE, "ids of partition 0")
            assert begin(client, id_of(1)).error_code == ErrorCode.NOT_COORDINATOR
    finally:
        node.close()


def id_of(partition):
    """A transactional id that belongs to this partition of two."""
    ids = (f"id-{number}" for number in itertools.count())
    return next(each for each in ids if java_hash(each) % 2 == partition)


def test_thousands_of_ids_that_never_end_anything(node):
    """Each is remembered until it expires; the fixture says that it takes little."""
    with Raw(node) as client:
        for first in range(0, MANY, AT_ONCE):
            names = [f"idle-{first + number}" for number in range(AT_ONCE)]
            requests = [InitProducerIdRequest(each, TIMEOUT_MS) for each in names]
            client.send(b"".join(framed(each, 4) for each in requests))
            for _ in names:
                _, answer = read_response(client.frame(), InitProducerIdResponse, 4)
                assert answer.error_code == NONE
