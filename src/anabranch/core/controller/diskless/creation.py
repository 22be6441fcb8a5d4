"""What a request may ask of the replicas of a diskless topic: nothing.

What: the refusals of CreateTopics and CreatePartitions. Replication factor 1 is taken as -1, since
many tools always send one. Rule kept: what is refused has the codes and sentences of
the design of managed replication factors. Source: decision 0059.
"""

from __future__ import annotations

from collections.abc import Collection

from anabranch.core.errors import ClientFault, ErrorCode

MANAGED_FACTORS = (-1, 1)


def check_managed(replication_factor: int, assignments: Collection[object] | None) -> None:
    """Raise INVALID_REQUEST where a request would choose the replicas of a diskless topic."""
    if replication_factor not in MANAGED_FACTORS:
        raise ClientFault(
            ErrorCode.INVALID_REQUEST,
            "replication factor is system-managed for diskless topics; use replicationFactor=-1 or "
            "replicationFactor=1",
        )
    if assignments:
        raise ClientFault(
            ErrorCode.INVALID_REQUEST,
            "replica assignments cannot be specified for diskless topics; placement is "
            "system-managed",
        )
