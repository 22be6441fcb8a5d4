"""One pass of compaction over a log in memory, as the cleaner does it, and what must hold after it.

The rule: of every key the newest record is still there unless it is a tombstone; what is left is in
order; start and end stay. A log whose records a client wrote wrongly is left alone by name.
"""

from __future__ import annotations

from anabranch.core.errors import CorruptLog, ProtocolError
from anabranch.core.log import cleanable, compaction, segment_swap, truncation
from anabranch.core.log.log import Log
from anabranch.core.wire.batch import walk
from anabranch.core.wire.records import decode_records
from fuzz.verdict import expect

MAP_BYTES, IO_BYTES = 1 << 12, 1 << 19
"""Small, so that a pass now and then ends before the dirty part does."""


def pass_over(log: Log, *, now_ms: int, high_watermark: int, clean_point: int) -> int | None:
    """Compact what can be; where the next pass begins, or None when nothing was done."""
    target = log.sync_target()
    if target is not None:
        log.synced(target[0])
    found = cleanable.dirt(
        log, now_ms=now_ms, high_watermark=high_watermark, first_dirty_offset=clean_point
    )
    if found.dirty_bytes == 0:
        return None
    before, ends = newest(log), (log.start_offset, log.end_offset)
    order = compaction.job(log, found, now_ms=now_ms, map_bytes=MAP_BYTES, io_bytes=IO_BYTES)
    outcome = compaction.Outcome()
    try:
        for step in compaction.run(log.files, order):
            if isinstance(step, compaction.Outcome):
                outcome = step
    except CorruptLog:
        expect(before is None, "records that can be read can be compacted")
        return None
    for new in outcome.segments:
        segment_swap.prepare(log.files, log.folder, new)
        segment_swap.swap(log, new, now_ms)
        truncation.set_replaced_aside(log, now_ms)
        segment_swap.finish(log.files, log.folder, new)
    expect((log.start_offset, log.end_offset) == ends, "compaction moves no end of a log")
    if before is not None:
        after = newest(log)
        expect(after is not None, "what compaction wrote can be read")
        for key, (offset, value) in before.items():
            if value is not None and offset >= log.start_offset:
                expect((after or {}).get(key) == (offset, value), "the newest of each key stays")
    return outcome.upto


def newest(log: Log) -> dict[bytes, tuple[int, bytes | None]] | None:
    """The newest record of every key, None where records cannot be read or are of transactions."""
    found: dict[bytes, tuple[int, bytes | None]] = {}
    for segment in log.segments:
        held = memoryview(segment.file.read(0, segment.size))
        for position, header in walk(held):
            if header.is_control or header.is_transactional:
                return None
            try:
                batch = held[position : position + header.size_bytes]
                records = decode_records(batch) if header.record_count else []
            except ProtocolError:
                return None
            for record in records:
                if record.key is None:
                    continue
                value = None if record.value is None else bytes(record.value)
                found[bytes(record.key)] = (record.offset, value)
    return found
