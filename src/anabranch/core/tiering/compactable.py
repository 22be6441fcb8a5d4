"""Which diskless partitions a compaction job looks at, and what their topics' settings ask for.

Not here: which of their segments are worth a pass (`compaction_plan.py`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from anabranch.core.diskless.rows import LogKey
from anabranch.core.diskless.topics import is_diskless
from anabranch.core.settings.topic import effective_topic_config
from anabranch.core.tiering.compaction_plan import Compactable
from anabranch.core.tiering.plan import MOST_SEGMENT_BYTES

if TYPE_CHECKING:
    from anabranch.core.metadata.image import MetadataImage
    from anabranch.core.settings.broker import BrokerConfig


def compactable_after(
    image: MetadataImage, config: BrokerConfig, after: LogKey
) -> Iterator[Compactable]:
    """The partitions of compacted diskless topics that come after one, in order."""
    for topic_id in sorted(image.topics_by_id):
        topic = image.topics_by_id[topic_id]
        if topic_id < after.topic_id or not is_diskless(image, topic.name):
            continue
        settings = effective_topic_config(image, topic.name, config)
        if "compact" not in settings.cleanup_policy:
            continue
        for partition in sorted(topic.partitions):
            key = LogKey(topic_id, partition)
            if key > after:
                yield Compactable(
                    key,
                    settings.min_cleanable_dirty_ratio,
                    settings.min_compaction_lag_ms,
                    settings.max_compaction_lag_ms,
                    settings.delete_retention_ms,
                    min(settings.segment_bytes, MOST_SEGMENT_BYTES),
                )
