"""Who leads a partition after its in-sync replicas changed, and the one record that says so.

What: the rules of Kafka's PartitionChangeBuilder. A move of replicas that nothing keeps from ending
ends with the change (`core/controller/moves/reassignment.py`). A candidate is valid when it
is acceptable (active) and in the target ISR, or, when that is empty, among the eligible leader
replicas (ELR, KIP-966). Order: the present leader, then the replica list's order (both times those
with room first), then the last known leader (which counts as unclean), then, only if unclean
elections are allowed, any acceptable replica, those that were emptied last. Rules kept: without ELR
the ISR never becomes empty, so its last member may lead again. A replica that was emptied is no
candidate until it joins the ISR, and is one with the change by which it joins. A replica that a
move adds has nothing of the partition that the controller knows of: until it joins the ISR it leads
only when an operator asks for an unclean election, after all others.
`prefer_first` moves a leadership to the first replica of the list and nowhere else.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from immutables import Map
from msgspec.structs import replace

from anabranch.core.controller.diskless.leaders import change_diskless
from anabranch.core.controller.moves.reassignment import Move, former, settled
from anabranch.core.metadata.image import RECOVERING, UNASSIGNED_DIRECTORY, PartitionImage
from anabranch.core.types import NO_LEADER, TopicId
from anabranch.core.wire.metadata_records import PartitionChangeRecord

NOBODY_EMPTIED: Mapping[int, bytes] = Map()


def unassigned(_broker_id: int) -> bytes:
    """The directory id of a replica whose broker chooses the folder itself."""
    return UNASSIGNED_DIRECTORY


@dataclass(frozen=True, slots=True)
class Rules:
    """What holds for a partition's election besides its own state."""

    acceptable: Callable[[int], bool]
    min_insync: int
    elr_enabled: bool
    unclean_allowed: bool = False
    only_clean: bool = False
    """Whether whoever is missing may turn out to be there: nobody leads who may lack records."""
    emptied: Mapping[int, bytes] = NOBODY_EMPTIED
    """Replicas that do not lie any more in the folder that the partition names, and where they lie
    now: they have nothing of it until they are in sync again (KIP-858)."""
    directory: Callable[[int], bytes] = unassigned
    """Where a broker puts a replica that it gets."""
    added_may_lead: bool = False
    """Whether an unclean election may choose a replica that a move is still adding."""
    roomless: Collection[int] = ()
    """Replicas whose folder has no room: they lead only where nobody else may lead cleanly."""
    is_diskless: bool = False
    """Whether all replicas are in sync at all times: see `core/controller/diskless/leaders.py`."""


class Chosen(NamedTuple):
    """The elected leader, -1 for nobody; unclean when it may lack acknowledged records."""

    leader: int
    unclean: bool


class Target(NamedTuple):
    """Where the partition should go."""

    isr: tuple[int, ...]
    elr: tuple[int, ...]
    last_known: tuple[int, ...]


def change_isr(
    topic_id: TopicId,
    index: int,
    partition: PartitionImage,
    isr: tuple[int, ...],
    rules: Rules,
    unclean_shutdown: frozenset[int] = frozenset(),
    move: Move | None = None,
) -> PartitionChangeRecord | None:
    """The record that takes a partition to the ISR `isr` with a fitting leader, and a move of its
    replicas to where it can be (None: the one that it is in); None: no change."""
    move = move or Move.of(partition)
    if rules.is_diskless:
        return change_diskless(topic_id, index, partition, move.target, rules.acceptable)
    move, isr = settled(move, isr)
    moved = _moved(partition, move, rules)
    target = _eligible(moved, isr, rules, unclean_shutdown)
    chosen = _elect(moved, target, rules)
    target = _after_election(moved, target, chosen, rules)
    record = PartitionChangeRecord(partition_id=index, topic_id=topic_id)
    changed = _tell_move(record, partition, moved)
    if chosen.leader != partition.leader:
        record.leader = chosen.leader
        changed = True
        if chosen.unclean and partition.recovery_state != RECOVERING:
            record.leader_recovery_state = RECOVERING
    elif not set(partition.replicas) <= set(moved.replicas):
        record.leader = partition.leader  # whoever was dropped must learn of it by an epoch
    if target.isr != partition.isr:
        record.isr = list(target.isr)
        changed = True
    if target.elr != partition.elr:
        record.eligible_leader_replicas = list(target.elr)
        changed = True
    if target.last_known != partition.last_known_elr:
        record.last_known_elr = list(target.last_known)
        changed = True
    if not changed:
        return None
    directories = _directories(moved, partition.isr, target.isr, chosen.leader, rules.emptied)
    if directories is not None:
        record.directories = directories
    return record


def _moved(partition: PartitionImage, move: Move, rules: Rules) -> PartitionImage:
    """The partition with the replica lists of a move."""
    if move == Move.of(partition):
        return partition
    known = dict(zip(partition.replicas, partition.directories, strict=False))
    return replace(
        partition,
        replicas=move.replicas,
        adding=move.adding,
        removing=move.removing,
        directories=tuple(known.get(each, rules.directory(each)) for each in move.replicas),
        isr=tuple(each for each in partition.isr if each in move.replicas),
        elr=tuple(each for each in partition.elr if each in move.replicas),
        last_known_elr=tuple(each for each in partition.last_known_elr if each in move.replicas),
        former=former(partition, move),
    )


def _tell_move(
    record: PartitionChangeRecord, before: PartitionImage, after: PartitionImage
) -> bool:
    """Write down which of the replica lists changed, and whether any did."""
    if after.replicas != before.replicas:
        record.replicas = list(after.replicas)
        record.directories = list(after.directories)
    if after.adding != before.adding:
        record.adding_replicas = list(after.adding)
    if after.removing != before.removing:
        record.removing_replicas = list(after.removing)
    if after.former != before.former and Move.of(after).is_running:
        record.former_replicas = list(after.former)
    return Move.of(before) != Move.of(after)


def _directories(
    partition: PartitionImage,
    isr_before: tuple[int, ...],
    isr: tuple[int, ...],
    leader: int,
    emptied: Mapping[int, bytes],
) -> list[bytes] | None:
    """Where the replicas lie when one that was emptied is in sync again; None: as before."""
    joined = {each for each in isr if each in emptied}
    joined = {each for each in joined if each == leader or each not in isr_before}
    if not joined:
        return None
    return [
        emptied[broker_id] if broker_id in joined else directory
        for broker_id, directory in zip(partition.replicas, partition.directories, strict=True)
    ]


def prefer_first(
    topic_id: TopicId, index: int, partition: PartitionImage, rules: Rules
) -> PartitionChangeRecord | None:
    """The record that lets the first replica of the list lead; None while it may not, as when its
    disk was lost since it was in sync, or is full."""
    preferred = partition.replicas[0]
    may_lead = preferred in partition.isr and preferred not in (*rules.emptied, *rules.roomless)
    if not may_lead or not rules.acceptable(preferred) or preferred == partition.leader:
        return None
    return PartitionChangeRecord(partition_id=index, topic_id=topic_id, leader=preferred)


def _eligible(
    partition: PartitionImage,
    isr: tuple[int, ...],
    rules: Rules,
    unclean_shutdown: frozenset[int],
) -> Target:
    if not rules.elr_enabled:
        return Target(isr or partition.isr, partition.elr, partition.last_known_elr)
    if len(isr) >= min(rules.min_insync, partition.replication_factor):
        return Target(isr, (), ())
    gone = set(isr) | unclean_shutdown
    before = {*partition.elr, *partition.isr} & set(partition.replicas)
    elr = tuple(sorted(before - gone))
    return Target(isr, elr, partition.last_known_elr)


def _elect(partition: PartitionImage, target: Target, rules: Rules) -> Chosen:
    candidates = target.isr or (target.elr if rules.elr_enabled else ())
    usable = [each for each in partition.replicas if rules.acceptable(each)]
    joined = set(target.isr).difference(partition.isr)  # they have copied everything
    holding = [each for each in usable if each not in rules.emptied or each in joined]
    order = (partition.leader, *holding)
    for broker_id in sorted(order, key=lambda each: each in rules.roomless):
        if broker_id in candidates and broker_id in holding:
            return Chosen(broker_id, False)
    if rules.only_clean:
        return Chosen(NO_LEADER, False)
    last_known = target.last_known
    if rules.elr_enabled and not target.isr and not target.elr and len(last_known) == 1:
        if last_known[0] in holding:
            return Chosen(last_known[0], True)
    if rules.unclean_allowed:
        last_resort = [*holding, *usable]
        added = [each for each in last_resort if each in partition.adding]
        chosen = [each for each in last_resort if each not in added]
        chosen += added if rules.added_may_lead else []
        if chosen:
            return Chosen(chosen[0], True)
    return Chosen(NO_LEADER, False)


def _after_election(
    partition: PartitionImage, target: Target, chosen: Chosen, rules: Rules
) -> Target:
    isr, elr, last_known = target
    if chosen.unclean:
        return Target((chosen.leader,), (), ())
    if chosen.leader >= 0:
        if chosen.leader not in isr:
            isr = (chosen.leader,)
            enough = min(rules.min_insync, partition.replication_factor) <= len(isr)
            elr = () if enough else tuple(broker for broker in elr if broker != chosen.leader)
        return Target(isr, elr, ())
    if rules.elr_enabled and not last_known and partition.leader in partition.replicas:
        last_known = (partition.leader,)
    return Target(isr, elr, last_known)
