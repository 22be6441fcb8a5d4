"""Record batches: header, patching, checksum, records in every codec, hostile bytes."""

from __future__ import annotations

import os
import time
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.core.errors import ProtocolError
from anabranch.core.wire.batch import (
    BATCH_OVERHEAD,
    crc_is_valid,
    patch,
    patch_log_append_time,
    patch_producer,
    read_header,
    walk,
)
from anabranch.core.wire.compression import Codec, compress, decompress
from anabranch.core.wire.control import build_end_marker, build_leader_change, end_marker
from anabranch.core.wire.crc import crc32c
from anabranch.core.wire.records import Record, build_batch, decode_records

TEXT = st.none() | st.binary(max_size=40)
HEADERS = st.lists(st.tuples(st.text(max_size=8), TEXT), max_size=3).map(tuple)
BODIES = st.lists(st.tuples(st.integers(0, 2**45), TEXT, TEXT, HEADERS), min_size=1, max_size=30)


def records_of(bodies: list[tuple[int, bytes | None, bytes | None, tuple]], first: int = 0) -> list:
    return [Record(first + index, *body) for index, body in enumerate(bodies)]


@pytest.mark.parametrize("codec", Codec)
@given(bodies=BODIES, first=st.integers(0, 2**60))
@settings(max_examples=60, deadline=None)
def test_what_is_built_is_read_back(codec: Codec, bodies: list, first: int) -> None:
    records = records_of(bodies, first)
    batch = build_batch(
        records, base_offset=first, leader_epoch=7, codec=codec, producer_id=5, producer_epoch=2,
        base_sequence=2**31 - 1,
    )  # fmt: skip
    header = read_header(batch)
    assert crc_is_valid(batch, 0, len(batch))
    assert (header.size_bytes, header.codec, header.leader_epoch) == (len(batch), codec, 7)
    assert header.next_offset == first + len(records)
    assert header.last_sequence == (2**31 - 1 + len(records) - 1) % 2**31
    assert decode_records(batch) == records


@pytest.mark.parametrize("key", [None, b"", b"k" * 300])
@pytest.mark.parametrize("size", [0, 1, 63, 64, 707, 708, 709, 1_007, 1_008, 1_009, 70_000])
@pytest.mark.parametrize("later", [0, 1_023, 1_024])
def test_records_far_into_a_batch_are_read_back(key: bytes | None, size: int, later: int) -> None:
    """A batch of metadata has a record for each of thousands of partitions."""
    distances = [0, 63, 64, 1_023, 1_024, 8_191, 8_192, 2**20, 2**27, 2**31 - 1]
    records = [Record(7 + each, 5 + later * (each > 0), key, b"v" * size, ()) for each in distances]
    assert decode_records(build_batch(records, base_offset=7)) == records


def test_a_header_name_that_is_no_utf_8_is_read_as_kafka_s_clients_read_it() -> None:
    """librdkafka sends such names, and brokers take them."""
    batch = build_batch([Record(0, 1, None, b"v", (("name", b"h"),))])
    at = batch.index(b"name")
    batch[at : at + 2] = b"\xff\xc3"
    assert decode_records(batch) == [Record(0, 1, None, b"v", (("\ufffd\ufffdme", b"h"),))]


def test_checksum_is_crc32c() -> None:
    # The check value that the CRC catalogue gives for CRC-32/ISCSI.
    assert crc32c(b"123456789") == 0xE3069283
    assert crc32c(b"6789", crc32c(b"12345")) == 0xE3069283


def test_a_leader_patches_offset_and_epoch_outside_of_the_checksum() -> None:
    batch = build_batch([Record(0, 1, b"k", b"v"), Record(1, 2, b"k", b"v")])
    patch(batch, 0, 10**12, 9)
    header = read_header(batch)
    assert (header.base_offset, header.last_offset, header.leader_epoch) == (10**12, 10**12 + 1, 9)
    assert header.size_bytes == len(batch)
    assert crc_is_valid(batch, 0, len(batch))


def test_a_producer_patches_who_wrote_the_batch_and_the_rest_stays() -> None:
    for is_transactional in (True, False):
        batch = build_batch(
            [Record(0, 1, b"k", b"v")], codec=Codec.GZIP, transactional=not is_transactional
        )
        records = bytes(batch[BATCH_OVERHEAD:])
        patch_producer(
            batch, 0, len(batch), producer_id=9, producer_epoch=3, base_sequence=5,
            is_transactional=is_transactional,
        )  # fmt: skip
        header = read_header(batch)
        assert (header.producer_id, header.producer_epoch) == (9, 3)
        assert (header.base_sequence, header.codec) == (5, Codec.GZIP)
        assert header.is_transactional == is_transactional
        assert crc_is_valid(batch, 0, len(batch))
        assert bytes(batch[BATCH_OVERHEAD:]) == records


def test_log_append_time_renews_the_checksum_and_gives_every_record_the_time() -> None:
    batch = build_batch([Record(0, 100, None, b"a"), Record(1, 200, None, b"b")])
    patch_log_append_time(batch, 0, len(batch), 5_000)
    assert crc_is_valid(batch, 0, len(batch))
    assert read_header(batch).log_append_time
    assert [record.timestamp for record in decode_records(batch)] == [5_000, 5_000]


def test_walk_leaves_a_partial_batch_out() -> None:
    one = build_batch([Record(0, 1, b"k", b"v")])
    two = build_batch([Record(1, 1, b"k", b"v")], base_offset=1)
    whole = bytes(one + two)
    for cut in range(len(one), len(whole)):
        assert [at for at, _ in walk(whole[:cut])] == [0]
    assert [at for at, _ in walk(whole)] == [0, len(one)]


def test_a_flipped_bit_anywhere_under_the_checksum_is_seen() -> None:
    batch = bytes(build_batch([Record(0, 1, b"key", b"value")]))
    for position in range(21, len(batch)):
        broken = bytearray(batch)
        broken[position] ^= 0x10
        assert not crc_is_valid(broken, 0, len(broken))


def test_control_batches_say_what_they_mark() -> None:
    commit = build_end_marker(
        committed=True,
        producer_id=9,
        producer_epoch=1,
        coordinator_epoch=4,
        now_ms=1,
        base_offset=5,
    )
    marker = end_marker(commit)
    assert marker is not None
    assert (marker.committed, marker.coordinator_epoch) == (True, 4)
    assert read_header(commit).is_control
    assert read_header(commit).is_transactional
    assert (
        end_marker(build_leader_change(base_offset=0, leader_epoch=1, leader_id=1, now_ms=1))
        is None
    )


@pytest.mark.parametrize("codec", [codec for codec in Codec if codec])
def test_a_bomb_is_stopped_at_the_limit(codec: Codec) -> None:
    bomb = bytes(compress(codec, bytes(64 << 20)))
    limit = 1 << 20
    tracemalloc.start()
    with pytest.raises(ProtocolError, match="more than 1048576 bytes"):
        decompress(codec, bomb, limit_bytes=limit)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 4 * limit + 4 * len(bomb)


@pytest.mark.parametrize("codec", [codec for codec in Codec if codec])
def test_the_limit_itself_is_allowed(codec: Codec) -> None:
    plain = os.urandom(1000) * 50
    packed = compress(codec, plain)
    assert bytes(decompress(codec, packed, limit_bytes=len(plain))) == plain
    with pytest.raises(ProtocolError):
        decompress(codec, packed, limit_bytes=len(plain) - 1)


@pytest.mark.parametrize("codec", Codec)
@given(damage=st.lists(st.tuples(st.floats(0, 1), st.integers(1, 255)), min_size=1, max_size=4))
@settings(max_examples=80, deadline=None)
def test_damaged_batches_raise_nothing_but_a_protocol_error(codec: Codec, damage: list) -> None:
    records = [Record(index, index, b"k" * index, b"v" * 9, (("h", b"x"),)) for index in range(20)]
    batch = build_batch(records, codec=codec)
    for place, mask in damage:
        batch[min(int(place * len(batch)), len(batch) - 1)] ^= mask
    try:
        decode_records(batch, limit_bytes=1 << 20)
    except ProtocolError:
        return


@given(st.binary(max_size=300))
@settings(max_examples=200, deadline=None)
def test_random_bytes_raise_nothing_but_a_protocol_error(noise: bytes) -> None:
    head = bytes(build_batch([Record(0, 1, None, b"v")]))[:BATCH_OVERHEAD]
    for hostile in (noise, head[:8] + (49 + len(noise)).to_bytes(4, "big") + head[12:] + noise):
        try:
            list(walk(hostile))
            decode_records(hostile, limit_bytes=1 << 16)
        except ProtocolError:
            continue


def test_a_header_that_is_cut_off_says_so() -> None:
    with pytest.raises(ProtocolError, match="a header has 61"):
        read_header(bytes(60))
    with pytest.raises(ProtocolError, match="smaller than a header"):
        read_header(bytes(61))


def varint(number: int) -> bytes:
    number = number << 1 if number >= 0 else ~(number << 1)
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes((*out, number))


def batch_of_one(timestamp_delta: int, base_timestamp: int = 0) -> bytearray:
    body = b"\0" + varint(timestamp_delta) + b"\0\1\1\0"
    batch = build_batch([Record(0, base_timestamp, None, None)])
    batch[61:] = varint(len(body)) + body
    batch[8:12] = (len(batch) - 12).to_bytes(4, "big")
    return batch


@pytest.mark.parametrize("delta", [1 << 66, -(1 << 66), (1 << 63) - 1, -(1 << 63)])
@pytest.mark.parametrize("base", [1_700_000_000_000, (1 << 63) - 1, -(1 << 63)])
def test_a_sum_of_times_wraps_as_kafkas_does(base: int, delta: int) -> None:
    """Kafka takes any of them; answers and rebuilt batches have 64 bits for a time."""
    [record] = decode_records(batch_of_one(delta, base))
    assert -(1 << 63) <= record.timestamp < 1 << 63
    if -(1 << 63) <= delta < 1 << 63:  # of others a varint has no room for the upper bits
        assert (record.timestamp - base - delta) % (1 << 64) == 0


@pytest.mark.parametrize("delta", [0, 63, -64, 10**12, -(10**12)])
def test_ordinary_times_are_read(delta: int) -> None:
    [record] = decode_records(batch_of_one(delta, 10**12))
    assert record.timestamp == 10**12 + delta


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.LZ4])
def test_streams_of_empty_members_cost_no_more_than_their_bytes(codec: Codec) -> None:
    """Each member must not copy all that follows: 4 MB of them held a loop for seconds."""
    empty = bytes(compress(codec, b""))
    for count in (1, 3, 20_000):
        plain = decompress(codec, empty * count, limit_bytes=1000)
        assert bytes(plain) == b""
    tail = bytes(compress(codec, b"tail"))
    begin = time.process_time()
    assert bytes(decompress(codec, empty * 200_000 + tail, limit_bytes=128 << 20)) == b"tail"
    assert time.process_time() - begin < 3.0


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.LZ4])
@pytest.mark.parametrize("size", [0, 1, 1023, 1024, 1025, 70_000, 5_000_000])
def test_members_of_every_size_follow_one_another(codec: Codec, size: int) -> None:
    plain = (os.urandom(size // 2) + bytes(size))[:size]
    packed = bytes(compress(codec, plain))
    assert bytes(decompress(codec, packed, limit_bytes=size)) == plain
    assert bytes(decompress(codec, packed + packed, limit_bytes=2 * size)) == plain + plain
    with pytest.raises(ProtocolError):
        decompress(codec, packed[:-1], limit_bytes=2 * size)
    if size:
        with pytest.raises(ProtocolError):
            decompress(codec, packed, limit_bytes=size - 1)
