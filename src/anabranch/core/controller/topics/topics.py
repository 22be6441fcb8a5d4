"""Topics: create, delete, add partitions.

What: plans for CreateTopics, DeleteTopics and CreatePartitions, with Kafka's codes, texts and order
of checks (ReplicationControlManager). Each topic of a request succeeds or fails by itself, and a
failed topic leaves no records. Rule kept: nothing here compares `min.insync.replicas` with the
replication factor, and brokers that are down may get replicas, as in Kafka.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random

from anabranch.core.controller.cluster_state import ClusterState
from anabranch.core.controller.diskless.creation import check_managed
from anabranch.core.controller.reasons import Code
from anabranch.core.controller.result import Reason
from anabranch.core.controller.topics.assignments import (
    PartitionMaker,
    check_manual,
    invalid_assignment,
    refuse_cordoned,
)
from anabranch.core.controller.topics.diskless import new_topic_configs
from anabranch.core.controller.topics.placement import Placed, TopicPlacement
from anabranch.core.controller.topics.topic_names import name_fault
from anabranch.core.errors import ApiError, ClientFault, ErrorCode
from anabranch.core.metadata.image import RESOURCE_TOPIC, MetadataImage, TopicImage
from anabranch.core.metadata.topic_names import is_internal
from anabranch.core.placement.constraints import SETTING, read_constraints
from anabranch.core.sentences import number_of
from anabranch.core.settings.broker import BrokerConfig
from anabranch.core.settings.topic import TopicConfig, effective_topic_config
from anabranch.core.settings.validation import validate_topic_configs
from anabranch.core.types import METADATA_TOPIC_ID, ZERO_TOPIC_ID, TopicId, topic_id_text
from anabranch.core.wire.messages.create_partitions import CreatePartitionsTopic
from anabranch.core.wire.messages.create_topics import CreatableTopic
from anabranch.core.wire.metadata_records import (
    ConfigRecord,
    MetadataRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)

MOST_PARTITIONS_A_REQUEST = 10_000
"""Kafka's cap: one request must fit into one atomic batch."""
USE_DEFAULT = -1


@dataclass(frozen=True, slots=True)
class Planner:
    """What planning needs besides the request: state, settings, and chance."""

    state: ClusterState
    config: BrokerConfig
    rng: Random

    def placing(self) -> TopicPlacement:
        """What places the topics of one request."""
        return TopicPlacement(self.state, self.config, self.rng)

    @property
    def image(self) -> MetadataImage:
        """The newest planned image."""
        return self.state.image


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic that can be created, and the records that create it."""

    topic_id: TopicId
    configs: Mapping[str, str]
    partitions: tuple[PartitionRecord, ...]
    records: tuple[MetadataRecord, ...]
    missing: int = 0
    remarks: tuple[str, ...] = ()

    @property
    def replication_factor(self) -> int:
        """Replicas of its first partition, also those that no broker has yet."""
        return len(self.partitions[0].replicas) + self.missing


# Creating topics


def free(_partitions: int) -> None:
    """Without a quota."""


def create_topics(
    planner: Planner, topics: Sequence[CreatableTopic], take: Callable[[int], None] = free
) -> dict[str, NewTopic | ApiError]:
    """What becomes of each topic of a request, by name. Names must differ. `take` counts the
    partitions of each against a quota, or raises.

    Raises ClientFault POLICY_VIOLATION when the request asks for too many partitions at once.
    """
    _check_total(planner, topics)
    outcomes: dict[str, NewTopic | ApiError] = {}
    placing = planner.placing()
    for topic in topics:
        try:
            _check_name(planner, topic.name)
            made = _create(planner, placing, topic)
            take(len(made.partitions))
            outcomes[topic.name] = made
        except ApiError as fault:
            outcomes[topic.name] = fault
    return outcomes


def _check_total(planner: Planner, topics: Sequence[CreatableTopic]) -> None:
    total = 0
    for topic in topics:
        if topic.assignments:
            total += len(topic.assignments)
        elif topic.num_partitions == USE_DEFAULT:
            total += planner.config.num_partitions
        else:
            total += max(topic.num_partitions, 0)
    if total > MOST_PARTITIONS_A_REQUEST:
        raise ClientFault(
            ErrorCode.POLICY_VIOLATION, "Excessively large number of partitions per request."
        )


def _check_name(planner: Planner, name: str) -> None:
    """As Kafka, it compares with the topics that exist, not with the others of the request."""
    fault = name_fault(planner.state, name)
    if fault is not None:
        raise fault
    if name in planner.image.topic_ids_by_name:
        raise ClientFault(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")


def _create(planner: Planner, placing: TopicPlacement, topic: CreatableTopic) -> NewTopic:
    configs = _configs(planner, topic)
    topic_id = new_topic_id(planner.image, planner.rng)
    effective = TopicConfig.of(configs, planner.config)
    if effective.diskless_enable:
        check_managed(topic.replication_factor, topic.assignments)
        placed = placing.managed(topic_id, _partition_count(planner, topic))
    elif topic.assignments:
        _refuse_constraints(topic.name, effective)
        placed = Placed(_manual_partitions(planner, topic, topic_id), [])
    else:
        placed = _automatic_partitions(planner, placing, topic, topic_id, effective)
    config_records = tuple(
        ConfigRecord(resource_type=RESOURCE_TOPIC, resource_name=topic.name, name=name, value=value)
        for name, value in sorted(configs.items())
    )
    record = TopicRecord(name=topic.name, topic_id=topic_id)
    records = (record, *config_records, *placed.partitions, *placed.more)
    partitions = tuple(placed.partitions)
    return NewTopic(topic_id, configs, partitions, records, placed.missing, placed.remarks)


def new_topic_id(image: MetadataImage, rng: Random) -> TopicId:
    """A random id (UUID version 4) that nobody has and whose text does not begin with a dash."""
    while True:
        raw = bytearray(rng.randbytes(16))
        raw[6] = raw[6] & 0x0F | 0x40
        raw[8] = raw[8] & 0x3F | 0x80
        topic_id = TopicId(bytes(raw))
        reserved = topic_id in (ZERO_TOPIC_ID, METADATA_TOPIC_ID)
        dashed = topic_id_text(topic_id).startswith("-")
        if not reserved and not dashed and topic_id not in image.topics_by_id:
            return topic_id


def _configs(planner: Planner, topic: CreatableTopic) -> dict[str, str]:
    nulls = [each.name for each in topic.configs if each.value is None]
    if nulls:
        raise ClientFault(
            ErrorCode.INVALID_CONFIG,
            f"Null value not supported for topic configs: {','.join(nulls)}",
        )
    configs = {each.name: each.value for each in topic.configs if each.value is not None}
    if configs:
        validate_topic_configs(configs, planner.config)
    return new_topic_configs(topic.name, configs, planner.config)


def _refuse_constraints(name: str, topic: TopicConfig) -> None:
    if topic.confluent_placement_constraints:
        raise invalid_assignment(
            f"Topic {name} has both {SETTING} and a manual assignment: omit one of them."
        )


def _manual_partitions(
    planner: Planner, topic: CreatableTopic, topic_id: TopicId
) -> list[PartitionRecord]:
    for wanted, what in (
        (topic.replication_factor, "replication factor"),
        (topic.num_partitions, "numPartitions"),
    ):
        if wanted != USE_DEFAULT:
            raise ClientFault(
                ErrorCode.INVALID_REQUEST,
                f"A manual partition assignment was specified, but {what} was not set to -1.",
            )
    maker = PartitionMaker(planner.image)
    found: dict[int, PartitionRecord] = {}
    size = None
    for each in topic.assignments:
        index = each.partition_index
        if index in found:
            raise invalid_assignment(
                f"Found multiple manual partition assignments for partition {index}"
            )
        replicas = check_manual(planner.image, each.broker_ids, size)
        refuse_cordoned(planner.image, replicas)
        size = len(replicas)
        isr = maker.isr(replicas)
        if not isr:
            raise invalid_assignment(
                "All brokers specified in the manual partition assignment for partition "
                f"{index} are fenced or in controlled shutdown."
            )
        found[index] = maker.record(topic_id, index, replicas, isr)
    if sorted(found) != list(range(len(found))):
        raise invalid_assignment("partitions should be a consecutive 0-based integer sequence")
    return [found[index] for index in sorted(found)]


def _automatic_partitions(
    planner: Planner,
    placing: TopicPlacement,
    topic: CreatableTopic,
    topic_id: TopicId,
    effective: TopicConfig,
) -> Placed:
    if topic.replication_factor < USE_DEFAULT or topic.replication_factor == 0:
        raise ClientFault(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            "Replication factor must be larger than 0, or -1 to use the default value.",
        )
    count, factor = _partition_count(planner, topic), topic.replication_factor
    constraints = read_constraints(effective.confluent_placement_constraints)
    if constraints is not None:
        return placing.constrained(topic_id, constraints, count, factor)
    factor = planner.config.default_replication_factor if factor == USE_DEFAULT else factor
    try:
        return placing.place(topic_id, effective, count, factor)
    except ClientFault as fault:
        if fault.code != ErrorCode.INVALID_REPLICATION_FACTOR:
            raise
        sentence = f"Unable to replicate the partition {factor} time(s): {fault.message}"
        raise ClientFault(fault.code, sentence) from None


def _partition_count(planner: Planner, topic: CreatableTopic) -> int:
    if topic.num_partitions < USE_DEFAULT or topic.num_partitions == 0:
        raise ClientFault(
            ErrorCode.INVALID_PARTITIONS,
            "Number of partitions was set to an invalid non-positive value.",
        )
    if topic.num_partitions == USE_DEFAULT:
        return planner.config.num_partitions
    return topic.num_partitions


def creation_reason(name: str, topic: NewTopic) -> Reason:
    """Why the topic lies where it lies."""
    missing = number_of(topic.missing, "replica")
    waits = f"; {missing} of each to be placed on the next broker" if topic.missing else ""
    remarks = "".join(f"; {remark.rstrip('.')}" for remark in topic.remarks)
    return Reason(
        Code.TOPIC_CREATED,
        f"topic {name} created with {number_of(len(topic.partitions), 'partition')}, "
        f"replication factor {topic.replication_factor}{waits}{remarks}",
        {"topic": name, "partitions": len(topic.partitions), "missing": topic.missing},
    )


# Deleting topics


def delete_topic(image: MetadataImage, topic: TopicImage) -> RemoveTopicRecord:
    """The record that removes a topic with its partitions and configurations."""
    assert topic.topic_id in image.topics_by_id
    return RemoveTopicRecord(topic_id=topic.topic_id)


# Adding partitions


def create_partitions(
    planner: Planner, placing: TopicPlacement, wanted: CreatePartitionsTopic
) -> Placed:
    """The partitions that take a topic to `wanted.count`. Raises ClientFault."""
    topic = planner.image.topic(wanted.name)
    if topic is None:
        raise ClientFault(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            "This server does not host this topic-partition.",
        )
    if is_internal(topic.name):
        raise ClientFault(
            ErrorCode.INVALID_REQUEST,
            f"The number of partitions of {topic.name} cannot be changed: it says in which of them "
            "each group or transactional id is.",
        )
    have = len(topic.partitions)
    effective = effective_topic_config(planner.image, topic.name, planner.config)
    if effective.diskless_enable:
        check_managed(USE_DEFAULT, wanted.assignments)
        return placing.managed(topic.topic_id, _additional(topic, wanted), first=have)
    additional = _additional(topic, wanted)
    factor = topic.partitions[0].replication_factor
    if wanted.assignments is None:
        constraints = read_constraints(effective.confluent_placement_constraints)
        if constraints is not None:
            return placing.constrained(topic.topic_id, constraints, additional, first=have)
        existing = tuple(topic.partitions[index].replicas for index in range(have))
        return placing.place(topic.topic_id, effective, additional, factor, existing)
    _refuse_constraints(topic.name, effective)
    maker = PartitionMaker(planner.image)
    made: list[PartitionRecord] = []
    for index, assignment in enumerate(wanted.assignments, have):
        replicas = check_manual(planner.image, assignment.broker_ids, factor)
        refuse_cordoned(planner.image, replicas)
        isr = maker.isr(replicas)
        if not isr:
            raise invalid_assignment(
                "All brokers specified in the manual partition assignment for partition "
                f"{index} are fenced or in controlled shutdown."
            )
        made.append(maker.record(topic.topic_id, index, replicas, isr))
    return Placed(made, [])


def _additional(topic: TopicImage, wanted: CreatePartitionsTopic) -> int:
    have = len(topic.partitions)
    if wanted.count == have:
        raise ClientFault(ErrorCode.INVALID_PARTITIONS, f"Topic already has {have} partition(s).")
    if wanted.count < have:
        raise ClientFault(
            ErrorCode.INVALID_PARTITIONS,
            f"The topic {topic.name} currently has {have} partition(s); {wanted.count} would not "
            "be an increase.",
        )
    additional = wanted.count - have
    if additional > MOST_PARTITIONS_A_REQUEST:
        raise ClientFault(
            ErrorCode.POLICY_VIOLATION, "Excessively large number of partitions per request."
        )
    if wanted.assignments is not None and len(wanted.assignments) != additional:
        raise invalid_assignment(
            f"Attempted to add {additional} additional partition(s), but only "
            f"{len(wanted.assignments)} assignment(s) were specified."
        )
    return additional
