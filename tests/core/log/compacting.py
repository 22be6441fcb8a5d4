"""Compacting a log within a test: all steps, one after the other."""

from __future__ import annotations

from anabranch.core.log import cleanable, compaction, segment_swap, truncation
from anabranch.core.log.compaction import Outcome
from anabranch.core.log.log import Log
from anabranch.core.wire.batch import walk
from anabranch.core.wire.control import end_marker
from anabranch.core.wire.records import decode_records

MAP_BYTES = 1 << 20
IO_BYTES = 1 << 19


def make(
    log: Log,
    now_ms: int,
    first_dirty_offset: int = 0,
    map_bytes: int = MAP_BYTES,
    io_bytes: int = IO_BYTES,
) -> Outcome:
    """One pass over whatever is dirty, without putting its result in place; where nothing is, over
    what is clean."""
    found = cleanable.dirt(
        log, now_ms=now_ms, high_watermark=log.end_offset, first_dirty_offset=first_dirty_offset
    )
    if not found.dirty_bytes and log.segment_index(found.upto) == log.segment_index(found.upto - 1):
        return Outcome(upto=found.upto)  # the log begins within a segment: no pass ends there
    job = compaction.job(log, found, now_ms=now_ms, map_bytes=map_bytes, io_bytes=io_bytes)
    *_, outcome = compaction.run(log.files, job)
    assert isinstance(outcome, Outcome)
    return outcome


def put(log: Log, outcome: Outcome, now_ms: int) -> None:
    """Put a pass's segments in place."""
    for new in outcome.segments:
        segment_swap.prepare(log.files, log.folder, new)
        segment_swap.swap(log, new, now_ms)
        log.files.sync_dir(log.folder)
        truncation.set_replaced_aside(log, now_ms)
        segment_swap.finish(log.files, log.folder, new)


def compact(log: Log, now_ms: int, first_dirty_offset: int = 0, **how: int) -> int:
    """One whole pass; where the next one begins."""
    outcome = make(log, now_ms, first_dirty_offset, **how)
    put(log, outcome, now_ms)
    return outcome.upto


def batches_of(log: Log) -> list[bytes]:
    """Every batch, as a reader gets them; the end of a log may be nothing but compacted offsets."""
    found, offset = [], log.start_offset
    while offset < log.end_offset:
        held = memoryview(log.read(offset, max_bytes=1 << 20, upto=1 << 62, at_least_one=True))
        if not len(held):
            break
        for position, header in walk(held):
            assert header.last_offset >= offset
            found.append(bytes(held[position : position + header.size_bytes]))
            offset = header.next_offset
    return found


def committed_values(log: Log, upto: int) -> dict[bytes, bytes]:
    """Key -> value, as a reader finds them that drops what it is told was aborted."""
    offset, found = log.start_offset, {}
    while offset < upto:
        read = log.read(offset, max_bytes=300, upto=upto, at_least_one=True)
        if not read:
            break
        headers = [header for _, header in walk(read)]
        told = log.aborted_transactions(offset, headers[-1].next_offset)
        firsts = sorted(told, key=lambda each: each.first_offset)
        aborted: set[int] = set()
        for position, header in walk(read):
            while firsts and firsts[0].first_offset <= header.last_offset:
                aborted.add(firsts.pop(0).producer_id)
            if header.is_control:
                decision = end_marker(read, position)
                if decision is not None and not decision.committed:
                    aborted.discard(header.producer_id)
            elif not (header.is_transactional and header.producer_id in aborted):
                found.update({each.key: each.value for each in decode_records(read, position)})
        offset = headers[-1].next_offset
    return found
