"""Batches that must be opened: their records as new batches without holes, within a limit.

What: `repacked` decodes the batches of a group, numbers their records from 0 and encodes them with
one codec, in as many batches as the target's limit makes necessary. Rules kept: order, keys,
values, headers and the times that a reader sees stay; a record that alone is beyond the limit is
`RecordTooLarge`, with its offset. The compiled twin in `pipelines.mirror_merge` gives the same
records; this one judges what that one declines.
"""

from __future__ import annotations

from collections.abc import Sequence

from anabranch.core.mirror.restamp import Outgoing, runs_of
from anabranch.core.types import Buffer
from anabranch.core.wire.compression import Codec
from anabranch.core.wire.records import Record, build_batch, decode_records


class RecordTooLarge(Exception):
    """A record that the target does not take: its offset, and the bytes of its batch."""

    def __init__(self, offset: int, size_bytes: int, limit_bytes: int) -> None:
        super().__init__(
            f"the record at offset {offset} makes a batch of {size_bytes:,} bytes, and the target "
            f"takes {limit_bytes:,}"
        )
        self.offset = offset
        self.size_bytes = size_bytes


def repacked(
    records: Buffer, positions: Sequence[int], codec: Codec, limit_bytes: int
) -> list[Outgoing]:
    """The records of the batches at some positions as batches of `codec`. Raises RecordTooLarge,
    and ProtocolError for records that are not what they claim to be."""
    plain = [record for position in positions for record in decode_records(records, position)]
    return encoded(plain, codec, limit_bytes)


def encoded(records: Sequence[Record], codec: Codec, limit_bytes: int) -> list[Outgoing]:
    """Records as batches, halved until each is within the limit. Raises RecordTooLarge."""
    if not records:
        return []
    numbered = [each._replace(offset=index) for index, each in enumerate(records)]
    batch = build_batch(numbered, codec=codec)
    if len(batch) <= limit_bytes:
        return [Outgoing(batch, runs_of(each.offset for each in records))]
    if len(records) == 1:
        raise RecordTooLarge(records[0].offset, len(batch), limit_bytes)
    middle = len(records) // 2
    halves = records[:middle], records[middle:]
    return [each for half in halves for each in encoded(half, codec, limit_bytes)]
