"""Which cluster a node joins that is no controller: what the controllers say, before it binds.

What: asks the controllers of `controller.quorum.bootstrap.servers` for the cluster's id, and waits
for the first answer. Why: only a controller has the metadata store, and a fresh folder must not
make up a cluster of its own. Rule kept: nothing is written and nothing is bound before the id is
known. Source: KIP-919 (DescribeCluster on the controller listener). Not here: whether the node's
folders belong to that cluster (`folders.py`).
"""

from __future__ import annotations

import asyncio

from anabranch.core.errors import ApiError, ErrorCode
from anabranch.core.wire.messages.describe_cluster import (
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from anabranch.server.controller_channel import ControllerChannel
from anabranch.server.logs import logger

LOG = logger("node")
CONTROLLERS = 2
"""The endpoint type that asks for controllers."""
SETTING = "controller.quorum.bootstrap.servers"


async def cluster_of_controllers(channel: ControllerChannel, node_id: int, timeout_ms: int) -> str:
    """The id of the cluster that the controllers belong to.

    Raises ApiError when none answers within `timeout_ms`, or what answers is no controller.
    """
    request = DescribeClusterRequest(endpoint_type=CONTROLLERS)
    LOG.info("asking the controllers about the cluster", node=node_id)
    try:
        async with asyncio.timeout(timeout_ms / 1000):
            answer: DescribeClusterResponse = await channel.send(request, patience_ms=None)
    except TimeoutError:
        raise ApiError(
            ErrorCode.REQUEST_TIMED_OUT,
            f"node {node_id} found no controller within {timeout_ms} ms "
            f"(initial.broker.registration.timeout.ms): {channel.obstacle or 'none answered'}; "
            f"check that a controller runs at one of {SETTING}",
        ) from None
    if answer.error_code:
        code = ErrorCode(answer.error_code)
        raise ApiError(
            code,
            f"the address in {SETTING} is not a controller ({code.name}); use addresses of "
            "controller listeners, not of client listeners",
        )
    return answer.cluster_id
