"""The life of a pass of compaction: which log gets one, whether it still counts, how it ends.

    dirt_of      what a pass could do for a log now, None where it must not be compacted
    dirtiest     which logs get a pass, in which order
    before_pass  what a pass reads
    check        raises Stale once a log has changed under its pass
    install      puts what a pass has made in the place of what it was made from
    end_of       what kind of end a fault is for a pass

Rule kept: `install` yields what may wait for a disk, as calls; whoever drives it makes each call,
in a thread if need be, before the generator goes on. What changes the log lies between two calls
and is done at once. A recovery point covers what a pass has read before a segment is replaced: what
was compacted is never taken for the tail that a crash may cut. The clean point moves last, so that
a pass which was given up is done again.

Not here: what is compacted (`compaction.py`), how files are exchanged (`segment_swap.py`), what
follows from an end (`core/broker/hosting/log_cleaner.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from enum import Enum
from functools import partial
from typing import NamedTuple, TypeVar

from anabranch.core.errors import CorruptLog, StorageFault
from anabranch.core.log import cleanable, segment_swap, truncation
from anabranch.core.log.cleanable import Dirt
from anabranch.core.log.compaction import CLEANED, Job, NewSegment, Outcome
from anabranch.core.log.files import ColdRead, DiskFull, Files
from anabranch.core.log.log import Log
from anabranch.core.log.logs import Draft, LogFolder
from anabranch.core.log.segment import LOG, Segment, offset_name
from anabranch.core.types import TopicPartition

Call = Callable[[], object]
Candidate = TypeVar("Candidate")
NEVER_HOLD = ""


class PassEnd(Enum):
    """How a pass ended. The words travel between the processes of a node."""

    DONE = "done"
    GIVEN_UP = "given up"
    """The log changed under it, or its process ended: nothing is wrong with the log."""
    COLD = "cold"
    """Bytes that it needs on the node's loop are not in memory."""
    FULL = "full"
    CORRUPT = "corrupt"
    STORAGE = "storage"
    BUG = "bug"


def end_of(fault: Exception) -> PassEnd:
    """What kind of end a fault is for a pass."""
    match fault:
        case segment_swap.Stale():
            return PassEnd.GIVEN_UP
        case ColdRead():
            return PassEnd.COLD
        case CorruptLog():
            return PassEnd.CORRUPT
        case DiskFull():
            return PassEnd.FULL
        case StorageFault():
            return PassEnd.STORAGE
    return PassEnd.BUG


class Before(NamedTuple):
    """What a pass reads: the segments, and how often the log's end had been cut by then. A segment
    that was cut may be closed again, with other records behind those that the pass has read."""

    segments: list[Segment]
    cuts: int


class Step(NamedTuple):
    """A call that may wait for a disk. `hold` names a file that the log's next change replaces: to
    keep it open until then leaves the giving back of its space to whoever closes it."""

    call: Call
    hold: str = NEVER_HOLD


def may_be_cleaned(log: Log) -> bool:
    """Whether a log is compacted at all, and can be now: a pass needs room, and what a full folder
    still has is for the metadata."""
    return log.config.compacted and log.fault is None and not log.room.is_full


def dirt_of(
    folder: LogFolder, place: TopicPartition, log: Log, *, now_ms: int, high_watermark: int
) -> Dirt:
    """What a pass could do for a log, from where the last one ended. May raise ColdRead."""
    clean_point = folder.clean_points.get(place, 0)
    return cleanable.dirt(
        log, now_ms=now_ms, high_watermark=high_watermark, first_dirty_offset=clean_point
    )


def dirtiest(
    found: Iterable[tuple[Candidate, Log, Dirt]],
) -> tuple[list[tuple[Candidate, Dirt]], float]:
    """Who gets a pass, the dirtiest log first, and the highest ratio of all."""
    worth, highest = [], 0.0
    for candidate, log, dirty in found:
        highest = max(highest, dirty.ratio)
        if cleanable.is_worth_it(log, dirty):
            worth.append((candidate, dirty))
    return sorted(worth, key=lambda each: -each[1].ratio), highest


def before_pass(log: Log, job: Job) -> Before:
    """What a pass is about to read."""
    return Before(log.segments[: len(job.segments)], log.cuts)


def check(log: Log, before: Before, *, is_hosted: bool) -> None:
    """Raises Stale when the log is not the one that a pass began for."""
    if log.fault is not None or not is_hosted:
        raise segment_swap.Stale("the partition is not here any more")
    if log.segments[: len(before.segments)] != before.segments or log.cuts != before.cuts:
        raise segment_swap.Stale("its segments were removed or cut meanwhile")


def install(
    folder: LogFolder,
    log: Log,
    before: Before,
    outcome: Outcome,
    *,
    is_hosted: Callable[[], bool],
    clock_ms: Callable[[], int],
) -> Iterator[Step]:
    """Put the segments that a pass has made in place; raises Stale, StorageFault.

    `before` is what it has read. The steps of one folder must not mix with those of
    another pass: both write drafts of the same checkpoints. The recovery point covers what was read
    and the markers that it went by: rot in either is found, and not cut without a word."""
    place = log.topic_partition
    needed = log.flushed_offset if outcome.is_decided_later else outcome.upto
    if folder.promised(place) < needed:
        yield from _checkpoint(folder, log, before, lambda: folder.draft_synced(place), is_hosted)
    log.compacted_to = max(log.compacted_to, outcome.upto)
    for new in outcome.segments:
        yield from _replace(log, before, new, is_hosted, clock_ms)
    yield from _checkpoint(
        folder, log, before, lambda: folder.draft_clean(place, outcome.upto), is_hosted
    )


def _replace(
    log: Log,
    before: Before,
    new: NewSegment,
    is_hosted: Callable[[], bool],
    clock_ms: Callable[[], int],
) -> Iterator[Step]:
    """Exchange one segment; what is given up after the swap is finished by the next opening."""
    files, folder = log.files, log.folder
    yield Step(
        partial(segment_swap.prepare, files, folder, new),
        f"{folder}/{offset_name(new.base_offset, LOG)}",
    )
    try:
        check(log, before, is_hosted=is_hosted())
    except segment_swap.Stale:
        yield Step(partial(segment_swap.forget, files, folder, new))
        raise
    segment_swap.swap(log, new, clock_ms())
    swapped = log.segments[log.segment_index(new.base_offset)]
    known = before.segments
    first = next(i for i, one in enumerate(known) if one.base_offset == new.base_offset)
    known[first : first + len(new.replaces)] = [swapped]
    yield Step(partial(files.sync_dir, folder))
    if not is_hosted():
        raise segment_swap.Stale("the partition is not here any more")
    truncation.set_replaced_aside(log, clock_ms())
    yield Step(partial(segment_swap.finish, files, folder, new))


def _checkpoint(
    folder: LogFolder,
    log: Log,
    before: Before,
    draft: Callable[[], Draft],
    is_hosted: Callable[[], bool],
) -> Iterator[Step]:
    """Write a checkpoint beside its place, again for as long as it may not be adopted."""
    while True:
        if log.fault is not None or not is_hosted():
            raise segment_swap.Stale("the partition is not here any more")
        if log.cuts != before.cuts:
            raise segment_swap.Stale("its end was cut meanwhile")
        made = draft()
        yield Step(partial(folder.write_draft, made))
        if is_hosted() and folder.adopt(made):
            break
    yield Step(partial(folder.files.sync_dir, folder.path))


def discard(files: Files, folder: str) -> None:
    """Remove what a pass has made and nobody took."""
    for name in files.list(folder):
        if name.endswith(CLEANED):
            files.remove(f"{folder}/{name}")
