"""The schema notation: a message class is its own description.

A field's annotation carries its wire type and, where they differ from the whole message's, its
versions and its tag; one class serves all versions of a message:

    class LeaderIdAndEpoch(Struct):
        leader_id: Annotated[Int32, "10+"] = -1

    class ProduceResponse(Message, api_key=0, versions="3-13", flexible="9+"):
        responses: list[TopicProduceResponse] = []
        node_endpoints: Annotated[list[NodeEndpoint], "10+", "tag 0"] = []

Marks in `Annotated`: a wire type (`"int16"`, from the aliases below), versions (`"10+"`, `"0-12"`,
`"5"`), `"nullable 8+"` where null came later than the field, and `"tag 0"` for a tagged field.
`| None` says that null is allowed. A structure that is a default is `constant`: it cannot be
changed, and all messages share it. Defaults are Kafka's; a field that a version lacks is not
written, and reads as its default. Names are Kafka's, in snake case (KIP-482 for tags).

Not here: reading and writing bytes (compile.py makes that from the notation).
"""

from __future__ import annotations

from functools import cache
from typing import (
    Annotated,
    Any,
    ClassVar,
    NamedTuple,
    TypeVar,
    get_args,
    get_origin,
    get_type_hints,
)

import msgspec

from anabranch.core.types import TopicId

Bool = Annotated[bool, "bool"]
Int8 = Annotated[int, "int8"]
Int16 = Annotated[int, "int16"]
Uint16 = Annotated[int, "uint16"]
Int32 = Annotated[int, "int32"]
Int64 = Annotated[int, "int64"]
Float64 = Annotated[float, "float64"]
String = Annotated[str, "string"]
NullableString = Annotated[str | None, "string"]
Uuid = Annotated[bytes, "uuid"]
"""16 raw bytes."""
TopicUuid = Annotated[TopicId, "uuid"]
Bytes = Annotated[bytes, "bytes"]
NullableBytes = Annotated[bytes | None, "bytes"]
Records = Annotated[Any, "records"]
"""Decoded: a memoryview of the input, not copied. To encode: a buffer, or a list of buffers."""
NullableRecords = Annotated[Any | None, "records"]

ZERO_UUID = bytes(16)
HIGHEST_VERSION = 32767
PRIMITIVES = frozenset(
    ("bool", "int8", "int16", "uint16", "int32", "int64", "float64")
    + ("string", "uuid", "bytes", "records")
)


class SchemaError(Exception):
    """A message class is written wrongly: a mistake of ours, found when it is first compiled."""


def parse_versions(text: str) -> range:
    """The versions that `"3-13"`, `"9+"`, `"0"` or `"none"` stand for."""
    if text == "none":
        return range(0)
    first, _, last = text.partition("-")
    if text.endswith("+"):
        return range(int(text[:-1]), HIGHEST_VERSION + 1)
    return range(int(first), int(last or first) + 1)


class WireMeta(msgspec.StructMeta):
    """Takes the class keywords of the notation beside msgspec's own."""

    def __new__(
        mcls,
        name: str,
        bases: tuple[type, ...],
        namespace: dict[str, Any],
        *,
        api_key: int = -1,
        type_id: int = -1,
        versions: str = "none",
        flexible: str = "none",
        constant: bool = False,
        **options: Any,
    ) -> WireMeta:
        """Make the class and leave its numbers on it; a `constant` one cannot be changed."""
        if constant:
            options["frozen"] = True
        cls = super().__new__(mcls, name, bases, namespace, **options)
        if versions != "none":
            numbers: dict[str, Any] = {"api_key": api_key, "type_id": type_id}
            numbers["versions"] = parse_versions(versions)
            numbers["flexible_versions"] = parse_versions(flexible)
            for attribute, value in numbers.items():
                setattr(cls, attribute, value)
        return cls


class Struct(msgspec.Struct, metaclass=WireMeta, kw_only=True, gc=False, repr_omit_defaults=True):
    """A structure inside a message. Holds no cycles, so the garbage collector skips it."""

    unknown_tagged_fields: dict[int, bytes] | None = None
    """Tagged fields of a newer peer, by tag: kept, and written back (KIP-482)."""


StructT = TypeVar("StructT", bound=Struct)


def same_fields(cls: type[StructT], source: Struct) -> StructT:
    """A structure with what another one has in fields of the same names."""
    names = (set(cls.__struct_fields__) & set(source.__struct_fields__)) - {"unknown_tagged_fields"}
    return cls(**{name: getattr(source, name) for name in names})


class Message(Struct):
    """A whole message: a request, a response, or a record's value."""

    api_key: ClassVar[int]
    """The API key of a request or response, else -1."""
    type_id: ClassVar[int]
    """The type id of a metadata record, else -1."""
    versions: ClassVar[range]
    flexible_versions: ClassVar[range]


class WireType(NamedTuple):
    """What stands on the wire: a primitive's name, `"struct"` with its class, or `"array"`."""

    kind: str
    struct: type[Struct] | None = None
    element: WireType | None = None


class FieldSpec(NamedTuple):
    """One field of a structure, read from its annotation."""

    name: str
    type: WireType
    versions: range
    nullable_versions: range
    tag: int | None
    default: Any
    """A plain value, a frozen structure, or `list` for an array that starts empty."""


ALL_VERSIONS = range(HIGHEST_VERSION + 1)


@cache
def fields_of(cls: type[Struct]) -> tuple[FieldSpec, ...]:
    """The fields of a structure in wire order; raises SchemaError where the notation is wrong."""
    hints = get_type_hints(cls, include_extras=True)
    return tuple(
        _field(cls, info.name, hints[info.name], _default_of(info))
        for info in msgspec.structs.fields(cls)
        if info.name != "unknown_tagged_fields"
    )


def active_fields(cls: type[Struct], version: int) -> list[FieldSpec]:
    """The fields that a version has, tagged ones included."""
    return [each for each in fields_of(cls) if version in each.versions]


def _default_of(info: msgspec.structs.FieldInfo) -> Any:
    if info.default_factory is not msgspec.NODEFAULT:
        return info.default_factory
    if info.default is msgspec.NODEFAULT:
        raise SchemaError(f"{info.name} has no default")
    return info.default


def _field(cls: type[Struct], name: str, hint: Any, default: Any) -> FieldSpec:
    marks = get_args(hint)[1:] if get_origin(hint) is Annotated else ()
    versions, nullable, tag = ALL_VERSIONS, None, None
    for mark in marks:
        if mark in PRIMITIVES:
            continue
        if mark.startswith("tag "):
            tag = int(mark[4:])
        elif mark.startswith("nullable "):
            nullable = parse_versions(mark[9:])
        else:
            versions = parse_versions(mark)
    wire_type, allows_null = _wire_type(hint)
    if wire_type is None:
        raise SchemaError(f"{cls.__name__}.{name}: {hint} is not in the notation")
    if nullable is None:
        nullable = ALL_VERSIONS if allows_null else range(0)
    return FieldSpec(name, wire_type, versions, nullable, tag, default)


def _wire_type(hint: Any) -> tuple[WireType | None, bool]:
    """The wire type of an annotation, and whether `None` is among its values."""
    if get_origin(hint) is Annotated:
        base, *marks = get_args(hint)
        found = [mark for mark in marks if mark in PRIMITIVES]
        if found:
            return WireType(found[0]), type(None) in get_args(base)
        return _wire_type(base)
    options = [each for each in get_args(hint) if each is not type(None)]
    if get_origin(hint) is list:
        element, _ = _wire_type(options[0])
        return (WireType("array", element=element) if element else None), False
    if type(None) in get_args(hint) and len(options) == 1:
        return _wire_type(options[0])[0], True
    if isinstance(hint, type) and issubclass(hint, Struct):
        return WireType("struct", struct=hint), False
    return None, False
