"""Generated decoders: `decode(b, p) -> (message, position after it)`.

In the generated source `b` is a memoryview of the whole input, `p` the position, `end` its length.
Reading past the end raises struct.error or IndexError by itself; slices do not, so lengths are
compared with `end` before they are used. codec.py turns each of these into a ProtocolError.

In a request, `left` counts down the elements that it may still have: a frame of 100 MB could ask
for millions of tiny ones, each of which takes the loop's time. What we asked for ourselves
(responses) and wrote ourselves (records) is bounded by the array only.
"""

from __future__ import annotations

import msgspec

from anabranch.core.wire import primitives
from anabranch.core.wire.compile import (
    FIXED,
    LEGACY_LENGTH,
    LIMITS,
    Place,
    Source,
    is_nullable,
    least_size,
)
from anabranch.core.wire.schema import FieldSpec, Message, Struct, WireType, fields_of

HELPERS = (
    primitives.rest_of_uvarint,
    primitives.refuse_length,
    primitives.refuse_count,
    primitives.refuse_request,
    primitives.read_tag,
    primitives.check_tag_count,
    primitives.read_unknown_tags,
)


def decode_source(cls: type[Message], version: int) -> Source:
    """The source of one decoder."""
    source = Source(f"<decode {cls.__name__} version {version}>")
    for helper in HELPERS:
        source.names[helper.__name__] = helper
    is_request = cls.api_key >= 0 and cls.__name__.endswith("Request")
    writer = _Decoder(source, version, version in cls.flexible_versions, is_request)
    source.add("def decode(b, p):")
    source.depth += 1
    source.add("end = len(b)")
    if is_request:
        source.add(f"left = {primitives.MOST_REQUEST_ELEMENTS}")
    result = writer.structure(cls, "")
    source.add(f"return {result}, p")
    source.depth -= 1
    return source


class _Decoder:
    """Writes the lines that read one version of a message."""

    def __init__(self, source: Source, version: int, flexible: bool, is_request: bool) -> None:
        self.source = source
        self.version = version
        self.flexible = flexible
        self.is_request = is_request
        self.pending: list[tuple[str, str, str, int]] = []  # code, variable, path, size

    def take(self, code: str, size: int, path: str, stem: str) -> str:
        """Read a fixed-width value together with its neighbours; it is there after `flush`."""
        name = self.source.fresh(stem)
        self.pending.append((code, name, path, size))
        return name

    def flush(self) -> None:
        """Write the line that reads everything taken so far."""
        if not self.pending:
            return
        places: list[Place] = []
        total = 0
        for _, _, path, size in self.pending:
            total += size
            places.append((path, total))
        names = ", ".join(name for _, name, _, _ in self.pending)
        codes = "".join(code for code, _, _, _ in self.pending)
        if codes == "B":
            self.source.add(f"{names} = b[p]", *places)
        else:
            comma = "," if len(self.pending) == 1 else ""
            layout = self.source.layout(codes, "unpack_from")
            self.source.add(f"{names}{comma} = {layout}(b, p)", *places)
        self.source.add(f"p += {total}", *places[-1:])
        self.pending = []

    def structure(self, cls: type[Struct], path: str) -> str:
        """Read a structure; returns the variable that holds it."""
        values: dict[str, str] = {}
        tagged: list[FieldSpec] = []
        for field in fields_of(cls):
            if self.version not in field.versions:
                values[field.name] = self.default(field)
            elif field.tag is not None:
                tagged.append(field)
            else:
                values[field.name] = self.value(
                    field.type,
                    is_nullable(field, self.version),
                    f"{path}.{field.name}" if path else field.name,
                )
        unknown = self.tags(tagged, values, path) if self.flexible else None
        self.flush()
        arguments = ", ".join(values[field.name] for field in fields_of(cls))
        result = self.source.fresh("m")
        self.source.add(f"{result} = {self.source.refer(cls.__name__, cls)}({arguments})")
        if unknown is not None:
            self.source.add(f"if {unknown}:")
            keep = self.source.refer("keep", msgspec.structs.force_setattr)
            self.source.add(f'    {keep}({result}, "unknown_tagged_fields", {unknown})')
        return result

    def default(self, field: FieldSpec) -> str:
        """An expression for the default of a field that is not in this version."""
        if field.type.kind == "struct" and field.default is not None:
            return self.source.refer(f"NO_{field.name.upper()}", field.default)
        return "[]" if field.default is list else repr(field.default)

    def value(self, wire_type: WireType, nullable: bool, path: str) -> str:
        """Read one value; returns the variable that will hold it after the next flush."""
        if wire_type.kind in FIXED:
            code, size = FIXED[wire_type.kind]
            return self.take(code, size, path, "v")
        if wire_type.kind == "struct":
            return self.nested(wire_type, nullable, path)
        length = self.length(wire_type.kind, path)
        if wire_type.kind == "array":
            return self.array(wire_type, nullable, length, path)
        return self.blob(wire_type.kind, nullable, length, path)

    def nested(self, wire_type: WireType, nullable: bool, path: str) -> str:
        """Read a structure inside a structure; a nullable one starts with a marker byte."""
        assert wire_type.struct is not None
        if not nullable:
            return self.structure(wire_type.struct, path)
        marker = self.take("b", 1, path, "marker")
        self.flush()
        result = self.source.fresh("v")
        self.source.add(f"{result} = None")
        self.source.add(f"if {marker} >= 0:")
        self.source.depth += 1
        self.source.add(f"{result} = {self.structure(wire_type.struct, path)}")
        self.source.depth -= 1
        return result

    def length(self, kind: str, path: str) -> str:
        """Read a length; the variable is -1 for null."""
        if not self.flexible:
            code = LEGACY_LENGTH[kind]
            name = self.take(code, 2 if code == "h" else 4, path, "n")
            self.flush()
            return name
        name = self.take("B", 1, path, "n")
        self.flush()
        self.source.add(f"if {name} > 127:", (path, 0))
        self.source.add(f"    {name}, p = rest_of_uvarint(b, p, {name})", (path, 0))
        self.source.add(f"{name} -= 1")
        return name

    def blob(self, kind: str, nullable: bool, length: str, path: str) -> str:
        """Read the bytes of a string, bytes or records field."""
        source, place = self.source, (path, 0)
        result, stop = source.fresh("v"), source.fresh("e")
        limit = LIMITS[kind]
        if nullable:
            source.add(f"if {length} == -1:")
            source.add(f"    {result} = None")
            source.add("else:")
            source.depth += 1
        source.add(f"{stop} = p + {length}")
        source.add(f"if {stop} > end or not 0 <= {length} <= {limit}:")
        source.add(f"    refuse_length({length}, end - p, {limit})", place)
        piece = f"b[p:{stop}]"
        read = {"string": f'str({piece}, "utf-8")', "bytes": f"bytes({piece})", "records": piece}
        source.add(f"{result} = {read[kind]}", place)
        source.add(f"p = {stop}")
        if nullable:
            source.depth -= 1
        return result

    def array(self, wire_type: WireType, nullable: bool, length: str, path: str) -> str:
        """Read an array, whose length the bytes that remain must be able to hold."""
        source = self.source
        element = wire_type.element
        assert element is not None
        result = source.fresh("v")
        if nullable:
            source.add(f"if {length} == -1:")
            source.add(f"    {result} = None")
            source.add("else:")
            source.depth += 1
        size = least_size(element, self.version, self.flexible)
        most = "left" if self.is_request else str(primitives.MOST_ELEMENTS)
        source.add(f"if {length} * {size} > end - p or not 0 <= {length} <= {most}:")
        source.add(f"    refuse_count({length}, end - p, {size}, {most})", (path, 0))
        if self.is_request:
            source.add(f"left -= {length}")
        if element.kind in FIXED and element.kind != "uuid":
            self.numbers(element.kind, result, length, path)
        else:
            self.elements(element, result, length, path)
        if nullable:
            source.depth -= 1
        return result

    def numbers(self, kind: str, result: str, length: str, path: str) -> None:
        """Read an array of numbers in one call."""
        code, size = FIXED[kind]
        name = self.source.refer(f"{kind}_readers", primitives.number_readers(code))
        self.source.add(f"{result} = list({name}[{length}](b, p))", (path, 0))
        self.source.add(f"p += {length} * {size}")

    def elements(self, element: WireType, result: str, length: str, path: str) -> None:
        """Read an array element by element, in a loop written in place."""
        source = self.source
        append = source.fresh("append")
        source.add(f"{result} = []")
        source.add(f"{append} = {result}.append")
        source.add(f"for _ in range({length}):")
        source.depth += 1
        value = self.value(element, False, path)
        self.flush()
        source.add(f"{append}({value})")
        source.depth -= 1

    def tags(self, tagged: list[FieldSpec], values: dict[str, str], path: str) -> str:
        """Read the tag section; returns the variable that holds unknown tags or None."""
        source = self.source
        place = (f"{path}.tagged fields" if path else "tagged fields", 0)
        count = self.take("B", 1, place[0], "n")
        self.flush()
        unknown = source.fresh("unknown")
        source.add(f"{unknown} = None")
        for field in tagged:
            values[field.name] = source.fresh("v")
            source.add(f"{values[field.name]} = {self.default(field)}")
        source.add(f"if {count}:")
        source.depth += 1
        if tagged:
            self.known_tags(tagged, values, path, count, unknown, place)
        else:
            source.add(f"{unknown}, p = read_unknown_tags(b, p, {count})", place)
            self.spend(f"len({unknown})", place)
        source.depth -= 1
        return unknown

    def spend(self, count: str, place: Place) -> None:
        """Count tagged fields among the elements of a request; they are rare, and read already."""
        if self.is_request:
            self.source.add(f"left -= {count}")
            self.source.add("if left < 0:")
            self.source.add(f"    refuse_request({count})", place)

    def known_tags(
        self,
        tagged: list[FieldSpec],
        values: dict[str, str],
        path: str,
        count: str,
        unknown: str,
        place: Place,
    ) -> None:
        """The loop over a tag section in which some tags are ours."""
        source = self.source
        tag, stop = source.fresh("tag"), source.fresh("e")
        source.add(f"if {count} > 127:")
        source.add(f"    {count}, p = rest_of_uvarint(b, p, {count})", place)
        source.add(f"check_tag_count({count}, end - p)", place)
        self.spend(count, place)
        source.add(f"for _ in range({count}):")
        source.depth += 1
        source.add(f"{tag} = b[p]", place)
        source.add(f"{stop} = p + 2 + b[p + 1]", place)
        source.add(f"if {tag} < 128 > b[p + 1] and {stop} <= end:")
        source.add("    p += 2")
        source.add("else:")
        source.add(f"    {tag}, p, {stop} = read_tag(b, p)", place)
        word = "if"
        for field in tagged:
            source.add(f"{word} {tag} == {field.tag}:")
            word = "elif"
            self.known_tag(field, values[field.name], path)
        source.add("else:")
        source.add(f"    {unknown} = {unknown} or {{}}")
        source.add(f"    {unknown}[{tag}] = bytes(b[p:{stop}])")
        source.add(f"    p = {stop}")
        source.add(f"if p != {stop}:")
        source.add(f'    raise Refusal("tag %d has another size than its field" % {tag})', place)
        source.depth -= 1

    def known_tag(self, field: FieldSpec, result: str, path: str) -> None:
        """Read the field that a tag brought."""
        self.source.depth += 1
        value = self.value(
            field.type,
            is_nullable(field, self.version),
            f"{path}.{field.name}" if path else field.name,
        )
        self.flush()
        self.source.add(f"{result} = {value}")
        self.source.depth -= 1
