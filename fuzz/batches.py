"""Record batches for inputs: sound ones of every kind, and sound ones that were changed.

A change to what the checksum covers usually renews the checksum, or nothing behind it would ever be
reached.
"""

from __future__ import annotations

from random import Random
from struct import pack
from typing import Any

from anabranch.core.wire.batch import BATCH_OVERHEAD, renew_crc
from anabranch.core.wire.compression import Codec
from anabranch.core.wire.offsets_records import (
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
    encode_key,
    encode_value,
)
from anabranch.core.wire.records import Record, build_batch
from fuzz import havoc

START_MS = 1_700_000_000_000
FIELDS = ((0, 8), (8, 4), (12, 4), (16, 1), (21, 2), (23, 4), (27, 8), (35, 8), (43, 8), (51, 2),
          (53, 4), (57, 4))  # fmt: skip
"""Place and size of the header's fields, without the checksum."""
CODECS = (Codec.NONE, Codec.NONE, *Codec)


def make(rng: Random) -> bytes:
    """A batch, now and then two, changed one time in three."""
    made = bytes(_sound(rng))
    if rng.random() < 0.05:
        made += bytes(_sound(rng))
    return change(rng, made) if rng.random() < 0.33 else made


def _sound(rng: Random) -> bytearray:
    count = rng.choice((1, 1, 1, 2, 3, 20))
    started = START_MS + rng.choice((0, 0, 5, 10**6, 10**9, -(10**9), -START_MS - 1))
    records = [_record(rng, index, started) for index in range(count)]
    how: dict[str, Any] = {"codec": rng.choice(CODECS)}
    if rng.random() < 0.35:
        how["producer_id"] = rng.choice((0, 5, 1000, 1000, 1001))
        how["producer_epoch"] = rng.choice((0, 0, 1, 32767))
        how["base_sequence"] = rng.choice((0, 0, 1, 2, 3, 20, 2**31 - 1))
    if rng.random() < 0.06:
        how["transactional"] = True
    if rng.random() < 0.04:
        how["control"] = True
        key = pack(">hh", 0, rng.choice((0, 1, 2)))
        records = [Record(0, started, key, pack(">hi", 0, 0), ())]
    made = build_batch(records, **how)
    if rng.random() < 0.1:
        made[:8] = rng.choice((1, 5, 2**62)).to_bytes(8, "big")
    return made


def _record(rng: Random, index: int, started: int) -> Record:
    key: bytes | None = rng.choice((b"k", b"l", b"", None, b"key-%d" % index))
    value: bytes | None = rng.choice((b"value", b"", None, bytes(100), b"x" * 30))
    if rng.random() < 0.1:
        key, value = _of_groups(rng)
    headers = (("h", b"1"), ("i", None)) if rng.random() < 0.1 else ()
    return Record(index, started + index * rng.choice((0, 1, 1000)), key, value, headers)


def _of_groups(rng: Random) -> tuple[bytes, bytes | None]:
    if rng.random() < 0.5:
        key = encode_key(OffsetCommitKey(group="g", topic="t", partition=rng.choice((0, 1, -1))))
        value = encode_value(
            OffsetCommitValue(offset=rng.choice((0, 5, -1))), rng.choice((0, 3, 4))
        )
    else:
        key = encode_key(GroupMetadataKey(group=rng.choice(("g", "h"))))
        value = encode_value(GroupMetadataValue(protocol_type="consumer"), rng.choice((0, 3)))
    if rng.random() < 0.3:
        key, value = havoc.change(rng, key), havoc.change(rng, value)
    return key, None if rng.random() < 0.2 else value


def change(rng: Random, batch: bytes) -> bytes:
    """Change a header's field, or what is behind the header; mostly with a checksum that fits."""
    if len(batch) < BATCH_OVERHEAD:
        return havoc.change(rng, batch)
    held = bytearray(batch)
    if rng.random() < 0.5:
        at, size = rng.choice(FIELDS)
        value = rng.choice(havoc.INTERESTING)
        if rng.random() < 0.4:
            value = int.from_bytes(held[at : at + size], "big") + rng.choice((-1, 1, 8, 16, 32))
        held[at : at + size] = (value % (1 << 8 * size)).to_bytes(size, "big")
    else:
        held[BATCH_OVERHEAD:] = havoc.change(rng, bytes(held[BATCH_OVERHEAD:]))
        if rng.random() < 0.8:
            held[8:12] = (len(held) - 12).to_bytes(4, "big")
    if rng.random() < 0.9:
        renew_crc(held, 0, len(held))
    return bytes(held)
