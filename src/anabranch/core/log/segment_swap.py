"""Putting compacted segments in the place of the ones they were made from, safely.

    prepare     `<base>.swapping` names the segments that go        written and synced
    swap        the new files take the first one's names; readers find the new segment
    sync_dir    the new names are safe
    set_aside   the other segments go (`truncation.set_replaced_aside`)
    finish      that is safe too; then `<base>.swapping` goes

What waits for a disk may be done in a thread; `swap` and `set_aside` only rename, on the log's own.
A log that is cut between these two sets aside by itself what the swap replaced (`truncation`): else
that would stand behind its new end, or be taken for a segment that it begins there.
The bytes of the new segment were synced before. A crash leaves the old segments, or the new one and
perhaps others that it replaced: `complete`, called when a log is opened, finds the mark and removes
what the new segment covers, and the indexes, of which nobody knows whose they are. Names may
survive a power cut each for itself, so nothing is removed before what replaces it is safe.

Kafka has marks of its own, `.swap` files: a folder that a Kafka broker left in the middle of its
swap is completed too, as Kafka would do it. Rule kept: at no point is a record that counts in no
file. Not here: what is compacted (`compaction`).
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from anabranch.core.errors import CorruptLog, StorageFault
from anabranch.core.log.compaction import CLEANED, NewSegment
from anabranch.core.log.scan import BadBatch, scan
from anabranch.core.log.segment import (
    LOG,
    SNAPSHOT,
    Segment,
    offset_name,
    offset_of,
)
from anabranch.core.log.state import LogState
from anabranch.core.log.truncation import INDEXES

if TYPE_CHECKING:
    from anabranch.core.log.files import Files

SWAP = ".swap"
SWAPPING = ".swapping"


class Stale(Exception):
    """The log has changed since the pass began: what it made is of no use."""


def prepare(files: Files, folder: str, new: NewSegment) -> None:
    """Leave the mark. It may wait for the disk; no state of the log is touched."""
    mark = f"{folder}/{offset_name(new.base_offset, SWAPPING)}"
    files.write_atomic(mark, json.dumps(new.replaces).encode(), sync=True)


def swap(log: LogState, new: NewSegment, now_ms: int) -> None:
    """Have the log read the new segment. Raises Stale, StorageFault.

    The log's folder is to be synced before the others are set aside."""
    if log.fault is not None:
        raise log.fault
    old = _replaced(log, new)
    segment = Segment(log.files, log.folder, new.base_offset, now_ms)
    for one in old:
        log.index_cache.forget(one)
        one.is_dropped = True
        one.file.close()
    try:
        for suffix in (LOG, *INDEXES):
            log.files.rename(segment.stem + suffix + CLEANED, segment.stem + suffix)
    except StorageFault as fault:
        log.fault = fault
        raise
    _take(log, old, segment, new)
    log.replaced += old[1:]


def _replaced(log: LogState, new: NewSegment) -> list[Segment]:
    old = [each for each in log.segments[:-1] if each.base_offset in new.replaces]
    if tuple(each.base_offset for each in old) != new.replaces:
        raise Stale(f"{log.folder}: segments {new.replaces} are not all there any more")
    return old


def _take(log: LogState, old: list[Segment], segment: Segment, new: NewSegment) -> None:
    segment.size = new.size
    segment.max_timestamp = new.max_timestamp
    segment.max_timestamp_offset = new.max_timestamp_offset
    segment.index_saved = True
    segment.drop_indexes()
    first = log.segments.index(old[0])
    log.segments[first : first + len(old)] = [segment]
    log.size_bytes += new.size - sum(each.size for each in old)
    for each in old:
        log.aborted.pop(each.base_offset, None)
        log.lost_indexes.pop(each.base_offset, None)
        log.lost_offsets.pop(each.base_offset, None)
    gone = set(old)
    log.unsynced_segments = [one for one in log.unsynced_segments if one[1] not in gone]
    log.hints.clear()
    log.names_unsynced = True


def finish(files: Files, folder: str, new: NewSegment) -> None:
    """Make it safe that the others went, and take the mark away. It may wait for the disk."""
    files.sync_dir(folder)
    forget(files, folder, new)


def forget(files: Files, folder: str, new: NewSegment) -> None:
    """Take the mark away."""
    files.remove(f"{folder}/{offset_name(new.base_offset, SWAPPING)}")


# Opening a folder that a crash has left in the middle.


def complete(files: Files, folder: str, names: list[str]) -> bool:
    """Finish what a crash interrupted, ours or Kafka's; whether anything was changed."""
    marks = [name for name in names if name.endswith((SWAPPING, LOG + SWAP))]
    if not marks:
        return False
    unfinished = [offset_of(name, LOG + CLEANED) for name in names if name.endswith(LOG + CLEANED)]
    first_unfinished = min((base for base in unfinished if base >= 0), default=-1)
    for name in marks:
        if name.endswith(SWAPPING):
            _complete_ours(files, folder, name)
        elif 0 <= first_unfinished <= offset_of(name, LOG + SWAP):
            _remove_swap(files, folder, offset_of(name, LOG + SWAP))  # Kafka's split, half named
        else:
            _complete_kafkas(files, folder, names, offset_of(name, LOG + SWAP))
    files.sync_dir(folder)
    for name in marks:
        if name.endswith(SWAPPING):
            files.remove(f"{folder}/{name}")
    return True


def _complete_ours(files: Files, folder: str, mark: str) -> None:
    """The log file of that name is the old one, whole, or the new one, whole."""
    base_offset = offset_of(mark, SWAPPING)
    stem = f"{folder}/{offset_name(base_offset, '')}"
    for suffix in (LOG, *INDEXES):
        files.remove(stem + suffix + CLEANED)
    for suffix in INDEXES:
        files.remove(stem + suffix)  # of which of the two, nobody knows: made again
    files.sync_dir(folder)
    if not files.exists(stem + LOG):
        return
    try:
        end_offset = _end_offset(files, stem + LOG)
    except BadBatch:
        return  # for recovery to judge, with everything there that it could be compared with
    for replaced in _replaced_by(files.read(f"{folder}/{mark}")):
        if base_offset < replaced < end_offset:
            _remove_segment(files, folder, replaced)


def _replaced_by(mark: bytes) -> list[int]:
    try:
        return [int(each) for each in json.loads(mark)]
    except (ValueError, TypeError):
        return []  # the mark itself was not safe yet: nothing has been replaced


def _complete_kafkas(files: Files, folder: str, names: list[str], base_offset: int) -> None:
    """The swap file is whole: it takes its name, and what it covers goes. Raises CorruptLog."""
    stem = f"{folder}/{offset_name(base_offset, '')}"
    try:
        end_offset = _end_offset(files, stem + LOG + SWAP)
    except BadBatch as bad:
        raise CorruptLog(
            f"{stem}{LOG}{SWAP}: the compacted segment that was to replace others is damaged "
            f"{bad}. Restore it, or fetch the partition from another replica.",
            path=stem + LOG + SWAP,
            position=bad.position,
            first_offset=base_offset,
            last_offset=-1,
        ) from None
    for suffix in INDEXES:
        files.remove(stem + suffix)
        files.remove(stem + suffix + SWAP)
    files.sync_dir(folder)
    files.rename(stem + LOG + SWAP, stem + LOG)
    files.sync_dir(folder)
    for name in names:
        covered = offset_of(name, LOG)
        if base_offset < covered < end_offset:
            _remove_segment(files, folder, covered)


def _end_offset(files: Files, path: str) -> int:
    """The offset after the last batch of a file, 0 when it has none. Raises BadBatch."""
    file = files.open(path, write=False)
    end_offset = 0
    try:
        for _, header in scan(file, file.size(), check_crc=False):
            end_offset = header.next_offset
    finally:
        file.close()
    return end_offset


def _remove_segment(files: Files, folder: str, base_offset: int) -> None:
    stem = f"{folder}/{offset_name(base_offset, '')}"
    for suffix in (LOG, *INDEXES, SNAPSHOT):
        files.remove(stem + suffix)


def _remove_swap(files: Files, folder: str, base_offset: int) -> None:
    stem = f"{folder}/{offset_name(base_offset, '')}"
    for suffix in (LOG, *INDEXES):
        files.remove(stem + suffix + SWAP)
