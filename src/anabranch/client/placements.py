"""How a cluster places the replicas of a diskless topic, asked for with a field of ours."""

from __future__ import annotations

from anabranch.client.cluster import Cluster
from anabranch.client.partitions import described
from anabranch.core.errors import ApiError, ErrorCode
from anabranch.core.wire.own_fields import DisklessTopic


async def placed(cluster: Cluster, name: str) -> DisklessTopic:
    """The topic with its partitions in order. Raises ApiError where it is not there, or not
    diskless."""
    await cluster.topic(name)
    found = (await described(cluster, [name])).diskless.get(name)
    if found is None:
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            f"Topic {name} is not diskless, or the node's version does not support them: "
            "`anabranch explain` shows why its replicas are on their brokers.",
        )
    found.partitions.sort(key=lambda each: each.partition_index)
    return found
