"""Reading and writing messages: one compiled function a (class, version), made when first used.

The rule it keeps: ProtocolError is the only exception that decoding raises, whatever the bytes are.
It names message, version, field and offset. Encoding what does not fit the schema is a bug of ours.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, TypeVar

from anabranch.core.errors import Bug, ProtocolError
from anabranch.core.types import Buffer
from anabranch.core.wire.compile import Source
from anabranch.core.wire.compile_decode import decode_source
from anabranch.core.wire.compile_encode import encode_source
from anabranch.core.wire.primitives import Refusal
from anabranch.core.wire.schema import Message

M = TypeVar("M", bound=Message)
Decode = Callable[[memoryview, int], tuple[M, int]]
Encode = Callable[[M, list[Any]], None]
"""The list takes pieces of any kind: those of a `records` field are passed on."""

_DECODERS: dict[tuple[type[Message], int], Decode[Any]] = {}
_ENCODERS: dict[tuple[type[Message], int], Encode[Any]] = {}

_BAD_INPUT = (struct.error, IndexError, UnicodeDecodeError, Refusal)
_BAD_MESSAGE = (struct.error, AttributeError, TypeError, ValueError, OverflowError)


def decoder(cls: type[M], version: int) -> Decode[M]:
    """The decoder of a version: `(buffer, position) -> (message, position after it)`.

    It raises ProtocolError, and nothing else, for bytes that are not such a message.
    """
    found = _DECODERS.get((cls, version))
    if found is None:
        found = _DECODERS[cls, version] = _make_decoder(cls, version)
    return found


def encoder(cls: type[M], version: int) -> Encode[M]:
    """The encoder of a version: `(message, out)` appends the message's buffers to `out`."""
    found = _ENCODERS.get((cls, version))
    if found is None:
        found = _ENCODERS[cls, version] = _make_encoder(cls, version)
    return found


def decode(cls: type[M], buffer: Buffer, version: int, offset: int = 0) -> M:
    """Read a message that starts at `offset`; bytes after it are left alone."""
    return decoder(cls, version)(memoryview(buffer), offset)[0]


def decode_exact(cls: type[M], buffer: Buffer, version: int, offset: int = 0) -> M:
    """Read a message that must end where the buffer ends."""
    message, position = decoder(cls, version)(memoryview(buffer), offset)
    if position != len(buffer):
        detail = f"{len(buffer) - position} bytes follow the message"
        raise ProtocolError(cls.__name__, version, "", position, detail)
    return message


def encode(message: Message, version: int) -> list[Buffer]:
    """The buffers of a message; `records` fields are passed on, not copied."""
    out: list[Buffer] = []
    cls = type(message)
    found = _ENCODERS.get((cls, version)) or encoder(cls, version)
    found(message, out)
    return out


def encode_bytes(message: Message, version: int) -> bytes:
    """A message as one piece of bytes."""
    return b"".join(encode(message, version))


def _check_version(cls: type[Message], version: int) -> None:
    if version not in cls.versions:
        first, last = cls.versions[0], cls.versions[-1]
        detail = f"versions {first} to {last} are known"
        raise ProtocolError(cls.__name__, version, "", 0, detail)


def _make_decoder(cls: type[M], version: int) -> Decode[M]:
    _check_version(cls, version)
    source = decode_source(cls, version)
    compiled = source.build("decode")

    def decode_or_explain(buffer: memoryview, position: int) -> tuple[M, int]:
        try:
            return compiled(buffer, position)  # type: ignore[no-any-return]
        except _BAD_INPUT as problem:
            raise _explain(source, cls, version, problem, len(buffer)) from None

    return decode_or_explain


def _explain(
    source: Source, cls: type[Message], version: int, problem: Exception, size_bytes: int
) -> ProtocolError:
    field, position = source.field_at(problem.__traceback__, size_bytes)
    detail = str(problem)
    if isinstance(problem, struct.error | IndexError):
        detail = f"the input ends after {size_bytes} bytes, inside the field"
    elif isinstance(problem, UnicodeDecodeError):
        detail = f"not UTF-8: {problem.reason}"
    return ProtocolError(cls.__name__, version, field, position, detail)


def _make_encoder(cls: type[M], version: int) -> Encode[M]:
    _check_version(cls, version)
    source = encode_source(cls, version)
    compiled = source.build("encode")

    def encode_or_explain(message: M, out: list[Any]) -> None:
        try:
            compiled(message, out)
        except _BAD_MESSAGE as problem:
            field, _ = source.field_at(problem.__traceback__, 0)
            raise Bug(
                f"{cls.__name__} version {version} cannot be written: {field}: {problem}"
            ) from problem

    return encode_or_explain
