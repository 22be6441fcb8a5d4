"""Hypothesis strategies for messages, made from the notation."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from anabranch.core.wire import (
    control_records,
    metadata_records,
    offsets_records,
    transaction_records,
)
from anabranch.core.wire.messages import API_KEYS
from anabranch.core.wire.schema import Message, Struct, WireType, active_fields

INTEGERS = {
    "int8": (-(2**7), 2**7 - 1),
    "int16": (-(2**15), 2**15 - 1),
    "uint16": (0, 2**16 - 1),
    "int32": (-(2**31), 2**31 - 1),
    "int64": (-(2**63), 2**63 - 1),
}

REQUESTS: list[type[Message]] = [
    cls for spec in API_KEYS.values() for cls in (spec.request, spec.response)
]
RECORDS: list[type[Message]] = [
    *metadata_records.METADATA_RECORDS.values(),
    control_records.LeaderChangeMessage,
    control_records.SnapshotHeaderRecord,
    control_records.SnapshotFooterRecord,
    control_records.KRaftVersionRecord,
    control_records.VotersRecord,
    offsets_records.OffsetCommitKey,
    offsets_records.OffsetCommitValue,
    offsets_records.GroupMetadataKey,
    offsets_records.GroupMetadataValue,
    transaction_records.TransactionLogKey,
    transaction_records.TransactionLogValue,
]
EVERY_VERSION = [(cls, version) for cls in [*REQUESTS, *RECORDS] for version in cls.versions]


def version_id(value: object) -> str:
    """A parameter's name in pytest's output."""
    return getattr(value, "__name__", f"v{value}")


def plain(wire_type: WireType, version: int) -> st.SearchStrategy[Any]:
    """Values of a wire type that are not null."""
    kind = wire_type.kind
    if kind in INTEGERS:
        return st.integers(*INTEGERS[kind])
    if kind == "struct":
        assert wire_type.struct is not None
        return structures(wire_type.struct, version)
    if kind == "array":
        assert wire_type.element is not None
        return st.lists(plain(wire_type.element, version), max_size=3)
    return {
        "bool": st.booleans(),
        "float64": st.floats(allow_nan=False),
        "string": st.text(st.characters(exclude_categories=["Cs"]), max_size=12),
        "uuid": st.binary(min_size=16, max_size=16),
        "bytes": st.binary(max_size=12),
        "records": st.binary(max_size=12),
    }[kind]


def structures(cls: type[Struct], version: int) -> st.SearchStrategy[Any]:
    """Structures that a version can carry; fields it lacks keep their defaults."""
    fields = {}
    for field in active_fields(cls, version):
        values = plain(field.type, version)
        if version in field.nullable_versions:
            values = st.none() | values
        fields[field.name] = values
    return st.builds(cls, **fields)
