"""Record batches to rows: compiled and plain code give the same, and judge the same."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from anabranch.client.ranges import Part
from anabranch.core.errors import ProtocolError
from anabranch.core.wire.batch import read_header, renew_crc
from anabranch.core.wire.compression import Codec
from anabranch.core.wire.control import build_end_marker
from anabranch.core.wire.records import Record, build_batch
from anabranch.pipelines import assembler, columns
from anabranch.pipelines.assembler import Window
from anabranch.pipelines.decoder import CorruptBatch, RangeDecoder

EVERYTHING = Window(0, 1 << 62)
texts = st.binary(max_size=300) | st.none()
headers = st.lists(st.tuples(st.text(max_size=5), st.binary(max_size=5) | st.none()), max_size=3)


@st.composite
def batches(draw):
    """Some batches of one partition, one behind the other, with gaps as compaction leaves."""
    made, offset = [], draw(st.integers(0, 5))
    for _ in range(draw(st.integers(1, 4))):
        base, records = offset, []
        for _ in range(draw(st.integers(1, 8))):
            time_ms = draw(st.integers(-1, 1 << 45))
            records.append(Record(offset, time_ms, draw(texts), draw(texts), tuple(draw(headers))))
            offset += draw(st.integers(1, 200))
        append_time = draw(st.none() | st.integers(0, 1 << 41))
        codec = draw(st.sampled_from(Codec))
        made.append(
            build_batch(records, base_offset=base, codec=codec, log_append_time=append_time)
        )
    return made


def rows(made, *, compiled, window=EVERYTHING, headers=True, **more):
    """The rows that the batches give."""
    schema = columns.RECORDS_WITH_HEADERS if headers else columns.RECORDS
    decoding = RangeDecoder(
        topic="t", partition=3, window=window, schema=columns.arrow_schema(schema),
        compiled=compiled, **more,
    )  # fmt: skip
    part = Part(memoryview(b"".join(made)), 1 << 62, more.pop("aborted", ()))
    found = list(decoding.records([part]))
    for batch in found:
        batch.validate(full=True)
    return [row for batch in found for row in plainly(batch)], found, decoding


def plainly(batch):
    """Rows with times as numbers: Python's own do not reach as far."""
    at = batch.schema.get_field_index("timestamp")
    return batch.set_column(at, "timestamp", batch.column(at).view("int64")).to_pylist()


@given(batches(), st.integers(0, 300), st.integers(0, 1500))
@settings(max_examples=60)
def test_compiled_and_plain_code_give_the_same_rows(made, start, length):
    window = Window(start, start + length)
    compiled, plain = (rows(made, compiled=each, window=window)[0] for each in (True, False))
    assert compiled == plain
    assert all(start <= row["offset"] < start + length for row in plain)


@given(batches(), st.data())
@settings(max_examples=100)
def test_damaged_records_are_judged_alike(made, data):
    """The checksum is made to fit: what is inside has to be judged by itself."""
    damaged = made[0]
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(21, len(damaged) - 1))
        damaged[at] = data.draw(st.integers(0, 255))
    renew_crc(damaged, 0, len(damaged))
    verdicts = []
    for compiled in (True, False):
        try:
            verdicts.append(rows(made, compiled=compiled)[0])
        except CorruptBatch as fault:
            verdicts.append(str(fault))
    assert verdicts[0] == verdicts[1]


def of_plain(plain, count, last_delta=10):
    """A batch with these bytes as its records."""
    batch = build_batch([Record(0, 0, None, None)])[:61] + bytes(plain)
    batch[8:12] = (len(batch) - 12).to_bytes(4, "big")
    batch[23:27] = last_delta.to_bytes(4, "big")
    batch[57:61] = count.to_bytes(4, "big")
    renew_crc(batch, 0, len(batch))
    return batch


@given(st.binary(max_size=60), st.integers(0, 6))
@example(bytes([12, 0, 0, 0, 1, 1, 0]), 1)
@example(bytes([30, 0, 0, 0]) + b"\xff" * 9 + b"\x03" + bytes([1, 0]), 1)
@settings(max_examples=150)
def test_any_bytes_are_judged_alike(plain, count):
    verdicts = []
    for compiled in (True, False):
        try:
            verdicts.append(rows([of_plain(plain, count)], compiled=compiled)[0])
        except CorruptBatch as fault:
            verdicts.append(str(fault))
    assert verdicts[0] == verdicts[1]


@pytest.mark.parametrize("compiled", [True, False])
def test_arrow_batches_keep_to_their_budget(monkeypatch, compiled):
    monkeypatch.setattr(assembler, "BYTES", 1000)
    sizes = [10, 990, 1, 5000, 3, 997, 1, 1, 1]
    made = [build_batch([Record(each, 0, None, b"x" * size) for each, size in enumerate(sizes)])]
    every, found, _ = rows(made, compiled=compiled, headers=False)
    assert [len(row["value"]) for row in every] == sizes
    for batch in found:
        content = sum(len(row["value"]) for row in batch.to_pylist())
        assert content <= 1000 or batch.num_rows == 1


@pytest.mark.parametrize("compiled", [True, False])
def test_arrow_batches_keep_to_their_number_of_rows(monkeypatch, compiled):
    monkeypatch.setattr(assembler, "ROWS", 7)
    made = [
        build_batch([Record(base + each, 0, b"k", b"v") for each in range(5)], base_offset=base)
        for base in range(0, 50, 5)
    ]
    every, found, _ = rows(made, compiled=compiled, headers=False)
    assert [row["offset"] for row in every] == list(range(50))
    assert max(batch.num_rows for batch in found) == 7


def test_times_that_no_column_holds_become_the_last_that_it_does():
    far = 1 << 60
    made = [build_batch([Record(0, far, b"", b""), Record(1, far + 5, b"", b"")])]
    for compiled in (True, False):
        _, found, _ = rows(made, compiled=compiled)
        assert (
            found[0].column("timestamp").view("int64").to_pylist()
            == [assembler.FARTHEST_MS * 1000] * 2
        )


@pytest.mark.parametrize("far", [1 << 60, -(1 << 60), 1 << 62, (1 << 63) - 1, -(1 << 63)])
def test_the_time_of_a_batch_that_no_column_holds_becomes_the_last_that_it_does(far):
    decoding = RangeDecoder(
        topic="t", partition=3, window=EVERYTHING, schema=columns.arrow_schema(columns.BATCHES)
    )
    batch = build_batch([Record(0, far, b"", b"")])
    (found,) = decoding.batches([Part(memoryview(batch), 1, ())])
    (time_us,) = found.column("maxTimestamp").view("int64").to_pylist()
    assert time_us == (assembler.FARTHEST_MS if far > 0 else -assembler.FARTHEST_MS) * 1000


def transaction(base, producer, count=3):
    records = [Record(base + each, 0, b"k", b"v") for each in range(count)]
    return build_batch(
        records, base_offset=base, producer_id=producer, producer_epoch=0, base_sequence=0,
        transactional=True,
    )  # fmt: skip


def marker(base, producer, *, committed):
    return build_end_marker(
        committed=committed, base_offset=base, producer_id=producer, producer_epoch=0,
        coordinator_epoch=0, now_ms=0,
    )  # fmt: skip


def test_aborted_records_are_hidden_and_markers_never_shown():
    made = [
        transaction(0, 7), transaction(3, 8), marker(6, 7, committed=False), transaction(7, 7),
        marker(10, 8, committed=True), marker(11, 7, committed=True),
    ]  # fmt: skip
    part = Part(memoryview(b"".join(bytes(each) for each in made)), 12, ((7, 0),))

    def shown(read_committed, shape="records"):
        schema = columns.RECORDS if shape == "records" else columns.BATCHES
        decoding = RangeDecoder(
            topic="t", partition=0, window=EVERYTHING, schema=columns.arrow_schema(schema),
            read_committed=read_committed,
        )  # fmt: skip
        found = getattr(decoding, shape)([part])
        return [row for batch in found for row in batch.to_pylist()]

    assert [row["offset"] for row in shown(True)] == [3, 4, 5, 7, 8, 9]
    assert [row["offset"] for row in shown(False)] == [0, 1, 2, 3, 4, 5, 7, 8, 9]
    assert [row["baseOffset"] for row in shown(True, "batches")] == [3, 7]
    every = shown(False, "batches")
    assert [row["baseOffset"] for row in every] == [0, 3, 6, 7, 10, 11]
    assert b"".join(row["bytes"] for row in every) == bytes(part.records)
    assert (every[0]["producerId"], every[0]["producerEpoch"], every[0]["baseSequence"]) == (
        7,
        0,
        0,
    )


@pytest.mark.parametrize("compiled", [True, False])
def test_a_corrupt_batch_is_named_or_left_out_and_counted(compiled):
    made = [
        build_batch([Record(base + each, 0, None, b"v") for each in range(5)], base_offset=base)
        for base in (0, 5, 10)
    ]
    made[1][-3] ^= 1
    with pytest.raises(CorruptBatch, match=r"t-3: the batch of offsets 5 to 9 is corrupt.*fail"):
        rows(made, compiled=compiled)
    found, _, decoding = rows(made, compiled=compiled, fail_on_corruption=False)
    assert [row["offset"] for row in found] == [0, 1, 2, 3, 4, 10, 11, 12, 13, 14]
    assert decoding.summary() == "t-3: 1 corrupt batch left out: 5 to 9"


@given(batches(), st.lists(st.integers(0, 2000), max_size=4))
def test_windows_that_meet_share_record_batches_out(made, cuts):
    """However a range is cut, every batch is in exactly one piece."""
    edges = [0, *sorted(cuts), 5000]
    part = Part(memoryview(b"".join(bytes(each) for each in made)), 5000, ())
    found = []
    for start, until in pairwise(edges):
        decoding = RangeDecoder(
            topic="t", partition=0, window=Window(start, until),
            schema=columns.arrow_schema(columns.BATCHES), from_middle=start == 0,
        )  # fmt: skip
        found += [row["bytes"] for each in decoding.batches([part]) for row in each.to_pylist()]
    assert found == [bytes(each) for each in made]


def test_a_batch_that_begins_before_the_first_window_belongs_to_it():
    made = build_batch([Record(each, 0, None, b"v") for each in range(5)])
    for from_middle, count in ((True, 1), (False, 0)):
        decoding = RangeDecoder(
            topic="t", partition=0, window=Window(3, 9), from_middle=from_middle,
            schema=columns.arrow_schema(columns.BATCHES),
        )  # fmt: skip
        found = list(decoding.batches([Part(memoryview(made), 5, ())]))
        assert sum(each.num_rows for each in found) == count


def test_records_of_an_unknown_codec_are_refused():
    made = build_batch([Record(0, 0, None, b"v")])
    made[22] |= 6
    renew_crc(made, 0, len(made))
    header = read_header(made)
    with pytest.raises(ProtocolError, match="codec 6 is unknown"):
        assembler.plain_records(header, memoryview(made))
