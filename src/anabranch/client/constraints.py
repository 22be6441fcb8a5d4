"""A topic's placement constraints, and who observes it, as a client sees them.

Source: decision 0029. Not here: what would have to move (`core/placement/constraint_plan.py`).
"""

from __future__ import annotations

from anabranch.client.cluster import Cluster
from anabranch.client.partitions import describe_topics
from anabranch.core.errors import ApiError, ErrorCode
from anabranch.core.placement.constraints import Constraints
from anabranch.core.placement.layout import Row
from anabranch.core.types import TopicPartition


async def constraints_of(
    cluster: Cluster, topic: str
) -> tuple[Constraints, dict[TopicPartition, Row]]:
    """The constraints of a topic and the observers of its partitions. Raises ApiError, also when it
    has no constraints."""
    [found] = await describe_topics(cluster, [topic])
    if found.constraints is None:
        raise ApiError(
            ErrorCode.INVALID_CONFIG,
            f"Topic {topic} has no placement constraints: set them first, as in `anabranch configs "
            f"alter --entity-type topics --entity-name {topic} --replica-placement "
            "replicas=east:2,observers=west:1`.",
        )
    observers = {TopicPartition(topic, each.partition): each.observers for each in found.partitions}
    return found.constraints, observers
