"""Frames: a 4-byte size, a header, a body.

    request:  size int32 | api_key int16 | api_version int16 | correlation_id int32 |
              client_id legacy nullable string | tag section (header v2) | body
    response: size int32 | correlation_id int32 | tag section (header v1) | body

Flexible request versions have header v2, whose client_id stays a legacy string (KIP-482). Flexible
responses have header v1, but ApiVersions always answers with header v0, as a client reads the
answer before it knows what the node speaks (KIP-511).

Not here: reading the size and bounding it, which the connection does before there is a frame.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import NamedTuple

from anabranch.core.errors import ProtocolError
from anabranch.core.types import SIZE_BYTES, Buffer, Piece
from anabranch.core.wire.codec import M, decoder, encoder
from anabranch.core.wire.messages import API_KEYS
from anabranch.core.wire.primitives import Refusal, read_unknown_tags
from anabranch.core.wire.schema import Message

API_VERSIONS_KEY = 18

_REQUEST_HEAD = struct.Struct(">hhi")
_LENGTH = struct.Struct(">h")
_RESPONSE_HEAD = struct.Struct(">ii")
_RESPONSE_HEAD_FLEXIBLE = struct.Struct(">iix")
_CORRELATION_ID = struct.Struct(">i")
_SIZE_AND_HEAD = struct.Struct(">ihhih")


class RequestHeader(NamedTuple):
    """What stands before a request's body, and where the body starts."""

    api_key: int
    version: int
    correlation_id: int
    client_id: str | None
    body_offset: int


def read_request_header(frame: memoryview) -> RequestHeader:
    """The header of a request's frame (without its size); raises ProtocolError.

    An unknown API key or version is read as far as its header goes: the tag section of a version
    beyond the known ones is skipped when the API is flexible, so ApiVersions can be answered.
    """
    try:
        api_key, version, correlation_id = _REQUEST_HEAD.unpack_from(frame, 0)
    except struct.error as problem:
        raise _ends_early(frame) from problem
    spec = API_KEYS.get(api_key)
    is_flexible = spec is not None and version >= spec.flexible_from
    return RequestHeader(api_key, version, correlation_id, *read_client_id(frame, is_flexible))


def read_client_id(frame: memoryview, is_flexible: bool) -> tuple[str | None, int]:
    """The rest of a request's header for whoever knows its API key and version: the client's id,
    and where the body starts; raises ProtocolError."""
    try:
        (size,) = _LENGTH.unpack_from(frame, _REQUEST_HEAD.size)
        position = _REQUEST_HEAD.size + _LENGTH.size
        client_id = None
        if size >= 0:
            end = position + size
            if end > len(frame):
                raise Refusal(f"length {size} but {len(frame) - position} bytes remain")
            client_id = str(frame[position:end], "utf-8")
            position = end
        elif size != -1:
            raise Refusal(f"length {size}")
        if is_flexible:
            count = frame[position]
            position += 1
            if count:
                _, position = read_unknown_tags(frame, position, count)
    except (struct.error, IndexError) as problem:
        raise _ends_early(frame) from problem
    except (UnicodeDecodeError, Refusal) as problem:
        raise ProtocolError("RequestHeader", 2, "client_id", 8, str(problem)) from problem
    return client_id, position


def _ends_early(frame: memoryview) -> ProtocolError:
    detail = f"the header ends after {len(frame)} bytes"
    return ProtocolError("RequestHeader", 2, "", len(frame), detail)


def framer(cls: type[M], version: int) -> Callable[[int, M], list[Piece]]:
    """What makes frames of a class of responses: `(correlation_id, body) -> frame`, see below."""
    encode = encoder(cls, version)
    is_flexible = version in cls.flexible_versions and cls.api_key != API_VERSIONS_KEY
    head = _RESPONSE_HEAD_FLEXIBLE if is_flexible else _RESPONSE_HEAD
    pack, head_bytes = head.pack, head.size - SIZE_BYTES

    def frame(correlation_id: int, body: M) -> list[Piece]:
        out: list[Piece] = [b""]
        encode(body, out)
        out[0] = pack(sum(map(len, out)) + head_bytes, correlation_id)
        return out

    return frame


def frame_response(correlation_id: int, body: Message, version: int) -> list[Piece]:
    """A response's frame with its size; `records` fields are passed on, not copied."""
    return framer(type(body), version)(correlation_id, body)


def frame_request(
    correlation_id: int, client_id: str | None, body: Message, version: int
) -> list[Buffer]:
    """A request's frame with its size; `records` fields are passed on, not copied."""
    cls = type(body)
    out: list[Buffer] = [b""]
    encoder(cls, version)(body, out)
    name = b"" if client_id is None else client_id.encode()
    tail = name + b"\0" if version in cls.flexible_versions else name
    size = sum(map(len, out)) + _REQUEST_HEAD.size + _LENGTH.size + len(tail)
    length = -1 if client_id is None else len(name)
    out[0] = _SIZE_AND_HEAD.pack(size, cls.api_key, version, correlation_id, length) + tail
    return out


def read_response(frame: Buffer, cls: type[M], version: int) -> tuple[int, M]:
    """A response's frame (without its size): correlation id and body; raises ProtocolError."""
    buffer = memoryview(frame)
    try:
        (correlation_id,) = _CORRELATION_ID.unpack_from(buffer, 0)
        position = 4
        if version in cls.flexible_versions and cls.api_key != API_VERSIONS_KEY:
            count = buffer[position]
            position += 1
            if count:
                _, position = read_unknown_tags(buffer, position, count)
    except (struct.error, IndexError, Refusal) as problem:
        raise ProtocolError("ResponseHeader", 1, "", 0, str(problem)) from problem
    message, position = decoder(cls, version)(buffer, position)
    if position != len(buffer):
        detail = f"{len(buffer) - position} bytes follow the message"
        raise ProtocolError(cls.__name__, version, "", position, detail)
    return correlation_id, message
