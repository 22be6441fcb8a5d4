"""An image as the records that make it: what a snapshot file holds.

Rule kept: replaying these records on the empty image gives the same image (but for its offset and
epoch, which the file's name says). The order is fixed, so equal images make equal snapshots.
Source: KIP-630.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from msgspec.structs import replace

from anabranch.core.metadata.image import (
    BrokerImage,
    ControllerImage,
    Endpoint,
    MetadataImage,
    PartitionImage,
    TopicImage,
)
from anabranch.core.metadata.plan_state import plan_records
from anabranch.core.metadata.replay import replay_batch
from anabranch.core.settings.broker import BrokerConfig
from anabranch.core.types import TopicId
from anabranch.core.wire import metadata_records as records

MetadataRecord = records.MetadataRecord


def snapshot_records(image: MetadataImage) -> Iterator[MetadataRecord]:
    """Features, brokers, topics, configurations and counters, in a fixed order."""
    for name, level in sorted(image.features.items()):
        yield records.FeatureLevelRecord(name=name, feature_level=level)
    for controller_id in sorted(image.controllers):
        yield _controller_record(image.controllers[controller_id])
    for broker_id in sorted(image.brokers):
        yield _broker_record(image.brokers[broker_id])
    for name in sorted(image.topic_ids_by_name):
        yield from topic_records(image.topics_by_id[image.topic_ids_by_name[name]])
    for (resource_type, resource_name), values in sorted(image.configs.items()):
        for name, value in sorted(values.items()):
            yield records.ConfigRecord(
                resource_type=resource_type, resource_name=resource_name, name=name, value=value
            )
    if image.absences:
        yield _absences_record(image)
    if image.placement_cursor:
        yield records.PlacementCursorRecord(cursor=image.placement_cursor)
    if image.plan is not None:
        yield from plan_records(image.plan)
    if image.next_producer_id:
        yield records.ProducerIdsRecord(
            broker_id=-1, broker_epoch=-1, next_producer_id=image.next_producer_id
        )


def snapshot_is_due(config: BrokerConfig, new_bytes: int, age_ms: int) -> bool:
    """Whether to write a snapshot: enough new records, or any after enough time (0: never by time).

    `new_bytes` of records since the last one, which is `age_ms` old.
    """
    if new_bytes >= config.metadata_log_max_record_bytes_between_snapshots:
        return True
    interval_ms = config.metadata_log_max_snapshot_interval_ms
    return new_bytes > 0 and 0 < interval_ms <= age_ms


def from_snapshot(batch: Iterable[MetadataRecord], end_offset: int, epoch: int) -> MetadataImage:
    """The image at `end_offset` (exclusive) that these records make."""
    image, _delta = replay_batch(MetadataImage.empty(), batch, end_offset - 1, epoch)
    return replace(image, offset=end_offset - 1, epoch=epoch)


def topic_records(topic: TopicImage) -> Iterator[MetadataRecord]:
    """A topic's record and those of its partitions."""
    yield records.TopicRecord(name=topic.name, topic_id=topic.topic_id)
    for index in sorted(topic.partitions):
        partition = topic.partitions[index]
        yield partition_record(topic.topic_id, index, partition)
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


def partition_record(
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
    )


def _broker_record(broker: BrokerImage) -> records.RegisterBrokerRecord:
    return records.RegisterBrokerRecord(
        broker_id=broker.broker_id,
        incarnation_id=broker.incarnation_id,
        broker_epoch=broker.epoch,
        end_points=[
            records.BrokerEndpoint(
                name=name,
                host=point.host,
                port=point.port,
                security_protocol=point.security_protocol,
            )
            for name, point in sorted(broker.endpoints.items())
        ],
        features=[
            records.BrokerFeature(name=name, min_supported_version=low, max_supported_version=high)
            for name, (low, high) in sorted(broker.features.items())
        ],
        rack=broker.rack,
        fenced=broker.fenced,
        in_controlled_shutdown=broker.in_controlled_shutdown,
        log_dirs=list(broker.log_dirs),
        full_log_dirs=list(broker.full_log_dirs),
        is_noted=broker.is_noted,
    )


def _absences_record(image: MetadataImage) -> records.NoOpRecord:
    return records.NoOpRecord(
        absences=[
            records.BrokerAbsence(
                broker_id=broker_id,
                rack=absence.rack,
                elapsed_ms=absence.elapsed_ms,
                is_gone=absence.is_gone,
            )
            for broker_id, absence in sorted(image.absences.items())
        ]
    )


def _controller_record(controller: ControllerImage) -> records.RegisterControllerRecord:
    def endpoint(name: str, point: Endpoint) -> records.ControllerEndpoint:
        return records.ControllerEndpoint(
            name=name,
            host=point.host,
            port=point.port,
            security_protocol=point.security_protocol,
        )

    return records.RegisterControllerRecord(
        controller_id=controller.controller_id,
        incarnation_id=controller.incarnation_id,
        end_points=[endpoint(*item) for item in sorted(controller.endpoints.items())],
        features=[
            records.ControllerFeature(
                name=name, min_supported_version=low, max_supported_version=high
            )
            for name, (low, high) in sorted(controller.features.items())
        ],
    )
