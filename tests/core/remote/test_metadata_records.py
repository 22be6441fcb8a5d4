"""Records of `__remote_log_metadata`, compared with what Kafka 4.1's own classes have written."""

from __future__ import annotations

import pytest
from tests.core.remote.remote_kit import KEY, remote

from anabranch.client.partitioner import partition_for
from anabranch.core.diskless.rows import LogKey
from anabranch.core.remote.metadata_records import (
    BATCH_RECORDS,
    PARTITIONS,
    metadata_batches,
    metadata_values,
    partition_hash,
)
from anabranch.core.remote.segments import SegmentState
from anabranch.core.types import TopicId
from anabranch.core.wire.batch import crc_is_valid, walk
from anabranch.core.wire.records import decode_records

WHOSE = "06637265656b000102030405060708090a0b0c0d0e0f0000000500" + "00" * 15 + "0700"
"""The topic's name, the partition's id and number, and the segment's id."""
BODY = "0000000000000005000000000000001300000001"
EPOCHS = "030000000200000000000000050000000004000000000000000b000000000f"
SEGMENT = remote(5, 20, (2, 5), (4, 11), number=7, newest_ms=1700000000123)
KAFKAS = {
    "finished": (
        SEGMENT._replace(event_ms=1700000000999, custom_metadata=b"\1\2\3"),
        f"010000{WHOSE}{BODY}0000018bcfe5687b0000018bcfe56be7{EPOCHS}000001000101",
        f"010100{WHOSE}000000010000018bcfe56be7040102030100",
    ),
    "removed": (
        SEGMENT._replace(
            max_timestamp=-1,
            has_aborted=True,
            state=SegmentState.DELETE_SEGMENT_STARTED,
            event_ms=7,
        ),
        f"010000{WHOSE}{BODY}ffffffffffffffff0000000000000007{EPOCHS}000000",
        f"010100{WHOSE}000000010000000000000007000200",
    ),
}


def shown(values):
    """In Kafka's order of bytes: the record type's id and version come first."""
    return [each.hex() for each in values]


@pytest.mark.parametrize("case", KAFKAS)
def test_a_segment_is_told_as_kafka_does(case):
    segment, *expected = KAFKAS[case]
    assert shown(metadata_values("creek", segment)) == expected


def test_a_copy_under_way_has_one_record():
    begun = SEGMENT._replace(state=SegmentState.COPY_SEGMENT_STARTED)
    assert len(list(metadata_values("creek", begun))) == 1


@pytest.mark.parametrize(("partition", "expected"), list(enumerate((45, 3, 5, 36))))
def test_the_partition_is_kafkas(partition, expected):
    assert partition_for(partition_hash(LogKey(KEY.topic_id, partition)), PARTITIONS) == expected


@pytest.mark.parametrize(
    ("upper", "expected"), [(0xFFEEDDCCBBAA9988, 23), (2**64 - 1, 41), (1 << 40, 17)]
)
def test_the_partition_is_kafkas_for_ids_that_java_takes_for_negative(upper, expected):
    topic_id = TopicId(upper.to_bytes(8) + 0x8000000012345678.to_bytes(8))
    assert partition_for(partition_hash(LogKey(topic_id, 3)), PARTITIONS) == expected


@pytest.mark.parametrize("count", [0, 1, BATCH_RECORDS, 2 * BATCH_RECORDS + 1])
def test_batches_hold_all_values_in_order(count):
    values = [b"%d" % each for each in range(count)]
    found = []
    encoded = b"".join(metadata_batches(values, 1700000000000))
    for position, header in walk(encoded):
        assert crc_is_valid(encoded, position, header.size_bytes)
        found += [(each.offset, bytes(each.value)) for each in decode_records(encoded, position)]
    assert found == list(enumerate(values))
