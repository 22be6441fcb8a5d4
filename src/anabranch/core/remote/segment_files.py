"""A closed local segment as a remote one: its facts, and the files that belong to it.

What: which segments a log has, what a try to copy one says of it, and the bytes of each file but
the batches, which are read from their own file. Rules kept: the files are those that Kafka copies:
offset and time index, a transaction index where something was aborted, the producers at the
segment's end, the leader epochs up to there; a segment that is no longer as it was is not
described. Source: KIP-405, LogSegmentData. Not here: reading the batches, puts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from anabranch.core.diskless.rows import LogKey
from anabranch.core.errors import StorageFault
from anabranch.core.log.checkpoints import LEADER_EPOCHS, format_epochs
from anabranch.core.log.indexes import encode_aborted
from anabranch.core.log.log import Log
from anabranch.core.log.lookup import aborted_ranges, newest_timestamp
from anabranch.core.log.lost_offsets import have_indexes
from anabranch.core.log.producer_replay import state_at
from anabranch.core.log.producer_snapshot import decode_snapshot, encode_snapshot
from anabranch.core.log.segment import LOG, OFFSETS, SNAPSHOT, TIMES, TRANSACTIONS, offset_name
from anabranch.core.log.segment import Segment as LogSegment
from anabranch.core.remote.lineage import Lineage
from anabranch.core.remote.local_log import LocalSegment
from anabranch.core.remote.segments import EpochStart, RemoteSegment, SegmentId

NO_BYTES = b""


class SegmentFiles(NamedTuple):
    """The files of a segment."""

    log_path: str
    """Of the batches, of which there are as many bytes as the segment says."""
    others: dict[str, bytes]
    """By name."""
    cuts: int
    """How often the log had been cut: if it was since, the segment may be another one."""


def local_segments(log: Log) -> list[LocalSegment]:
    """The segments of a log. Raises ColdRead where an index has to be made again to tell."""
    return [
        LocalSegment(
            each.base_offset,
            log.end_of(each),
            each.size,
            _newest_ms(log, each),
            each is log.active,
        )
        for each in log.segments
    ]


def lineage_of(log: Log, leader_epoch: int) -> Lineage:
    """The epochs of a log, with that of its leader, which may have written nothing yet."""
    entries = [EpochStart(*each) for each in log.epochs.entries]
    if not entries or entries[-1].epoch < leader_epoch:
        entries.append(EpochStart(leader_epoch, log.end_offset))
    return Lineage(tuple(entries), leader_epoch)


class Try(NamedTuple):
    """Who begins to copy a segment."""

    segment_id: SegmentId
    broker_id: int
    leader_epoch: int


def describe(
    log: Log, local: LocalSegment, made_by: Try
) -> tuple[RemoteSegment, SegmentFiles] | None:
    """The facts of a try, and the segment's files. None where the log has the segment no longer.
    Raises ColdRead where an index has to be made again first, and StorageFault."""
    found = _find(log, local)
    if found is None:
        return None
    have_indexes(log, found)
    aborted = aborted_ranges(log, found, blocking=False)
    epochs = epochs_within(log.epochs.entries, local.start_offset, local.end_offset)
    if not epochs:
        raise StorageFault(
            f"{found.file.path}: the leader epochs of its records are not known, so it cannot be "
            "copied; restart the broker, which reads them from the records"
        )
    others = {
        offset_name(local.start_offset, OFFSETS): log.offset_index(found).encode(),
        offset_name(local.start_offset, TIMES): log.time_index(found).encode(),
        offset_name(local.end_offset, SNAPSHOT): _snapshot(log, local.end_offset),
        LEADER_EPOCHS: format_epochs(
            [each for each in log.epochs.entries if each[1] < local.end_offset]
        ),
    }
    if aborted:
        others[offset_name(local.start_offset, TRANSACTIONS)] = encode_aborted(aborted)
    segment = RemoteSegment(
        made_by.segment_id,
        LogKey(log.topic_id, log.topic_partition.partition),
        local.start_offset,
        local.end_offset,
        newest_timestamp(log, found),
        epochs,
        found.size,
        made_by.broker_id,
        made_by.leader_epoch,
        has_aborted=bool(aborted),
    )
    return segment, SegmentFiles(found.file.path, others, log.cuts)


def epochs_within(
    entries: Sequence[tuple[int, int]], start_offset: int, end_offset: int
) -> tuple[EpochStart, ...]:
    """The epochs of offsets `[start_offset, end_offset)`; where the table begins later, since the
    log start lies within the segment, its first epoch is taken for what comes before."""
    found: list[EpochStart] = []
    for at, (epoch, first) in enumerate(entries):
        following = entries[at + 1][1] if at + 1 < len(entries) else end_offset
        if first < end_offset and following > start_offset:
            begin = start_offset if not found else first
            found.append(EpochStart(epoch, begin))
    return tuple(found)


def _find(log: Log, local: LocalSegment) -> LogSegment | None:
    at = log.segment_index(local.start_offset)
    found = log.segments[at] if at >= 0 else None
    if found is None or found is log.active or found.base_offset != local.start_offset:
        return None
    is_same = log.end_of(found) == local.end_offset and found.size == local.byte_size
    return found if is_same else None


def _newest_ms(log: Log, segment: LogSegment) -> int:
    newest = newest_timestamp(log, segment)
    return newest if newest >= 0 else log.files.modified_ms(segment.stem + LOG)


def _snapshot(log: Log, offset: int) -> bytes:
    """The producers at an offset: from the file that closing the segment has left there, or else,
    where a disk was full then, from the batches."""
    path = f"{log.folder}/{offset_name(offset, SNAPSHOT)}"
    encoded = log.files.read(path) if log.files.exists(path) else NO_BYTES
    if encoded and decode_snapshot(encoded) is not None:
        return encoded
    return encode_snapshot(state_at(log, offset))
