"""A partition whose folders the metadata names, or does not, and a replica of it here."""

from __future__ import annotations

from types import SimpleNamespace

from immutables import Map

from anabranch.core.metadata.features import METADATA_VERSION
from anabranch.core.metadata.image import MetadataImage, PartitionImage, TopicImage
from anabranch.core.types import TopicPartition

TOPIC_ID = bytes([5]) * 16
A, B, GONE = (bytes([200 + each]) * 16 for each in range(3))
UNASSIGNED = bytes(16)
PLACE = TopicPartition("t", 0)
REPLICA = SimpleNamespace(topic_partition=PLACE, topic_id=TOPIC_ID, folder="/a")


def image(directory, level=27, isr=(1, 2), partitions=1):
    partition = PartitionImage(
        replicas=(1, 2), isr=isr, leader=1, leader_epoch=0, partition_epoch=0,
        directories=(directory, UNASSIGNED),
    )  # fmt: skip
    topic = TopicImage("t", TOPIC_ID, Map(dict.fromkeys(range(partitions), partition)))
    return MetadataImage(
        topics_by_id=Map({TOPIC_ID: topic}),
        topic_ids_by_name=Map(t=TOPIC_ID),
        features=Map({METADATA_VERSION: level}),
    )
