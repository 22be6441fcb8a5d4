"""The decode target: every decoder by itself.

    input:  byte: which of `KINDS` | int16: which class and version, or which codec | the bytes

The rule in one sentence: bytes are refused with the decoder's own exception, or what they say can
be written and reads back the same; no more comes out of a decompressor than its limit.
"""

from __future__ import annotations

import json
from functools import cache
from random import Random
from typing import Any

from anabranch.core.access.principal_bytes import read_principal
from anabranch.core.coordination.groups.classic.subscription import (
    assigned_partitions,
    subscribed_topics,
)
from anabranch.core.errors import ProtocolError
from anabranch.core.log import checkpoints
from anabranch.core.log.indexes import InvalidIndex, OffsetIndex, TimeIndex, decode_aborted
from anabranch.core.log.producer_snapshot import decode_snapshot, encode_snapshot
from anabranch.core.metadata.batches import decode_batches, snapshot_is_whole
from anabranch.core.wire import control_records, metadata_records, offsets_records
from anabranch.core.wire.batch import BATCH_OVERHEAD, read_header
from anabranch.core.wire.codec import decode, encode_bytes
from anabranch.core.wire.compression import Codec, compress, decompress
from anabranch.core.wire.control import end_marker
from anabranch.core.wire.frame import read_request_header
from anabranch.core.wire.messages import API_KEYS
from anabranch.core.wire.metadata_records import decode_record, encode_record
from anabranch.core.wire.offsets_records import OffsetCommitValue, decode_key, decode_value
from anabranch.core.wire.records import decode_records
from anabranch.core.wire.schema import Message
from fuzz import batches, havoc, messages
from fuzz.target import REFUSED, Features, Target
from fuzz.verdict import expect

LIMIT_BYTES = 1 << 16


@cache
def classes() -> tuple[tuple[type[Message], int], ...]:
    """Every message and record that there is, in each of its versions."""
    found: list[type[Message]] = []
    for spec in API_KEYS.values():
        found += (spec.request, spec.response)
    found += metadata_records.METADATA_RECORDS.values()
    for module in (control_records, offsets_records):
        for each in vars(module).values():
            if isinstance(each, type) and issubclass(each, Message) and each is not Message:
                found.append(each)
    return tuple((cls, version) for cls in found for version in cls.versions)


def message(number: int, held: bytes) -> Any:
    """A message of any class."""
    cls, version = classes()[number % len(classes())]
    written = encode_bytes(decode(cls, bytearray(held), version), version)
    again = decode(cls, written, version)
    expect(encode_bytes(again, version) == written, "a message reads back")
    return cls.__name__


def compressed(number: int, held: bytes) -> Any:
    """Compressed bytes."""
    codec = Codec(number % len(Codec))
    plain = decompress(codec, held, limit_bytes=LIMIT_BYTES)
    if codec is not Codec.NONE:
        expect(len(plain) <= LIMIT_BYTES, "no more comes out than the limit")
        again = decompress(codec, compress(codec, plain), limit_bytes=LIMIT_BYTES)
        expect(bytes(again) == bytes(plain), "what is compressed comes out again")
    return codec


def batch(_: int, held: bytes) -> Any:
    """A record batch: its header, its records, its marker."""
    header = read_header(held)
    records = decode_records(held)
    expect(len(records) == header.record_count, "there are as many records as the header says")
    if header.is_control:
        end_marker(held)
    return header.codec, header.is_control


def metadata(_: int, held: bytes) -> Any:
    """Batches of metadata records."""
    snapshot_is_whole(held)
    return sum(len(each.records) for each in decode_batches(held)) > 0


def metadata_record(_: int, held: bytes) -> Any:
    """One metadata record."""
    record = decode_record(held)
    again = decode_record(encode_record(record))
    expect(type(again) is type(record), "a record reads back")
    return type(record).__name__


def offsets_key(_: int, held: bytes) -> Any:
    """A key of `__consumer_offsets`, and a value."""
    decode_value(OffsetCommitValue, held)
    return type(decode_key(held)).__name__


def checkpoint(number: int, held: bytes) -> Any:
    """The small files of a log folder."""
    parse = (
        checkpoints.parse_offsets, checkpoints.parse_epochs, checkpoints.parse_partition_metadata,
        checkpoints.parse_clean_shutdown, checkpoints.parse_meta_properties,
    )[number % 5]  # fmt: skip
    parse(held)
    return parse.__name__


def index(number: int, held: bytes) -> Any:
    """Indexes, and snapshots of producers."""
    if number % 4 == 0:
        made = OffsetIndex.decode(held, 1 << 20)
        expect(OffsetIndex.decode(made.encode(), 1 << 20).encode() == made.encode(), "reads back")
    elif number % 4 == 1:
        times = TimeIndex.decode(held)
        expect(TimeIndex.decode(times.encode()).encode() == times.encode(), "reads back")
    elif number % 4 == 2:
        decode_aborted(held)
    else:
        states = decode_snapshot(held)
        if states is not None:
            expect(decode_snapshot(encode_snapshot(states)) is not None, "reads back")
            return "snapshot"
    return number % 4


def small(number: int, held: bytes) -> Any:
    """Headers, subscriptions, principals."""
    if number % 3 == 0:
        return read_request_header(memoryview(held)).api_key in API_KEYS
    if number % 3 == 1:
        return subscribed_topics([held]) is None, len(assigned_partitions(held)) > 0
    return read_principal(held) and "principal"


KINDS = (message, compressed, batch, metadata, metadata_record, offsets_key, checkpoint, index,
         small)  # fmt: skip
REFUSALS = (ProtocolError, InvalidIndex, checkpoints.InvalidCheckpoint)


def run(entry: bytes) -> Features:
    """Decode the rest of an input as its first bytes say."""
    if len(entry) < 3:
        return set()
    kind = KINDS[entry[0] % len(KINDS)]
    number = int.from_bytes(entry[1:3], "big")
    try:
        return {(kind.__name__, kind(number, entry[3:]))}
    except REFUSALS as refused:
        where = refused.field if isinstance(refused, ProtocolError) else ""
        name = refused.message_name if isinstance(refused, ProtocolError) else ""
        return {(REFUSED, kind.__name__, type(refused).__name__, name, where)}


def _offsets_file(rng: Random) -> bytes:
    rows = rng.choice(("t 0 5\n", "0 0\n", "a b c\n", ""))
    return f"{rng.choice((0, 0, 1))}\n{rng.choice((0, 1, 2))}\n{rows}".encode()


def content(rng: Random, kind: Any, number: int) -> bytes:
    """Bytes that a decoder may take."""
    if kind is message:
        cls, version = classes()[number % len(classes())]
        try:
            return encode_bytes(messages.make(rng, cls, version), version)
        except AssertionError:  # a default that the version cannot carry
            return b""
    if kind is compressed:
        plain = rng.choice((b"", b"x" * 100, rng.randbytes(40), bytes(LIMIT_BYTES + 1)))
        return bytes(compress(Codec(number % len(Codec)), plain))
    if kind in (batch, metadata):
        return batches.make(rng)
    if kind is checkpoint:
        marker = json.dumps({"version": 0, "brokerEpoch": rng.choice((1, -1, 1.5, "1"))}).encode()
        properties = b"cluster.id=c\nnode.id=1\nversion=1\n"
        ids = b"version: 0\ntopic_id: AAECAwQFBgcICQoLDA0ODw\n"
        return (_offsets_file(rng), _offsets_file(rng), ids, marker, properties)[number % 5]
    if kind is metadata_record:
        cls = rng.choice(tuple(metadata_records.METADATA_RECORDS.values()))
        return encode_record(cls())
    return rng.randbytes(rng.choice((2, 8, 24, 60)))


def make(rng: Random) -> bytes:
    """Something that one of the decoders takes."""
    kind, number = rng.choice(KINDS), rng.randrange(1 << 16)
    head = bytes([KINDS.index(kind)]) + number.to_bytes(2, "big")
    return head + content(rng, kind, number)


def change(rng: Random, entry: bytes, other: bytes) -> bytes:
    """Change what is decoded, now and then as what."""
    if rng.random() < 0.05:
        return havoc.change(rng, entry, other)
    if len(entry) > 3 + BATCH_OVERHEAD and KINDS[entry[0] % len(KINDS)] is batch:
        return entry[:3] + batches.change(rng, entry[3:])
    return entry[:3] + havoc.change(rng, entry[3:], other[3:])


TARGET = Target("decode", run, make, change, share=5)
