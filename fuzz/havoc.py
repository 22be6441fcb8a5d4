"""Changes to bytes that know nothing of what the bytes mean."""

from __future__ import annotations

from random import Random

INTERESTING = (-(2**63), -(2**31), -(2**15), -129, -128, -2, -1, 0, 1, 2, 16, 127, 128, 255, 256,
               1000, 2**15 - 1, 2**16 - 1, 2**31 - 1, 2**32 - 1, 2**63 - 1)  # fmt: skip
MOST_BYTES = 16_384
"""Inputs stay small: more would say the same, slower."""


def change(rng: Random, entry: bytes, other: bytes = b"") -> bytes:
    """A few small changes, one after another."""
    held = bytearray(entry)
    for _ in range(rng.choice((1, 1, 1, 2, 3, 6))):
        rng.choice(OPERATIONS)(rng, held, other)
    del held[MOST_BYTES:]
    return bytes(held)


def _flip(rng: Random, held: bytearray, _other: bytes) -> None:
    if held:
        held[rng.randrange(len(held))] ^= 1 << rng.randrange(8)


def _set(rng: Random, held: bytearray, _other: bytes) -> None:
    if held:
        held[rng.randrange(len(held))] = rng.choice((0, 1, 127, 128, 255, rng.randrange(256)))


def _step(rng: Random, held: bytearray, _other: bytes) -> None:
    if held:
        at = rng.randrange(len(held))
        held[at] = (held[at] + rng.choice((-2, -1, 1, 2))) % 256


def _number(rng: Random, held: bytearray, _other: bytes) -> None:
    size = rng.choice((2, 4, 4, 8))
    if len(held) >= size:
        at = rng.randrange(len(held) - size + 1)
        value = rng.choice(INTERESTING) % (1 << 8 * size)
        held[at : at + size] = value.to_bytes(size, rng.choice(("big", "big", "little")))


def _insert(rng: Random, held: bytearray, _other: bytes) -> None:
    at = rng.randrange(len(held) + 1)
    held[at:at] = rng.randbytes(rng.choice((1, 1, 2, 4, 8)))


def _remove(rng: Random, held: bytearray, _other: bytes) -> None:
    if held:
        at = rng.randrange(len(held))
        del held[at : at + rng.choice((1, 1, 2, 4, 16))]


def _copy(rng: Random, held: bytearray, _other: bytes) -> None:
    if held:
        source, at = rng.randrange(len(held)), rng.randrange(len(held))
        piece = bytes(held[source : source + rng.choice((1, 4, 12, 64))])
        held[at : at + rng.choice((0, len(piece)))] = piece


def _cut(rng: Random, held: bytearray, _other: bytes) -> None:
    if held:
        del held[rng.randrange(len(held)) :]


def _cross(rng: Random, held: bytearray, other: bytes) -> None:
    if other and held:
        start = rng.randrange(len(other))
        at = rng.randrange(len(held))
        piece = other[start : start + rng.choice((4, 16, 64, 1024))]
        held[at : at + rng.choice((0, len(piece)))] = piece


OPERATIONS = (_flip, _flip, _set, _step, _number, _number, _insert, _remove, _copy, _cut, _cross)
