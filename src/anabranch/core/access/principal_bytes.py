"""A principal as bytes: how an Envelope says in whose name the request inside is made.

Layout (Kafka's DefaultPrincipalData): version int16 (0), then compact strings `type` and `name`, a
boolean `token authenticated`, and an empty tag section. Source: KIP-590.
"""

from __future__ import annotations

from anabranch.core.access.principal import Principal
from anabranch.core.errors import ProtocolError

VERSION = 0
MESSAGE = "DefaultPrincipalData"


def write_principal(principal: Principal) -> bytes:
    """The principal's bytes."""
    parts = [VERSION.to_bytes(2)]
    for text in principal:
        encoded = text.encode()
        parts += [_uvarint(len(encoded) + 1), encoded]
    return b"".join((*parts, b"\0\0"))


def read_principal(buffer: bytes | memoryview | None) -> Principal:
    """The principal that bytes name; raises ProtocolError."""
    if buffer is None:
        raise ProtocolError(MESSAGE, VERSION, "", 0, "no principal was given")
    data = bytes(buffer)
    version = int.from_bytes(data[:2])
    if len(data) < 2 or version != VERSION:
        raise ProtocolError(MESSAGE, version, "version", 0, f"only version {VERSION} is known")
    kind, position = _text(data, 2, "type")
    name, _position = _text(data, position, "name")
    return Principal(kind, name)


def _text(data: bytes, position: int, field: str) -> tuple[str, int]:
    size = shift = 0
    while True:
        if position >= len(data) or shift > 28:
            raise ProtocolError(MESSAGE, VERSION, field, position, "the length does not end")
        byte = data[position]
        position += 1
        size |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    end = position + size - 1
    if size < 1 or end > len(data):
        raise ProtocolError(MESSAGE, VERSION, field, position, f"length {size - 1} does not fit")
    try:
        return data[position:end].decode(), end
    except UnicodeDecodeError as problem:
        raise ProtocolError(MESSAGE, VERSION, field, position, str(problem)) from None


def _uvarint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
