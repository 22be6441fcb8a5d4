"""Offset and time indexes that have to be made again, apart from the thread that answers.

What: a closed segment's index files may be missing or wrong: a full disk or a person removed them,
a disk damaged them. Its batches tell, a gigabyte of headers perhaps, seconds of a processor. Who
may not wait meets LostOffsets, which is a ColdRead: `warm` reads the batches in a thread, and the
same call, made again, takes what was found. Rule kept: the thread touches nothing of the log, and
what it found counts only for the segment that it was asked about, and its size then. Not here: an
index that is lost while a log is opened or cut, where all wait (`state.py`).
"""

from __future__ import annotations

from anabranch.core.errors import StorageFault
from anabranch.core.log.files import ColdRead
from anabranch.core.log.indexes import InvalidIndex
from anabranch.core.log.scan import BadBatch
from anabranch.core.log.segment import OFFSETS, Segment
from anabranch.core.log.state import LogState


class LostOffsets(ColdRead):
    """The indexes of a segment are missing or wrong; see the module."""

    def __init__(self, log: LogState, segment: Segment) -> None:
        super().__init__(segment.file, 0, 0)
        self.args = (f"{segment.stem}{OFFSETS} or its twin has to be made again",)
        self.found: Segment | BadBatch | StorageFault | None = None
        """What `warm` came to: a segment of the thread's own, with its indexes."""
        self.segment = segment
        self.size = segment.size
        self._log = log
        self._interval = log.config.index_interval_bytes

    def warm(self) -> None:
        """Make the indexes. Safe in a thread."""
        log, segment = self._log, self.segment
        try:
            own = Segment(
                log.files, log.folder, segment.base_offset, segment.created_ms, only_reads=True
            )
        except StorageFault as fault:
            self.found = fault
            return
        try:
            own.size = self.size
            own.index_batches(self._interval)
            self.found = own
        except (BadBatch, StorageFault) as fault:
            self.found = fault
        finally:
            own.file.close()


def have_indexes(log: LogState, segment: Segment) -> None:
    """Have a segment's indexes in memory, for who may not wait. Raises LostOffsets where they have
    to be made again, and CorruptLog for what was met then."""
    if segment is log.active or segment.offset_index is not None:
        return
    try:
        segment.read_indexes(log.files, log.end_of(segment))
    except (InvalidIndex, StorageFault):
        _take_found(log, segment)


def _take_found(log: LogState, segment: Segment) -> None:
    lost = log.lost_offsets.get(segment.base_offset)
    is_of = isinstance(lost, LostOffsets) and (lost.segment, lost.size) == (segment, segment.size)
    if not isinstance(lost, LostOffsets) or not is_of:
        lost = log.lost_offsets[segment.base_offset] = LostOffsets(log, segment)
    if lost.found is None:
        raise lost
    del log.lost_offsets[segment.base_offset]
    if isinstance(lost.found, BadBatch):
        log.fault = log.corrupt(segment, lost.found.position, lost.found.why)
        raise log.fault
    if isinstance(lost.found, StorageFault):
        raise lost.found
    segment.take_indexes(lost.found)
    segment.save_indexes(log.files, sync=True)
