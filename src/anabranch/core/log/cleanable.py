"""How much of a log compaction could clean, and whether its topic's settings want that now.

What: `dirt` counts the clean and the dirty bytes of a log's segments up to where a pass may go;
`is_worth_it` compares their ratio and their age with the settings. Rule kept: only what is synced
may be compacted, and only what markers decide that are synced: where a power cut takes a marker,
the transaction may end the other way, and would miss what compaction took. Kafka does not ask when
markers are synced. Source: Kafka 4.1's LogCleanerManager (behaviour), KIP-58, KIP-354. Not here:
what a pass does (`compaction.py`).
"""

from __future__ import annotations

from typing import NamedTuple

from anabranch.core.log.lookup import newest_timestamp
from anabranch.core.log.segment import Segment
from anabranch.core.log.state import LogState


class Dirt(NamedTuple):
    """What compaction could do to a log."""

    first_dirty_offset: int
    upto: int
    """First offset that may not be compacted yet; a segment begins there."""
    clean_bytes: int
    dirty_bytes: int
    is_late: bool
    """`max.compaction.lag.ms` is over for a dirty record."""

    @property
    def ratio(self) -> float:
        """The dirty part of what would be read."""
        total = self.clean_bytes + self.dirty_bytes
        return self.dirty_bytes / total if total else 0.0


def dirt(log: LogState, *, now_ms: int, high_watermark: int, first_dirty_offset: int) -> Dirt:
    """How much of a log may be compacted and has not been.

    `first_dirty_offset` is where the last pass ended, from the checkpoint. Whole segments only,
    never the active one; nothing that is not synced, with its transaction's marker, nothing at or
    above the last stable offset, or younger than `min.compaction.lag.ms`.
    """
    first = first_dirty_offset
    if not log.local_start_offset <= first <= log.end_offset:
        first = log.local_start_offset
    limit = min(log.last_stable_offset(high_watermark), log.decided_offset)
    lag_ms = log.config.min_compaction_lag_ms
    clean_bytes = dirty_bytes = 0
    upto, is_late = first, False
    for segment in log.segments[:-1]:
        end_offset = log.end_of(segment)
        if end_offset <= first:
            clean_bytes += segment.size
            continue
        if end_offset > limit or (lag_ms > 0 and newest_timestamp(log, segment) > now_ms - lag_ms):
            break
        dirty_bytes += segment.size
        upto = end_offset
        is_late = is_late or _is_late(log, segment, now_ms)
    return Dirt(first, upto, clean_bytes, dirty_bytes, is_late)


def _is_late(log: LogState, segment: Segment, now_ms: int) -> bool:
    lag_ms = log.config.max_compaction_lag_ms
    if lag_ms >= now_ms or segment.size == 0:
        return False
    first = segment.first_timestamp
    return (first if first >= 0 else newest_timestamp(log, segment)) < now_ms - lag_ms


def is_worth_it(log: LogState, found: Dirt) -> bool:
    """Whether the settings of the topic want this dirt compacted now."""
    if found.dirty_bytes == 0:
        return False
    return found.is_late or found.ratio > log.config.min_cleanable_dirty_ratio
