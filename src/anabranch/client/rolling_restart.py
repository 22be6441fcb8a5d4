"""A rolling restart: in which order, what stands against it, and when the next one may go.

What: `plan_roll` decides from a description of the cluster; `roll` restarts the nodes one after the
other and waits in between. Rules kept: nothing begins while a replica is missing anywhere, or where
one broker less would stop writes; brokers go first, then nodes that are controllers only, and the
active controller last, so that another one takes over only once; the next node goes only when the
one before was seen to stop and serves again: a broker in the ISR of all its partitions, a
controller as one of this cluster that knows who is active, at an address that no other is
registered with: what answers there may be another. A restart is recognised by its end of a
connection, so it does not matter how it is done. Not here: how a node is restarted (the caller's).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import NamedTuple

from anabranch.client.admin import describe_cluster
from anabranch.client.cluster import Cluster
from anabranch.client.connection import SOFTWARE_NAME, Connection, ConnectionLost
from anabranch.client.overview import controller_of
from anabranch.client.partitions import Topic, describe_topics
from anabranch.core.errors import ApiError, ErrorCode
from anabranch.core.sentences import number_of
from anabranch.core.wire.messages.api_versions import ApiVersionsRequest
from anabranch.core.wire.messages.describe_cluster import (
    DescribeClusterRequest,
    DescribeClusterResponse,
)

CONTROLLERS = 2
"""The endpoint type that asks for controllers."""
LOOK_SECONDS = 0.2
NAMED = 5
"""Obstacles that are told one by one; more are counted."""


class Node(NamedTuple):
    """A node that may be restarted, and where it listens: for clients, or, when it is a controller
    only, for other nodes."""

    node_id: int
    host: str
    port: int
    rack: str | None = None
    is_broker: bool = True

    @property
    def name(self) -> str:
        """What sentences call it."""
        return f"{'broker' if self.is_broker else 'controller'} {self.node_id}"


Restart = Callable[[Node], Awaitable[None]]
Tell = Callable[[str, Node, float], None]


class Registered(NamedTuple):
    """A node as the cluster lists it, and in a sentence why it does not serve, if it does not."""

    node: Node
    why_away: str | None = None


class Plan(NamedTuple):
    """Who is restarted in which order, and what stands against it, in sentences.

    While there are `obstacles` nothing begins; `risks` are what clients would feel.
    """

    order: tuple[Node, ...]
    controller_id: int
    obstacles: tuple[str, ...] = ()
    risks: tuple[str, ...] = ()


def plan_roll(
    nodes: Sequence[Registered],
    topics: Sequence[Topic],
    controller_id: int,
    chosen: Sequence[int] = (),
) -> Plan:
    """Plan the restart of the chosen nodes, of all when none is chosen."""
    known = {each.node.node_id for each in nodes}
    wanted = set(chosen) or known
    order = sorted(
        (each.node for each in nodes if each.node.node_id in wanted),
        key=lambda each: (each.node_id == controller_id, not each.is_broker, each.node_id),
    )
    obstacles = [
        f"node {each} is not registered; known: {', '.join(map(str, sorted(known)))}"
        for each in sorted(wanted - known)
    ]
    obstacles += [
        f"{each.why_away}; start it, or remove it with `anabranch cluster unregister "
        f"{each.node.node_id}`"
        for each in nodes
        if each.why_away
    ]
    obstacles += _few(list(missing(topics)), "more partitions have replicas out of sync")
    risks = _few(list(_unspared(topics, wanted)), "more partitions cannot do without a broker")
    return Plan(tuple(order), controller_id, tuple(obstacles), tuple(risks))


def missing(topics: Sequence[Topic]) -> Iterator[str]:
    """A sentence for each partition without a leader, or of which replicas are not in sync."""
    for topic in topics:
        for each in topic.partitions:
            place = f"{topic.name}-{each.partition}"
            away = sorted(set(each.replicas) - set(each.isr))
            if each.leader < 0:
                yield f"{place} has no leader"
            elif away:
                yield f"{_brokers(away)} not in the ISR of {place}"


def _unspared(topics: Sequence[Topic], wanted: set[int]) -> Iterator[str]:
    """Partitions that would lose their leader, or refuse acks=all, while one broker is away."""
    for topic in topics:
        for each in topic.partitions:
            place = f"{topic.name}-{each.partition}"
            here = wanted.intersection(each.replicas)
            if not here:
                continue
            if len(each.replicas) == 1:
                yield f"broker {each.replicas[0]} alone has {place}; give it more replicas"
            elif len(each.replicas) <= topic.minimum:
                yield (
                    f"{place} has {number_of(len(each.replicas), 'replica')} and "
                    f"min.insync.replicas={topic.minimum}, so acks=all fails while one is away; "
                    "lower that"
                )


def _few(sentences: list[str], more: str) -> list[str]:
    left = len(sentences) - NAMED
    return sentences[:NAMED] + ([f"{left} {more}"] if left > 0 else [])


def _brokers(ids: Sequence[int]) -> str:
    if len(ids) == 1:
        return f"broker {ids[0]} is"
    return f"brokers {' and '.join(map(str, ids))} are"


async def look(cluster: Cluster, chosen: Sequence[int] = ()) -> Plan:
    """The plan for a cluster as it is now."""

    async def attempt() -> Plan:
        await cluster.metadata([])
        found = await describe_cluster(cluster)
        brokers = [
            _broker(Node(each.broker_id, each.host, each.port, each.rack), each.is_fenced)
            for each in found.brokers
        ]
        topics = await describe_topics(cluster, None)
        controlling = await controller_of(cluster)
        known = {each.node.node_id for each in brokers}
        others = [
            await _controller(cluster, Node(each, host, port, is_broker=False), chosen)
            for each, (host, port) in sorted(controlling.controllers.items())
            if each not in known
        ]
        return plan_roll([*brokers, *others], topics, controlling.controller_id, chosen)

    return await cluster.retrying(attempt)


def _broker(node: Node, is_fenced: bool) -> Registered:
    return Registered(node, f"{node.name} is not ready" if is_fenced else None)


async def _controller(cluster: Cluster, node: Node, chosen: Sequence[int]) -> Registered:
    """A controller that shall not be restarted need not be reached from here."""
    is_wanted = not chosen or node.node_id in chosen
    return Registered(node, await _why_no_controller(cluster, node) if is_wanted else None)


async def roll(
    cluster: Cluster, plan: Plan, restart: Restart, tell: Tell, *, wait_seconds: float
) -> None:
    """Restart the nodes of a plan without obstacles.

    `tell` hears "restarts", and "back" with the seconds that it took. Raises ApiError
    REQUEST_TIMED_OUT when a node does not stop, or is not back in time: the rest is left alone.
    """
    loop = asyncio.get_running_loop()
    for number, node in enumerate(plan.order):
        begun = loop.time()
        left = [each.node_id for each in plan.order[number + 1 :]]
        witness = await cluster.another(node.host, node.port)
        keeping = loop.create_task(_keep(witness, wait_seconds))
        try:
            tell("restarts", node, 0.0)
            await restart(node)
            until = begun + wait_seconds
            await _stopped(witness, node, until, left)
        finally:
            keeping.cancel()
            await witness.close()
        await _back(cluster, node, until, left)
        tell("back", node, loop.time() - begun)


async def _keep(witness: Connection, wait_seconds: float) -> None:
    """Ask again and again: a node ends a connection that is silent for longer than it allows."""
    question = ApiVersionsRequest(client_software_name=SOFTWARE_NAME, client_software_version="0")
    version, answered = witness.version_for(question.api_key), asyncio.Event()
    while witness.is_open:
        answered.clear()
        witness.post(question, version, lambda _: answered.set(), timeout_seconds=wait_seconds)
        await answered.wait()
        await asyncio.sleep(LOOK_SECONDS)


async def _stopped(witness: Connection, node: Node, until: float, left: list[int]) -> None:
    while witness.is_open:
        if asyncio.get_running_loop().time() > until:
            why = f"{node.name} was not restarted"
            raise _too_late(why, left)
        await asyncio.sleep(LOOK_SECONDS)


async def _back(cluster: Cluster, node: Node, until: float, left: list[int]) -> None:
    while True:
        why = await _why_not_back(cluster, node)
        if why is None:
            return
        if asyncio.get_running_loop().time() > until:
            raise _too_late(why, left)
        await asyncio.sleep(LOOK_SECONDS)


async def _why_not_back(cluster: Cluster, node: Node) -> str | None:
    if node.is_broker:
        asked = _why_no_broker(cluster, node)
    else:
        asked = _why_no_controller(cluster, node)
    try:
        return await asked or next(missing(await describe_topics(cluster, None)), None)
    except (ApiError, ConnectionLost) as fault:
        return f"{node.name} has not started again: {fault}"


async def _why_no_broker(cluster: Cluster, node: Node) -> str | None:
    await (await cluster.another(node.host, node.port)).close()
    await cluster.metadata([])
    return None if node.node_id in cluster.brokers else f"{node.name} runs, but is not unfenced yet"


async def _why_no_controller(cluster: Cluster, node: Node) -> str | None:
    """In a sentence, why it cannot be said that this controller runs; None if it does."""
    try:
        connection = await cluster.another(node.host, node.port)
        try:
            request = DescribeClusterRequest(endpoint_type=CONTROLLERS)
            answer: DescribeClusterResponse = await connection.send(request)
        finally:
            await connection.close()
    except ConnectionLost as fault:
        return f"{node.name} does not answer: {fault}"
    place = f"{node.host}:{node.port}"
    if answer.cluster_id != cluster.cluster_id:
        return f"{node.name} does not run: at {place} is a node of cluster {answer.cluster_id}"
    others = sorted(
        each.broker_id
        for each in answer.brokers
        if (each.host, each.port) == node[1:3] and each.broker_id != node.node_id
    )
    if others:
        return f"{node.name} cannot be told from {others[0]}, also registered at {place}"
    knows = answer.controller_id >= 0
    return None if knows else f"{node.name} runs, but knows no active controller"


async def controller_runs(cluster: Cluster, node_id: int) -> bool:
    """Whether a node that is a controller only runs, as far as can be seen from here."""
    place = (await controller_of(cluster)).controllers.get(node_id)
    if place is None:
        return False
    node = Node(node_id, *place, is_broker=False)
    return await _why_no_controller(cluster, node) is None


def _too_late(why: str, left: list[int]) -> ApiError:
    rest = f"; not restarted: {', '.join(map(str, left))}" if left else ""
    return ApiError(ErrorCode.REQUEST_TIMED_OUT, f"the roll stopped: {why}{rest}")
