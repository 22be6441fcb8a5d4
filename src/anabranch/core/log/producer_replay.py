"""Rebuilding producer state: the newest snapshot before a place, and the batches after it.

Snapshots are written where a segment ends, at a clean stop, and within a segment each
`SNAPSHOT_EACH_BYTES`: so opening a log, and cutting it, read no more than that of most logs. They
hold all that a client may send again (`producer_snapshot`). A snapshot that is missing or damaged
costs a longer walk. Rule kept: this is the only way to the state at an offset; what a log knows
beyond it, when a producer wrote and which markers are not on all replicas, stays with a cut.
"""

from __future__ import annotations

from collections import deque

from anabranch.core.errors import ProtocolError, StorageFault
from anabranch.core.log.indexes import AbortedRange
from anabranch.core.log.producer_snapshot import decode_snapshot
from anabranch.core.log.producers import ProducerStates
from anabranch.core.log.scan import BadBatch, scan
from anabranch.core.log.segment import SNAPSHOT, Segment, offset_name, offset_of
from anabranch.core.log.state import LogState
from anabranch.core.types import Buffer
from anabranch.core.wire.batch import BatchHeader
from anabranch.core.wire.control import end_marker


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
    log: LogState, states: ProducerStates, segment: Segment, position: int, header: BatchHeader
) -> AbortedRange | None:
    """As `note_batch` for a batch in a file, of which only the header was read.

    When it was written is not known. Compaction may have taken the last batch of a producer that
    was forgotten, and what is left says an older sequence number: so a compacted log goes by the
    records' time."""
    batch: Buffer = b""
    if header.is_control:
        batch = segment.file.read_blocking(position, header.size_bytes)
    aborted = note_batch(states, header, batch, 0, header.base_offset, header.max_timestamp)
    producer = states.producers.get(header.producer_id)
    if log.config.compacted and producer is not None:
        producer.last_written_ms = min(states.now_ms, header.max_timestamp)
    return aborted


def replay(
    log: LogState,
    states: ProducerStates,
    segment: Segment,
    aborted: list[AbortedRange],
    *,
    from_offset: int = 0,
) -> None:
    """Note every batch of a segment from an offset on; raises CorruptLog."""
    start = 0
    if from_offset > segment.base_offset and segment is log.active:
        start = log.offset_index(segment).position_before(from_offset - segment.base_offset)
    try:
        for position, header in scan(segment.file, segment.size, start, check_crc=False):
            if header.producer_id >= 0 and header.base_offset >= from_offset:
                entry = note_in_file(log, states, segment, position, header)
                if entry is not None:
                    aborted.append(entry)
    except BadBatch as bad:
        raise log.corrupt(segment, bad.position, bad.why) from None


def state_at(log: LogState, offset: int, names: list[str] | None = None) -> ProducerStates:
    """Producer state just before an offset: a snapshot, and the batches between it and the
    offset. Raises CorruptLog where these are not sound."""
    states, reached = _newest_snapshot(log, offset, names)
    ignored: list[AbortedRange] = []
    for segment in log.segments[max(0, log.segment_index(reached)) :]:
        if segment.base_offset >= offset:
            break
        if reached < offset:
            replay(log, states, segment, ignored, from_offset=reached)
    return states


def state_after_cut(log: LogState) -> ProducerStates:
    """Producer state of a log that was just cut; `log.producers` is still the state before. Raises
    as `state_at` does."""
    known, states = log.producers, state_at(log, log.end_offset)
    for producer in states:
        other = known.producers.get(producer.producer_id)
        if other is not None:
            producer.last_written_ms = other.last_written_ms
    states.unreplicated = deque(one for one in known.unreplicated if one[1] < log.end_offset)
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
