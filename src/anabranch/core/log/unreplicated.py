"""Which transactions of a log that was just opened have markers that not all replicas may have.

Why: readers of committed records stop before a transaction whose marker lies at or above the high
watermark. A snapshot of producers says only which transactions are open at the log's end, and the
high watermark that was saved may lie before that. Rules kept: what ended behind the high watermark
is found from there on; where such a transaction began before it is found backwards, as far as
MOST_BYTES; where that says nothing, readers wait at the place that was reached, which is earlier.
Kafka does not look. Not here: open transactions (`producer_snapshot`, `producer_replay`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence

from anabranch.core.errors import ProtocolError, StorageFault
from anabranch.core.log.reader import position_of
from anabranch.core.log.scan import BadBatch, scan
from anabranch.core.log.segment import Segment
from anabranch.core.log.state import LogState
from anabranch.core.wire.batch import BatchHeader
from anabranch.core.wire.control import end_marker

MOST_BYTES = 4 << 20
"""What is read in each direction: far more than lies between a high watermark and the end of a log
whose process ended in order, and than most transactions write. A broker opens thousands of logs."""


def recall_unreplicated(log: LogState, high_watermark: int) -> None:
    """Fill `log.producers.unreplicated` for a log that was opened with this high watermark."""
    producers = log.producers
    producers.unreplicated.clear()
    if high_watermark >= log.end_offset:
        return
    if not any(each.coordinator_epoch >= 0 for each in producers):
        return
    try:
        producers.unreplicated = deque(_ended_from(log, high_watermark))
    except (BadBatch, ProtocolError, StorageFault):  # a reader of it will say so
        producers.unreplicated = deque([(log.local_start_offset, log.end_offset - 1)])


def _ended_from(log: LogState, high_watermark: int) -> list[tuple[int, int]]:
    """(first offset, marker's offset) of what ended at or above the high watermark."""
    begun: dict[int, int] = {}
    ended: list[tuple[int, int, int | None]] = []
    read_bytes = 0
    for segment, position, header in _forwards(log, high_watermark):
        read_bytes += header.size_bytes
        if read_bytes > MOST_BYTES:
            ended.append((-1, log.end_offset - 1, high_watermark))
            break
        if header.producer_id < 0:
            continue
        if not header.is_control:
            if header.is_transactional:
                begun.setdefault(header.producer_id, header.base_offset)
        elif _ends_transaction(segment, position, header):
            first = begun.pop(header.producer_id, None)
            ended.append((header.producer_id, header.base_offset, first))
    earlier = _begun_before(log, high_watermark, {producer_id for producer_id, _, _ in ended})
    return _spans(ended, earlier)


def _spans(
    ended: list[tuple[int, int, int | None]], earlier: dict[int, int]
) -> list[tuple[int, int]]:
    """Only the first end of a producer can be of a transaction that began before."""
    spans = []
    for producer_id, marker, first in ended:
        begin = earlier.pop(producer_id, first)
        if begin is not None:
            spans.append((begin, marker))
    return spans


def _ends_transaction(segment: Segment, position: int, header: BatchHeader) -> bool:
    batch = segment.file.read_blocking(position, header.size_bytes)
    return end_marker(batch) is not None


def _forwards(log: LogState, offset: int) -> Iterator[tuple[Segment, int, BatchHeader]]:
    """Every batch that ends behind an offset."""
    for segment in log.segments[max(0, log.segment_index(offset)) :]:
        start = (
            position_of(log, segment, offset, blocking=True)[0]
            if segment.base_offset < offset
            else 0
        )
        for position, header in scan(segment.file, segment.size, start, check_crc=False):
            if header.last_offset >= offset:
                yield segment, position, header


def _begun_before(log: LogState, offset: int, wanted: set[int]) -> dict[int, int]:
    """Where transactions of these producers began that were open just before an offset."""
    found: dict[int, int] = {}
    wanted.discard(-1)
    left_bytes, reached = MOST_BYTES, offset
    for segment in reversed(log.segments[: log.segment_index(offset) + 1]):
        end = segment.size
        if log.end_of(segment) > offset:
            end, _ = position_of(log, segment, offset, blocking=True)
        for start in _batch_starts(log, segment):
            if start >= end:
                continue
            if not wanted or left_bytes <= 0:
                break
            headers = [each for _, each in scan(segment.file, end, start, check_crc=False)]
            for header in reversed(headers):
                _note_before(header, wanted, found)
            left_bytes -= end - start
            reached, end = headers[0].base_offset if headers else reached, start
    if log.segments[0].base_offset > 0 or left_bytes <= 0:
        found.update((each, min(found.get(each, reached), reached)) for each in wanted)
    return found


def _batch_starts(log: LogState, segment: Segment) -> Sequence[int]:
    """Places where batches of a segment begin, the last one first, down to the segment's begin."""
    if segment.size == 0:
        return ()
    return (*reversed(log.offset_index(segment).positions), 0)


def _note_before(header: BatchHeader, wanted: set[int], found: dict[int, int]) -> None:
    """A batch, each before the last one that was shown.

    Only what ended before bounds a transaction. Sequence 0 does not: the numbers wrap, and where an
    unclean election lost a marker, a newer epoch of the producer goes on in the open transaction.
    """
    producer_id = header.producer_id
    if producer_id not in wanted:
        return
    if header.is_control or not header.is_transactional:
        wanted.discard(producer_id)
        return
    found[producer_id] = header.base_offset
