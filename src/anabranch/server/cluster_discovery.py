"""Which cluster a node joins that is no controller: what the controllers say, before it binds.

What: asks the controllers of `controller.quorum.bootstrap.servers` for the cluster's id, and waits
for the first answer. A node that has been in a cluster goes on to the next address where it meets
another one: an address may be another's since. A fresh one asks at the other addresses, too, and
joins none of two clusters: one of them was not meant, and it would stay there. Why: only a
controller has the metadata store, and a fresh folder must not make up a cluster of its own. Rule
kept: nothing is written and nothing is bound before the id is known. Source: KIP-919
(DescribeCluster on the controller listener). Not here: whether the node's folders belong to that
cluster (`folders.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from anabranch.client.connection import Connection
from anabranch.core.errors import ApiError, ErrorCode
from anabranch.core.wire.messages.describe_cluster import DescribeClusterResponse
from anabranch.server.controller_channel import (
    NO_ANSWER,
    WHOSE_IT_IS,
    Address,
    ControllerChannel,
)
from anabranch.server.logs import logger
from anabranch.server.outbound import Transport, reach

LOG = logger("node")
OTHERS_SECONDS = 1.0
"""How long the others have once one has answered: a controller that is away holds up no start."""
SETTING = "controller.quorum.bootstrap.servers"
PAUSE_SECONDS = 0.5
"""Before a controller of another cluster is asked once more: its address may change hands again."""


async def cluster_of_controllers(
    channel: ControllerChannel, node_id: int, timeout_ms: int, *, own: str = ""
) -> str:
    """The id of the cluster that the controllers belong to; `own` is the node's, where it has one.
    It is another one when the controllers at all addresses belong to others.

    Raises ApiError when none answers within `timeout_ms`, none of its own at least, when what
    answers is no controller, and when a fresh node finds several clusters.
    """
    cluster_id = await _first_answer(channel, node_id, timeout_ms, own)
    if not own:
        others = [each for each in channel.addresses() if each != channel.address]
        answers = await asyncio.gather(*(_cluster_at(each, channel.transport) for each in others))
        told = {channel.address: cluster_id, **dict(zip(others, answers, strict=True))}
        _refuse_several(node_id, {each: told[each] for each in channel.addresses() if told[each]})
    return cluster_id


async def _first_answer(channel: ControllerChannel, node_id: int, timeout_ms: int, own: str) -> str:
    """The first answer, of the node's own cluster where it has one: `cluster_of_controllers`."""
    LOG.info("asking the controllers about the cluster", node=node_id)
    others: dict[Address, str] = {}
    try:
        async with asyncio.timeout(timeout_ms / 1000):
            while True:
                cluster_id, address = await _asked(channel), channel.address
                if own in ("", cluster_id):
                    return cluster_id
                if address in others:
                    await asyncio.sleep(PAUSE_SECONDS)
                else:
                    place = _shown(address)
                    LOG.warning(
                        "a controller of another cluster", address=place, cluster=cluster_id
                    )
                others[address] = cluster_id
                if others.keys() >= set(channel.addresses()):
                    return cluster_id
                await channel.rotate()
    except TimeoutError:
        wanted, why = "controller", channel.obstacle or "none answered"
        if others:
            silent = [each for each in channel.addresses() if each not in others]
            away = [f"{_shown(each)} did not answer" for each in silent]
            wanted, why = f"controller of its cluster {own}", ", ".join((*away, *_belong(others)))
        raise ApiError(
            ErrorCode.REQUEST_TIMED_OUT,
            f"node {node_id} found no {wanted} within {timeout_ms} ms "
            f"(initial.broker.registration.timeout.ms): {why}; "
            f"check that a controller runs at one of {SETTING}",
        ) from None


async def _cluster_at(address: Address, transport: Transport) -> str:
    """The cluster of the controller at an address, "" where it does not tell in time."""
    connection: Connection | None = None
    try:
        async with asyncio.timeout(OTHERS_SECONDS):
            connection = await reach(*address, transport=transport)
            answer: DescribeClusterResponse = await connection.send(WHOSE_IT_IS)
            return answer.cluster_id
    except (*NO_ANSWER, ApiError):
        return ""
    finally:
        if connection is not None:
            connection.abort()


def _refuse_several(node_id: int, told: Mapping[Address, str]) -> None:
    if len(set(told.values())) > 1:
        raise ApiError(
            ErrorCode.INCONSISTENT_CLUSTER_ID,
            f"node {node_id} is new, and {SETTING} names controllers of several clusters: "
            f"{', '.join(_belong(told))}; keep only those of the cluster that it is to join",
        )


def _belong(told: Mapping[Address, str]) -> list[str]:
    return [f"{_shown(each)} is of cluster {its}" for each, its in told.items()]


def _shown(address: Address) -> str:
    return "{}:{}".format(*address)


async def _asked(channel: ControllerChannel) -> str:
    """What the controller says whose turn it is. Raises ApiError for what is none."""
    answer: DescribeClusterResponse = await channel.send(WHOSE_IT_IS, patience_ms=None)
    if answer.error_code:
        code = ErrorCode(answer.error_code)
        raise ApiError(
            code,
            f"the address in {SETTING} is not a controller ({code.name}); use addresses of "
            "controller listeners, not of client listeners",
        )
    return answer.cluster_id
