"""Bytes that Apache Kafka 4.1's own generated classes read, wrote again, and rendered as JSON.

The oracle for metadata records and __consumer_offsets, which no Python library knows; and a second
one beside kio for requests. The vectors name their source.
"""

from __future__ import annotations

import base64
import json
import re
from pathlib import Path
from typing import Any

import pytest
from generated import RECORDS, REQUESTS

from anabranch.core.wire.codec import decode_exact, encode_bytes
from anabranch.core.wire.messages import FIRST_OWN_KEY
from anabranch.core.wire.schema import FieldSpec, Struct, WireType, fields_of

CLASSES = {cls.__name__: cls for cls in [*REQUESTS, *RECORDS]}
FOLDER = Path(__file__).parent / "data"
FILES = sorted(path.stem for path in FOLDER.glob("*_records.json")) + ["requests"]


def vectors(name: str) -> list[dict[str, Any]]:
    return json.loads((FOLDER / f"{name}.json").read_text())["vectors"]


def snake(name: str) -> str:
    return re.sub(r"(?<!^)([A-Z])", r"_\1", name).lower()


def is_same(ours: Any, kafkas: Any, wire_type: WireType) -> bool:
    """Whether a decoded value is what Kafka's JSON says."""
    if ours is None or kafkas is None:
        return ours is None and kafkas is None
    if wire_type.kind == "struct":
        return structure_is_same(ours, kafkas)
    if wire_type.kind == "array":
        assert wire_type.element is not None
        pairs = zip(ours, kafkas, strict=True)
        return all(is_same(mine, theirs, wire_type.element) for mine, theirs in pairs)
    if wire_type.kind == "records":
        return kafkas == ""  # Kafka leaves them out of the JSON; the bytes are compared below
    if wire_type.kind == "uuid":
        return ours == base64.urlsafe_b64decode(kafkas + "==")
    if wire_type.kind == "bytes":
        return ours == base64.b64decode(kafkas)
    return ours == kafkas


def field_is_same(field: FieldSpec, ours: Any, kafkas: dict[str, Any]) -> bool:
    if field.name in kafkas:
        return is_same(ours, kafkas[field.name], field.type)
    if f"{field.name}_size_in_bytes" in kafkas:
        return len(ours or b"") == kafkas[f"{field.name}_size_in_bytes"]
    if isinstance(field.default, type):
        return ours == field.default()
    return ours == field.default


def structure_is_same(ours: Struct, kafkas: dict[str, Any]) -> bool:
    by_name = {snake(name): value for name, value in kafkas.items()}
    fields = fields_of(type(ours))
    known = {each.name for each in fields} | {f"{each.name}_size_in_bytes" for each in fields}
    assert set(by_name) <= known, f"{type(ours).__name__} lacks {set(by_name) - known}"
    return all(field_is_same(each, getattr(ours, each.name), by_name) for each in fields)


@pytest.mark.parametrize("name", FILES)
def test_kafkas_bytes_mean_the_same_here(name):
    for vector in vectors(name):
        cls, version = CLASSES[vector["message"]], vector["version"]
        message = decode_exact(cls, bytes.fromhex(vector["hex"]), version)
        assert structure_is_same(message, vector["json"]), vector


@pytest.mark.parametrize("name", FILES)
def test_the_same_bytes_are_written(name):
    for vector in vectors(name):
        cls, version = CLASSES[vector["message"]], vector["version"]
        message = decode_exact(cls, bytes.fromhex(vector["hex"]), version)
        assert encode_bytes(message, version).hex() == vector["hex"]


LATER_THAN_KAFKA_4_1 = {("WriteTxnMarkersRequest", 2), ("WriteTxnMarkersResponse", 2)}
"""KIP-1228, of Kafka 4.2: compared with kio alone."""


def test_every_version_of_every_message_has_a_vector():
    there = {(v["message"], v["version"]) for name in FILES for v in vectors(name)}
    wanted = {(cls.__name__, v) for cls in [*REQUESTS, *RECORDS] for v in cls.versions}
    wanted -= {(cls.__name__, 0) for cls in REQUESTS if cls.api_key >= FIRST_OWN_KEY}
    wanted -= LATER_THAN_KAFKA_4_1
    lacking = sorted(f"{name} v{version}" for name, version in wanted - there)
    assert not lacking, f"run `python -m compat.vectors`, which asks Kafka about: {lacking}"
    assert there == wanted
