"""Batches that must be opened: their records as new batches without holes, within a limit.

What: `repacked` decodes the batches of a group, numbers their records from 0 and encodes them with
one codec, in as many batches as the target's limit makes necessary. Rules kept: order, keys,
values, headers and the times that a reader sees stay; a record that alone is beyond the limit is
`RecordTooLarge`, with its offset. The compiled twin in `pipelines.mirror_merge` gives the same
records; this one judges what that one declines.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

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
) -> Iterator[Outgoing]:
    """The records of the batches at some positions as batches of `codec`, in order. Raises
    RecordTooLarge when it comes to such a record, and ProtocolError, before there is any batch, for
    records that are not what they claim to be."""
    plain = [record for position in positions for record in decode_records(records, position)]
    yield from encoded(plain, codec, limit_bytes)


def encoded(records: Sequence[Record], codec: Codec, limit_bytes: int) -> Iterator[Outgoing]:
    """Records as batches, halved until each is within the limit. Raises RecordTooLarge when it
    comes to such a record."""
    if not records:
        return
    numbered = [each._replace(offset=index) for index, each in enumerate(records)]
    batch = build_batch(numbered, codec=codec)
    if len(batch) <= limit_bytes:
        yield Outgoing(batch, runs_of(each.offset for each in records))
        return
    if len(records) == 1:
        raise RecordTooLarge(records[0].offset, len(batch), limit_bytes)
    middle = len(records) // 2
    yield from encoded(records[:middle], codec, limit_bytes)
    yield from encoded(records[middle:], codec, limit_bytes)
