"""Decisions about moves of replicas: begin one, take it back, tell of it.

What: the checks of AlterPartitionReassignments in Kafka's order, each with its code and text, and
the record. A move that needs nobody new ends with the record that begins it. Rule kept: a move
needs only that its brokers are registered, and that none which gets a replica is cordoned; the
partition's leader stays until the move ends, and a move is never taken back at the price of
records, unless unclean elections are allowed and nobody who may be back has them. Replicas that no
broker has yet are given up for the list that was asked for, and missed again when the move is taken
back. Beyond Kafka: a move is not taken back where nobody would lead then, although somebody does,
or only replicas that were coming had the records. A move of a diskless partition is done at once,
and refused where no broker that is named could lead.

Source: Kafka's ReplicationControlManager.alterPartitionReassignment, KIP-455, KIP-860. Not here:
the lists (`reassignment.py`), when a move ends (`core/controller/partitions/elections.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from anabranch.core.controller.brokers.membership import Consequences
from anabranch.core.controller.cluster_state import PartitionKey
from anabranch.core.controller.moves.reassignment import Move, begun, reverted
from anabranch.core.controller.partitions.elections import change_isr
from anabranch.core.controller.reasons import Code, leader_reason
from anabranch.core.controller.result import Reason
from anabranch.core.controller.topics.assignments import (
    check_manual,
    invalid_assignment,
    refuse_cordoned,
)
from anabranch.core.errors import ClientFault, ErrorCode
from anabranch.core.metadata.concerns.topics import changed_partition
from anabranch.core.metadata.image import PartitionImage
from anabranch.core.wire.metadata_records import (
    MetadataRecord,
    MissingReplicasRecord,
    PartitionChangeRecord,
)

NO_BYTES = "diskless: no records move"
"""What is said of a move of a diskless partition."""


class Moved(NamedTuple):
    """What a request does to one partition; no records when it has those replicas already."""

    records: tuple[MetadataRecord, ...] = ()
    reasons: tuple[Reason, ...] = ()
    goes_on: bool = False
    """Whether it waits for somebody to be in sync."""


def move(
    consequences: Consequences,
    topic_name: str,
    index: int,
    target: Sequence[int] | None,
    *,
    may_change_factor: bool = True,
    because: str = "",
) -> Moved:
    """Give a partition the replicas `target`, or (None) take its move back. `because` goes into the
    reason. Raises ClientFault."""
    key = _found(consequences, topic_name, index)
    partition = consequences.state.partition(key)
    place = f"{topic_name}-{index}"
    if target is None:
        return _taken_back(consequences, key, partition, place)
    wanted = check_manual(consequences.state.image, target, None)
    refuse_cordoned(consequences.state.image, wanted, partition.replicas)
    factor = len(Move.of(partition).target) + partition.missing
    if not may_change_factor and len(wanted) != factor:
        raise ClientFault(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"The replication factor is changed from {factor} to {len(wanted)}",
        )
    lists, rules = begun(partition.replicas, wanted, partition.adding), consequences.rules(key)
    if rules.is_diskless and not any(map(rules.acceptable, wanted)):
        raise invalid_assignment(
            f"{place} is diskless, so its replicas change at once, and none of the brokers "
            f"{', '.join(map(str, wanted))} is active, so none could lead it. Include an active "
            "broker."
        )
    record = change_isr(*key, partition, partition.isr, rules, move=lists)
    if record is None and not partition.missing:
        return Moved(goes_on=lists.is_running)
    record = record or PartitionChangeRecord(partition_id=index, topic_id=key[0])
    goes_on = Move.of(changed_partition(partition, record)).is_running
    if rules.is_diskless:
        because = "; ".join(filter(None, (because, NO_BYTES)))
    reasons = (_said(place, partition, lists, because, goes_on=goes_on),)
    if not partition.missing:
        return Moved((record,), reasons, goes_on)
    suspended = partition.suspended + partition.missing if goes_on else 0
    return Moved((record, _missing(key, 0, suspended)), reasons, goes_on)


def _missing(key: PartitionKey, missing: int, suspended: int) -> MissingReplicasRecord:
    return MissingReplicasRecord(
        partition_id=key[1], topic_id=key[0], missing=missing, suspended=suspended
    )


def _found(consequences: Consequences, topic_name: str, index: int) -> PartitionKey:
    topic = consequences.state.image.topic(topic_name)
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if topic is None:
        raise ClientFault(unknown, f"Unable to find a topic named {topic_name}.")
    if index not in topic.partitions:
        raise ClientFault(unknown, f"Unable to find partition {topic_name}:{index}.")
    return topic.topic_id, index


def _taken_back(
    consequences: Consequences,
    key: PartitionKey,
    partition: PartitionImage,
    place: str,
) -> Moved:
    if not Move.of(partition).is_running:
        raise ClientFault(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)
    lists, record = _reverting(consequences, key, partition)
    leader = changed_partition(partition, record).leader
    stays = ", ".join(map(str, lists.replicas))
    sentence = f"the move of {place} was cancelled: its replicas are {stays} again"
    details = {"partition": place}
    reasons = [Reason(Code.REASSIGNMENT_CANCELLED, sentence, details)]
    if leader != partition.leader:
        because = "its move was cancelled"
        reasons.append(leader_reason(place, partition, record, because, details))
    if not partition.suspended:
        return Moved((record,), tuple(reasons))
    again = _missing(key, partition.missing + partition.suspended, 0)
    return Moved((record, again), tuple(reasons))


def _reverting(
    consequences: Consequences,
    key: PartitionKey,
    partition: PartitionImage,
) -> tuple[Move, PartitionChangeRecord]:
    """The lists after a move is taken back, and the record; raises ClientFault where that would
    leave nobody to lead, or nobody with the records."""
    rules = consequences.rules(key)
    lists, isr, may_lose = reverted(partition, elr_enabled=rules.elr_enabled)
    rules = replace(rules, only_clean=rules.only_clean or not may_lose)
    record = change_isr(*key, partition, isr, rules, move=lists)
    assert record is not None  # the replicas that were coming, or were to go, are written down
    leader = changed_partition(partition, record).leader
    if leader < 0 and (may_lose or partition.leader >= 0):
        name = consequences.state.topic_name(key)
        raise invalid_assignment(
            f"Unable to revert partition assignment for {name}:{key[1]} because it would require "
            "an unclean leader election."
        )
    return lists, record


def _said(
    place: str, before: PartitionImage, lists: Move, because: str, *, goes_on: bool
) -> Reason:
    why = f" ({because})" if because else ""
    was, will = (", ".join(map(str, row)) for row in (before.replicas, lists.target))
    details = {"partition": place, "from": list(before.replicas), "to": list(lists.target)}
    if not goes_on:
        done = f"{place} is on {will} instead of {was}{why}"
        if was == will:
            gone = ": it has no missing replicas now" if before.missing else ""
            done = f"{place} stays on {will}{gone}{why}"
        return Reason(Code.REASSIGNMENT_DONE, done, details)
    adding = ", ".join(map(str, lists.coming)) or "no new replica"
    return Reason(
        Code.REASSIGNMENT_BEGUN,
        f"{place} moves from {was} to {will}: waiting for {adding} to be in sync{why}",
        details,
    )
