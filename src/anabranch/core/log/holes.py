"""Whether compaction has taken records of a log, as far as its batches tell.

Why: a log that compaction never touched can be cut anywhere; of another, what the cut records
superseded may be gone. Rule kept: the walk is bounded, since it is done while others wait; a log
that is longer and shows no hole by then is taken for one that was compacted, to be safe. A copy has
the holes of the log that it was copied from, so that no checkpoint need be asked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from anabranch.core.errors import CorruptLog
from anabranch.core.log.scan import BadBatch, scan

if TYPE_CHECKING:
    from anabranch.core.log.log import Log

MOST_BATCHES = 1_000
"""Headers that are looked at: some milliseconds."""
MOST_BYTES = 32 << 20
"""What is read for that: batches may be large, and the disk is waited for."""


def may_have_holes(log: Log, upto: int) -> bool:
    """Whether a record below `upto` may be missing. Raises nothing: what cannot be read may."""
    expected, left, left_bytes = -1, MOST_BATCHES, MOST_BYTES
    try:
        for segment in log.segments:
            for _, header in scan(segment.file, segment.size, check_crc=False):
                if header.base_offset >= upto:
                    return False
                starts_late = expected not in (-1, header.base_offset)
                if starts_late or header.record_count != header.last_offset_delta + 1:
                    return True
                expected, left = header.next_offset, left - 1
                left_bytes -= header.size_bytes
                if not left or left_bytes <= 0:
                    return True
    except (BadBatch, CorruptLog):
        return True
    return False
