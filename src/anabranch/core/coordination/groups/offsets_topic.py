"""The topic `__consumer_offsets`: its name, its shape, and which of its partitions a group is in.

Source: Kafka's GroupCoordinator (`abs(hash of the group id) % partitions`, with Java's string
hash, so that every broker and tool finds the same one) and its topic's settings.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from anabranch.core.coordination.internal_topics import fitting_factor, java_hash
from anabranch.core.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig

if TYPE_CHECKING:
    from anabranch.core.metadata.image import MetadataImage
    from anabranch.core.settings.broker import BrokerConfig

OFFSETS_TOPIC = "__consumer_offsets"
REPLICATION_FACTOR = "offsets.topic.replication.factor"


def partition_of(group_id: str, image: MetadataImage, config: BrokerConfig) -> int:
    """Index of the offsets partition that a group is in."""
    topic = image.topic(OFFSETS_TOPIC)
    count = config.offsets_topic_num_partitions if topic is None else len(topic.partitions)
    return java_hash(group_id) % count


def offsets_topic(image: MetadataImage, config: BrokerConfig) -> CreatableTopic:
    """How the topic is created when the first group asks for its coordinator.

    With `offsets.topic.replication.factor` set, that many replicas or none; by default as many as
    there are brokers that may be given one, at most three.
    """
    factor = config.offsets_topic_replication_factor
    if REPLICATION_FACTOR not in config.static:
        factor = fitting_factor(factor, image)
    return CreatableTopic(
        name=OFFSETS_TOPIC,
        num_partitions=config.offsets_topic_num_partitions,
        replication_factor=factor,
        configs=[
            CreatableTopicConfig(name="cleanup.policy", value="compact"),
            CreatableTopicConfig(name="compression.type", value="producer"),
            CreatableTopicConfig(
                name="segment.bytes", value=str(config.offsets_topic_segment_bytes)
            ),
        ],
    )
