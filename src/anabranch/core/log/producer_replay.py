"""Rebuilding producer state from batch headers and markers, from the newest usable snapshot on.

A snapshot, whose format is Kafka's, holds the last batch of each producer. A client may have five
in flight, and sends all that were not acknowledged again to a leader that was restarted: what came
before the last one is found in the log's tail (`recall`), also in an earlier segment, else its
retry would be out of order and end the client. Kafka does not look there. Rule kept: a broker opens
thousands of logs, so the tail is read backwards and only as far as somebody who may send again is
missing something.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from anabranch.core.errors import ProtocolError, StorageFault
from anabranch.core.log.indexes import AbortedRange
from anabranch.core.log.producer_snapshot import decode_snapshot
from anabranch.core.log.producers import BATCHES_KEPT, Producer, ProducerBatch, ProducerStates
from anabranch.core.log.scan import BadBatch, scan
from anabranch.core.log.segment import SNAPSHOT, Segment, offset_name, offset_of
from anabranch.core.log.state import LogState
from anabranch.core.types import Buffer
from anabranch.core.wire.batch import BatchHeader
from anabranch.core.wire.control import end_marker

TAIL_BYTES = 128 << 10
"""How far back `recall` looks: five batches of 16 KB and some of others between them."""
RETRIED_MS = 15 * 60_000
"""Who wrote nothing for so long before the log's last batch sends nothing again: clients give up
after two (Java) or five (librdkafka) minutes."""


def note_batch(
    states: ProducerStates,
    header: BatchHeader,
    batch: Buffer,
    position: int,
    base_offset: int,
    timestamp: int,
) -> AbortedRange | None:
    """Keep producer state in step with a batch of a producer; the range that it aborts, if any."""
    if not header.is_control:
        states.appended(header, base_offset, timestamp)
        return None
    try:
        marker = end_marker(batch, position)
    except ProtocolError:
        return None  # its checksum is right, so its writer meant something that is not known here
    if marker is None:
        return None
    return states.ended(header, base_offset, marker.coordinator_epoch, committed=marker.committed)


def note_in_file(
    states: ProducerStates, segment: Segment, position: int, header: BatchHeader
) -> AbortedRange | None:
    """As `note_batch` for a batch in a file, of which only the header was read."""
    batch: Buffer = b""
    if header.is_control:
        batch = segment.file.read_blocking(position, header.size_bytes)
    return note_batch(states, header, batch, 0, header.base_offset, header.max_timestamp)


def replay(
    log: LogState,
    states: ProducerStates,
    segment: Segment,
    aborted: list[AbortedRange],
    *,
    from_offset: int = 0,
) -> None:
    """Note every batch of a segment from an offset on; raises CorruptLog."""
    try:
        for position, header in scan(segment.file, segment.size, check_crc=False):
            if header.producer_id >= 0 and header.base_offset >= from_offset:
                entry = note_in_file(states, segment, position, header)
                if entry is not None:
                    aborted.append(entry)
    except BadBatch as bad:
        raise log.corrupt(segment, bad.position, bad.why) from None


def recall(log: LogState, states: ProducerStates) -> None:
    """Find again, in the log's tail, what producers wrote before their last batch. Raises
    CorruptLog."""
    newest_ms = max((each.last_written_ms for each in states), default=0)
    incomplete = {
        each.producer_id: each
        for each in states
        if _is_incomplete(each) and each.last_written_ms >= newest_ms - RETRIED_MS
    }
    left_bytes = TAIL_BYTES
    for segment in reversed(log.segments):
        if not incomplete or left_bytes <= 0:
            return
        try:
            left_bytes -= _recall_within(log, segment, incomplete, left_bytes)
        except BadBatch as bad:
            raise log.corrupt(segment, bad.position, bad.why) from None


def _recall_within(
    log: LogState, segment: Segment, incomplete: dict[int, Producer], most_bytes: int
) -> int:
    """Complete producers from a segment's last bytes; how many were read. Raises BadBatch."""
    end = segment.size
    for start in batch_starts(log, segment):
        if not incomplete or segment.size - end >= most_bytes:
            break
        headers = [header for _, header in scan(segment.file, end, start, check_crc=False)]
        for header in reversed(headers):
            producer = incomplete.get(header.producer_id)
            if producer is not None and not header.is_control:
                _recall_batch(producer, header)
                if header.producer_epoch != producer.epoch or not _is_incomplete(producer):
                    del incomplete[producer.producer_id]
        end = start
    return segment.size - end


def batch_starts(log: LogState, segment: Segment) -> Sequence[int]:
    """Places where batches of a segment begin, the last one first, down to the segment's begin."""
    if segment.size == 0:
        return ()
    return (*reversed(log.offset_index(segment).positions), 0)


def state_before_cut(log: LogState, segment: Segment) -> ProducerStates:
    """Producer state of a log that was just cut, and ends with this segment; `log.producers` is
    still the state before. Raises BadBatch, or as `state_at` does.

    A cut takes what was in flight, so nearly all is known or stands in the tail: reading a segment
    of a gigabyte from its begin would hold everybody up for seconds."""
    known = log.producers
    cut = known.before(log.end_offset)
    if cut is None or not _found_back(log, *cut, segment):
        states = state_at(log, log.end_offset)
    else:
        states, _ = cut
    states.remember(known)
    states.unreplicated = deque(one for one in known.unreplicated if one[1] < log.end_offset)
    recall(log, states)
    return states


def _found_back(log: LogState, states: ProducerStates, wanted: set[int], segment: Segment) -> bool:
    """Note the last batch of each producer that is wanted; whether all have one in the segment."""
    end = segment.size
    for start in batch_starts(log, segment):
        if not wanted:
            return True
        for _, header in reversed([*scan(segment.file, end, start, check_crc=False)]):
            if header.producer_id in wanted:
                if header.is_control:
                    return False
                wanted.discard(header.producer_id)
                note_batch(states, header, b"", 0, header.base_offset, header.max_timestamp)
        end = start
    return not wanted


def _is_incomplete(producer: Producer) -> bool:
    """Whether there may be batches before those that are known."""
    batches = producer.batches
    return 0 < len(batches) < BATCHES_KEPT and batches[0].first_sequence != 0


def _recall_batch(producer: Producer, header: BatchHeader) -> None:
    if header.last_offset == producer.batches[-1].last_offset:  # a snapshot has another time
        producer.batches[-1].timestamp = producer.last_timestamp = header.max_timestamp
    elif (
        header.producer_epoch == producer.epoch
        and header.last_offset < producer.batches[0].last_offset
    ):
        batch = ProducerBatch(
            header.last_sequence, header.last_offset, header.last_offset_delta, header.max_timestamp
        )
        producer.batches.insert(0, batch)


def state_at(log: LogState, offset: int, names: list[str] | None = None) -> ProducerStates:
    """Producer state just before an offset: a snapshot, and the batches between it and the
    offset. Raises CorruptLog where these are not sound."""
    states, reached = _newest_snapshot(log, offset, names)
    ignored: list[AbortedRange] = []
    for index, segment in enumerate(log.segments):
        following = log.segments[index + 1 :]
        if segment.base_offset >= offset:
            break
        if reached < offset and not (following and following[0].base_offset <= reached):
            replay(log, states, segment, ignored, from_offset=reached)
    return states


def _newest_snapshot(
    log: LogState, offset: int, names: list[str] | None
) -> tuple[ProducerStates, int]:
    listed = log.files.list(log.folder) if names is None else names
    offsets = sorted(offset_of(name, SNAPSHOT) for name in listed)
    for taken in reversed([one for one in offsets if 0 <= one <= offset]):
        try:
            encoded = log.files.read(f"{log.folder}/{offset_name(taken, SNAPSHOT)}")
        except StorageFault:
            continue
        states = decode_snapshot(encoded, log.producers.now_ms)
        if states is not None:
            return states, taken
    return ProducerStates(log.producers.now_ms), 0
