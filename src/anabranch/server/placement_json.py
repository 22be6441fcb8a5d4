"""Managed placement as JSON: the racks and diskless topics, and the partitions of one topic.

The keys are those of the design of managed replication factors (decision 0059). Rule kept: a list
of all topics has no partitions, so that an answer does not grow with the cluster's partitions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from anabranch.core.api.diskless_view import as_json, placed_topic
from anabranch.core.controller.diskless.racks import Racks
from anabranch.core.diskless.topics import is_diskless

if TYPE_CHECKING:
    from anabranch.core.metadata.image import MetadataImage


def placed_topics(image: MetadataImage) -> dict[str, Any]:
    """Racks with their states, and the diskless topics."""
    racks = Racks(image)
    names = sorted(filter(lambda name: is_diskless(image, name), image.topic_ids_by_name))
    return {
        "racks": {
            name: {"state": rack.state.name, "brokers": rack.brokers, "eligible": rack.eligible}
            for name, rack in racks.by_name.items()
        },
        "effective_rf": len(racks.target),
        "topics": names,
    }


def placed_partitions(image: MetadataImage, name: str, *, reconciles: bool) -> dict[str, Any]:
    """One topic; of a classic one only that it is."""
    topic = image.topic(name)
    if topic is None or not is_diskless(image, name):
        return {"topic": name, "is_diskless": False}
    indexes = sorted(topic.partitions)
    return as_json(placed_topic(image, Racks(image), name, indexes, reconciles=reconciles))
