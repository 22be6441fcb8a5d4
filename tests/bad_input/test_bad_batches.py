"""Batches that must not be appended, with Kafka's answers (R5, R15)."""

from __future__ import annotations

import struct
import time

import pytest
from bad_kit import Raw, batch, code_of, framed, produce

from anabranch.core.log.sequence_gaps import GAP_MS
from anabranch.core.wire.batch import renew_crc

CORRUPT_MESSAGE, UNKNOWN_TOPIC, NOT_LEADER, TOO_LARGE = 2, 3, 6, 10
INVALID_TOPIC, LIST_TOO_LARGE, BAD_ACKS, BAD_TIMESTAMP = 17, 18, 21, 32
OUT_OF_ORDER, BAD_EPOCH, UNKNOWN_CODEC, INVALID_RECORD = 45, 47, 76, 87
FIELDS = {
    "base offset": (0, ">q"),
    "length": (8, ">i"),
    "magic": (16, ">b"),
    "attributes": (21, ">h"),
    "delta": (23, ">i"),
    "base time": (27, ">q"),
    "max time": (35, ">q"),
    "count": (57, ">i"),
}
HOUR_MS = 3_600_000


def changed(records, *, sound=True, **fields):
    """A batch with other numbers in its header; `sound`: its checksum fits."""
    for name, number in fields.items():
        place, layout = FIELDS[name.replace("_", " ")]
        struct.pack_into(layout, records, place, number)
    if sound:
        renew_crc(records, 0, len(records))
    return records


def sent(sequence, count=3, *, producer=4711, epoch=0):
    return batch(count, producer_id=producer, producer_epoch=epoch, base_sequence=sequence)


def test_a_bad_checksum(refused):
    refused("plain", changed(batch(), sound=False, count=2), CORRUPT_MESSAGE)


@pytest.mark.parametrize(
    ("magic", "code"),
    [(0, INVALID_RECORD), (1, INVALID_RECORD), (3, CORRUPT_MESSAGE), (-1, CORRUPT_MESSAGE)],
)
def test_a_wrong_magic(refused, magic, code):
    refused("plain", changed(batch(), sound=False, magic=magic), code)


@pytest.mark.parametrize(
    "fields",
    [
        {"count": 4},
        {"count": 2},
        {"count": 0},
        {"count": -1},
        {"count": (1 << 31) - 1},
        {"delta": -1},
    ],
    ids=str,
)
@pytest.mark.parametrize("topic", ["plain", "compacted", "repacked"])
def test_counts_that_disagree(refused, topic, fields):
    refused(topic, changed(batch(3), **fields), INVALID_RECORD)


def test_a_count_that_the_records_do_not_bear_out(refused):
    refused("compacted", changed(batch(3), count=7, delta=6), INVALID_RECORD)


@pytest.mark.parametrize("count", [7, (1 << 31) - 1])
def test_more_records_than_bytes(refused, count):
    refused("plain", changed(batch(), count=count, delta=count - 1), INVALID_RECORD)


def test_a_batch_cut_short(refused):
    refused("plain", batch(3)[:-1], INVALID_RECORD)


@pytest.mark.parametrize("length", [-1, 0, 10, (1 << 31) - 1])
def test_a_batch_that_lies_about_its_length(refused, length):
    code = INVALID_RECORD if length > 48 else CORRUPT_MESSAGE
    refused("plain", changed(batch(), sound=False, length=length), code)


def test_no_records(refused):
    refused("plain", None, INVALID_RECORD)
    refused("plain", b"", INVALID_RECORD)


def test_two_batches_for_a_partition(refused):
    refused("plain", batch() + batch(), INVALID_RECORD)


def test_a_batch_over_the_limit(refused):
    refused("plain", batch(value=bytes(1_100_000)), TOO_LARGE)


def test_a_batch_larger_than_a_segment(refused):
    refused("short", batch(value=bytes(2 << 20)), LIST_TOO_LARGE)


def test_a_null_key_on_a_compacted_topic(refused):
    refused("compacted", batch(key=None), INVALID_RECORD)


@pytest.mark.parametrize("at_ms", [1 << 60, (1 << 61) + 1, 1 << 62, (1 << 63) - 1])
def test_a_timestamp_far_ahead(refused, at_ms):
    refused("plain", batch(at_ms=at_ms), BAD_TIMESTAMP)
    refused("plain", batch(at_ms=int(time.time() * 1000) + 2 * HOUR_MS), BAD_TIMESTAMP)


def test_a_negative_timestamp(refused):
    """Unless a topic bounds what is too old, only what no clock can say is refused, as in Kafka."""
    for at_ms in (-(1 << 63), -(1 << 63) + 1):
        refused("plain", changed(batch(), base_time=at_ms, max_time=at_ms), BAD_TIMESTAMP)
    for at_ms in (-2, int(time.time() * 1000) - 2 * HOUR_MS):
        refused("ranged", changed(batch(), base_time=at_ms, max_time=at_ms), BAD_TIMESTAMP)


def test_an_unknown_codec(refused):
    refused("plain", changed(batch(), attributes=5), UNKNOWN_CODEC)


def test_a_control_batch_of_a_client(refused):
    refused("plain", changed(batch(), attributes=0x20), INVALID_RECORD)


def test_a_base_offset_that_is_not_0(refused):
    refused("plain", changed(batch(), base_offset=5), INVALID_RECORD)


def test_acks_that_nobody_knows(refused):
    refused("plain", batch(), BAD_ACKS, acks=7)


def test_an_error_without_an_answer_closes_the_connection(node, client):
    assert client.send(framed(produce("no-such", batch(), acks=0), 9)).ended()
    node.says("a produce request without acknowledgements failed: no-such-0 UNKNOWN_TOPIC")


def test_an_internal_topic(refused):
    refused("__consumer_offsets", batch(), INVALID_TOPIC)


def test_an_unknown_partition(node, client):
    assert code_of(client, "plain", batch(), index=1) == UNKNOWN_TOPIC
    assert code_of(client, "plain", batch(), index=-1) == UNKNOWN_TOPIC


@pytest.mark.slow
def test_a_gap_in_sequence_numbers(node, refused):
    """What fills it may be on its way; it is told when that was waited for."""
    gaps = [sent(5), sent(5, producer=4714, epoch=1)]
    with Raw(node) as other:
        for producer in (4711, 4714):
            assert code_of(other, "plain", sent(0, producer=producer)) == 0
    refused("plain", sent(1), OUT_OF_ORDER)
    for gap in gaps:
        refused("plain", gap, NOT_LEADER)
    time.sleep(GAP_MS / 1000)
    for gap in gaps:
        refused("plain", gap, OUT_OF_ORDER)


def test_a_producer_of_an_older_epoch(node, refused):
    with Raw(node) as other:
        assert code_of(other, "plain", sent(0, producer=4712, epoch=3)) == 0
    refused("plain", sent(3, producer=4712, epoch=2), BAD_EPOCH)


def test_a_producer_id_without_a_sequence(refused):
    refused("plain", sent(-1, producer=4713), INVALID_RECORD)
