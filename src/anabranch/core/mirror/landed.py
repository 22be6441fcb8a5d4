"""What a mirror notes of records that have landed: their runs, and the chunks that these change.

What: `landed_runs` brings together where records were at the source and where the target put them;
`chunks_after` grows the index by such runs; `is_other_topic` says whether what was noted is of
topics that are gone. Rule kept: a chunk grows while offsets rise on both sides; where the source
went back another one begins. Not here: writing them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from anabranch.core.mirror.index import UNKNOWN_EPOCH, Chunk, IndexRun
from anabranch.core.mirror.restamp import Run
from anabranch.core.types import ZERO_TOPIC_ID


class Origin(NamedTuple):
    """A partition of the source, and the ids of the topics on both sides."""

    topic: str
    partition: int
    source_id: bytes = ZERO_TOPIC_ID
    target_id: bytes = ZERO_TOPIC_ID


def landed_runs(runs: Iterable[Run], pieces: Iterable[tuple[int, int]]) -> list[IndexRun]:
    """Where runs of the source landed that were written as one batch or as several pieces, each by
    its (base offset, record count)."""
    places = list(pieces)
    found = []
    at = used = 0
    for run in runs:
        first, left = run
        while left:
            base_offset, record_count = places[at]
            taken = min(left, record_count - used)
            found.append(IndexRun(first, base_offset + used, taken))
            first, left, used = first + taken, left - taken, used + taken
            if used == record_count:
                at, used = at + 1, 0
    return found


def chunks_after(
    newest: Chunk | None, runs: Iterable[IndexRun], origin: Origin, *, begins: bool = False,
    leader_epoch: int = UNKNOWN_EPOCH,
) -> list[Chunk]:  # fmt: skip
    """The chunks that change when runs have landed behind `newest`, the last of them last.

    `begins` says that nothing of the partition was mirrored before, `leader_epoch` under which
    leader of the source the last of the records was written.
    """
    changed: list[Chunk] = []
    for run in runs:
        last = changed[-1] if changed else newest
        grown = last.grown(run, leader_epoch) if last is not None else None
        if grown is None:
            grown = Chunk(
                origin.topic, origin.partition, (run,), begins and last is None, origin.source_id,
                origin.target_id, leader_epoch,
            )  # fmt: skip
        elif changed:
            changed.pop()
        changed.append(grown)
    return changed


def notes_position(newest: Chunk | None, *, begins: bool, from_latest: bool = False) -> bool:
    """Whether a position is written for a partition of which `newest` is the index.

    Without one nothing would tell of which topic the position is, should the topic be created
    again. A partition of which no record was mirrored yet begins again at its start for that, at no
    cost; one that began at its end keeps its position.
    """
    return newest is not None or not begins or from_latest


def is_other_topic(newest: Chunk | None, origin: Origin) -> tuple[bool, bool]:
    """Whether what was mirrored came from another topic of that name, and went to another one."""
    if newest is None:
        return False, False
    return (
        _differ(newest.source_id, origin.source_id), _differ(newest.target_id, origin.target_id)
    )  # fmt: skip


def _differ(known: bytes, present: bytes) -> bool:
    return known != present and ZERO_TOPIC_ID not in (known, present)
