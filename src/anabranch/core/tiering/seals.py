"""Seals: how a partition of a classic topic ends, and a diskless one goes on from there.

What: what a leader tells the coordinator once its log takes no more records and all of it lies in
finished segments, and what of that becomes the diskless partition. Rules kept: the seal's end is
the log's end, which becomes the diskless start (B0), so that no offset is missing or comes twice;
segments that the leader's log does not agree with as a whole do not count; leader epochs do not go
back; producers go on with their next sequence number. A seal belongs to one migration: what was
written after a migration was cancelled is not in it. Source: decision 102. Not
here: SQL (`stores/coordinator/seal_tables.py`), when a log is sealed (`seal_rounds.py`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple, Protocol

from anabranch.core.diskless.commit import Producer, Written
from anabranch.core.diskless.rows import LogKey, LogState
from anabranch.core.errors import StorageFault
from anabranch.core.log.producers import BATCHES_KEPT, ProducerStates
from anabranch.core.remote.lineage import Lineage, Span, agreed_spans, joined
from anabranch.core.remote.segments import RemoteSegment, SegmentId
from anabranch.core.types import TopicId

READY, SEALED = 1, 2
"""Stages of a partition: little is left to be copied; all of it is, and nothing is written."""


class Seal(NamedTuple):
    """A log that has ended, as its leader has it."""

    key: LogKey
    topic: str
    migration: int
    """The number of the migration: a later one has a greater one."""
    leader_epoch: int
    log_start: int
    end_offset: int
    """The diskless start offset."""
    kept: tuple[SegmentId, ...]
    """Finished segments that hold all between start and end."""
    producers: tuple[tuple[int, Producer], ...]
    """Producer ids, and what the log knows of them."""
    last_producer_id: int = -1
    """The greatest that was ever given in the cluster; the log may have forgotten it."""


class Progress(NamedTuple):
    """How many partitions of a topic have reached a stage."""

    ready: int
    sealed: int
    ends: tuple[tuple[int, int], ...] = ()
    """Partitions that are sealed, in order, and where."""


class SealedEnd(NamedTuple):
    """What the coordinator keeps of a seal until the topic is diskless."""

    leader_epoch: int
    log_start: int
    end_offset: int
    last_producer_id: int


class Seals(Protocol):
    """All calls are for the loop's thread. Each may raise CoordinatorAway and StorageFault."""

    async def ready(self, key: LogKey, migration: int, leader_epoch: int) -> None:
        """A leader has little left to copy. Raises Deposed and TryEnded."""

    async def seal(self, seal: Seal) -> None:
        """A log has ended; made again, it is the same seal. Raises Deposed and TryEnded."""

    async def progress(
        self, topic_id: TopicId, migration: int, broker_ids: Collection[int]
    ) -> Progress:
        """How far a migration is. Raises StorageFault where one of these brokers does not know of
        migrations: it would write to a log that has ended."""


def to_keep(
    segments: Iterable[RemoteSegment], lineage: Lineage, log_start: int
) -> tuple[SegmentId, ...]:
    """Finished segments that the log agrees with as a whole, from its start on."""
    return tuple(
        each.segment_id
        for each in segments
        if each.is_finished and each.end_offset > log_start and _is_whole(each, lineage, log_start)
    )


def _is_whole(segment: RemoteSegment, lineage: Lineage, log_start: int) -> bool:
    first = max(segment.start_offset, log_start)
    spans = agreed_spans(segment, lineage)
    return any(span.first <= first and segment.end_offset <= span.end for span in spans)


def first_missing(
    segments: Iterable[RemoteSegment],
    lineage: Lineage,
    local: Iterable[Span],
    log_start: int,
    end_offset: int,
) -> Span | None:
    """The first offsets of a log that would be in no segment that is kept, whatever is copied yet;
    `local` is what will be."""
    whole = (
        Span(each.start_offset, each.end_offset)
        for each in segments
        if each.is_finished and _is_whole(each, lineage, log_start)
    )
    at = log_start
    for span in joined([*whole, *local]):
        if span.first > at:
            return Span(at, min(span.first, end_offset)) if at < end_offset else None
        at = max(at, span.end)
    return Span(at, end_offset) if at < end_offset else None


def check_kept(seal: Seal, finished: Iterable[RemoteSegment]) -> None:
    """Raises StorageFault where the kept segments do not hold all of the log."""
    kept = set(seal.kept)
    spans = joined(
        Span(each.start_offset, each.end_offset) for each in finished if each.segment_id in kept
    )
    begin, end = seal.log_start, seal.end_offset
    if begin < end and not any(span.first <= begin and span.end == end for span in spans):
        raise StorageFault(
            f"{seal.topic}-{seal.key.partition}: its remote segments do not hold all offsets from "
            f"{begin} to {end} as its log has them, so it cannot become diskless"
        )
    if any(span.end > end for span in spans):
        raise StorageFault(
            f"{seal.topic}-{seal.key.partition}: a remote segment goes beyond offset {end}, where "
            "the log ends, so it cannot become diskless"
        )


def carried(states: ProducerStates) -> tuple[tuple[int, Producer], ...]:
    """Producers of a log, as the coordinator knows those of a diskless partition."""
    found = []
    for each in states:
        written = tuple(
            Written(batch.first_sequence, batch.last_sequence, batch.first_offset)
            for batch in each.batches[-BATCHES_KEPT:]
            if batch.last_sequence >= 0
        )
        found.append((each.producer_id, Producer(each.epoch, written)))
    return tuple(sorted(found))


def state_after(
    sealed: SealedEnd | None, log_start: int, finished: Sequence[RemoteSegment], begin: int = 0
) -> LogState:
    """The diskless partition that goes on where a classic one ended; `finished` are its segments,
    `log_start` is where its log was last known to begin, and `begin` where the metadata has it
    become diskless. Without a seal, in a coordinator that was restored, these say it."""
    ends = (each.end_offset for each in finished)
    end = max([begin, 0 if sealed is None else sealed.end_offset, *ends])
    first = min((each.start_offset for each in finished), default=end)
    start = max(log_start, first if sealed is None else sealed.log_start)
    epochs = [entry.epoch for each in finished for entry in each.leader_epochs]
    epoch = max([0 if sealed is None else sealed.leader_epoch, *epochs])
    size = sum(each.byte_size for each in finished)
    return LogState(min(start, end), end, size, end, epoch)
