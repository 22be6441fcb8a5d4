"""Diskless topics as clients see them, and how their partitions are placed, for whoever asks.

What: the fields of ours in Metadata and DescribeTopicPartitions (`core/wire/own_fields.py`):
`IsDiskless`, `effectiveRF`, and the placement of managed topics (decision 0059). Any broker
answers: all of it follows from the image and a setting of the whole cluster.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from anabranch.core.api.metadata_view import View
from anabranch.core.controller.diskless.racks import Racks
from anabranch.core.controller.diskless.reconciliation import placement
from anabranch.core.diskless.topics import is_diskless
from anabranch.core.wire.own_fields import (
    DisklessTopic,
    DisklessTopics,
    PlacedPartition,
    tagged,
)

if TYPE_CHECKING:
    from anabranch.core.api.context import Broker
    from anabranch.core.metadata.image import MetadataImage, PartitionImage, TopicImage
    from anabranch.core.request import Request
    from anabranch.core.wire.messages.describe_topic_partitions import (
        DescribeTopicPartitionsResponse,
    )


def view_of(
    broker: Broker,
    request: Request,
    topic: TopicImage,
    *,
    hides_dead_replicas: bool = False,
    names_missing_listeners: bool = True,
) -> View:
    """What decides how a topic looks to whoever sent the request."""
    view = View(request.listener, hides_dead_replicas, names_missing_listeners)
    cache = broker.metadata_cache
    if not cache.is_diskless(broker.image, topic):
        return view
    pairs = broker.config.diskless_client_az_listener_map
    zone = cache.zone(broker.image, request.client_id, request.listener, pairs)
    return view._replace(zone=zone)


def told_of_topics(broker: Broker, names: Sequence[str]) -> dict[int, bytes]:
    """Those of the topics that are diskless, without their partitions."""
    found = [name for name in names if is_diskless(broker.image, name)]
    target = Racks(broker.image).target if found else ()
    return tagged(DisklessTopics(topics=[_topic(name, target) for name in found]))


def told_of_partitions(
    broker: Broker, response: DescribeTopicPartitionsResponse
) -> dict[int, bytes]:
    """The diskless topics of an answer, with the partitions that it names."""
    image, told = broker.image, DisklessTopics()
    racks = Racks(image)
    reconciles = broker.config.diskless_managed_rf_auto_reconcile
    for topic in response.topics:
        name = topic.name or ""
        if is_diskless(image, name):
            indexes = [each.partition_index for each in topic.partitions]
            told.topics.append(placed_topic(image, racks, name, indexes, reconciles=reconciles))
    return tagged(told)


def placed_topic(
    image: MetadataImage, racks: Racks, name: str, indexes: Iterable[int], *, reconciles: bool
) -> DisklessTopic:
    """A diskless topic with the placement of these partitions."""
    topic, made = image.topic(name), _topic(name, racks.target)
    assert topic is not None  # who asks has it from this image
    made.partitions = [
        placed_partition(index, topic.partitions[index], racks, reconciles=reconciles)
        for index in indexes
    ]
    return made


def placed_partition(
    index: int, state: PartitionImage, racks: Racks, *, reconciles: bool
) -> PlacedPartition:
    """The placement view of one partition."""
    seen = placement(state.replicas, state.leader, racks, reconciles=reconciles)
    return PlacedPartition(
        partition_index=index,
        assigned_racks=list(seen.assigned_racks),
        rack_coverage=seen.rack_coverage,
        placement_state=seen.state.value,
        has_drifted=seen.has_drifted,
        exceptions=list(seen.exceptions),
        sentences=list(seen.sentences),
    )


def as_json(topic: DisklessTopic) -> dict[str, Any]:
    """A diskless topic with the keys of `anabranch placement --json`."""
    return {
        "topic": topic.name,
        "is_diskless": topic.is_diskless,
        "effective_rf": topic.effective_rf,
        "target_racks": topic.target_racks,
        "partitions": [
            {
                "partition": each.partition_index,
                "target_racks": topic.target_racks,
                "assigned_racks": each.assigned_racks,
                "rack_coverage": each.rack_coverage,
                "placement_state": each.placement_state,
                "placement_drift": each.has_drifted,
                "exceptions": each.exceptions or ["none"],
                "reasons": each.sentences,
            }
            for each in topic.partitions
        ],
    }


def _topic(name: str, target: Sequence[str]) -> DisklessTopic:
    return DisklessTopic(name=name, effective_rf=len(target), target_racks=list(target))
