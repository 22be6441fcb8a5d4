"""What compiled encoders and decoders call: varints, tag sections, refusals, and the named limits.

Layouts (KIP-482): an unsigned varint is seven bits a byte, lowest first, the high bit says "more".
A compact length is an unsigned varint of length + 1, 0 for null. A tag section is a varint count,
then for each tag a varint tag, a varint size, and that many bytes.

The rule it keeps: a length is believed only when the bytes that remain can hold it.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import cache
from typing import Any, NoReturn

LONGEST_STRING_BYTES = 0x7FFF
"""Kafka's own limit, for legacy and compact strings alike."""
LONGEST_BYTES = 0x7FFFFFFF
"""Kafka's lengths are signed 32-bit; frames are bounded far below that by the connection."""
MOST_ELEMENTS = 4_000_000
"""Elements of one array: above any cluster's partitions, below what a hostile frame could ask."""
MOST_REQUEST_ELEMENTS = 1 << 17
"""Array elements and unknown tagged fields of one whole request. An element costs up to two
microseconds to read and a few to answer, so this is how long one client may keep the node from all
others: half a second, not many. A hundred thousand topics or partitions, more than any client asks
for at once, still fit."""
MOST_TAGS = 1024
"""Tagged fields of one structure: Kafka has at most a handful."""
LONGEST_VARINT_BYTES = 5
VARINT_TABLE_SIZE = 4096


class Refusal(Exception):
    """Raised inside compiled code: why the bytes at hand cannot be the field being read."""


def uvarint_bytes(value: int) -> bytes:
    """The unsigned varint of a value."""
    parts = bytearray()
    while value > 127:
        parts.append(value & 127 | 128)
        value >>= 7
    parts.append(value)
    return bytes(parts)


class VarintTable(dict[int, bytes]):
    """Varints by value; those beyond the table are made when asked for, and not kept."""

    def __missing__(self, value: int) -> bytes:
        if value < 0:
            raise ValueError(f"{value} is no length")
        return uvarint_bytes(value)


VARINTS = VarintTable({value: uvarint_bytes(value) for value in range(VARINT_TABLE_SIZE)})


class StringLengths(VarintTable):
    """Varints of the lengths of strings, each one more than its string has bytes."""

    def __missing__(self, value: int) -> bytes:
        if value > LONGEST_STRING_BYTES + 1:
            raise ValueError(f"length {value - 1} is over the limit of {LONGEST_STRING_BYTES}")
        return super().__missing__(value)


STRING_LENGTHS = StringLengths(VARINTS)


class NumberArrays(dict[int, Callable[..., bytes]]):
    """Packers of arrays of numbers by length: called with the length as written, then the numbers.

    Short ones, which are nearly all, are kept, so an array costs one call.
    """

    def __init__(self, code: str, flexible: bool) -> None:
        super().__init__()
        self.code = code
        self.flexible = flexible

    def __missing__(self, count: int) -> Callable[..., bytes]:
        layout = f"{count}{self.code}"
        if self.flexible and count >= 127:
            pack = struct.Struct(">" + layout).pack
            return lambda length, *numbers: VARINTS[length] + pack(*numbers)
        packer = struct.Struct((">B" if self.flexible else ">i") + layout).pack
        if count < 127:
            self[count] = packer
        return packer


@cache
def number_arrays(code: str, flexible: bool) -> NumberArrays:
    """The packers of one kind of number, shared by all encoders."""
    return NumberArrays(code, flexible)


class NumberReaders(dict[int, Callable[[memoryview, int], tuple[Any, ...]]]):
    """What reads arrays of numbers by length, from a position of a buffer. Short ones are kept."""

    def __init__(self, code: str) -> None:
        super().__init__()
        self.code = code

    def __missing__(self, count: int) -> Callable[[memoryview, int], tuple[Any, ...]]:
        reader = struct.Struct(f">{count}{self.code}").unpack_from
        if count < 127:
            self[count] = reader
        return reader


@cache
def number_readers(code: str) -> NumberReaders:
    """The readers of one kind of number, shared by all decoders."""
    return NumberReaders(code)


def rest_of_uvarint(buffer: memoryview, position: int, first: int) -> tuple[int, int]:
    """The varint whose first byte, already read, said "more": its value and the position after."""
    value = first & 127
    shift = 7
    while True:
        byte = buffer[position]
        position += 1
        value |= (byte & 127) << shift
        if byte < 128:
            break
        shift += 7
        if shift > 28:
            raise Refusal(f"a varint is longer than {LONGEST_VARINT_BYTES} bytes")
    if value > 0xFFFFFFFF:
        raise Refusal("a varint is over 32 bits")
    return value, position


def read_uvarint(buffer: memoryview, position: int) -> tuple[int, int]:
    """An unsigned varint at a position: its value and the position after it."""
    first = buffer[position]
    if first < 128:
        return first, position + 1
    return rest_of_uvarint(buffer, position + 1, first)


def refuse_length(length: int, remaining: int, limit: int) -> None:
    """Say what is wrong with the length of a string, bytes or records field."""
    if length < 0:
        raise Refusal("null where the schema has no null" if length == -1 else f"length {length}")
    if length > limit:
        raise Refusal(f"length {length} is over the limit of {limit}")
    raise Refusal(f"length {length} but {max(0, remaining)} bytes remain")


def refuse_count(count: int, remaining: int, least_size: int, left: int = MOST_ELEMENTS) -> None:
    """Say what is wrong with the length of an array; `left` elements are left to a request."""
    if count < 0:
        raise Refusal("null where the schema has no null" if count == -1 else f"{count} elements")
    if left < count <= MOST_ELEMENTS and count * least_size <= remaining:
        refuse_request(count)
    if count > MOST_ELEMENTS:
        raise Refusal(f"{count} elements are over the limit of {MOST_ELEMENTS}")
    raise Refusal(
        f"{count} elements of at least {least_size} bytes but {max(0, remaining)} bytes remain"
    )


def refuse_request(count: int) -> NoReturn:
    """Say that a request has more elements than the node is willing to read."""
    raise Refusal(
        f"{count} elements more are over the limit of {MOST_REQUEST_ELEMENTS} in one request; "
        "ask for less at a time"
    )


def read_tag(buffer: memoryview, position: int) -> tuple[int, int, int]:
    """A tag's number, the position of its bytes, and the position after them."""
    tag, position = read_uvarint(buffer, position)
    size, position = read_uvarint(buffer, position)
    end = position + size
    if end > len(buffer):
        raise Refusal(f"tag {tag} has {size} bytes but {len(buffer) - position} remain")
    return tag, position, end


def check_tag_count(count: int, remaining: int) -> None:
    """Refuse a count of tagged fields that cannot be; each takes two bytes or more."""
    if count > MOST_TAGS:
        raise Refusal(f"{count} tagged fields are over the limit of {MOST_TAGS}")
    if 2 * count > remaining:
        raise Refusal(f"{count} tagged fields but {max(0, remaining)} bytes remain")


def read_unknown_tags(
    buffer: memoryview, position: int, count: int
) -> tuple[dict[int, bytes], int]:
    """The tagged fields of a structure that has none of its own, and the position after them."""
    if count > 127:
        count, position = rest_of_uvarint(buffer, position, count)
    check_tag_count(count, len(buffer) - position)
    tags = {}
    for _ in range(count):
        tag, position, end = read_tag(buffer, position)
        if tag in tags:
            raise Refusal(f"tag {tag} stands there twice")
        tags[tag] = bytes(buffer[position:end])
        position = end
    return tags, position


def write_tags(
    append: Callable[[bytes], None], known: dict[int, bytes], unknown: dict[int, bytes] | None
) -> None:
    """A tag section, in the order of tags as KIP-482 has it."""
    tags = {**unknown, **known} if unknown else known
    varints = VARINTS
    append(varints[len(tags)])
    for tag, field in sorted(tags.items()):
        append(varints[tag])
        append(varints[len(field)])
        append(field)
