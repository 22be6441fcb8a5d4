"""Topics and their partitions, with observers and missing replicas.

Rule kept: a change record raises the partition epoch by one, and the leader epoch if it names a
leader, even the same one. Source: KIP-631, KIP-966 (eligible leader replicas).
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from immutables import Map
from msgspec.structs import replace

from anabranch.core.errors import Bug
from anabranch.core.metadata.builder import ImageBuilder, Rules
from anabranch.core.metadata.image import (
    RESOURCE_TOPIC,
    MetadataImage,
    PartitionImage,
    TopicImage,
)
from anabranch.core.types import TopicId
from anabranch.core.wire import metadata_records as records

NO_LEADER_CHANGE = -2
NO_STATE_CHANGE = -1
NO_MOVE = {"suspended": 0, "former": ()}
"""What is noted for the end of a move, when there is none."""
MOST_SHARED = 4096
"""Different lists of replicas and folders that are remembered: a few megabytes at most."""


@lru_cache(maxsize=MOST_SHARED)
def shared(row: tuple[Any, ...]) -> tuple[Any, ...]:
    """The same list, and the same object as for others that are equal: hundreds of thousands of
    partitions have few different lists of replicas and folders, and each list of its own would take
    100 to 300 bytes, and time of each pass of garbage collection."""
    return row


def _topic(builder: ImageBuilder, record: records.TopicRecord) -> None:
    topic_id = TopicId(record.topic_id)
    if topic_id in builder.changing("topics_by_id"):
        raise Bug(f"topic id {topic_id.hex()} is given twice")
    builder.changing("topics_by_id")[topic_id] = TopicImage(record.name, topic_id, Map())
    builder.changing("topic_ids_by_name")[record.name] = topic_id
    builder.created[topic_id] = None
    builder.partitions(topic_id)


def _remove_topic(builder: ImageBuilder, record: records.RemoveTopicRecord) -> None:
    topic_id = TopicId(record.topic_id)
    edited = builder.edited.pop(topic_id, None)
    topic = builder.changing("topics_by_id").pop(topic_id)
    if edited is not None:
        topic = replace(topic, partitions=edited.finish())
    del builder.changing("topic_ids_by_name")[topic.name]
    builder.touched.pop(topic_id, None)
    if topic_id in builder.created:
        del builder.created[topic_id]
        builder.passing.append(topic)
    else:
        builder.deleted.append(topic)
    key = (RESOURCE_TOPIC, topic.name)
    if key in builder.changing("configs"):
        del builder.changing("configs")[key]
        builder.configs.add(key)


def _partition(builder: ImageBuilder, record: records.PartitionRecord) -> None:
    topic_id = TopicId(record.topic_id)
    builder.partitions(topic_id)[record.partition_id] = PartitionImage(
        replicas=shared(tuple(record.replicas)),
        isr=shared(tuple(record.isr)),
        leader=record.leader,
        leader_epoch=record.leader_epoch,
        partition_epoch=record.partition_epoch,
        directories=shared(tuple(record.directories)),
        elr=tuple(record.eligible_leader_replicas or ()),
        last_known_elr=tuple(record.last_known_elr or ()),
        adding=tuple(record.adding_replicas),
        removing=tuple(record.removing_replicas),
        recovery_state=record.leader_recovery_state,
        former=tuple(record.former_replicas),
    )
    builder.touched[topic_id][record.partition_id] = None


def _partition_change(builder: ImageBuilder, record: records.PartitionChangeRecord) -> None:
    topic_id = TopicId(record.topic_id)
    partitions = builder.partitions(topic_id)
    old = partitions.get(record.partition_id)
    if old is None:
        raise Bug(f"a change names the unknown partition {record.partition_id}")
    partitions[record.partition_id] = changed_partition(old, record)
    builder.touched[topic_id][record.partition_id] = None


def changed_partition(old: PartitionImage, record: records.PartitionChangeRecord) -> PartitionImage:
    """A partition after a change record: its partition epoch grows by one, its leader epoch if the
    record names a leader, even the same one."""
    changes: dict[str, Any] = {"partition_epoch": old.partition_epoch + 1}
    for name, value in (
        ("isr", record.isr),
        ("replicas", record.replicas),
        ("removing", record.removing_replicas),
        ("adding", record.adding_replicas),
        ("directories", record.directories),
        ("elr", record.eligible_leader_replicas),
        ("last_known_elr", record.last_known_elr),
        ("former", record.former_replicas),
    ):
        if value is not None:
            changes[name] = shared(tuple(value))
    if record.leader != NO_LEADER_CHANGE:
        changes["leader"] = record.leader
        changes["leader_epoch"] = old.leader_epoch + 1
    if record.leader_recovery_state != NO_STATE_CHANGE:
        changes["recovery_state"] = record.leader_recovery_state
    if record.replicas is not None and old.observers:
        changes["observers"] = tuple(
            broker_id for broker_id in old.observers if broker_id not in record.replicas
        )
    if not changes.get("adding", old.adding) and not changes.get("removing", old.removing):
        changes |= NO_MOVE
    return replace(old, **changes)


def _replica_roles(builder: ImageBuilder, record: records.ReplicaRolesRecord) -> None:
    topic_id = TopicId(record.topic_id)
    partitions = builder.partitions(topic_id)
    old = partitions.get(record.partition_id)
    if old is None or not set(record.observers).isdisjoint(old.replicas):
        raise Bug(f"roles that do not fit partition {record.partition_id}")
    partitions[record.partition_id] = replace(old, observers=tuple(record.observers))
    builder.touched[topic_id][record.partition_id] = None


def _missing_replicas(builder: ImageBuilder, record: records.MissingReplicasRecord) -> None:
    topic_id = TopicId(record.topic_id)
    partitions = builder.partitions(topic_id)
    old = partitions.get(record.partition_id)
    if old is None or record.missing < 0 or record.suspended < 0:
        raise Bug(f"missing replicas that do not fit partition {record.partition_id}")
    partitions[record.partition_id] = replace(
        old, missing=record.missing, suspended=record.suspended
    )
    builder.touched[topic_id][record.partition_id] = None


def _clear_elr(builder: ImageBuilder, record: records.ClearElrRecord) -> None:
    """Empty the eligible leaders of one topic, or of all when the name is empty (KIP-966).

    Where there were any, the partition's epoch grows; elsewhere nothing changes."""
    if record.topic_name:
        chosen = [builder.changing("topic_ids_by_name")[record.topic_name]]
    else:
        chosen = sorted(builder.image.topics_by_id) + list(builder.created)
    for topic_id in chosen:
        _clear_topic_elr(builder, topic_id)


def _clear_topic_elr(builder: ImageBuilder, topic_id: TopicId) -> None:
    topic = builder.changing("topics_by_id").get(topic_id)
    if topic is None:
        return
    current = builder.edited.get(topic_id, topic.partitions)
    for index in {**topic.partitions, **builder.touched.get(topic_id, {})}:
        partition = current[index]
        if partition.elr or partition.last_known_elr:
            epoch = partition.partition_epoch + 1
            cleared = replace(partition, elr=(), last_known_elr=(), partition_epoch=epoch)
            builder.partitions(topic_id)[index] = cleared
            builder.touched[topic_id][index] = None


RULES: Rules = {
    records.TopicRecord: _topic,
    records.RemoveTopicRecord: _remove_topic,
    records.PartitionRecord: _partition,
    records.PartitionChangeRecord: _partition_change,
    records.ReplicaRolesRecord: _replica_roles,
    records.MissingReplicasRecord: _missing_replicas,
    records.ClearElrRecord: _clear_elr,
}


def snapshot(image: MetadataImage) -> Iterator[records.MetadataRecord]:
    """Every topic by name, with its partitions."""
    for name in sorted(image.topic_ids_by_name):
        yield from _topic_records(image.topics_by_id[image.topic_ids_by_name[name]])


def _topic_records(topic: TopicImage) -> Iterator[records.MetadataRecord]:
    """A topic's record and those of its partitions."""
    yield records.TopicRecord(name=topic.name, topic_id=topic.topic_id)
    for index in sorted(topic.partitions):
        partition = topic.partitions[index]
        yield _partition_record(topic.topic_id, index, partition)
        if partition.observers:
            yield records.ReplicaRolesRecord(
                partition_id=index, topic_id=topic.topic_id, observers=list(partition.observers)
            )
        if partition.missing or partition.suspended:
            yield records.MissingReplicasRecord(
                partition_id=index,
                topic_id=topic.topic_id,
                missing=partition.missing,
                suspended=partition.suspended,
            )


def _partition_record(
    topic_id: TopicId, index: int, partition: PartitionImage
) -> records.PartitionRecord:
    """A partition as the record that makes it."""
    return records.PartitionRecord(
        partition_id=index,
        topic_id=topic_id,
        replicas=list(partition.replicas),
        isr=list(partition.isr),
        removing_replicas=list(partition.removing),
        adding_replicas=list(partition.adding),
        leader=partition.leader,
        leader_recovery_state=partition.recovery_state,
        leader_epoch=partition.leader_epoch,
        partition_epoch=partition.partition_epoch,
        directories=list(partition.directories),
        eligible_leader_replicas=list(partition.elr) or None,
        last_known_elr=list(partition.last_known_elr) or None,
        former_replicas=list(partition.former),
    )
