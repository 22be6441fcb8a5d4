"""Columns to record batches: both encoders write the same bytes, and others can read them."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.partitioner.default import murmur2 as kafka_python_murmur2
from kafka.record.default_records import DefaultRecordBatch

from anabranch.client.partitioner import murmur2
from anabranch.core.wire.batch import BATCH_OVERHEAD, crc_is_valid, patch_producer, read_header
from anabranch.core.wire.compression import Codec
from anabranch.core.wire.records import decode_records
from anabranch.pipelines.arrow_columns import absent, column_of, headers_of
from anabranch.pipelines.encoder import Rows, RowTooLarge, encoder, finish

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
NOW_MS = 1_700_000_000_123

value = st.none() | st.binary(max_size=200) | st.integers(0, 40_000).map(lambda size: b"v" * size)
header = st.fixed_dictionaries(
    {"key": st.text(max_size=5), "value": st.none() | st.binary(max_size=9)}
)
rows = st.lists(
    st.tuples(
        st.none() | st.binary(max_size=70), value, st.none() | st.lists(header, max_size=3),
        st.integers(0, 3),
    ),
    min_size=1, max_size=40,
)  # fmt: skip


def encode(which, keys, values, headers, lanes, *, limit=10_000, longest=1 << 20):
    lanes = np.array(lanes, np.int64)
    order = np.argsort(lanes, kind="stable")
    return encoder(compiled=which == "compiled").encode(
        Rows(keys, values, headers), order, lanes, limit_bytes=limit, longest_bytes=longest
    )


@settings(deadline=None, max_examples=60)
@given(
    rows, st.sampled_from([pa.binary(), pa.large_binary()]), st.integers(0, 20_000), st.booleans()
)
def test_both_encoders_write_the_same_bytes_and_the_rows_come_back(table, kind, limit, sliced):
    skipped = len(table) // 3 if sliced else 0
    keys, values, headers = (
        array.slice(skipped)
        for array in (
            pa.array([row[0] for row in table], kind), pa.array([row[1] for row in table], kind),
            pa.array([row[2] for row in table], HEADERS),
        )
    )  # fmt: skip
    table = table[skipped:]
    columns = column_of(keys), column_of(values), headers_of(headers)
    lanes = [row[3] for row in table]
    compiled, plain = (
        [
            (bytes(each.batch[BATCH_OVERHEAD:]), each.records, each.lane)
            for each in encode(which, *columns, lanes, limit=limit)
        ]
        for which in ("compiled", "plain")
    )
    assert compiled == plain
    expected = {}
    for key, held, heads, lane in table:
        told = tuple((each["key"], each["value"]) for each in heads or ())
        expected.setdefault(lane, []).append((key, held, told))
    found = {}
    for each in encode("compiled", *columns, lanes, limit=limit):
        batch = finish(each, Codec.NONE, None, NOW_MS)
        assert len(batch) <= limit or each.records == 1
        records = decode_records(batch)
        assert [record.offset for record in records] == list(range(each.records))
        found.setdefault(each.lane, []).extend((r.key, r.value, r.headers) for r in records)
    assert found == expected


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("which", ["compiled", "plain"])
def test_batches_of_every_codec_are_read_by_this_project_and_by_kafka_python(codec, which):
    values = [b"%d" % each * 50 for each in range(300)]
    columns = column_of(pa.array([f"k{each}" for each in range(300)])), column_of(pa.array(values))
    heads = headers_of(pa.array([[{"key": "h", "value": b"1"}]] * 300, HEADERS))
    (plain,) = encode(which, *columns, heads, [0] * 300, limit=1 << 20)
    batch = finish(plain, codec, None, NOW_MS)
    patch_producer(batch, 0, len(batch), producer_id=5, producer_epoch=2, base_sequence=7)
    header = read_header(batch)
    assert crc_is_valid(batch, 0, len(batch)) and header.size_bytes == len(batch)
    assert (header.base_offset, header.last_offset_delta, header.record_count) == (0, 299, 300)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (5, 2, 7)
    assert (header.base_timestamp, header.max_timestamp) == (NOW_MS, NOW_MS)
    assert header.codec == codec
    for read in (decode_records(batch), list(DefaultRecordBatch(bytes(batch)))):
        assert [each.value for each in read] == values
        assert [each.key for each in read] == [b"k%d" % each for each in range(300)]
        assert {each.timestamp for each in read} == {NOW_MS}
        assert {tuple(each.headers) for each in read} == {(("h", b"1"),)}


@pytest.mark.parametrize("which", ["compiled", "plain"])
def test_a_row_that_is_too_large_is_told_with_its_index_and_exact_size(which):
    values = column_of(pa.array([b"a", b"b" * 1000, b"c"]))
    with pytest.raises(RowTooLarge) as told:
        encode(which, absent(3), values, None, [1, 0, 1], longest=1000)
    assert told.value.row == 1
    (alone,) = encode(which, absent(1), column_of(pa.array([b"b" * 1000])), None, [0])
    assert told.value.size_bytes == len(finish(alone, Codec.NONE, None, 0))
    assert encode(which, absent(3), values, None, [1, 0, 1], longest=told.value.size_bytes)


@settings(deadline=None, max_examples=60)
@given(st.lists(st.none() | st.binary(max_size=70), max_size=30))
def test_keys_have_the_hash_of_java_producers(keys):
    column = column_of(pa.array(keys, pa.binary()))
    there = [at for at, key in enumerate(keys) if key is not None]
    for which in (True, False):
        hashes = encoder(compiled=which).hashes(column)
        assert [hashes[at] for at in there] == [murmur2(keys[at]) & 0x7FFFFFFF for at in there]
        assert [hashes[at] for at in there] == [
            kafka_python_murmur2(keys[at]) & 0x7FFFFFFF for at in there
        ]


def test_every_kind_of_string_is_a_column():
    for kind in (pa.string(), pa.large_string(), pa.binary(), pa.large_binary()):
        array = pa.array(["a", None, "ccc", ""], pa.string()).cast(kind)
        column = column_of(array.slice(1))
        assert column.sizes.tolist() == [0, 3, 0]
        assert column.null.tolist() == [True, False, False]
        assert not column.plain.flags.writeable and not column.at.flags.writeable
    assert column_of(pa.array([], pa.string())).sizes.tolist() == []


def test_a_numba_that_cannot_be_imported_is_done_without(tmp_path):
    """As one that is older than the numpy beside it."""
    (tmp_path / "numba.py").write_text("raise ImportError('Numba needs NumPy 1.9 or less')")
    code = (
        "from anabranch.pipelines.assembler import numba_is_here\n"
        "from anabranch.pipelines.encoder import encoder\n"
        "print(numba_is_here(), type(encoder()).__name__)"
    )
    path = os.pathsep.join([str(tmp_path), *sys.path])
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True,
        env={**os.environ, "PYTHONPATH": path},
    )  # fmt: skip
    assert done.stdout.split() == ["False", "PlainEncoder"]
