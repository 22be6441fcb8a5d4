"""Small files beside a log's batches: the epoch table, producer snapshots, transaction indexes.

Rule kept: each can be made again from the batches, so a full disk leaves it for the next time; what
it cannot replace is removed, as it may tell of bytes that were cut since. Of the epoch table that
holds for as long as recovery reads those batches (`sync_round`).
"""

from __future__ import annotations

from contextlib import suppress

from anabranch.core.errors import StorageFault
from anabranch.core.log.checkpoints import LEADER_EPOCHS, format_epochs
from anabranch.core.log.files import DiskFull
from anabranch.core.log.indexes import encode_aborted
from anabranch.core.log.producer_snapshot import encode_snapshot
from anabranch.core.log.segment import (
    OFFSETS,
    SNAPSHOT,
    TIMES,
    TRANSACTIONS,
    Segment,
    offset_name,
    offset_of,
)
from anabranch.core.log.state import LogState

SNAPSHOT_EACH_BYTES = 32 << 20
"""How far snapshots within a large segment lie apart: reading so much takes a second at most."""
WITHIN_KEPT = 2
"""Of these; what a follower cuts is seldom older."""
LATER_THAN_ANY = 2**63
STRAYS_KEPT = 8
"""Snapshots that may lie where no segment begins. So few cost nothing, and a start of thousands of
logs need not remove a file of each."""


def save_epochs(log: LogState, *, sync: bool) -> None:
    """Write `leader-epoch-checkpoint`. Raises DiskFull: then it is as it was."""
    path = f"{log.folder}/{LEADER_EPOCHS}"
    content = format_epochs(log.epochs.begun_before(log.end_offset))
    try:
        log.files.write_atomic(path, content, sync=sync)
    except DiskFull:
        raise
    except StorageFault as fault:
        log.fault = fault
        raise
    log.epochs.saved(log.end_offset, synced=sync)
    if not sync:
        log.names_unsynced = True  # a power cut may bring the table before it back


def save_snapshot(log: LogState) -> None:
    """Write the producer state at the log's end."""
    log.files.write_atomic(
        f"{log.folder}/{offset_name(log.end_offset, SNAPSHOT)}",
        encode_snapshot(log.producers),
        sync=False,
    )


def snapshot_later(log: LogState, position: int) -> None:
    """Have the next snapshot within the active segment written some way behind a position."""
    apart_bytes = min(SNAPSHOT_EACH_BYTES, log.config.segment_bytes // 4)
    log.snapshot_due_bytes = position + apart_bytes


def save_snapshot_within(log: LogState, position: int) -> None:
    """Write the producer state at the log's end, `position` bytes into the segment, so that a cut
    need not read all of the segment. Without room, there is none."""
    snapshot_later(log, position)
    with suppress(DiskFull):
        save_snapshot(log)
        log.snapshots_within.append(log.end_offset)
    if len(log.snapshots_within) > WITHIN_KEPT:
        forget_snapshots_within(log, log.snapshots_within[1])


def forget_snapshots_within(log: LogState, upto: int) -> None:
    """Remove snapshots before an offset that were written within a segment."""
    begins = {segment.base_offset for segment in log.segments}
    for taken in log.snapshots_within:
        if taken < upto and taken not in begins:
            log.files.remove(f"{log.folder}/{offset_name(taken, SNAPSHOT)}")
    log.snapshots_within = [taken for taken in log.snapshots_within if taken >= upto]


def remove_stray_snapshots(log: LogState, names: list[str]) -> None:
    """Remove snapshots that nothing will read: a clean stop leaves one at the log's end, where the
    next process may append, and the next stop leaves another one further on.

    Those stay at which a segment begins, and of those behind the last one's begin the newest: the
    last stop's; none where no segment is left. `names` are the folder's. Source: Kafka's
    ProducerStateManager, which keeps none of the others."""
    taken = [offset for name in names if (offset := offset_of(name, SNAPSHOT)) >= 0]
    begins = {segment.base_offset for segment in log.segments}
    strays = sorted(offset for offset in taken if offset not in begins)
    if begins and len(strays) <= STRAYS_KEPT:
        return
    newest, last_begin = max(strays, default=-1), max(begins, default=LATER_THAN_ANY)
    for offset in strays:
        if offset != newest or offset < last_begin:
            log.files.remove(f"{log.folder}/{offset_name(offset, SNAPSHOT)}")


def save_aborted(log: LogState, segment: Segment, *, sync: bool = False) -> None:
    """Write a segment's transaction index; an empty one says that nothing was aborted, so it is
    synced, at once or with a round."""
    ranges = log.aborted.get(segment.base_offset, [])
    try:
        log.files.write_atomic(segment.stem + TRANSACTIONS, encode_aborted(ranges), sync=sync)
    except DiskFull:
        log.files.remove(segment.stem + TRANSACTIONS)
        return
    if not ranges:
        log.aborted[segment.base_offset] = []
    elif segment is not log.active:
        log.aborted.pop(segment.base_offset, None)


def forget_beside(log: LogState, segment: Segment) -> None:
    """Remove the indexes of a segment, which are missing rather than wrong then."""
    for suffix in (OFFSETS, TIMES, TRANSACTIONS):
        log.files.remove(segment.stem + suffix)
