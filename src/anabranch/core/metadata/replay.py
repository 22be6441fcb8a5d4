"""Applying metadata records to an image: the only way the cluster's state changes.

What: `replay_batch` turns an image and the records of one batch into the next image and the delta.
Why: controller, brokers, simulator and dump tools run the same few functions, so they cannot come
to differ. Rule kept: the cost is that of the records, never that of what exists; a record that does
not fit the image raises `Bug`, because committed records are facts and must fit. Sources: KIP-500,
KIP-631, KIP-966 (eligible leader replicas); own records: core/wire/own_records.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from immutables import Map
from msgspec.structs import replace

from anabranch.core.errors import Bug
from anabranch.core.metadata.features import offered
from anabranch.core.metadata.image import (
    RESOURCE_TOPIC,
    Absence,
    BrokerImage,
    ConfigKey,
    ControllerImage,
    Endpoint,
    MetadataDelta,
    MetadataImage,
    PartitionImage,
    TopicImage,
)
from anabranch.core.metadata.plan_state import plan_after
from anabranch.core.types import TopicId
from anabranch.core.wire import metadata_records as records

NO_LEADER_CHANGE = -2
NO_STATE_CHANGE = -1
MetadataRecord = records.MetadataRecord


def replay(image: MetadataImage, record: MetadataRecord) -> MetadataImage:
    """The image after one record, which takes the next offset."""
    return replay_batch(image, (record,), image.offset + 1, image.epoch)[0]


def replay_batch(
    image: MetadataImage, batch: Iterable[MetadataRecord], offset: int, epoch: int
) -> tuple[MetadataImage, MetadataDelta]:
    """The image after a batch whose last record has `offset`, and what the batch touched."""
    builder = ImageBuilder(image)
    for record in batch:
        builder.apply(record)
    return builder.finish(offset, epoch)


def everything(image: MetadataImage) -> MetadataDelta:
    """The delta from nothing to the image: for whoever begins with a whole one."""
    topics = sorted(image.topics_by_id.items())
    return MetadataDelta(
        created_topics=tuple(topic_id for topic_id, _ in topics),
        changed_partitions={topic_id: tuple(topic.partitions) for topic_id, topic in topics},
        changed_configs=frozenset(image.configs),
        changed_brokers=frozenset(image.brokers),
        features_changed=bool(image.features),
    )


class ImageBuilder:
    """Collects a batch's changes in mutations of the maps, each begun when first needed."""

    def __init__(self, image: MetadataImage) -> None:
        self.image = image
        self.maps: dict[str, Any] = {}
        self.edited: dict[TopicId, Any] = {}
        self.touched: dict[TopicId, dict[int, None]] = {}
        self.created: dict[TopicId, None] = {}
        self.deleted: list[TopicImage] = []
        self.configs: set[ConfigKey] = set()
        self.brokers: set[int] = set()
        self.scalars: dict[str, Any] = {}
        self.features_changed = False

    def apply(self, record: MetadataRecord) -> None:
        """Apply one record."""
        try:
            change = APPLY[type(record)]
        except KeyError:
            raise Bug(f"no rule replays {type(record).__name__}") from None
        change(self, record)

    def changing(self, name: str) -> Any:
        """The mutation of one of the image's maps."""
        mutation = self.maps.get(name)
        if mutation is None:
            mutation = self.maps[name] = getattr(self.image, name).mutate()
        return mutation

    def partitions(self, topic_id: TopicId) -> Any:
        """The mutation of a topic's partitions."""
        mutation = self.edited.get(topic_id)
        if mutation is None:
            topic = self.changing("topics_by_id").get(topic_id)
            if topic is None:
                raise Bug(f"a record names the unknown topic id {topic_id.hex()}")
            mutation = self.edited[topic_id] = topic.partitions.mutate()
            self.touched[topic_id] = {}
        return mutation

    def finish(self, offset: int, epoch: int) -> tuple[MetadataImage, MetadataDelta]:
        """The new image and the delta."""
        for topic_id, partitions in self.edited.items():
            topics = self.changing("topics_by_id")
            topics[topic_id] = replace(topics[topic_id], partitions=partitions.finish())
        changed = {name: mutation.finish() for name, mutation in self.maps.items()}
        image = replace(self.image, offset=offset, epoch=epoch, **changed, **self.scalars)
        return image, self.delta()

    def delta(self) -> MetadataDelta:
        """What was touched."""
        partitions = {topic_id: tuple(indexes) for topic_id, indexes in self.touched.items()}
        return MetadataDelta(
            created_topics=tuple(self.created),
            deleted_topics=tuple(self.deleted),
            changed_partitions=partitions,
            changed_configs=frozenset(self.configs),
            changed_brokers=frozenset(self.brokers),
            features_changed=self.features_changed,
        )


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
    else:
        builder.deleted.append(topic)
    key = (RESOURCE_TOPIC, topic.name)
    if key in builder.changing("configs"):
        del builder.changing("configs")[key]
        builder.configs.add(key)


def _partition(builder: ImageBuilder, record: records.PartitionRecord) -> None:
    topic_id = TopicId(record.topic_id)
    replicas = tuple(record.replicas)
    isr = tuple(record.isr)
    builder.partitions(topic_id)[record.partition_id] = PartitionImage(
        replicas=replicas,
        isr=replicas if isr == replicas else isr,
        leader=record.leader,
        leader_epoch=record.leader_epoch,
        partition_epoch=record.partition_epoch,
        directories=tuple(record.directories),
        elr=tuple(record.eligible_leader_replicas or ()),
        last_known_elr=tuple(record.last_known_elr or ()),
        adding=tuple(record.adding_replicas),
        removing=tuple(record.removing_replicas),
        recovery_state=record.leader_recovery_state,
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
    ):
        if value is not None:
            changes[name] = tuple(value)
    if record.leader != NO_LEADER_CHANGE:
        changes["leader"] = record.leader
        changes["leader_epoch"] = old.leader_epoch + 1
    if record.leader_recovery_state != NO_STATE_CHANGE:
        changes["recovery_state"] = record.leader_recovery_state
    if record.replicas is not None and old.observers:
        changes["observers"] = tuple(
            broker_id for broker_id in old.observers if broker_id not in record.replicas
        )
    if old.suspended and not changes.get("adding", old.adding):
        if not changes.get("removing", old.removing):
            changes["suspended"] = 0  # the move is over
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


def _placement_cursor(builder: ImageBuilder, record: records.PlacementCursorRecord) -> None:
    builder.scalars["placement_cursor"] = record.cursor


def _plan(builder: ImageBuilder, record: MetadataRecord) -> None:
    builder.scalars["plan"] = plan_after(builder.scalars.get("plan", builder.image.plan), record)


def _config(builder: ImageBuilder, record: records.ConfigRecord) -> None:
    key = (int(record.resource_type), record.resource_name)
    configs = builder.changing("configs")
    values = configs.get(key, Map())
    if record.value is not None:
        configs[key] = values.set(record.name, record.value)
    elif record.name in values:
        remaining = values.delete(record.name)
        if remaining:
            configs[key] = remaining
        else:
            del configs[key]
    builder.configs.add(key)


def _register_broker(builder: ImageBuilder, record: records.RegisterBrokerRecord) -> None:
    builder.changing("brokers")[record.broker_id] = BrokerImage(
        broker_id=record.broker_id,
        epoch=record.broker_epoch,
        incarnation_id=bytes(record.incarnation_id),
        endpoints=_endpoints(record.end_points),
        rack=record.rack,
        fenced=record.fenced,
        in_controlled_shutdown=record.in_controlled_shutdown,
        log_dirs=tuple(record.log_dirs),
        features=offered(record.features),
        full_log_dirs=tuple(record.full_log_dirs),
        is_noted=record.is_noted,
    )
    builder.brokers.add(record.broker_id)
    if not record.fenced and not record.in_controlled_shutdown:
        _is_back(builder, record.broker_id)


def _endpoints(end_points: Iterable[Any]) -> Map[str, Endpoint]:
    return Map(
        {
            point.name: Endpoint(point.host, point.port, point.security_protocol)
            for point in end_points
        }
    )


def _broker_at_epoch(builder: ImageBuilder, broker_id: int, epoch: int) -> BrokerImage:
    broker: BrokerImage | None = builder.changing("brokers").get(broker_id)
    if broker is None or broker.epoch != epoch:
        raise Bug(f"a record names broker {broker_id} with epoch {epoch}, which is not registered")
    builder.brokers.add(broker_id)
    return broker


def _unregister_broker(builder: ImageBuilder, record: records.UnregisterBrokerRecord) -> None:
    _broker_at_epoch(builder, record.broker_id, record.broker_epoch)
    del builder.changing("brokers")[record.broker_id]


def _fence_broker(builder: ImageBuilder, record: records.FenceBrokerRecord) -> None:
    broker = _broker_at_epoch(builder, record.id, record.epoch)
    fenced = replace(broker, fenced=True, in_controlled_shutdown=False)
    builder.changing("brokers")[record.id] = fenced


def _unfence_broker(builder: ImageBuilder, record: records.UnfenceBrokerRecord) -> None:
    broker = _broker_at_epoch(builder, record.id, record.epoch)
    builder.changing("brokers")[record.id] = replace(broker, fenced=False)
    _is_back(builder, record.id)


def _broker_change(builder: ImageBuilder, record: records.BrokerRegistrationChangeRecord) -> None:
    broker = _broker_at_epoch(builder, record.broker_id, record.broker_epoch)
    changes: dict[str, Any] = {}
    if record.fenced > 0:
        changes = {"fenced": True, "in_controlled_shutdown": False}
    elif record.fenced < 0:
        changes = {"fenced": False}
        _is_back(builder, record.broker_id)
    if record.in_controlled_shutdown > 0:
        changes["in_controlled_shutdown"] = True
    if record.log_dirs:
        changes["log_dirs"] = tuple(record.log_dirs)
    if record.full_log_dirs is not None:
        changes["full_log_dirs"] = tuple(record.full_log_dirs)
    builder.changing("brokers")[record.broker_id] = replace(broker, **changes)


def _is_back(builder: ImageBuilder, broker_id: int) -> None:
    """Whatever was known of an absence is over with it."""
    if broker_id in builder.maps.get("absences", builder.image.absences):
        del builder.changing("absences")[broker_id]


def _no_op(builder: ImageBuilder, record: records.NoOpRecord) -> None:
    """It marks a place in the log, and may tell of unreachable brokers."""
    for each in record.absences:
        if each.elapsed_ms < 0:
            _is_back(builder, each.broker_id)
        else:
            absence = Absence(each.rack, each.elapsed_ms, each.is_gone)
            builder.changing("absences")[each.broker_id] = absence


def _feature_level(builder: ImageBuilder, record: records.FeatureLevelRecord) -> None:
    features = builder.changing("features")
    if record.feature_level:
        features[record.name] = record.feature_level
    elif record.name in features:
        del features[record.name]
    builder.features_changed = True


def _producer_ids(builder: ImageBuilder, record: records.ProducerIdsRecord) -> None:
    builder.scalars["next_producer_id"] = record.next_producer_id


def _register_controller(builder: ImageBuilder, record: records.RegisterControllerRecord) -> None:
    """A controller is where it says; one that is nowhere and knows nothing is forgotten."""
    if not record.end_points and not record.features:
        builder.changing("controllers").pop(record.controller_id, None)
        return
    builder.changing("controllers")[record.controller_id] = ControllerImage(
        record.controller_id,
        bytes(record.incarnation_id),
        _endpoints(record.end_points),
        offered(record.features),
    )


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


def _nothing(_builder: ImageBuilder, _record: MetadataRecord) -> None:
    """A record that marks a place in the log and changes no state."""


APPLY: Mapping[type, Callable[[ImageBuilder, Any], None]] = {
    records.TopicRecord: _topic,
    records.RemoveTopicRecord: _remove_topic,
    records.PartitionRecord: _partition,
    records.PartitionChangeRecord: _partition_change,
    records.ConfigRecord: _config,
    records.RegisterBrokerRecord: _register_broker,
    records.UnregisterBrokerRecord: _unregister_broker,
    records.FenceBrokerRecord: _fence_broker,
    records.UnfenceBrokerRecord: _unfence_broker,
    records.BrokerRegistrationChangeRecord: _broker_change,
    records.FeatureLevelRecord: _feature_level,
    records.ProducerIdsRecord: _producer_ids,
    records.RegisterControllerRecord: _register_controller,
    records.ClearElrRecord: _clear_elr,
    records.NoOpRecord: _no_op,
    records.ReplicaRolesRecord: _replica_roles,
    records.MissingReplicasRecord: _missing_replicas,
    records.PlacementCursorRecord: _placement_cursor,
    records.PlanRecord: _plan,
    records.PlanMovesRecord: _plan,
    records.PlanProgressRecord: _plan,
    # Of Kafka's controller, around the records it bootstraps with (KIP-868). What it began and did
    # not abort is applied record by record; an abort has no rule here, so such a log is refused.
    records.BeginTransactionRecord: _nothing,
    records.EndTransactionRecord: _nothing,
}
