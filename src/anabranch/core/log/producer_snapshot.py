"""Producer state in a file, `<offset>.snapshot`: Kafka's version 1.

Layout, big-endian: version int16 (1), CRC-32C uint32 of everything after it, number of entries
int32, then entries: producer id int64, epoch int16, last sequence int32, last offset int64, offset
delta int32, timestamp int64, coordinator epoch int32, first offset of the open transaction int64
(-1).

The last entry of a producer has its last batch, and as timestamp when it last wrote; Kafka's is
that of its newest record, by which it forgets the producer. Where the producer may have more in
flight, entries with its batches, oldest first, and their newest timestamps come before: a client
sends all again that were not acknowledged to a leader that was restarted. Kafka writes none of
these, and when it reads them, the last entry of an id replaces those before. A snapshot that fails
its checksum is not used: state is then rebuilt from batch headers.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from operator import itemgetter

from anabranch.core.log.producers import Producer, ProducerBatch, ProducerStates
from anabranch.core.wire.crc import crc32c

VERSION = 1
_HEAD = struct.Struct(">hIi")
_ENTRY = struct.Struct(">qhiqiqiq")
_COVERED_FROM = 6
LATEST_MS = 2**63 - 1
NO_BATCH = ProducerBatch(-1, -1, 0, -1)
RETRIED_MS = 15 * 60_000
"""Who wrote nothing for so long before the log's last batch sends nothing again: clients give up
after two (Java) or five (librdkafka) minutes."""


def encode_snapshot(states: ProducerStates) -> bytes:
    """The file's bytes; producers in order of id."""
    newest_ms = max((each.last_written_ms for each in states), default=0)
    entries: list[bytes] = []
    for producer in sorted(states, key=lambda one: one.producer_id):
        if producer.last_written_ms >= newest_ms - RETRIED_MS:
            entries += _in_flight(producer)
        last = producer.batches[-1] if producer.batches else NO_BATCH
        entries.append(_entry(producer, last, producer.last_written_ms))
    body = struct.pack(">i", len(entries)) + b"".join(entries)
    return struct.pack(">hI", VERSION, crc32c(body)) + body


def _in_flight(producer: Producer) -> list[bytes]:
    """The batches that a producer may send again, but for a last one that its own entry tells."""
    batches = producer.batches
    if batches and batches[-1].timestamp == producer.last_written_ms:
        batches = batches[:-1]
    return [_entry(producer, batch, batch.timestamp) for batch in batches]


def _entry(producer: Producer, batch: ProducerBatch, timestamp: int) -> bytes:
    return _ENTRY.pack(
        producer.producer_id,
        producer.epoch,
        batch.last_sequence,
        batch.last_offset,
        batch.offset_delta,
        timestamp,
        producer.coordinator_epoch,
        producer.transaction_first_offset,
    )


def decode_snapshot(encoded: bytes, now_ms: int = LATEST_MS) -> ProducerStates | None:
    """Read a snapshot; None when it is damaged or of a version that is not known.

    Nobody has written after `now_ms`, whatever a clock said that was wrong."""
    entries = _entries(encoded)
    if entries is None:
        return None
    states = ProducerStates(now_ms)
    for fields in entries:
        _restore(states, *fields)
    opened = sorted(states.open_transactions.items(), key=itemgetter(1))
    states.open_transactions = dict(opened)
    return states


def open_in_snapshot(encoded: bytes) -> frozenset[int] | None:
    """The producers that have an open transaction; None as `decode_snapshot`."""
    entries = _entries(encoded)
    if entries is None:
        return None
    return frozenset(fields[0] for fields in entries if fields[-1] >= 0)


def _entries(encoded: bytes) -> Iterator[tuple[int, ...]] | None:
    """What stands in a sound snapshot, as `_ENTRY` has it."""
    if len(encoded) < _HEAD.size:
        return None
    version, crc, count = _HEAD.unpack_from(encoded)
    if version != VERSION or crc != crc32c(encoded[_COVERED_FROM:]):
        return None
    if len(encoded) != _HEAD.size + count * _ENTRY.size:
        return None
    return _ENTRY.iter_unpack(encoded[_HEAD.size :])


def _restore(
    states: ProducerStates,
    producer_id: int,
    epoch: int,
    last_sequence: int,
    last_offset: int,
    offset_delta: int,
    timestamp: int,
    coordinator_epoch: int,
    transaction_first_offset: int,
) -> None:
    producer = states.producers.get(producer_id)
    if producer is None:
        producer = states.producers[producer_id] = Producer(producer_id, epoch)
    batches = producer.batches
    if last_offset >= 0 and not (batches and batches[-1].last_offset == last_offset):
        batches.append(ProducerBatch(last_sequence, last_offset, offset_delta, timestamp))
    producer.last_timestamp = batches[-1].timestamp if batches else timestamp
    producer.last_written_ms = min(timestamp, states.now_ms)
    producer.coordinator_epoch = coordinator_epoch
    producer.transaction_first_offset = transaction_first_offset
    if transaction_first_offset >= 0:
        states.open_transactions[producer_id] = transaction_first_offset
