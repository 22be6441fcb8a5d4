"""Which offsets of a remote segment are those of the log as its leader has it.

What: compares the leader epochs of a segment with the epochs of the log. An unclean election, or a
copy by a leader that was replaced without knowing it, leaves segments of which some offsets, or
all, were overwritten in a newer epoch. Rules kept: an offset counts where segment and log have it
from the same epoch; a segment is cut only where the log says which other epoch its offsets have,
and only for a leader that is at least as new as whoever copied it. What the log knows nothing of
is kept: a table of epochs may begin later than the remote log does. Source: KIP-101, KIP-405
(RemoteLogManager.isRemoteSegmentWithinLeaderEpochs answers for whole segments alone).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from anabranch.core.remote.segments import EpochStart, RemoteSegment

NO_END = 2**63 - 1
"""The end of an epoch that goes on."""


class Span(NamedTuple):
    """Offsets `[first, end)`."""

    first: int
    end: int


class Lineage(NamedTuple):
    """The leader epochs of a log, in order, with that of its leader, which may have written
    nothing yet."""

    entries: tuple[EpochStart, ...]
    leader_epoch: int

    @property
    def known_from(self) -> int:
        """The first offset whose epoch is known."""
        return self.entries[0].start_offset if self.entries else NO_END

    def span_of(self, epoch: int) -> Span | None:
        """Where an epoch is in force; None where it never was, as far as is known."""
        at = bisect_left(self.entries, epoch, key=_epoch)
        if at == len(self.entries) or self.entries[at].epoch != epoch:
            return None
        is_last = at + 1 == len(self.entries)
        return Span(
            self.entries[at].start_offset, NO_END if is_last else self.entries[at + 1].start_offset
        )


def agreed_spans(segment: RemoteSegment, lineage: Lineage) -> list[Span]:
    """Offsets that the segment has as the log has them; in order, and joined."""
    spans: list[Span] = []
    for entry, end in _with_ends(segment.leader_epochs, segment.end_offset):
        theirs = lineage.span_of(entry.epoch)
        if theirs is not None and theirs.first < end and entry.start_offset < theirs.end:
            spans.append(Span(max(entry.start_offset, theirs.first), min(end, theirs.end)))
    return spans if len(spans) < 2 else joined(spans)


def is_cut(segment: RemoteSegment, lineage: Lineage, log_start: int) -> bool:
    """Whether the log has every offset of the segment, from its start on, from other epochs."""
    first = max(segment.start_offset, log_start)
    newest = segment.leader_epochs[-1].epoch if segment.leader_epochs else -1
    if max(newest, segment.leader_epoch) > lineage.leader_epoch:
        return False
    if first >= segment.end_offset or first < lineage.known_from:
        return False
    theirs = lineage.span_of(newest)
    if theirs is not None and theirs.first < segment.end_offset <= theirs.end:
        return False  # its last offset counts, as that of nearly all
    return all(span.end <= first for span in agreed_spans(segment, lineage))


def kept_start(log_start: int, epochs: Iterable[EpochStart], asked_before: int) -> int:
    """A log start that a leader of this epoch, or an older one, has recorded, as it counts in a log
    with these epochs. After an unclean election a log may end before it, and what is written from
    there on is new."""
    newer = (each.start_offset for each in epochs if each.epoch > asked_before)
    return min(log_start, next(newer, log_start))


def joined(spans: Iterable[Span]) -> list[Span]:
    """The same offsets in as few spans as possible, in order."""
    result: list[Span] = []
    for span in sorted(spans):
        if result and span.first <= result[-1].end:
            result[-1] = Span(result[-1].first, max(span.end, result[-1].end))
        else:
            result.append(span)
    return result


def _epoch(entry: EpochStart) -> int:
    return entry.epoch


def _with_ends(
    entries: tuple[EpochStart, ...], end_offset: int
) -> Iterator[tuple[EpochStart, int]]:
    """Each entry with the offset at which it ends."""
    for at, entry in enumerate(entries):
        is_last = at + 1 == len(entries)
        yield entry, end_offset if is_last else entries[at + 1].start_offset
