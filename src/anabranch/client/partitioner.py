"""Which partition a key belongs to: the choice that Kafka's Java producer makes.

murmur2 of the key (32 bits, seed 0x9747b28c), its sign bit cleared, modulo the number of
partitions, so that records written here and by Java clients meet in the same partition.
"""

from __future__ import annotations

SEED = 0x9747B28C
MULTIPLIER = 0x5BD1E995
MASK = 0xFFFFFFFF


def murmur2(key: bytes) -> int:
    """Austin Appleby's MurmurHash2 with Kafka's seed: an unsigned 32-bit number."""
    length = len(key)
    result = (SEED ^ length) & MASK
    whole = length & ~3
    for position in range(0, whole, 4):
        word = int.from_bytes(key[position : position + 4], "little") * MULTIPLIER & MASK
        word = (word ^ (word >> 24)) * MULTIPLIER & MASK
        result = (result * MULTIPLIER & MASK) ^ word
    if length > whole:
        result ^= int.from_bytes(key[whole:], "little")
        result = result * MULTIPLIER & MASK
    result = (result ^ (result >> 13)) * MULTIPLIER & MASK
    return result ^ (result >> 15)


def partition_for(key: bytes, partition_count: int) -> int:
    """The partition of a key among `partition_count`."""
    return (murmur2(key) & 0x7FFFFFFF) % partition_count
