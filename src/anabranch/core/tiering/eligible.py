"""Which diskless partitions a tiering job looks at, and what their topics' settings ask for.

Rule kept: partitions come in the order in which objects are sorted, so that what follows one
another in a plan lies side by side in each object. Not here: which of their runs are ready.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from anabranch.core.diskless.rows import LogKey
from anabranch.core.diskless.topics import is_diskless
from anabranch.core.settings.topic import effective_topic_config
from anabranch.core.tiering.plan import MOST_SEGMENT_BYTES, Eligible

if TYPE_CHECKING:
    from anabranch.core.metadata.image import MetadataImage
    from anabranch.core.settings.broker import BrokerConfig

NEVER = -1
"""An age at which nothing of a topic is tiered."""


def eligible_after(image: MetadataImage, config: BrokerConfig, after: LogKey) -> Iterator[Eligible]:
    """The partitions that come after one, in order."""
    for topic_id in sorted(image.topics_by_id):
        topic = image.topics_by_id[topic_id]
        if topic_id < after.topic_id or not is_diskless(image, topic.name):
            continue
        settings = effective_topic_config(image, topic.name, config)
        age_ms = settings.diskless_tiering_age_ms
        if age_ms == NEVER:
            continue
        most = min(settings.segment_bytes, MOST_SEGMENT_BYTES)
        least = min(settings.diskless_tiering_min_segment_bytes, most)
        for partition in sorted(topic.partitions):
            key = LogKey(topic_id, partition)
            if key > after:
                yield Eligible(key, age_ms, least, most)
