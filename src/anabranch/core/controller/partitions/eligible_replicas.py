"""What a change of `min.insync.replicas` does to eligible leaders, and how ELR is switched on.

What: an eligible leader replica has all that was acknowledged because the high watermark stood
still since it left the ISR, and whether it stood still depends on the minimum. So a changed minimum
clears the sets it concerns (ClearElrRecord). Kept, beyond Kafka: the sets of partitions without any
in-sync replica. Nothing was acknowledged there under either minimum, and clearing would leave
nobody who may lead again, so that lowering the minimum in an outage would make it last.

Source: KIP-966; Kafka's ConfigurationControlManager (maybeGenerateElrSafetyRecords).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from anabranch.core.metadata.image import (
    CLUSTER_DEFAULT,
    RESOURCE_BROKER,
    MetadataImage,
    TopicImage,
)
from anabranch.core.wire.metadata_records import (
    ClearElrRecord,
    ConfigRecord,
    MetadataRecord,
    PartitionChangeRecord,
)

MIN_INSYNC = "min.insync.replicas"


def clear_elr(image: MetadataImage, topic_name: str) -> Iterator[MetadataRecord]:
    """Clear the eligible leaders of a topic, or of all topics when the name is empty."""
    yield ClearElrRecord(topic_name=topic_name)
    topic = image.topic(topic_name)
    topics: Mapping[str, TopicImage] = {topic_name: topic} if topic is not None else {}
    if not topic_name:
        topics = {each.name: each for each in image.topics_by_id.values()}
    for name in sorted(topics):
        yield from _kept(topics[name])


def _kept(topic: TopicImage) -> Iterator[MetadataRecord]:
    for index in sorted(topic.partitions):
        partition = topic.partitions[index]
        if not partition.isr and (partition.elr or partition.last_known_elr):
            yield PartitionChangeRecord(
                partition_id=index,
                topic_id=topic.topic_id,
                eligible_leader_replicas=list(partition.elr),
                last_known_elr=list(partition.last_known_elr),
            )


def enabling_records(image: MetadataImage, static_minimum: int) -> Iterator[MetadataRecord]:
    """What has to hold before ELR is on: one minimum for the cluster, none for single brokers."""
    if MIN_INSYNC not in image.config(RESOURCE_BROKER, CLUSTER_DEFAULT):
        yield _minimum(CLUSTER_DEFAULT, str(static_minimum))
    for kind, name in sorted(image.configs):
        if kind == RESOURCE_BROKER and name != CLUSTER_DEFAULT:
            if MIN_INSYNC in image.config(kind, name):
                yield _minimum(name, None)


def _minimum(broker: str, value: str | None) -> ConfigRecord:
    return ConfigRecord(
        resource_type=RESOURCE_BROKER, resource_name=broker, name=MIN_INSYNC, value=value
    )
