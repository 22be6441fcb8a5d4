"""A diskless topic as a broker serves it: its partitions, made when they are asked for.

Why lazily: every broker serves every partition of every diskless topic, and most of them are never
asked for most. Not here: which topics are diskless (`topics.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from anabranch.core.diskless.partition import DisklessPartition
from anabranch.core.settings.topic import effective_topic_config, log_config

if TYPE_CHECKING:
    from anabranch.core.diskless.broker import Diskless
    from anabranch.core.log.config import LogConfig
    from anabranch.core.metadata.image import MetadataImage, TopicImage
    from anabranch.core.settings.broker import BrokerConfig


class DisklessTopic:
    """One topic, by the name and id that it has in the metadata."""

    __slots__ = ("_diskless", "config", "made", "name", "topic_id")

    def __init__(self, diskless: Diskless, topic: TopicImage) -> None:
        self._diskless = diskless
        self.name = topic.name
        self.topic_id = topic.topic_id
        self.made: dict[int, DisklessPartition] = {}
        self.config: LogConfig
        self.configure(diskless.broker.image, diskless.broker.config)

    def configure(self, image: MetadataImage, broker: BrokerConfig) -> None:
        """Take the settings that hold now."""
        self.config = log_config(effective_topic_config(image, self.name, broker), broker)

    def get(self, index: int) -> DisklessPartition | None:
        """One partition; None when the metadata has none of that index."""
        partition = self.made.get(index)
        if partition is None:
            topic = self._diskless.broker.image.topic_by_id(self.topic_id)
            if topic is None or index not in topic.partitions:
                return None
            partition = self.made[index] = DisklessPartition(self._diskless, self, index)
            self._diskless.by_key[partition.key] = partition
        return partition
