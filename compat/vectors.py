"""Bytes of every message, read and written again by Apache Kafka's own generated classes.

    python -m compat.vectors --check      what stands in tests/core/wire/data, asked again
    python -m compat.vectors              the same, and vectors for each version that has none

A vector is made here from the notation and a seed, goes through Kafka's class, and is kept with the
JSON that Kafka renders when Kafka writes the same bytes. Vectors that stand are not changed. Needs
Java 17 and Maven; the tests that read the files need neither.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from random import Random
from typing import Any

from anabranch.core.wire import (
    control_records,
    metadata_records,
    offsets_records,
    transaction_records,
)
from anabranch.core.wire.codec import encode_bytes
from anabranch.core.wire.messages import API_KEYS, FIRST_OWN_KEY
from anabranch.core.wire.schema import Message, Struct, WireType, active_fields
from compat.java import fetch_jars, java

FOLDER = Path(__file__).resolve().parents[1] / "tests" / "core" / "wire" / "data"
SOURCE = (
    "Bytes read, written again to the same bytes, and rendered as JSON by the generated message "
    "classes of Apache Kafka 4.1.0 (kafka-clients, kafka-metadata, kafka-group-coordinator, "
    "kafka-transaction-coordinator)"
)
EACH = 3
"""Vectors of one version: the first one has no entry in any array, so that absence is seen too."""
LATER = {("WriteTxnMarkersRequest", 2), ("WriteTxnMarkersResponse", 2)}
"""What Anabranch knows and Kafka 4.1 does not yet; kio's schema is the oracle of these."""
BITS = {
    "int8": 7, "int16": 15, "uint16": 16, "int32": 31, "int64": 63,
}  # fmt: skip
TEXTS = ("", "a", "topic-1", "ü€", "yyy")

Vector = dict[str, Any]


def _records(module: Any) -> list[type[Message]]:
    """The messages that a module defines itself, in the order of the file."""
    return [
        each
        for each in vars(module).values()
        if isinstance(each, type)
        and issubclass(each, Message)
        and each.__module__ == module.__name__
    ]


FILES: dict[str, list[type[Message]]] = {
    "requests": [
        each
        for key, spec in API_KEYS.items()
        if key < FIRST_OWN_KEY
        for each in (spec.request, spec.response)
    ],
    "metadata_records": _records(metadata_records),
    "offsets_records": _records(offsets_records),
    "transaction_records": _records(transaction_records),
    "control_records": _records(control_records),
}
"""File of vectors -> the messages whose vectors stand in it: those that Kafka knows."""


def value(wire_type: WireType, version: int, random: Random, entries: int) -> Any:
    """A value of a wire type that is not null."""
    kind = wire_type.kind
    if kind in BITS:
        number = random.getrandbits(random.randint(0, BITS[kind]))
        return -number if not kind.startswith("u") and random.random() < 0.3 else number
    if kind == "struct":
        assert wire_type.struct is not None
        return structure(wire_type.struct, version, random, entries)
    if kind == "array":
        element = wire_type.element
        assert element is not None
        return [value(element, version, random, entries) for _ in range(random.randint(0, entries))]
    if kind == "bool":
        return random.random() < 0.5
    if kind == "float64":
        return random.uniform(-1e9, 1e9)
    if kind == "string":
        return random.choice(TEXTS)
    return random.randbytes(16 if kind == "uuid" else random.randint(0, 9))


def structure(cls: type[Struct], version: int, random: Random, entries: int) -> Any:
    """A structure that a version can carry; fields that it lacks keep their defaults."""
    fields: dict[str, Any] = {}
    for field in active_fields(cls, version):
        is_null = version in field.nullable_versions and random.random() < 0.2
        fields[field.name] = None if is_null else value(field.type, version, random, entries)
    return cls(**fields)


def made(cls: type[Message], version: int) -> list[Vector]:
    """New vectors of one version, without Kafka's JSON; the same ones each time."""
    random = Random(f"{cls.__name__} {version}")
    return [
        {
            "message": cls.__name__,
            "version": version,
            "hex": encode_bytes(structure(cls, version, random, number), version).hex(),
        }
        for number in range(EACH)
    ]


def asked_kafka(vectors: list[Vector]) -> list[Vector]:
    """What Kafka's classes make of each: its JSON, and the bytes that they write."""
    lines = "".join(
        json.dumps({name: each[name] for name in ("message", "version", "hex")}) + "\n"
        for each in vectors
    )
    program = Path(__file__).with_name("Vectors.java")
    with tempfile.TemporaryDirectory() as folder:
        ran = subprocess.run(
            java(Path(folder), program), input=lines, capture_output=True, text=True, check=True
        )
    return [json.loads(line) for line in ran.stdout.splitlines()]


def difference(vector: Vector, answer: Vector) -> str | None:
    """What Kafka sees otherwise; None when it reads and writes the same."""
    if "fault" in answer:
        return str(answer["fault"])
    if answer["left"] or answer["hex"] != vector["hex"]:
        return f"Kafka writes {answer['hex']}, {answer['left']} bytes were left over"
    if "json" in vector and vector["json"] != answer["json"]:
        return f"Kafka's JSON is {json.dumps(answer['json'])}"
    return None


def told(vectors: list[Vector], answers: list[Vector]) -> bool:
    """Write what differs; whether nothing does."""
    found = [
        f"{vector['message']} v{vector['version']} {vector['hex']}: {why}"
        for vector, answer in zip(vectors, answers, strict=True)
        if (why := difference(vector, answer)) is not None
    ]
    sys.stdout.writelines(f"{each}\n" for each in found)
    return not found


def save(path: Path, vectors: list[Vector]) -> None:
    """One vector a line, so that a change shows as lines."""
    lines = ",\n".join(json.dumps(each) for each in vectors)
    path.write_text(f'{{"source": {json.dumps(SOURCE)},\n "vectors": [\n{lines}\n]}}\n')


def main() -> int:
    """See the module."""
    parser = argparse.ArgumentParser(prog="python -m compat.vectors", description=__doc__)
    parser.add_argument("--check", action="store_true", help="add nothing")
    only_check = parser.parse_args().check
    fetch_jars()
    sound = True
    for name, classes in FILES.items():
        path = FOLDER / f"{name}.json"
        standing: list[Vector] = json.loads(path.read_text())["vectors"] if path.exists() else []
        there = {(each["message"], each["version"]) for each in standing}
        lacking = [
            vector
            for cls in classes
            for version in cls.versions
            if (cls.__name__, version) not in there | LATER
            for vector in made(cls, version)
        ]
        answers = asked_kafka(standing + lacking)
        sound &= told(standing + lacking, answers)
        sys.stdout.write(f"{name}: {len(standing)} vectors stand, {len(lacking)} are lacking\n")
        if lacking and sound and not only_check:
            news = zip(lacking, answers[len(standing) :], strict=True)
            save(path, standing + [{**new, "json": answer["json"]} for new, answer in news])
    return 0 if sound else 1


if __name__ == "__main__":
    raise SystemExit(main())
