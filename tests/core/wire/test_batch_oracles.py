"""Batches of builders that nobody here wrote, in every codec, both ways: kafka-python and aiokafka.

librdkafka's batches are checked where it is a client (tests/server), as it has no builder to call.
"""

from __future__ import annotations

import pytest
from aiokafka.record.default_records import DefaultRecordBatch as AioBatch
from aiokafka.record.default_records import DefaultRecordBatchBuilder as AioBuilder
from kafka.record.default_records import DefaultRecordBatch as PythonBatch
from kafka.record.default_records import DefaultRecordBatchBuilder as PythonBuilder

from anabranch.core.wire.batch import crc_is_valid, read_header
from anabranch.core.wire.compression import Codec, compress, decompress
from anabranch.core.wire.records import Record, build_batch, decode_records

ORACLES = [
    pytest.param(PythonBuilder, PythonBatch, id="kafka-python"),
    pytest.param(AioBuilder, AioBatch, id="aiokafka"),
]
CODECS = [
    Codec.NONE,
    Codec.GZIP,
    Codec.LZ4,
    Codec.SNAPPY,
    Codec.ZSTD,
]
RECORDS = [
    Record(
        index,
        1_700_000_000_000 + index * 37,
        None if index % 5 == 0 else b"key-%d" % index,
        None if index % 7 == 0 else b"value " * (index % 300),
        (("trace", b"\x00\xff"), ("nothing", None)) if index % 3 == 0 else (),
    )
    for index in range(700)
]


def build_with(builder_class: type, codec: Codec) -> bytes:
    builder = builder_class(
        magic=2, compression_type=int(codec), is_transactional=False, producer_id=77,
        producer_epoch=3, base_sequence=12, batch_size=10_000_000,
    )  # fmt: skip
    for record in RECORDS:
        taken = builder.append(
            record.offset, record.timestamp, record.key, record.value, list(record.headers)
        )
        assert taken is not None
    return bytes(builder.build())


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize(("builder", "_batch"), ORACLES)
def test_their_batches_are_read_here(builder: type, _batch: type, codec: Codec) -> None:
    theirs = build_with(builder, codec)
    header = read_header(theirs)
    assert crc_is_valid(theirs, 0, len(theirs))
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (77, 3, 12)
    assert (header.codec, header.record_count) == (codec, len(RECORDS))
    assert decode_records(theirs) == RECORDS


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize(("_builder", "batch"), ORACLES)
def test_our_batches_are_read_there(_builder: type, batch: type, codec: Codec) -> None:
    ours = build_batch(RECORDS, codec=codec, producer_id=77, producer_epoch=3, base_sequence=12)
    read = batch(bytes(ours))
    assert read.validate_crc()
    seen = [
        Record(each.offset, each.timestamp, each.key, each.value, tuple(each.headers))
        for each in read
    ]
    assert seen == RECORDS


def test_an_uncompressed_batch_is_theirs_byte_for_byte() -> None:
    ours = build_batch(RECORDS, producer_id=77, producer_epoch=3, base_sequence=12)
    theirs = bytearray(build_with(PythonBuilder, Codec.NONE))
    theirs[12:16] = (-1).to_bytes(4, "big", signed=True)  # the epoch is the leader's to write
    assert bytes(ours) == bytes(theirs)


def test_raw_snappy_is_read_besides_the_framed_one() -> None:
    import cramjam

    plain = b"anabranch " * 5000
    raw = bytes(cramjam.snappy.compress_raw(plain))
    assert bytes(decompress(Codec.SNAPPY, raw, limit_bytes=1 << 20)) == plain
    framed = bytes(compress(Codec.SNAPPY, plain))
    assert framed[:8] == b"\x82SNAPPY\x00"
    assert bytes(decompress(Codec.SNAPPY, framed, limit_bytes=1 << 20)) == plain


def test_lz4_blocks_are_independent_also_in_large_frames() -> None:
    frame = bytes(compress(Codec.LZ4, bytes(1 << 20)))
    assert frame[4] & 0x20, "the flag of block independence (KIP-57)"


def test_zstd_without_a_content_size_and_of_several_frames_is_read() -> None:
    import cramjam

    streamed = cramjam.zstd.Compressor()
    streamed.compress(b"first ")
    one = bytes(streamed.finish())
    two = bytes(cramjam.zstd.compress(b"second"))
    assert bytes(decompress(Codec.ZSTD, one + two, limit_bytes=1 << 20)) == b"first second"
