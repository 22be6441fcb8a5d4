"""What differs between two images: the delta of a node that went from one to the other at once.

What: `difference` names what replaying the records in between would have touched and left changed.
Why: a node that loads a snapshot sees no records, and must still let go of topics that were deleted
meanwhile. It costs a walk through both images, so it is for snapshots only. Source: KIP-630.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from anabranch.core.metadata.image import MetadataDelta, MetadataImage, TopicImage
from anabranch.core.types import TopicId


def difference(before: MetadataImage, after: MetadataImage) -> MetadataDelta:
    """The delta from one image to a later one."""
    earlier, later = before.topics_by_id, after.topics_by_id
    return MetadataDelta(
        created_topics=tuple(sorted(each for each in later if each not in earlier)),
        deleted_topics=tuple(earlier[each] for each in sorted(earlier) if each not in later),
        changed_partitions=dict(_changed_partitions(earlier, later)),
        changed_configs=_changed(before.configs, after.configs),
        changed_brokers=_changed(before.brokers, after.brokers),
        changed_tokens=_changed(before.tokens, after.tokens),
        features_changed=before.features != after.features,
    )


def _changed_partitions(
    earlier: Mapping[TopicId, TopicImage], later: Mapping[TopicId, TopicImage]
) -> Iterator[tuple[TopicId, tuple[int, ...]]]:
    for topic_id in sorted(later):
        partitions, old = later[topic_id].partitions, earlier.get(topic_id)
        known: Mapping[int, Any] = {} if old is None else old.partitions
        changed = tuple(index for index in partitions if known.get(index) != partitions[index])
        if changed or old is None:
            yield topic_id, changed


def _changed(before: Mapping[Any, Any], after: Mapping[Any, Any]) -> frozenset[Any]:
    """Keys that one of two maps lacks, or for which they hold different values."""
    return frozenset(key for key in {*before, *after} if before.get(key) != after.get(key))
