"""Small files beside a log's batches: the epoch table, producer snapshots, transaction indexes.

Rule kept: each can be made again from the batches, so a full disk leaves it for the next time; what
it cannot replace is removed, as it may tell of bytes that were cut since.
"""

from __future__ import annotations

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
)
from anabranch.core.log.state import LogState


def assign_epoch(log: LogState, epoch: int, start_offset: int) -> None:
    """Note the epoch of an appended batch, and save the table when that is news."""
    epochs = log.epochs
    if epochs.latest != epoch:
        epochs.assign(epoch, start_offset)
    if epochs.unsaved:
        save_epochs(log, sync=False)


def save_epochs(log: LogState, *, sync: bool) -> None:
    """Write `leader-epoch-checkpoint`; a full disk leaves it for the next time."""
    path = f"{log.folder}/{LEADER_EPOCHS}"
    try:
        log.files.write_atomic(path, format_epochs(log.epochs.entries), sync=sync)
    except DiskFull:
        return
    except StorageFault as fault:
        log.fault = fault
        raise
    log.epochs.unsaved = False
    log.epochs.unsynced = not sync
    if not sync:
        log.names_unsynced = True  # a power cut may bring the table before it back


def save_snapshot(log: LogState) -> None:
    """Write the producer state at the log's end."""
    log.files.write_atomic(
        f"{log.folder}/{offset_name(log.end_offset, SNAPSHOT)}",
        encode_snapshot(log.producers),
        sync=False,
    )


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
