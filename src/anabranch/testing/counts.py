"""What a running node counts, as a test sees it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from anabranch.server.node import Node


def statistics_of(node: Node) -> dict[str, Any]:
    """Partitions, groups, connections by listener. Called on the node's own loop."""
    assert node.broker is not None
    return {
        "partitions": node.broker.partitions.statistics(),
        "groups": dict(node.broker.statistics().groups),
        "listeners": {each.name: each.statistics() for each in node.acceptors},
    }
