"""Bad batches get Kafka's answers: the table was measured on Kafka 4.1 with the same bytes (R5).

An answer is (error code, base offset, log start offset, indexes of the records named). Where we
differ on purpose, a second table says so.
"""

import struct
import tracemalloc

import pytest
from tests.core.api.in_memory_node import START_MS, InMemoryNode

from anabranch.core.log.sequence_gaps import GAP_MS
from anabranch.core.wire.batch import renew_crc
from anabranch.core.wire.compression import Codec
from anabranch.core.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from anabranch.core.wire.records import Record, build_batch

HOUR_MS = 3_600_000
LATE, EARLY = START_MS + 2 * HOUR_MS, START_MS - 2 * HOUR_MS
OFFSET, ATTRIBUTES, DELTA, MAX_TIME, COUNT = (
    (0, ">q"), (21, ">h"), (23, ">i"), (35, ">q"), (57, ">i"),
)  # fmt: skip
PLAIN = {"max.message.bytes": "4000"}
RANGED = {**PLAIN, "message.timestamp.before.max.ms": str(HOUR_MS)}
COMPACT = {**PLAIN, "cleanup.policy": "compact"}
GZIP = {**RANGED, "compression.type": "gzip"}
APPEND_TIME = {**PLAIN, "message.timestamp.type": "LogAppendTime"}
ACCEPTED = (0, 0, 0, [])


def batch(count=3, *, times=(), keys=(), value=b"v", **how):
    times = times or [START_MS] * count
    keys = keys or [b"k"] * count
    parts = zip(times, keys, strict=True)
    records = [Record(index, time, key, value) for index, (time, key) in enumerate(parts)]
    return build_batch(records, **how)


def changed(records, place, number, *, sound=True):
    struct.pack_into(place[1], records, place[0], number)
    if sound:
        renew_crc(records, 0, len(records))
    return records


def sent(sequence, *, epoch=0, **how):
    return batch(producer_id=5, producer_epoch=epoch, base_sequence=sequence, **how)


def claims(records, count):
    """A batch that says that it has so many records."""
    return changed(changed(records, DELTA, count - 1), COUNT, count)


def garbage(codec):
    records = bytearray(batch()[:61]) + b"\xff" * 40
    struct.pack_into(">i", records, 8, len(records) - 12)
    return changed(records, ATTRIBUTES, codec)


def answer_of(configs, *batches):
    node = InMemoryNode()
    node.topic(configs=configs)
    for records in batches:
        answer = answered(node, records)
    return answer


def answered(node, records):
    part = PartitionProduceData(index=0, records=records)
    topic = TopicProduceData(name="t", partition_data=[part])
    response = node.send(ProduceRequest(acks=1, timeout_ms=1000, topic_data=[topic]), 9)
    return response.responses[0].partition_responses[0]


def shape(answer):
    named = [error.batch_index for error in answer.record_errors]
    return (answer.error_code, answer.base_offset, answer.log_start_offset, named)


AS_KAFKA = [
    ("bad checksum", PLAIN, [changed(batch(), COUNT, 4, sound=False)], (2, -1, -1, [])),
    ("magic 0", PLAIN, [changed(batch(), (16, ">b"), 0)], (87, -1, -1, [])),
    ("magic 1", PLAIN, [changed(batch(), (16, ">b"), 1)], (87, -1, -1, [])),
    ("magic 3", PLAIN, [changed(batch(), (16, ">b"), 3)], (2, -1, -1, [])),
    ("count too high", PLAIN, [changed(batch(), COUNT, 4)], (87, -1, 0, [])),
    ("count too low", PLAIN, [changed(batch(), COUNT, 2)], (87, -1, 0, [])),
    ("count 0", PLAIN, [changed(batch(), COUNT, 0)], (87, -1, 0, [])),
    ("delta negative", PLAIN, [changed(batch(), DELTA, -1)], (87, -1, 0, [])),
    ("control", PLAIN, [changed(batch(1), ATTRIBUTES, 0x20)], (87, -1, 0, [])),
    ("two batches", PLAIN, [batch() + batch()], (87, -1, -1, [])),
    ("base offset 5", PLAIN, [changed(batch(), OFFSET, 5)], (87, -1, 0, [])),
    ("oversized", PLAIN, [batch(1, value=bytes(5000))], (10, -1, -1, [])),
    ("unpacks well", COMPACT, [batch(1, value=bytes(500_000), codec=Codec.GZIP)], ACCEPTED),
    ("incomplete", PLAIN, [batch()[:-1]], (87, -1, -1, [])),
    ("late", PLAIN, [batch(times=[LATE] * 3)], (32, -1, 0, [0, 1, 2])),
    ("some late", PLAIN, [batch(times=[START_MS, LATE, LATE])], (32, -1, 0, [1, 2])),
    ("early", RANGED, [batch(times=[EARLY] * 3)], (32, -1, 0, [0, 1, 2])),
    ("early, no bound", PLAIN, [batch(times=[EARLY] * 3)], ACCEPTED),
    ("no time", RANGED, [batch(times=[-1] * 3)], ACCEPTED),
    ("early between", GZIP, [batch(times=[START_MS, EARLY, START_MS])], (32, -1, 0, [1])),
    ("late, append time", APPEND_TIME, [batch(times=[LATE] * 3)], ACCEPTED),
    ("claims append time", PLAIN, [changed(batch(), ATTRIBUTES, 8)], ACCEPTED),
    ("keyless", COMPACT, [batch(keys=[b"a", None, None])], (87, -1, 0, [1, 2])),
    ("keyless and late", COMPACT, [batch(keys=[None] * 3, times=[LATE] * 3)], (87, -1, 0, [0, 1, 2])),
    ("keyless elsewhere", PLAIN, [batch(keys=[None] * 3)], ACCEPTED),
    ("counts lie", COMPACT, [changed(changed(batch(), DELTA, 6), COUNT, 7)], (87, -1, 0, [])),
    ("count beyond its bytes", PLAIN, [claims(batch(), 7)], (87, -1, 0, [])),
    *(
        (f"2^31-1 records in {codec.name}", PLAIN, [claims(batch(1, codec=codec), (1 << 31) - 1)], (87, -1, 0, []))
        for codec in Codec
    ),
    ("no sequence", PLAIN, [sent(-1)], (87, -1, 0, [])),
    ("begins at 5", PLAIN, [sent(5)], ACCEPTED),
    ("gap and late", PLAIN, [sent(0), sent(9, times=[LATE] * 3)], (32, -1, 0, [0, 1, 2])),
    ("gap and keyless", COMPACT, [sent(0), sent(9, keys=[None] * 3)], (87, -1, 0, [0, 1, 2])),
    ("duplicate", PLAIN, [sent(0), sent(0)], ACCEPTED),
    ("duplicate but late", PLAIN, [sent(0), sent(0, times=[LATE] * 3)], (32, -1, 0, [0, 1, 2])),
    ("second of five", PLAIN, [*(sent(3 * each) for each in range(5)), sent(3)], (0, 3, 0, [])),
    ("sixth last", PLAIN, [*(sent(3 * each) for each in range(7)), sent(0)], (45, -1, 0, [])),
    ("overlap", PLAIN, [sent(0), sent(1)], (45, -1, 0, [])),
    ("stale epoch", PLAIN, [sent(0, epoch=3), sent(0, epoch=2)], (47, -1, 0, [])),
    ("new epoch", PLAIN, [sent(0), sent(0, epoch=1)], (0, 3, 0, [])),
]  # fmt: skip


@pytest.mark.parametrize(("name", "configs", "batches", "kafkas"), AS_KAFKA)
def test_answers_are_kafkas(name, configs, batches, kafkas):
    assert shape(answer_of(configs, *map(bytearray, batches))) == kafkas


@pytest.mark.parametrize("behind", [sent(5), sent(5, epoch=1)])
def test_a_gap_is_answered_as_by_kafka_once_it_was_waited_for(behind):
    node = InMemoryNode()
    node.topic(configs=PLAIN)
    answered(node, bytearray(sent(0)))
    assert shape(answered(node, bytearray(behind))) == (6, -1, -1, [])
    node.broker.steady_ms += GAP_MS
    assert shape(answered(node, bytearray(behind))) == (45, -1, 0, [])


UNLIKE_KAFKA = [
    # Kafka says UNKNOWN_SERVER_ERROR where its decoder trips; a client learns more from these.
    ("codec 5", PLAIN, [changed(batch(), ATTRIBUTES, 5)], (76, -1, 0, [])),
    *((f"garbage {codec.name}", COMPACT, [garbage(codec)], (87, -1, 0, [])) for codec in Codec),
    # Kafka decodes every record; where we need not, a header is taken at its word.
    *((f"opaque {codec.name}", PLAIN, [garbage(codec)], ACCEPTED) for codec in Codec),
    ("counts lie", PLAIN, [claims(batch(value=bytes(20)), 7)], ACCEPTED),
    ("early between", RANGED, [batch(times=[START_MS, EARLY, START_MS])], ACCEPTED),
    ("header lies", PLAIN, [changed(batch(), MAX_TIME, LATE)], (32, -1, 0, [])),
    # Kafka never answers no records at all, and drops bytes behind the batch.
    ("null", PLAIN, [None], (87, -1, -1, [])),
    ("trailing byte", PLAIN, [batch() + b"x"], (87, -1, -1, [])),
]


@pytest.mark.parametrize(("name", "configs", "batches", "ours"), UNLIKE_KAFKA)
def test_differences_are_meant(name, configs, batches, ours):
    batches = [None if each is None else bytearray(each) for each in batches]
    assert shape(answer_of(configs, *batches)) == ours


def test_texts_are_kafkas():
    late = answer_of(RANGED, batch(times=[START_MS, LATE, START_MS]))
    assert late.error_message == "One or more records have been rejected due to invalid timestamp"
    assert late.record_errors[0].batch_index_error_message == (
        f"Timestamp {LATE} of message with offset 1 is out of range. The timestamp should be "
        f"within [{START_MS - HOUR_MS}, {START_MS + HOUR_MS}]"
    )
    keyless = answer_of(COMPACT, batch(keys=[b"a", None, b"c"]))
    text = "Compacted topic cannot accept message without key in topic partition t-0"
    assert keyless.record_errors[0].batch_index_error_message == text
    assert keyless.error_message == (
        "One or more records have been rejected due to 1 record errors in total, and only showing "
        f"the first three errors at most: [RecordError(batchIndex=1, message='{text}')]"
    )


def test_a_duplicate_tells_its_newest_timestamp():
    assert answer_of(PLAIN, sent(0), sent(0)).log_append_time_ms == START_MS


def test_an_answer_names_a_bounded_number_of_records():
    records = batch(3000, keys=[None] * 3000, codec=Codec.ZSTD, value=b"")
    answer = answer_of({"cleanup.policy": "compact"}, records)
    assert len(answer.record_errors) == 1000
    assert "due to 3000 record errors" in answer.error_message


def bomb(codec, *, count, size):
    """A few kilobytes that unpack to `count` records with values of `size` bytes."""
    return build_batch([Record(0, START_MS, b"k", bytes(size))] * count, codec=codec)


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.ZSTD, Codec.LZ4])
@pytest.mark.parametrize(("count", "size"), [(1, 60_000_000), (200_000, 1)])
def test_a_bomb_costs_little_and_leaves_nothing(codec, count, size):
    records = bomb(codec, count=count, size=size)
    name = "zstd" if codec is Codec.GZIP else "gzip"
    node = InMemoryNode()
    configs = {"compression.type": name, "message.timestamp.type": "LogAppendTime"}
    node.topic(configs=configs)
    part = PartitionProduceData(index=0, records=records)
    topic = TopicProduceData(name="t", partition_data=[part])
    message = ProduceRequest(acks=1, timeout_ms=1000, topic_data=[topic])
    node.send(ProduceRequest(acks=1, timeout_ms=1000, topic_data=[]), 9)
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    try:
        answer = node.send(message, 9).responses[0].partition_responses[0]
        after, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert answer.error_code in (87, 10)
    assert node.replica().log.end_offset == 0
    assert peak - before < 64 << 20
    assert after - before < 4 << 20
