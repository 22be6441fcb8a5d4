"""Fields and types of JSON records, for tables whose schema is not given."""

from __future__ import annotations

import json
import pickle
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import ArrayType, LongType, StructField, StructType

from anabranch.pipelines.fields import (
    MOST_DEPTH,
    MOST_FIELDS,
    columns_of,
    fields_of,
    merged,
    settled,
)
from anabranch.pipelines.table_schema import add_fields, prepare, schema_of_table, unfit

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text("aAb ", max_size=2), inner, max_size=3)
    ),
    max_leaves=8,
)
records = st.dictionaries(st.sampled_from(["a", "b", "c"]), values, max_size=3)


def columns(*told):
    found = {}
    for each in told:
        found = merged(found, fields_of(each if isinstance(each, str) else json.dumps(each)))
    return {each.name: each.dataType.simpleString() for each in settled(found)}


@pytest.mark.parametrize(
    ("seen", "kind"),
    [
        ([1, None], "bigint"),
        ([2**63 - 1], "bigint"),
        ([-(2**63)], "bigint"),
        ([-(2**63) - 1], "double"),
        ([10**4000], "double"),
        ([2**63], "double"),
        ([1, 0.5], "double"),
        ([True], "boolean"),
        ([True, 1], "string"),
        (["x", [1]], "string"),
        ([[]], "array<string>"),
        ([[], [1], [None, 0.5]], "array<double>"),
        ([{"x": 1}, {"y": None}], "struct<x:bigint,y:string>"),
        ([{"x": 1}, {"X": 1}], "string"),
        ([{"a b": 1}], "string"),
        ([dict.fromkeys(map(str, range(MOST_FIELDS + 1)), 1)], "string"),
    ],
)
def test_a_column_holds_all_values_of_its_field(seen, kind):
    assert columns(*({"field": each} for each in seen)) == {"field": kind}


def nested(depth, *, in_objects):
    """A number within so many arrays, or objects."""
    value = 1
    for _ in range(depth):
        value = {"n": value} if in_objects else [value]
    return value


@pytest.mark.parametrize("depth", [1, 20, 41, 60, 130, 250])
@pytest.mark.parametrize("in_objects", [False, True])
def test_a_table_takes_whatever_depth_records_have(tmp_path, depth, in_objects):
    record = json.dumps({"deep": nested(depth, in_objects=in_objects)})
    found = merged(fields_of(record), fields_of(record.replace("1", "0.5")))
    check_a_table_takes(tmp_path, settled(pickle.loads(pickle.dumps(found))))


def test_a_given_schema_is_as_deep_as_tables_take():
    kind = LongType()
    for _ in range(MOST_DEPTH):
        kind = ArrayType(kind)
    assert not unfit(StructField("deep", kind))
    assert unfit(StructField("deep", ArrayType(kind))) == "a type of more than 20 levels"


@pytest.mark.parametrize("text", [r'{"\ud800": 1, "a": 1}', r'{"a": {"\udfff": 1}}'])
def test_names_that_no_text_can_be_are_no_columns(tmp_path, text):
    check_a_table_takes(tmp_path, settled(fields_of(text)))


def check_a_table_takes(folder, columns):
    table = str(folder / "table")
    first = StructField("id", LongType())
    prepare(table, StructType([first]))
    add_fields(table, columns)
    assert schema_of_table(table) == StructType([first, *columns])


@pytest.mark.parametrize("value", [None, {}])
def test_a_field_without_a_value_has_no_column_yet(value):
    assert columns({"field": value}) == {}


@pytest.mark.parametrize("text", ["", "{", "[1]", "7", '{"a": ' + "[" * 100_000])
def test_what_is_no_object_has_no_fields(text):
    assert fields_of(text) == {}


def test_known_fields_are_not_looked_at():
    assert list(fields_of('{"a": 1, "b": 2}', {"a"})) == ["b"]


def test_names_that_delta_lake_refuses_are_no_columns():
    names = ["", "a", "A", "b c", "d;", "e=", "f", "taken"]
    assert columns_of(names, ["TAKEN"]) == ["a", "f"]


def calls_to_merge(records):
    """How many functions are called: a measure that a busy machine does not change."""
    calls = 0

    def count(_frame, event, _what):
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        columns(*records)
    finally:
        sys.setprofile(None)
    return calls


@pytest.mark.parametrize(
    "record_of",
    [
        lambda number: {"keys": {f"key{number}": 1}},
        lambda number: {"keys": [{"inner": {f"key{number}": 1}}]},
    ],
)
def test_the_work_grows_with_the_records_and_not_with_what_was_found_before(record_of):
    """Each record brought a new key, and all keys found so far were gone through for it."""
    few, many = (
        calls_to_merge([record_of(each) for each in range(count)])
        for count in (MOST_FIELDS // 10, MOST_FIELDS)
    )
    assert many < 12 * few


@given(st.lists(records, max_size=4), st.data())
def test_the_order_of_records_and_tasks_does_not_matter(told, data):
    other = data.draw(st.permutations(told))
    cut = data.draw(st.integers(0, len(told)))

    def found(part):
        fields = {}
        for each in part:
            fields = merged(fields, fields_of(json.dumps(each)))
        return fields

    assert settled(merged(found(other[:cut]), found(other[cut:]))) == settled(found(told))
