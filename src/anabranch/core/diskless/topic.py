"""A diskless topic as a broker serves it: its partitions, made when they are asked for.

Why lazily: every broker serves every partition of every diskless topic, and most of them are never
asked for most. Not here: which topics are diskless (`topics.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from anabranch.core.diskless.partition import DisklessPartition, PartitionHost
from anabranch.core.settings.topic import effective_topic_config, log_config

if TYPE_CHECKING:
    from anabranch.core.diskless.rows import LogKey
    from anabranch.core.log.config import LogConfig
    from anabranch.core.metadata.image import MetadataImage, TopicImage
    from anabranch.core.settings.broker import BrokerConfig


class Owner(PartitionHost, Protocol):
    """The broker that a topic belongs to."""

    by_key: dict[LogKey, DisklessPartition]

    @property
    def image(self) -> MetadataImage:
        """The newest metadata."""

    @property
    def config(self) -> BrokerConfig:
        """The broker's settings."""


class DisklessTopic:
    """One topic, by the name and id that it has in the metadata."""

    __slots__ = ("_diskless", "config", "made", "name", "topic_id")

    def __init__(self, diskless: Owner, topic: TopicImage) -> None:
        self._diskless = diskless
        self.name = topic.name
        self.topic_id = topic.topic_id
        self.made: dict[int, DisklessPartition] = {}
        self.config: LogConfig
        self.configure(diskless.image, diskless.config)

    def configure(self, image: MetadataImage, broker: BrokerConfig) -> None:
        """Take the settings that hold now."""
        self.config = log_config(effective_topic_config(image, self.name, broker), broker)

    def get(self, index: int) -> DisklessPartition | None:
        """One partition; None when the metadata has none of that index."""
        partition = self.made.get(index)
        if partition is None:
            topic = self._diskless.image.topic_by_id(self.topic_id)
            if topic is None or index not in topic.partitions:
                return None
            partition = self.made[index] = DisklessPartition(self._diskless, self, index)
            self._diskless.by_key[partition.key] = partition
        return partition
