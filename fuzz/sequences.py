"""The order of frames in an input of the stream target: made, changed, crossed.

An input is a list of frames (see `targets/stream.py`). Changes work on the list, on a frame's
decoded message, and on its bytes.
"""

from __future__ import annotations

from functools import cache
from random import Random
from struct import Struct, pack
from typing import Any

from anabranch.core.api.handler import Handler, forward
from anabranch.core.api.registry import handlers
from anabranch.core.errors import Bug, ProtocolError
from anabranch.core.wire.codec import decoder
from anabranch.core.wire.frame import frame_request, read_request_header
from anabranch.core.wire.messages import API_KEYS
from fuzz import havoc, messages

CONTROLLER_BIT = 1 << 14
EVENTS = ("time", "sync", "crash", "stop", "metadata", "compact")
HEAD = Struct(">hhi")
MOST_FRAMES = 16
CLIENTS = ("fuzz", "fuzz", None, "", "c" * 40)
OFTEN = (0, 0, 0, 1, 1, 2, 8, 9, 11, 11, 12, 13, 14, 14, 19)
"""API keys that build up state."""


@cache
def _keys() -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The API keys of clients, and those of other nodes."""
    clients = tuple(key for key, each in handlers().items() if each.broker is not None)
    nodes = tuple(key for key, each in handlers().items() if each.controller is not None)
    return clients, nodes


@cache
def _forwarded() -> tuple[int, ...]:
    return tuple(
        key for key, each in handlers().items() if each.broker is forward or each.forwards_some
    )


def number_of(event: str) -> int:
    """The API key that stands for an event."""
    return -(EVENTS.index(event) or len(EVENTS))


def make(rng: Random) -> list[bytes]:
    """Some frames from nothing."""
    return [make_frame(rng) for _ in range(rng.choice((1, 1, 1, 2, 3, 5)))]


def make_frame(rng: Random) -> bytes:
    """A request of any API in any version, or an event."""
    clients, nodes = _keys()
    chance = rng.random()
    if chance < 0.06:
        return make_event(rng)
    if chance < 0.45:
        return make_request(rng, rng.choice(OFTEN))
    if chance < 0.88:
        return make_request(rng, rng.choice(clients))
    return make_request(rng, rng.choice(nodes), CONTROLLER_BIT)


def make_event(rng: Random) -> bytes:
    """An event with its numbers."""
    numbers = (rng.choice((1, 500, 7000, 61_000, 80_000_000)), rng.randrange(16), rng.randrange(16))
    number = -1 - rng.randrange(len(EVENTS))
    return pack(">hIII", number, rng.choice((numbers[0], rng.randrange(8))), *numbers[1:])


def make_request(rng: Random, api_key: int, bit: int = 0) -> bytes:
    """A request of an API in one of its versions."""
    handler: Handler | None = handlers().get(api_key)
    if handler is None:
        return pack(">hhih", api_key, 0, 0, -1)
    version = rng.choice(handler.versions)
    for _ in range(3):
        message = messages.make(rng, API_KEYS[api_key].request, version)
        try:
            return framed(rng, message, version, bit)
        except (Bug, UnicodeEncodeError):
            continue
    return framed(rng, API_KEYS[api_key].request(), version, bit)


def framed(rng: Random, message: Any, version: int, bit: int) -> bytes:
    """A message as a frame; `bit` says the listener."""
    client = rng.choice(CLIENTS)
    whole = b"".join(frame_request(rng.randrange(64), client, message, version))[4:]
    api_key: int = type(message).api_key
    return (api_key | bit).to_bytes(2, "big") + whole[2:]


def _enveloped(rng: Random) -> bytes:
    return make_request(rng, rng.choice(_forwarded()))


messages.ENVELOPES.append(_enveloped)


def change(rng: Random, frames: list[bytes], other: list[bytes]) -> list[bytes]:
    """Change an input in one or a few places."""
    held = list(frames)
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        _change_once(rng, held, other)
    return held[:MOST_FRAMES]


def _change_once(rng: Random, held: list[bytes], other: list[bytes]) -> None:
    chance = rng.random()
    if not held or chance < 0.15:
        held.insert(rng.randrange(len(held) + 1), make_frame(rng))
        return
    at = rng.randrange(len(held))
    if chance < 0.65:
        held[at] = change_message(rng, held[at])
    elif chance < 0.77:
        held[at] = havoc.change(rng, held[at], rng.choice(other) if other else b"")
    elif chance < 0.83:
        del held[at]
    elif chance < 0.88:
        held.insert(rng.randrange(len(held) + 1), held[at])
    elif chance < 0.92:
        to = rng.randrange(len(held))
        held[at], held[to] = held[to], held[at]
    elif other:
        start = rng.randrange(len(other))
        held[at:at] = other[start : start + rng.choice((1, 1, 1, 2, 4))]


def change_message(rng: Random, frame: bytes) -> bytes:
    """Decode a frame, change fields, encode it, now and then in another version."""
    if len(frame) < HEAD.size:
        return havoc.change(rng, frame)
    api_key, version, _ = HEAD.unpack_from(frame)
    if api_key < 0:
        return make_event(rng) if rng.random() < 0.7 else havoc.change(rng, frame)
    bit = api_key & CONTROLLER_BIT
    api_key -= bit
    handler = handlers().get(api_key)
    if handler is None or version not in handler.versions:
        return make_request(rng, api_key)
    buffer = memoryview(api_key.to_bytes(2, "big") + frame[2:])
    try:
        header = read_request_header(buffer)
        message, _ = decoder(API_KEYS[api_key].request, version)(buffer, header.body_offset)
    except ProtocolError:
        return havoc.change(rng, frame)
    for _ in range(rng.choice((1, 1, 2, 3))):
        messages.change(rng, message, version)
    if rng.random() < 0.15:
        version = rng.choice(handler.versions)
    try:
        changed = framed(rng, message, version, bit)
    except (Bug, UnicodeEncodeError):
        return frame
    return changed if len(changed) <= havoc.MOST_BYTES else frame
