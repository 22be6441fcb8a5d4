"""A transaction index that has to be made again, apart from the thread that answers.

What: a closed segment may have none: Kafka writes none where nothing was aborted, and a full disk
or a person may have removed it. Its batches tell, a gigabyte of them perhaps. Whoever may not wait
meets LostIndex, which belongs to the family of ColdRead: `warm` reads the batches in a thread, and
the same call, made again, takes what was found. Rules kept: the thread touches nothing of the log,
and has file handles of its own; what it found counts only for the log that it was asked about, not
where segments were cut, compacted or removed meanwhile. Not here: what makes a file wrong
(`lookup`).
"""

from __future__ import annotations

from anabranch.core.errors import StorageFault
from anabranch.core.log.files import ColdRead
from anabranch.core.log.indexes import AbortedRange
from anabranch.core.log.producer_replay import replay, state_at
from anabranch.core.log.segment import TRANSACTIONS, Segment
from anabranch.core.log.state import LogState


class LostIndex(ColdRead):
    """The index of a segment is not there; see the module."""

    def __init__(self, log: LogState, segment: Segment) -> None:
        super().__init__(segment.file, 0, 0)
        self.args = (f"{segment.stem}{TRANSACTIONS} is not there",)
        self.found: list[AbortedRange] | StorageFault | None = None
        """What `warm` came to."""
        self._log = log
        self._cuts = log.cuts
        self._segments = _upto(log, segment)
        self._sizes = [each.size for each in self._segments]
        self._end_offset = log.end_of(segment)
        self._now_ms = log.producers.now_ms

    def warm(self) -> None:
        """Find the segment's aborted ranges. Safe in a thread."""
        try:
            read = self._apart()
        except StorageFault as fault:
            self.found = fault
            return
        try:
            self.found = ranges_of(read, read.segments[-1])
        except StorageFault as fault:
            self.found = fault
        finally:
            for segment in read.segments:
                segment.file.close()

    def is_of(self, log: LogState, segment: Segment) -> bool:
        """Whether the log is still as it was up to this segment."""
        return self._cuts == log.cuts and self._segments == _upto(log, segment)

    def _apart(self) -> LogState:
        """The log's segments up to this one, as a log of the thread's own."""
        log = self._log
        read = LogState(log.files, log.folder, log.topic_partition, log.topic_id, log.config)
        read.end_offset = self._end_offset
        read.producers.now_ms = self._now_ms
        for segment, size in zip(self._segments, self._sizes, strict=True):
            own = Segment(
                log.files, log.folder, segment.base_offset, segment.created_ms, only_reads=True
            )
            own.size = size
            read.segments.append(own)
        return read


def ranges_of(log: LogState, segment: Segment) -> list[AbortedRange]:
    """A segment's aborted ranges as its batches tell them. Waits for the disk; raises
    CorruptLog."""
    ranges: list[AbortedRange] = []
    replay(log, state_at(log, segment.base_offset), segment, ranges)
    return ranges


def ranges_found(log: LogState, segment: Segment) -> list[AbortedRange]:
    """What a thread found of a segment. Raises LostIndex before that, and what the thread met."""
    lost = log.lost_indexes.get(segment.base_offset)
    if not isinstance(lost, LostIndex) or not lost.is_of(log, segment):
        lost = log.lost_indexes[segment.base_offset] = LostIndex(log, segment)
    if lost.found is None:
        raise lost
    del log.lost_indexes[segment.base_offset]
    if isinstance(lost.found, StorageFault):
        raise lost.found
    return lost.found


def _upto(log: LogState, segment: Segment) -> list[Segment]:
    return log.segments[: log.segment_index(segment.base_offset) + 1]
