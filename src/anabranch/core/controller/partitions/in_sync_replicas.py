"""AlterPartition: a partition's leader says which replicas are in sync now.

What: the checks in Kafka's order, each with its code, and the record that follows. A leader may
name only replicas that are registered, active and of the broker epoch that it fetched with, so that
a broker that crashed meanwhile is not counted; nor, beyond Kafka, may a replica join whose folder
failed. Rule kept: each partition is judged by itself, and what is answered is the state after the
record, not what was asked for.

Source: Kafka's ReplicationControlManager.alterPartition, KIP-497, KIP-841, KIP-903. Not here: when
a leader asks (`core/replication`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from anabranch.core.controller.brokers.full_folders import with_room
from anabranch.core.controller.brokers.membership import Consequences
from anabranch.core.controller.brokers.sessions import Sessions
from anabranch.core.controller.partitions.elections import Rules, change_isr
from anabranch.core.controller.reasons import (
    Cause,
    isr_reasons,
    moved_reasons,
    partition_reasons,
)
from anabranch.core.controller.result import Reason
from anabranch.core.errors import ClientFault, ErrorCode
from anabranch.core.metadata.concerns.topics import changed_partition
from anabranch.core.metadata.directories import directory_of
from anabranch.core.metadata.image import (
    RECOVERED,
    RECOVERING,
    MetadataImage,
    PartitionImage,
    TopicImage,
)
from anabranch.core.types import TopicId
from anabranch.core.wire.metadata_records import PartitionChangeRecord
from anabranch.core.wire.own_fields import Lag

ANY_EPOCH = -1


class Wanted(NamedTuple):
    """What a leader asks for one partition. `isr` has (broker id, broker epoch or -1)."""

    partition_index: int
    leader_epoch: int
    partition_epoch: int
    isr: tuple[tuple[int, int], ...]
    recovery_state: int
    lags: tuple[Lag, ...] = ()
    """Why members shall leave, as far as the leader says."""


class Altered(NamedTuple):
    """One partition after the change; without a record it was as asked for already."""

    state: PartitionImage
    isr: tuple[int, ...]
    """In the order in which the leader named them, without whoever has left with a move."""
    record: PartitionChangeRecord | None
    reasons: tuple[Reason, ...] = ()
    leads_elsewhere: bool = False
    """Whether the change ended a move that took the leadership away from who asked."""


def alter_partition(
    consequences: Consequences,
    sessions: Sessions,
    broker_id: int,
    topic_id: TopicId,
    wanted: Wanted,
) -> Altered:
    """Change one partition's in-sync replicas; raises ClientFault with Kafka's code."""
    image = consequences.state.image
    topic = image.topic_by_id(topic_id)
    if topic is None:
        raise ClientFault(ErrorCode.UNKNOWN_TOPIC_ID)
    partition = topic.partitions.get(wanted.partition_index)
    if partition is None:
        raise ClientFault(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    _check_epochs(partition, broker_id, wanted)
    _check_isr(partition, wanted)
    _check_recovery(partition, wanted)
    _check_eligible(image, wanted)
    _check_folders(image, sessions, partition, wanted)
    rules = consequences.rules((topic_id, wanted.partition_index))
    if rules.is_diskless:
        raise ClientFault(
            ErrorCode.INVALID_REQUEST,
            f"{topic.name} is diskless: all its replicas are in sync at all times.",
        )
    _check_room(rules, partition, wanted)
    return _altered(rules, topic, partition, wanted)


def _check_epochs(partition: PartitionImage, broker_id: int, wanted: Wanted) -> None:
    """Who knows more than we do must wait for us; who knows less is not the leader any more."""
    if wanted.leader_epoch > partition.leader_epoch:
        raise ClientFault(ErrorCode.NOT_CONTROLLER)
    if wanted.partition_epoch > partition.partition_epoch:
        raise ClientFault(ErrorCode.NOT_CONTROLLER)
    if wanted.leader_epoch < partition.leader_epoch:
        raise ClientFault(ErrorCode.FENCED_LEADER_EPOCH)
    if broker_id != partition.leader:
        raise ClientFault(ErrorCode.INVALID_REQUEST)
    if wanted.partition_epoch < partition.partition_epoch:
        raise ClientFault(ErrorCode.INVALID_UPDATE_VERSION)


def _check_isr(partition: PartitionImage, wanted: Wanted) -> None:
    members = [broker_id for broker_id, _ in wanted.isr]
    is_valid = len(set(members)) == len(members) and set(members) <= set(partition.replicas)
    if not is_valid or partition.leader not in members:
        raise ClientFault(ErrorCode.INVALID_REQUEST)


def _check_recovery(partition: PartitionImage, wanted: Wanted) -> None:
    if wanted.recovery_state not in (RECOVERED, RECOVERING):
        raise ClientFault(ErrorCode.INVALID_REQUEST)
    if wanted.recovery_state == RECOVERING and len(wanted.isr) > 1:
        raise ClientFault(ErrorCode.INVALID_REQUEST)
    if wanted.recovery_state == RECOVERING and partition.recovery_state == RECOVERED:
        raise ClientFault(ErrorCode.INVALID_REQUEST)


def _check_eligible(image: MetadataImage, wanted: Wanted) -> None:
    for broker_id, epoch in wanted.isr:
        broker = image.brokers.get(broker_id)
        if broker is None or not broker.active or epoch not in (ANY_EPOCH, broker.epoch):
            raise ClientFault(ErrorCode.INELIGIBLE_REPLICA)


def _check_folders(
    image: MetadataImage, sessions: Sessions, partition: PartitionImage, wanted: Wanted
) -> None:
    """Who would join must not lie in a folder that failed in its broker's present life: the fetch
    that speaks for it is older than that."""
    for broker_id, _ in wanted.isr:
        if broker_id not in partition.isr:
            folder = directory_of(partition, broker_id)
            if sessions.is_offline(broker_id, image.brokers[broker_id].epoch, folder):
                raise ClientFault(ErrorCode.INELIGIBLE_REPLICA)


def _check_room(rules: Rules, partition: PartitionImage, wanted: Wanted) -> None:
    """Who has no room for more records does not join, however much it has."""
    joining = {broker_id for broker_id, _ in wanted.isr} - set(partition.isr)
    if not joining.isdisjoint(rules.roomless):
        raise ClientFault(ErrorCode.INELIGIBLE_REPLICA)


def _altered(rules: Rules, topic: TopicImage, partition: PartitionImage, wanted: Wanted) -> Altered:
    key = (topic.topic_id, wanted.partition_index)
    named = tuple(broker_id for broker_id, _ in wanted.isr)
    isr = with_room(named, rules, partition.isr)
    ordered = isr if set(isr) != set(partition.isr) else partition.isr
    record = change_isr(*key, partition, ordered, rules)
    if wanted.recovery_state != partition.recovery_state:
        record = record or PartitionChangeRecord(
            partition_id=wanted.partition_index, topic_id=key[0]
        )
        record.leader_recovery_state = wanted.recovery_state
    if record is None:
        return Altered(partition, isr, None)
    state = changed_partition(partition, record)
    place = f"{topic.name}-{wanted.partition_index}"
    said = (
        *isr_reasons(place, partition.leader, partition.isr, named, wanted.lags),
        *_gave_way(place, partition, record, set(named) - set(isr)),
        *moved_reasons(place, partition, state),
    )
    stays = tuple(broker_id for broker_id in isr if broker_id in state.isr)
    return Altered(state, stays, record, said, state.leader != partition.leader)


def _gave_way(
    place: str, partition: PartitionImage, record: PartitionChangeRecord, left: set[int]
) -> Iterator[Reason]:
    """Why replicas that their leader named left the ISR, or the leadership, with its change."""
    for broker_id in sorted(left):
        yield from partition_reasons(
            place, partition, record, broker_id, Cause.NO_ROOM, waits=False
        )
