"""An image while the records of a batch change it.

What: mutations of the image's maps, each begun when first needed, and what the batch has touched.
Rule kept: the cost is that of the records, never that of what exists. Not here: what each record
does (`concerns/`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from msgspec.structs import replace

from anabranch.core.errors import Bug
from anabranch.core.metadata.image import ConfigKey, MetadataDelta, MetadataImage, TopicImage
from anabranch.core.types import TopicId


class ImageBuilder:
    """Collects a batch's changes in mutations of the maps, each begun when first needed."""

    def __init__(self, image: MetadataImage) -> None:
        self.image = image
        self.maps: dict[str, Any] = {}
        self.edited: dict[TopicId, Any] = {}
        self.touched: dict[TopicId, dict[int, None]] = {}
        self.created: dict[TopicId, None] = {}
        self.deleted: list[TopicImage] = []
        self.passing: list[TopicImage] = []
        self.configs: set[ConfigKey] = set()
        self.brokers: set[int] = set()
        self.tokens: set[str] = set()
        self.scalars: dict[str, Any] = {}
        self.features_changed = False

    def changing(self, name: str) -> Any:
        """The mutation of one of the image's maps."""
        mutation = self.maps.get(name)
        if mutation is None:
            mutation = self.maps[name] = getattr(self.image, name).mutate()
        return mutation

    def scalar(self, name: str) -> Any:
        """What one of the image's fields is by now, where `scalars` replaces it whole."""
        return self.scalars[name] if name in self.scalars else getattr(self.image, name)

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
            passing_topics=tuple(self.passing),
            changed_partitions=partitions,
            changed_configs=frozenset(self.configs),
            changed_brokers=frozenset(self.brokers),
            changed_tokens=frozenset(self.tokens),
            features_changed=self.features_changed,
        )


Rules: TypeAlias = Mapping[type, Callable[[ImageBuilder, Any], None]]
"""Type of a record -> what it does to an image."""
