"""kio, a codec that others wrote, agrees on every version of every request: shape and bytes.

kio knows some versions that come after Kafka 4.1; those are not served here. It maps times, ids
and error codes to types of its own, so values are drawn from what both sides can hold.
"""

from __future__ import annotations

import dataclasses
import io
import typing
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from generated import INTEGERS, REQUESTS, plain, version_id
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode as KioErrorCode
from kio.serial import entity_reader, entity_writer

from anabranch.core.wire.codec import decode_exact, encode_bytes
from anabranch.core.wire.messages import API_KEYS, FIRST_OWN_KEY
from anabranch.core.wire.schema import FieldSpec, Struct, active_fields

LATER_THAN_KAFKA_4_1 = {
    "ListOffsets": {11},
    "OffsetCommit": {10},
    "OffsetFetch": {10},
    "InitProducerId": {6},
    "DescribeLogDirs": {5},
    "BrokerHeartbeat": {2},
}
"""Versions that kio has and Kafka 4.1 does not serve (or calls unstable)."""

KAFKAS = [spec for spec in API_KEYS.values() if spec.api_key < FIRST_OWN_KEY]
VERSIONS = [
    (cls, version) for cls in REQUESTS if cls.api_key < FIRST_OWN_KEY for version in cls.versions
]
KIO_KINDS = {
    "error_code": "int16",
    "timedelta_i32": "int32",
    "timedelta_i64": "int64",
    "datetime_i64": "int64",
}


def kio_class(cls: type, version: int) -> Any:
    spec = API_KEYS[cls.api_key]
    side = "request" if cls is spec.request else "response"
    return getattr(import_module(f"kio.schema.{spec.module}.v{version}.{side}"), cls.__name__)


def kio_type(field: Any) -> tuple[Any, bool, bool]:
    """Element type, whether it is an array, whether it may be null."""
    options = [each for each in typing.get_args(field.type) if each is not type(None)]
    nullable = type(None) in typing.get_args(field.type)
    inner = options[0] if nullable and options else field.type
    if typing.get_origin(inner) is tuple:
        return typing.get_args(inner)[0], True, nullable
    return inner, False, nullable


def same_name(ours: str, kios: str) -> bool:
    return ours in (kios.removesuffix("_"), f"{kios}_ms")


def compare_field(ours: FieldSpec, kios: Any, version: int) -> None:
    where = f"{ours.name} version {version}"
    assert same_name(ours.name, kios.name), where
    assert ours.tag == kios.metadata.get("tag"), where
    element, is_array, nullable = kio_type(kios)
    assert is_array == (ours.type.kind == "array"), where
    kind = kios.metadata.get("kafka_type")
    element_type = ours.type.element if is_array else ours.type
    assert element_type is not None
    if kind in ("uuid", "datetime_i64") and not is_array:
        nullable = False  # kio shows the zero uuid and the time -1 as None
    assert nullable == (version in ours.nullable_versions), where
    if element_type.kind == "struct":
        assert element_type.struct is not None
        compare(element_type.struct, element, version)
    else:
        assert KIO_KINDS.get(kind, kind) == element_type.kind, where


def compare(ours: type[Struct], kios: Any, version: int) -> None:
    assert ours.__name__.endswith(kios.__name__)
    mine = active_fields(ours, version)
    theirs = dataclasses.fields(kios)
    assert len(mine) == len(theirs), ours.__name__
    for field, other in zip(mine, theirs):
        compare_field(field, other, version)


@pytest.mark.parametrize(("cls", "version"), VERSIONS, ids=version_id)
def test_the_fields_are_those_that_kio_has(cls, version):
    theirs = kio_class(cls, version)
    assert theirs.__flexible__ == (version in cls.flexible_versions)
    compare(cls, theirs, version)


@pytest.mark.parametrize("spec", KAFKAS, ids=lambda spec: spec.name)
def test_the_versions_are_those_that_kio_has_less_the_later_ones(spec):
    package = import_module(f"kio.schema.{spec.module}")
    folder = next(iter(package.__path__))
    known = {int(path.name[1:]) for path in Path(folder).glob("v*")}
    assert set(spec.versions) == known - LATER_THAN_KAFKA_4_1.get(spec.name, set())


def shared(field: FieldSpec, kios: Any, version: int) -> st.SearchStrategy[Any]:
    """Values of a field that kio can hold too."""
    kind = kios.metadata.get("kafka_type")
    element, is_array, may_lack = kio_type(kios)
    if kind == "error_code":
        values: st.SearchStrategy[Any] = st.sampled_from([int(code) for code in KioErrorCode])
    elif kind == "datetime_i64":
        values = st.integers(-1 if may_lack else 0, 2**41)  # kio shows -1 as None, where it may be
    elif kind in ("timedelta_i32", "timedelta_i64"):
        values = st.integers(*INTEGERS["int32"])
    elif kind is None:
        inner = field.type.element if is_array else field.type
        values = structures(inner.struct, element, version)
    else:
        values = plain(field.type.element if is_array else field.type, version)
    if is_array:
        values = st.lists(values, max_size=3)
    return st.none() | values if version in field.nullable_versions else values


def structures(ours: type[Struct], kios: Any, version: int) -> st.SearchStrategy[Any]:
    pairs = zip(active_fields(ours, version), dataclasses.fields(kios))
    return st.builds(ours, **{f.name: shared(f, other, version) for f, other in pairs})


@pytest.mark.parametrize(("cls", "version"), VERSIONS, ids=version_id)
def test_what_one_side_writes_the_other_reads_and_writes_again(cls, version):
    theirs = kio_class(cls, version)
    read, write = entity_reader(theirs), entity_writer(theirs)

    @settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
    @given(structures(cls, theirs, version))
    def round_trip(message):
        ours = encode_bytes(message, version)
        result, _size = read(ours, 0)
        buffer = io.BytesIO()
        write(buffer, result)
        assert buffer.getvalue() == ours
        again = decode_exact(cls, buffer.getvalue(), version)
        assert encode_bytes(again, version) == ours
        assert again == message

    round_trip()
