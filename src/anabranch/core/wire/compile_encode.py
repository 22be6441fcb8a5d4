"""Generated encoders: `encode(m, out)` appends the buffers of message `m` to the list `out`.

In the generated source `w` gathers small pieces, `a` is its append, `VARINTS` the table of varints.
Pieces are joined into one buffer at the end and before each `records` field, whose own buffers are
passed on as they are, not copied. Rule kept: what the metadata log gets can be read again, so a
metadata record with a string that is too long is not written.
"""

from __future__ import annotations

from anabranch.core.wire import primitives
from anabranch.core.wire.compile import FIXED, LEGACY_LENGTH, Place, Source, is_nullable
from anabranch.core.wire.schema import FieldSpec, Message, Struct, WireType, fields_of


def encode_source(cls: type[Message], version: int) -> Source:
    """The source of one encoder."""
    source = Source(f"<encode {cls.__name__} version {version}>")
    source.names["VARINTS"] = primitives.VARINTS
    is_logged = cls.type_id >= 0
    source.names["STRING_LENGTHS"] = primitives.STRING_LENGTHS if is_logged else primitives.VARINTS
    source.names["write_tags"] = primitives.write_tags
    writer = _Encoder(source, version, version in cls.flexible_versions)
    source.add("def encode(m, out):")
    source.depth += 1
    source.add("w = []")
    source.add("a = w.append")
    writer.structure(cls, "m", "")
    writer.flush()
    source.add('out.append(b"".join(w))')
    source.depth -= 1
    for name, field, path in writer.tag_writers:
        writer.tag_function(name, field, path)
    return source


class _Encoder:
    """Writes the lines that write one version of a message."""

    def __init__(self, source: Source, version: int, flexible: bool) -> None:
        self.source = source
        self.version = version
        self.flexible = flexible
        self.pending: list[tuple[str, str, str]] = []  # code, expression, path
        self.tag_writers: list[tuple[str, FieldSpec, str]] = []

    def give(self, code: str, expression: str, path: str) -> None:
        """Write a fixed-width value together with its neighbours, at the next flush."""
        self.pending.append((code, expression, path))

    def packed(self, suffix: str = "") -> tuple[str, list[Place]]:
        """An expression for everything given so far, with zero bytes after it for each "x"."""
        codes = "".join(code for code, _, _ in self.pending) + suffix
        values = ", ".join(expression for _, expression, _ in self.pending)
        places = [(path, 0) for _, _, path in self.pending]
        return f"{self.source.layout(codes, 'pack')}({values})", places

    def flush(self) -> None:
        """Write the line that packs everything given so far."""
        if self.pending:
            expression, places = self.packed()
            self.source.add(f"a({expression})", *places[:1])
            self.pending = []

    def structure(self, cls: type[Struct], variable: str, path: str) -> None:
        """Write the fields of a structure, then its tag section."""
        tagged: list[FieldSpec] = []
        for field in fields_of(cls):
            if self.version not in field.versions:
                continue
            if field.tag is not None:
                tagged.append(field)
                continue
            self.value(
                field.type,
                is_nullable(field, self.version),
                f"{variable}.{field.name}",
                f"{path}.{field.name}" if path else field.name,
            )
        if self.flexible:
            self.tags(tagged, variable, path)

    def value(self, wire_type: WireType, nullable: bool, expression: str, path: str) -> None:
        """Write one value."""
        if wire_type.kind in FIXED:
            self.give(FIXED[wire_type.kind][0], expression, path)
        elif wire_type.kind == "struct":
            self.nested(wire_type, nullable, expression, path)
        else:
            self.sized(wire_type, nullable, expression, path)

    def nested(self, wire_type: WireType, nullable: bool, expression: str, path: str) -> None:
        """Write a structure inside a structure; a nullable one starts with a marker byte."""
        assert wire_type.struct is not None
        source = self.source
        variable = source.fresh("m")
        self.flush()
        source.add(f"{variable} = {expression}", (path, 0))
        if not nullable:
            self.structure(wire_type.struct, variable, path)
            return
        source.add(f"if {variable} is None:")
        source.add('    a(b"\\xff")')
        source.add("else:")
        source.depth += 1
        self.give("b", "1", path)
        self.structure(wire_type.struct, variable, path)
        self.flush()
        source.depth -= 1

    def sized(self, wire_type: WireType, nullable: bool, expression: str, path: str) -> None:
        """Write a value that starts with its length."""
        source, kind = self.source, wire_type.kind
        variable = source.fresh("v")
        encoded = ".encode()" if kind == "string" else ""
        if not nullable:
            source.add(f"{variable} = {expression}{encoded}", (path, 0))
            self.counted(wire_type, variable, path)
            return
        self.flush()
        source.add(f"{variable} = {expression}", (path, 0))
        source.add(f"if {variable} is None:")
        source.add(f"    a({self.null(kind)!r})")
        source.add("else:")
        source.depth += 1
        if encoded:
            source.add(f"{variable} = {variable}{encoded}", (path, 0))
        self.counted(wire_type, variable, path)
        self.flush()
        source.depth -= 1

    def null(self, kind: str) -> bytes:
        """How null is written in place of a length."""
        if self.flexible:
            return b"\0"
        return b"\xff\xff" if LEGACY_LENGTH[kind] == "h" else b"\xff\xff\xff\xff"

    def counted(self, wire_type: WireType, variable: str, path: str) -> None:
        """Write a length and what it counts."""
        source, kind = self.source, wire_type.kind
        if kind == "records":
            size = source.fresh("n")
            source.add(f"parts = {variable}.__class__ in (list, tuple)", (path, 0))
            source.add(
                f"{size} = sum(map(len, {variable})) if parts else len({variable})", (path, 0)
            )
            self.length(kind, size, path)
            self.pass_on(variable)
            return
        element = wire_type.element
        if element is not None and element.kind in FIXED and element.kind != "uuid":
            self.numbers(element.kind, variable, path)
            return
        self.length(kind, f"len({variable})", path)
        if element is None:
            source.add(f"a({variable})", (path, 0))
        else:
            self.elements(element, variable, path)

    def numbers(self, kind: str, variable: str, path: str) -> None:
        """Write an array of numbers, its length with it, in one call."""
        self.flush()
        source = self.source
        size = source.fresh("n")
        table = primitives.number_arrays(FIXED[kind][0], self.flexible)
        name = source.refer(f"{kind}_arrays", table)
        first = f"{size} + 1" if self.flexible else size
        source.add(f"{size} = len({variable})", (path, 0))
        source.add(f"a({name}[{size}]({first}, *{variable}))", (path, 0))

    def length(self, kind: str, expression: str, path: str) -> None:
        """Write a length, with the fixed-width values before it where both are fixed."""
        if self.flexible:
            self.flush()
            table = "STRING_LENGTHS" if kind == "string" else "VARINTS"
            self.source.add(f"a({table}[{expression} + 1])", (path, 0))
        else:
            self.give(LEGACY_LENGTH[kind], expression, path)
            self.flush()

    def pass_on(self, variable: str) -> None:
        """Hand over the buffers of a records field as they are."""
        source = self.source
        source.add('out.append(b"".join(w))')
        source.add("w.clear()")
        source.add("if parts:")
        source.add(f"    out.extend({variable})")
        source.add("else:")
        source.add(f"    out.append({variable})")

    def elements(self, element: WireType, variable: str, path: str) -> None:
        """Write the elements of an array."""
        source = self.source
        each = source.fresh("m")
        source.add(f"for {each} in {variable}:", (path, 0))
        source.depth += 1
        if element.kind == "struct":
            assert element.struct is not None
            self.structure(element.struct, each, path)
        else:
            self.value(element, False, each, path)
        self.flush()
        source.depth -= 1

    def tags(self, tagged: list[FieldSpec], variable: str, path: str) -> None:
        """Write the tag section: nearly always empty, and then one zero byte with the rest."""
        source = self.source
        places: list[Place] = [(path, 0)]
        empty, places = self.packed("x") if self.pending else (r'b"\0"', places)
        checks = [self.differs(field, f"{variable}.{field.name}") for field in tagged]
        checks.append(f"{variable}.unknown_tagged_fields")
        source.add(f"if {' or '.join(checks)}:", *places[:1])
        source.depth += 1
        self.flush()
        known = "{}"
        if tagged:
            known = source.fresh("tags")
            source.add(f"{known} = {{}}")
        for field in tagged:
            self.known_tag(field, variable, known, path)
        source.add(f"write_tags(a, {known}, {variable}.unknown_tagged_fields)", (path, 0))
        source.depth -= 1
        source.add("else:")
        source.add(f"    a({empty})", *places[:1])

    def known_tag(self, field: FieldSpec, variable: str, known: str, path: str) -> None:
        """Write a tagged field into the dictionary of tags unless it has its default."""
        place = (f"{path}.{field.name}" if path else field.name, 0)
        value = f"{variable}.{field.name}"
        self.source.add(f"if {self.differs(field, value)}:", place)
        writer = f"tag_{field.tag}_{field.name}_{len(self.tag_writers)}"
        self.tag_writers.append((writer, field, place[0]))
        self.source.add(f"    {known}[{field.tag}] = {writer}({value})", place)

    def differs(self, field: FieldSpec, value: str) -> str:
        """A condition: the value is not the field's default."""
        if field.default is None:
            return f"{value} is not None"
        if field.type.kind == "array":
            if is_nullable(field, self.version):
                return f"({value} is None or {value})"
            return value
        if field.type.kind == "struct":
            default = self.source.refer(f"NO_{field.name.upper()}", field.default)
            return f"({value} is not {default} and {value} != {default})"
        if field.default is False:
            return value
        return f"{value} != {field.default!r}"

    def tag_function(self, name: str, field: FieldSpec, path: str) -> None:
        """Define the function that writes the bytes of a tagged field."""
        source = self.source
        source.add("")
        source.add("")
        source.add(f"def {name}(v):")
        source.depth += 1
        source.add("w = []")
        source.add("a = w.append")
        self.value(field.type, is_nullable(field, self.version), "v", path)
        self.flush()
        source.add('return b"".join(w)')
        source.depth -= 1
