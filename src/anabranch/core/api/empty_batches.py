"""Past batches that compaction left without records, to those that have some.

What: an answer to a consumer does not consist of empty batches alone while records follow. Why:
librdkafka takes an answer without a record for one that was too small, asks for twice as much, and
after ten in a row tells the application that a message is too large (MSG_SIZE_TOO_LARGE). What is
left out is what the log would not have if compaction had removed it: consumers go on at the offset
of what they get. Rules kept: one request looks at a bounded number of batches; a rotten one is
given as it is, since its count may be what rotted, and its consumer sees that it is not sound.
Followers copy empty batches like all others. Not here: why they stay (`core/log/compaction`).
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING

from anabranch.core.wire.batch import BATCH_OVERHEAD, crc_is_valid, walk

if TYPE_CHECKING:
    from anabranch.core.partition.protocol import Partition
    from anabranch.core.types import Buffer

MOST_READS_PAST = 64
"""A read ends where a segment ends: so many segments without a record."""
MOST_BYTES_PAST = 4 * 1024 * 1024
"""Some 70,000 empty batches, which take a tenth of a second to look at."""
_COUNT = Struct(">i")
_COUNT_AT = BATCH_OVERHEAD - _COUNT.size


def is_empty(batch: Buffer) -> bool:
    """Whether a batch, of which the header is enough, has no records."""
    return not _COUNT.unpack_from(batch, _COUNT_AT)[0]


def past_empty(
    partition: Partition, records: Buffer, limit: int, *, max_bytes: int, at_least_one: bool
) -> Buffer:
    """What a consumer gets that asked for these batches: later ones where none of these has a
    record, and all are sound. Raises ColdRead."""
    found = pieces_past_empty(
        partition, (records,), limit, max_bytes=max_bytes, at_least_one=at_least_one
    )
    return found[0]


def pieces_past_empty(
    partition: Partition,
    pieces: tuple[Buffer, ...],
    limit: int,
    *,
    max_bytes: int,
    at_least_one: bool,
) -> tuple[Buffer, ...]:
    """The same of a diskless partition: its compacted segments give their batches in one piece."""
    records = pieces[0] if len(pieces) == 1 else b""
    if len(records) < BATCH_OVERHEAD or not is_empty(records):
        return pieces
    looked_at = 0
    for _ in range(MOST_READS_PAST):
        follows = limit
        for position, header in walk(records):
            if header.record_count or not crc_is_valid(records, position, header.size_bytes):
                return (records,)
            follows = header.next_offset
        looked_at += len(records)
        if follows >= limit or looked_at > MOST_BYTES_PAST:
            return (records,)
        later = partition.read(follows, max_bytes=max_bytes, upto=limit, at_least_one=at_least_one)
        if isinstance(later, tuple) and len(later) > 1:
            return later
        later = later[0] if isinstance(later, tuple) and later else later
        if not later or isinstance(later, tuple):
            return (records,)
        records = later
    return (records,)
