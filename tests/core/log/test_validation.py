"""What a leader refuses and rewrites."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.core.log.support import END, NOW_MS, append, batch, marker, new_log, read_batches

from anabranch.core.errors import ApiError, ErrorCode
from anabranch.core.log.indexes import INT32_MAX
from anabranch.core.log.validation import PLAIN_RATIO
from anabranch.core.wire.batch import BATCH_OVERHEAD, read_header, renew_crc
from anabranch.core.wire.compression import Codec
from anabranch.core.wire.records import (
    SMALLEST_RECORD_BYTES,
    Record,
    build_batch,
    decode_records,
)


def changed(at: int, form: str, value: int) -> bytearray:
    records = batch()
    struct.pack_into(form, records, at, value)
    renew_crc(records, 0, len(records))
    return records


def alike(count: int, codec: Codec, value: bytes = b"") -> bytearray:
    return build_batch([Record(at, NOW_MS, None, value) for at in range(count)], codec=codec)


@pytest.mark.parametrize(
    ("records", "code"),
    [
        (changed(0, ">q", 5), ErrorCode.INVALID_RECORD),
        (changed(16, ">b", 1), ErrorCode.INVALID_RECORD),
        (changed(23, ">i", 7), ErrorCode.INVALID_RECORD),
        (changed(57, ">i", 0), ErrorCode.INVALID_RECORD),
        (changed(43, ">q", 9), ErrorCode.INVALID_RECORD),
        (marker(1, committed=True), ErrorCode.INVALID_RECORD),
        (batch()[:-1], ErrorCode.CORRUPT_MESSAGE),
        (batch()[:30], ErrorCode.CORRUPT_MESSAGE),
        (batch()[:-1] + b"!", ErrorCode.CORRUPT_MESSAGE),
        (batch(1, 5000), ErrorCode.MESSAGE_TOO_LARGE),
        (batch(timestamp=NOW_MS + 3_700_000), ErrorCode.INVALID_TIMESTAMP),
        (batch(timestamp=NOW_MS - 2000), ErrorCode.INVALID_TIMESTAMP),
    ],
)
def test_a_bad_batch_is_refused_and_nothing_is_written(records: bytes, code: ErrorCode) -> None:
    log = new_log(max_message_bytes=4000, message_timestamp_before_max_ms=1000)
    with pytest.raises(ApiError) as refusal:
        append(log, bytearray(records))
    assert refusal.value.code == code
    assert (log.end_offset, log.size_bytes) == (0, 0)


@settings(max_examples=200, deadline=None)
@given(
    st.integers(1, 300), st.integers(1, INT32_MAX), st.integers(0, 60), st.sampled_from(list(Codec))
)
def test_a_batch_takes_no_more_offsets_than_its_bytes_may_hold_records(
    count: int, claimed: int, size: int, codec: Codec
) -> None:
    """Whatever a header claims: the log's end moves by what consumers can read, or nearly so."""
    records = alike(count, codec, bytes(size))
    log = new_log()
    append(log, bytearray(records))
    assert log.end_offset == count
    struct.pack_into(">i", records, 23, claimed - 1)
    struct.pack_into(">i", records, 57, claimed)
    renew_crc(records, 0, len(records))
    if claimed == count:
        return
    ratio = 1 if codec is Codec.NONE else PLAIN_RATIO
    is_beyond = claimed * SMALLEST_RECORD_BYTES > ratio * (len(records) - BATCH_OVERHEAD)
    if not is_beyond:
        append(log, bytearray(records))
        return
    with pytest.raises(ApiError) as refusal:
        append(log, bytearray(records))
    assert refusal.value.code in (ErrorCode.INVALID_RECORD, ErrorCode.MESSAGE_TOO_LARGE)
    assert log.end_offset == count


@pytest.mark.parametrize("codec", list(Codec))
def test_records_that_compress_well_are_taken(codec: Codec) -> None:
    """More than any bound for what is looked at closely."""
    log = new_log()
    append(log, alike(20_000, codec))
    assert log.end_offset == 20_000


def test_a_batch_larger_than_a_segment_is_refused() -> None:
    with pytest.raises(ApiError) as refusal:
        append(new_log(segment_bytes=500), batch(3, 400))
    assert refusal.value.code == ErrorCode.RECORD_LIST_TOO_LARGE


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=300), st.booleans())
def test_no_bytes_make_append_raise_anything_but_an_api_error(noise: bytes, framed: bool) -> None:
    records = bytearray(noise)
    if framed and len(records) >= 61:
        struct.pack_into(">qiib", records, 0, 0, len(records) - 12, 0, 2)
        renew_crc(records, 0, len(records))
    log = new_log()
    for way in (lambda: append(log, records), lambda: log.append_as_follower(records, now_ms=0)):
        try:
            way()
        except ApiError:
            assert log.fault is None


def test_log_append_time_rewrites_header_and_checksum() -> None:
    log = new_log(message_timestamp_type="LogAppendTime", message_timestamp_after_max_ms=0)
    result = log.append_as_leader(batch(timestamp=5), leader_epoch=0, now_ms=NOW_MS)
    assert result.log_append_time_ms == NOW_MS
    (held,) = read_batches(log)
    assert read_header(held).log_append_time
    assert [record.timestamp for record in decode_records(held)] == [NOW_MS] * 3
    assert log.offset_for_timestamp(NOW_MS, upto=END) == (NOW_MS, 0, 0)


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("name", ["uncompressed", "gzip", "snappy", "lz4", "zstd"])
def test_a_topics_own_codec_is_applied(codec: Codec, name: str) -> None:
    log = new_log(compression_type=name)
    append(log, batch(codec=codec, producer_id=4, producer_epoch=1, base_sequence=0))
    (held,) = read_batches(log)
    header = read_header(held)
    assert Codec(header.codec) is (Codec.NONE if name == "uncompressed" else Codec[name.upper()])
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (4, 1, 0)
    assert decode_records(held) == decode_records(batch())


def test_a_compacted_topic_needs_keys() -> None:
    log = new_log(cleanup_policy=("compact",))
    append(log, batch())
    with pytest.raises(ApiError) as refusal:
        append(log, build_batch([Record(0, NOW_MS, None, b"value", ())]))
    assert refusal.value.code == ErrorCode.INVALID_RECORD
