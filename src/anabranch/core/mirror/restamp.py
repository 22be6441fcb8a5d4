"""A record batch of one log made fit for another: its own offsets, producer and checksum.

What: `restamped` copies a batch and changes its header alone: base offset 0, no leader epoch, the
mirror's producer fields, no timestamp type, no delete horizon, no transaction of the source's, a
new checksum. `must_open` says when that is not enough. `groups_of` says which batches travel as
they are and which are opened and put together, in order. Rules kept: records and their times stay;
control batches are no business of this module (the caller leaves them out); a batch without records
is left out. Where the delete horizon is set, `base_timestamp` is the horizon and the records'
deltas count from it, so clearing the bit changes no time. Source: KIP-98, KIP-534.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import StrEnum
from struct import Struct
from typing import NamedTuple

from anabranch.core.types import Buffer
from anabranch.core.wire.batch import (
    ATTRIBUTES_AT,
    BATCH_OVERHEAD,
    CODEC_MASK,
    PRODUCER,
    PRODUCER_AT,
    TRANSACTIONAL_BIT,
    BatchHeader,
    patch,
    renew_crc,
)
from anabranch.core.wire.compression import Codec

SMALL_BYTES = 16 << 10
"""Below this a batch costs brokers more for being a batch than for its bytes."""
MERGED_BYTES = 512 << 10
"""What small batches are put together to, before compression: far less than a broker's default
limit of 1 MiB, and so long that the cost of a batch no longer shows."""
NO_LEADER_EPOCH = -1
_ATTRIBUTES = Struct(">h")


class Opened(StrEnum):
    """Why the records of a batch must be written anew."""

    HOLES = "holes"
    """Compaction removed some: Kafka refuses a batch whose count and offsets differ."""
    CODEC = "codec"
    APPEND_TIME = "append time"
    """Readers see the leader's time in every record, and shall see it on the target too."""
    TOO_LARGE = "too large"


class Fit(NamedTuple):
    """What the target wants. Without a codec a batch keeps its own."""

    limit_bytes: int
    codec: Codec | None = None
    small_bytes: int = SMALL_BYTES
    merged_bytes: int = MERGED_BYTES


class Stamp(NamedTuple):
    """Who writes a batch on the target."""

    producer_id: int = -1
    producer_epoch: int = -1
    base_sequence: int = -1
    is_transactional: bool = False


class Run(NamedTuple):
    """Records that follow each other at the source: the first one's offset, and how many."""

    first: int
    records: int


class Outgoing(NamedTuple):
    """A batch for the target, and the offsets that its records have at the source, in order."""

    batch: bytearray
    runs: tuple[Run, ...]


class Group(NamedTuple):
    """Batches by their (position, header) that become one or more batches of the target."""

    members: list[tuple[int, BatchHeader]]
    is_opened: bool


def must_open(header: BatchHeader, fit: Fit) -> Opened | None:
    """Why a batch cannot travel as it is; None when it can."""
    if header.record_count != header.last_offset_delta + 1:
        return Opened.HOLES
    if header.log_append_time:
        return Opened.APPEND_TIME
    if fit.codec is not None and header.codec != fit.codec:
        return Opened.CODEC
    if header.size_bytes > fit.limit_bytes:
        return Opened.TOO_LARGE
    return None


def groups_of(batches: Iterable[tuple[int, BatchHeader]], fit: Fit) -> Iterator[Group]:
    """Batches in order, as groups: one that is large and sound alone, others together while they
    have one codec and are not too much for one batch."""
    open_group: list[tuple[int, BatchHeader]] = []
    size = 0
    for position, header in batches:
        if not header.record_count:
            continue
        is_sound = must_open(header, fit) is None
        joins = not is_sound or header.size_bytes < fit.small_bytes
        if open_group and not (joins and _fits(open_group[0][1], header, size, fit)):
            yield _grouped(open_group, fit)
            open_group, size = [], 0
        if not joins:
            yield Group([(position, header)], False)
            continue
        open_group.append((position, header))
        size += header.size_bytes - BATCH_OVERHEAD
    if open_group:
        yield _grouped(open_group, fit)


def _fits(first: BatchHeader, header: BatchHeader, size: int, fit: Fit) -> bool:
    same_codec = fit.codec is not None or first.codec == header.codec
    together = size + header.size_bytes + BATCH_OVERHEAD
    return same_codec and together <= min(fit.merged_bytes, fit.limit_bytes)


def _grouped(members: list[tuple[int, BatchHeader]], fit: Fit) -> Group:
    """A small batch that found no company need not be opened."""
    alone = len(members) == 1 and must_open(members[0][1], fit) is None
    return Group(members, not alone)


def codec_of(group: Group, fit: Fit) -> Codec:
    """The codec of what becomes of a group."""
    return Codec(group.members[0][1].codec) if fit.codec is None else fit.codec


def restamped(
    records: Buffer, position: int, header: BatchHeader, stamp: Stamp | None = None
) -> Outgoing:
    """The batch at `position` as its like on the target. Without a stamp the checksum is left to
    whoever fills in the producer's fields."""
    batch = bytearray(memoryview(records)[position : position + header.size_bytes])
    patch(batch, 0, 0, NO_LEADER_EPOCH)
    is_transactional = stamp is not None and stamp.is_transactional
    attributes = header.attributes & CODEC_MASK | (TRANSACTIONAL_BIT if is_transactional else 0)
    _ATTRIBUTES.pack_into(batch, ATTRIBUTES_AT, attributes)
    producer = Stamp()[:3] if stamp is None else stamp[:3]
    PRODUCER.pack_into(batch, PRODUCER_AT, *producer)
    if stamp is not None:
        renew_crc(batch, 0, len(batch))
    return Outgoing(batch, (Run(header.base_offset, header.record_count),))


def runs_of(offsets: Iterable[int]) -> tuple[Run, ...]:
    """Rising offsets as runs."""
    runs: list[Run] = []
    first = count = 0
    for offset in offsets:
        if count and offset == first + count:
            count += 1
            continue
        if count:
            runs.append(Run(first, count))
        first, count = offset, 1
    if count:
        runs.append(Run(first, count))
    return tuple(runs)


def joined(runs: Iterable[Run]) -> tuple[Run, ...]:
    """Rising runs, those that follow each other as one."""
    found: list[Run] = []
    for run in runs:
        if found and found[-1].first + found[-1].records == run.first:
            found[-1] = Run(found[-1].first, found[-1].records + run.records)
        else:
            found.append(run)
    return tuple(found)
