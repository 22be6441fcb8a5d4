"""Who copies what: partitions to slots, and which transactional ids are fenced before a wave.

What: a flow has a number of slots, each with the transactional id that Connect gives the task of
that number; a wave hands each slot its partitions. Rules kept: a partition keeps its slot as long
as there is one of that number; where a partition changes slots, where slots were of another
mirror's making, and before the first wave of a driver, the plan gets a new name on the target, and
every id that may still be at work is fenced before anything is read, because a late task under the
old id could otherwise write what the new one writes too. Source: KIP-618.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from anabranch.core.mirror.formats import CONNECTOR

Place = tuple[str, int]


def transactional_id(source: str, slot: int) -> str:
    """The transactional id of a slot, which is the one of Connect's task of that number."""
    return f"{source}-mm2-{CONNECTOR}-{slot}"


def slot_of(source: str, name: str) -> int | None:
    """The slot that a transactional id belongs to; None for one of something else."""
    found = re.fullmatch(re.escape(f"{source}-mm2-{CONNECTOR}-") + "([0-9]{1,9})", name)
    return None if found is None else int(found[1])


class Slots(NamedTuple):
    """The partitions of each slot, and the ids to fence before they are worked on."""

    by_slot: dict[int, list[Place]]
    fence: tuple[str, ...]


def assigned(
    source: str, places: Iterable[Place], slots: int, before: Mapping[Place, int] | None,
    *, known_ids: Collection[str] = (),
) -> Slots:  # fmt: skip
    """Partitions to `slots` slots; `before` is what held in the last wave, None for the first.

    `known_ids` are transactional ids that the target knows: before the first wave those of this
    flow's slots are fenced, however many there were.
    """
    by_slot: dict[int, list[Place]] = {slot: [] for slot in range(max(1, slots))}
    homeless = []
    for place in sorted(places):
        slot = None if before is None else before.get(place)
        if slot in by_slot:
            by_slot[slot].append(place)
        else:
            homeless.append(place)
    moved = before is None or any(place in before for place in homeless)
    for place in homeless:
        least = min(by_slot, key=lambda slot: (len(by_slot[slot]), slot))
        by_slot[least].append(place)
    if not moved:
        return Slots(by_slot, ())
    numbers = set(by_slot) | set((before or {}).values())
    if before is None:
        numbers |= {slot for each in known_ids if (slot := slot_of(source, each)) is not None}
    return Slots(by_slot, tuple(transactional_id(source, slot) for slot in sorted(numbers)))


def slots_of(slots: Slots) -> dict[Place, int]:
    """The slot of each partition."""
    return {place: slot for slot, places in slots.by_slot.items() for place in places}


def is_superseded(plan: bytes, newest: bytes) -> bool:
    """Whether a task of a plan has to end, because the target names another one.

    A driver names its plan there before it fences ids. A late task that takes its id after that
    would not be fenced any more, while its partitions may be another slot's by now; it looks for
    the plan's name behind taking the id, and finds the new one.
    """
    return newest != plan


def counted_position(
    position: int | None, indexed_to: int | None, *, is_exactly_once: bool
) -> int | None:
    """The last offset that was surely mirrored and is in the index.

    `position` is what was committed, `indexed_to` the end of the newest chunk at the source. With
    transactions the two are of one making. Without, a position may be of another attempt than the
    index, or of a topic that is gone: what the index has not is mirrored again.
    """
    if position is None or indexed_to is None or is_exactly_once:
        return position
    return min(position, indexed_to - 1)


class Start(NamedTuple):
    """Where a partition goes on, and whether nothing of it was mirrored before."""

    offset: int
    begins: bool
    why: str = ""
    """A sentence where it is not the position that was committed."""


def start_of(
    place: Place, position: int | None, *, log_start: int, log_end: int, from_latest: bool = False,
    diverged_at: int | None = None, other_source: bool = False, other_target: bool = False,
) -> Start:  # fmt: skip
    """Where to go on with a partition.

    `position` is the last offset that was mirrored, None without one. `other_source` says that it
    was counted in a topic that is gone, `other_target` that what was mirrored is. `diverged_at` is
    where the source's log parted from what was mirrored, where its leader epochs tell.
    """
    name = f"{place[0]}-{place[1]}"
    fresh = log_end if from_latest else log_start
    if position is None:
        return Start(fresh, True)
    if other_source:
        why = f"{name} was deleted and created again at the source; its records from offset "
        return Start(log_start, True, f"{why}{log_start} on are mirrored behind the older ones.")
    if other_target:
        why = f"{name}: the topic was deleted and created again on the target; what the source "
        return Start(log_start, True, f"{why}still has, from offset {log_start} on, is mirrored.")
    following = position + 1
    if diverged_at is not None and diverged_at < following:
        why = f"{name}: the source lost offsets {diverged_at} to {position}, which are mirrored; "
        return Start(diverged_at, False, f"{why}what it has since then there follows them.")
    if following < log_start:
        why = f"{name}: retention removed offsets {following} to {log_start - 1} at the source "
        return Start(log_start, False, f"{why}before they were mirrored: they are lost here.")
    if following > log_end:
        why = f"{name}: the source's log ends at {log_end}, and was mirrored up to {following}; "
        return Start(log_end, False, f"{why}it was truncated. Mirroring goes on at its end.")
    return Start(following, False)
