"""An input as a list of chunks, each after its size: how every target with steps is laid out."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from struct import Struct

SIZE = Struct(">i")
MOST_CHUNKS = 40
Make = Callable[[Random], bytes]
Change = Callable[[Random, bytes, bytes], bytes]


def split(entry: bytes) -> list[bytes]:
    """The chunks of an input; one whose size is wrong is the rest of the input."""
    chunks: list[bytes] = []
    position = 0
    while position + 4 <= len(entry) and len(chunks) < MOST_CHUNKS:
        (size,) = SIZE.unpack_from(entry, position)
        position += 4
        if not 0 <= size <= len(entry) - position:
            size = len(entry) - position
        chunks.append(entry[position : position + size])
        position += size
    return chunks


def join(chunks: list[bytes]) -> bytes:
    """Chunks with their sizes."""
    return b"".join(SIZE.pack(len(chunk)) + chunk for chunk in chunks)


def parts(entry: bytes) -> list[bytes]:
    """Pieces of an input, for making it smaller."""
    return [join([chunk]) for chunk in split(entry)]


def change(rng: Random, entry: bytes, other: bytes, make: Make, change_one: Change) -> bytes:
    """Change the list, or one chunk of it."""
    held, crossed = split(entry), split(other)
    for _ in range(rng.choice((1, 1, 2, 3))):
        chance, at = rng.random(), rng.randrange(len(held) + 1)
        if not held or chance < 0.2:
            held.insert(at, make(rng))
            continue
        at = rng.randrange(len(held))
        if chance < 0.7:
            held[at] = change_one(rng, held[at], rng.choice(crossed) if crossed else b"")
        elif chance < 0.8:
            del held[at]
        elif chance < 0.88:
            held.insert(rng.randrange(len(held) + 1), held[at])
        elif crossed:
            start = rng.randrange(len(crossed))
            held[at:at] = crossed[start : start + rng.choice((1, 2, 6))]
    return join(held[:MOST_CHUNKS])
