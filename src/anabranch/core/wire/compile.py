"""Source text being written, compiled, and explained when what it made fails.

Encoders and decoders are generated from the notation (schema.py) as plain Python, one function a
(message class, version), compiled when first used. Neighbouring fixed-width fields become one
`struct.Struct`; loops over arrays are written in place; one-byte varints take no call.

Every line remembers the field it serves, so an exception is traced to its field by line number,
and the way through good input carries no bookkeeping.

Not here: what is written (compile_decode.py, compile_encode.py), showing it (generated_source.py).
"""

from __future__ import annotations

import struct
from types import TracebackType
from typing import Any

from anabranch.core.wire import primitives
from anabranch.core.wire.schema import FieldSpec, Struct, WireType, active_fields

FIXED = {
    "bool": ("?", 1),
    "int8": ("b", 1),
    "int16": ("h", 2),
    "uint16": ("H", 2),
    "int32": ("i", 4),
    "int64": ("q", 8),
    "float64": ("d", 8),
    "uuid": ("16s", 16),
}
"""Fixed-width kinds: struct code and size in bytes."""

LEGACY_LENGTH = {"string": "h", "bytes": "i", "records": "i", "array": "i"}
"""Struct code of a length before flexible versions."""

LIMITS = {
    "string": primitives.LONGEST_STRING_BYTES,
    "bytes": primitives.LONGEST_BYTES,
    "records": primitives.LONGEST_BYTES,
}

Place = tuple[str, int]
"""A field's path, and where its bytes end, counted from the position when its line started."""


class Source:
    """Lines of a function, what they refer to, and which field each line serves."""

    def __init__(self, file_name: str) -> None:
        self.file_name = file_name
        self.lines: list[str] = []
        self.places: list[tuple[Place, ...]] = []
        self.names: dict[str, Any] = {"Refusal": primitives.Refusal}
        self.depth = 0
        self._counter = 0

    def add(self, line: str, *places: Place) -> None:
        """Write a line at the current depth."""
        self.lines.append("    " * self.depth + line)
        self.places.append(places)

    def fresh(self, stem: str) -> str:
        """A local name that nothing else uses."""
        self._counter += 1
        return f"{stem}_{self._counter}"

    def refer(self, stem: str, value: Any) -> str:
        """A global name of the generated function for a value; equal names mean one value."""
        name, number = stem, 1
        while name in self.names and self.names[name] is not value:
            number += 1
            name = f"{stem}_{number}"
        self.names[name] = value
        return name

    def layout(self, codes: str, method: str) -> str:
        """A global name for `struct.Struct(">codes").method`."""
        name = f"{method.removesuffix('_from')}_{codes.replace('?', 't')}"
        if name not in self.names:
            self.names[name] = getattr(struct.Struct(">" + codes), method)
        return name

    @property
    def text(self) -> str:
        """The whole source."""
        return "\n".join(self.lines) + "\n"

    def build(self, function: str) -> Any:
        """Compile, and return one of the functions defined."""
        exec(compile(self.text, self.file_name, "exec"), self.names)
        return self.names[function]

    def field_at(self, trace: TracebackType | None, remaining: int) -> tuple[str, int]:
        """The field whose line raised, and the position it was read at.

        `remaining` is how many bytes of input there are in all: among fields read by one line,
        the first that does not fit is named.
        """
        line, position = 0, 0
        while trace is not None:
            if trace.tb_frame.f_code.co_filename == self.file_name:
                line = trace.tb_lineno
                position = trace.tb_frame.f_locals.get("p", 0)
            trace = trace.tb_next
        places = self.places[line - 1] if 0 < line <= len(self.places) else ()
        for name, end in places:
            if position + end > remaining:
                return name, position
        return (places[-1][0] if places else ""), position


def is_nullable(field: FieldSpec, version: int) -> bool:
    """Whether a field may be null in a version."""
    return version in field.nullable_versions


def least_size(wire_type: WireType, version: int, flexible: bool) -> int:
    """The fewest bytes that a value of a type takes; bounds the length of arrays."""
    if wire_type.kind in FIXED:
        return FIXED[wire_type.kind][1]
    if wire_type.kind == "struct":
        assert wire_type.struct is not None
        return least_struct_size(wire_type.struct, version, flexible)
    if flexible:
        return 1
    return struct.calcsize(">" + LEGACY_LENGTH[wire_type.kind])


def least_struct_size(cls: type[Struct], version: int, flexible: bool) -> int:
    """The fewest bytes that a structure takes, at least one so that counts stay bounded."""
    total = 1 if flexible else 0
    for field in active_fields(cls, version):
        if field.tag is not None:
            continue
        if field.type.kind == "struct" and is_nullable(field, version):
            total += 1
        else:
            total += least_size(field.type, version, flexible)
    return max(1, total)
