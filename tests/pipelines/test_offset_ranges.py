"""Ranges, their pieces, what filters leave of them, and what a trigger takes."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.datasource import (
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringStartsWith,
)

from anabranch.pipelines.admission import Patience, share_out
from anabranch.pipelines.faults import OptionError
from anabranch.pipelines.filters import TakenFilters
from anabranch.pipelines.offset_ranges import OffsetRange, Place, cut, piece_counts
from anabranch.pipelines.options import MOST_PARTITIONS
from anabranch.pipelines.progress import lag
from anabranch.pipelines.stream_offsets import CheckpointError, StreamOffsets, stream_offsets

lengths = st.lists(st.integers(1, 10_000), min_size=1, max_size=6)


@given(st.integers(0, 1000), st.integers(1, 1000), st.integers(1, 50))
def test_pieces_cover_a_range_without_gap_or_overlap(start, length, count):
    whole = OffsetRange("t", 0, b"", start, start + length, True)
    pieces = cut(whole, min(count, length))
    offsets = [each for piece in pieces for each in range(piece.start, piece.until)]
    assert offsets == list(range(start, start + length))
    assert all(piece.start < piece.until for piece in pieces)
    assert [piece.from_middle for piece in pieces] == [True] + [False] * (len(pieces) - 1)


@given(lengths, st.data())
def test_pieces_keep_to_bytes_records_and_number(sizes, data):
    densities = [data.draw(st.floats(0, 1000)) for _ in sizes]
    most, fewest = data.draw(st.integers(0, 500)), data.draw(st.integers(0, 40))
    counts = piece_counts(
        sizes, densities, partition_bytes=100_000, max_records=most, min_partitions=fewest
    )
    for length, density, count in zip(sizes, densities, counts):
        assert 1 <= count <= length
        if count < length:
            assert length * density <= count * 100_000 + density
            assert not most or length <= count * most
    assert sum(counts) >= min(fewest, sum(sizes))


def test_pieces_of_many_partitions_are_counted_in_time():
    """Each piece looked at every range: a hundred thousand of them took minutes."""
    begin = time.process_time()
    counts = piece_counts(
        [10_000] * 2_000, [0.0] * 2_000, partition_bytes=1, min_partitions=MOST_PARTITIONS
    )
    assert (set(counts), time.process_time() - begin < 5) == ({50}, True)


@pytest.mark.parametrize("most", [{"max_records": 10}, {"partition_bytes": 1 << 10}])
def test_more_pieces_than_spark_can_plan_are_refused(most):
    with pytest.raises(
        OptionError, match=r"\d{3},\d{3},\d{3} tasks.* at most 100,000.*'maxRecordsPer"
    ):
        piece_counts([1 << 31], [100.0], **{"partition_bytes": 256 << 20, **most})
    partitions = [1] * (MOST_PARTITIONS + 1)
    assert piece_counts(partitions, [1.0] * len(partitions), partition_bytes=1) == partitions


@pytest.mark.parametrize(
    "progress", [None, {"sources": [{"endOffset": None, "latestOffset": None}]}]
)
def test_a_query_without_progress_has_no_lag(progress):
    assert lag(progress) == {}


COLUMNS = ("partition", "offset")
KINDS = (EqualTo, GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual)
FULLY = {
    EqualTo: lambda a, b: a == b, GreaterThan: lambda a, b: a > b,
    GreaterThanOrEqual: lambda a, b: a >= b, LessThan: lambda a, b: a < b,
    LessThanOrEqual: lambda a, b: a <= b, In: lambda a, b: a in b,
}  # fmt: skip
some_filters = st.lists(
    st.builds(
        lambda kind, column, value: kind((column,), value),
        st.sampled_from(KINDS), st.sampled_from(COLUMNS), st.integers(-2, 12),
    )
    | st.builds(
        lambda column, value: In((column,), tuple(value)),
        st.sampled_from(COLUMNS), st.lists(st.integers(0, 5), max_size=3),
    ),
    max_size=5,
)  # fmt: skip


@given(some_filters)
def test_filters_that_are_taken_are_applied_in_full_and_others_not_at_all(filters):
    narrowing = TakenFilters()
    taken = [each for each in filters if narrowing.take(each)]
    kept = {
        (partition, offset)
        for partition in range(4)
        if narrowing.admits(Place("t", partition))
        for offset in range(*narrowing.narrow(0, 10))
    }
    passing = {
        (partition, offset)
        for partition in range(4)
        for offset in range(10)
        if all(
            FULLY[type(each)](
                {"partition": partition, "offset": offset}[each.attribute[0]], each.value
            )
            for each in taken
        )
    }
    assert kept == passing


@pytest.mark.parametrize(
    ("each", "taken"),
    [
        (IsNotNull(("offset",)), True), (IsNotNull(("key",)), False),
        (EqualTo(("topic",), "t"), True), (EqualTo(("topic",), 3), False),
        (EqualTo(("partition",), "3"), False), (EqualTo(("value",), b"x"), False),
        (StringStartsWith(("topic",), "t"), False), (EqualTo(("headers", "key"), "a"), False),
        (Not(EqualTo(("offset",), 3)), False), (EqualTo(("offset",), True), False),
    ],
)  # fmt: skip
def test_only_filters_that_are_understood_are_taken(each, taken):
    assert TakenFilters().take(each) is taken


def test_a_time_before_1970_skips_no_record_without_a_time():
    narrowing = TakenFilters()
    narrowing.take(GreaterThan(("timestamp",), datetime(1969, 12, 31, tzinfo=UTC)))
    assert narrowing.timestamp_ms is None, "such records have -1, and brokers find none below 0"


@given(st.integers(0, 1 << 41), st.integers(0, 999))
def test_a_lower_bound_of_time_skips_no_record_that_meets_it(ms, microseconds):
    moment = datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=ms, microseconds=microseconds)
    for kind in (GreaterThan, GreaterThanOrEqual, EqualTo):
        narrowing = TakenFilters()
        assert not narrowing.take(kind(("timestamp",), moment)), "Spark applies it too"
        assert narrowing.timestamp_ms == ms
    narrowing = TakenFilters()
    assert not narrowing.take(LessThan(("timestamp",), moment))
    assert narrowing.timestamp_ms is None


places = st.dictionaries(
    st.builds(Place, st.just("t"), st.integers(0, 9)),
    st.tuples(st.integers(0, 1000), st.integers(0, 1000)),
    min_size=1,
)


@given(places, st.integers(1, 3000))
def test_a_trigger_takes_about_its_share_of_each_partition(waiting, most):
    begins = {place: begin for place, (begin, _) in waiting.items()}
    ends = {place: begin + size for place, (begin, size) in waiting.items()}
    taken = share_out(begins, ends, most)
    assert set(taken) == set(ends)
    assert all(begins[each] <= taken[each] <= ends[each] for each in ends)
    total = sum(taken[each] - begins[each] for each in ends)
    assert total <= most + len(ends)
    for place in ends:
        assert taken[place] > begins[place] or ends[place] == begins[place], "none starves"


def test_a_trigger_waits_for_the_least_but_not_forever():
    patience = Patience(max_delay_ms=1000)
    assert not patience.lets_pass(1, 10, now_ms=50), "the first batch waits for nothing"
    assert patience.lets_pass(9, 10, now_ms=100)
    assert not patience.lets_pass(10, 10, now_ms=200)
    assert patience.lets_pass(9, 10, now_ms=1200)
    assert not patience.lets_pass(9, 10, now_ms=1201)


@given(
    st.dictionaries(
        st.builds(Place, st.sampled_from(["a", "b.c"]), st.integers(0, 99)), st.integers(0)
    ),
    st.dictionaries(st.sampled_from(["a", "b.c"]), st.binary(min_size=16, max_size=16)),
    st.booleans(),
    st.none() | st.dictionaries(st.builds(Place, st.just("a"), st.integers(0, 9)), st.integers(0)),
)
def test_offsets_are_read_as_they_were_written(offsets, ids, is_fresh, first):
    stream = StreamOffsets(offsets, ids, is_fresh, first)
    assert stream_offsets(stream.to_json()) == stream


@pytest.mark.parametrize(
    ("found", "words"),
    [
        ({"t": {"0": 1}, "#": {"version": 2}}, "written in version 2"),
        ({"t": {"0": 1}, "#": 5}, "written in version None"),
        ({"t": 5}, "not this source's"),
        ({"t": {"x": 5}}, "not this source's"),
        ({"index": "a"}, "not this source's"),
    ],
)
def test_offsets_of_another_source_are_refused(found, words):
    with pytest.raises(CheckpointError, match=words):
        stream_offsets(found)
