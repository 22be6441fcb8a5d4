"""A rolling restart: in which order, what stands against it, and when the next one may go.

What: `plan_roll` decides from a description of the cluster; `roll` restarts the brokers one after
the other and waits in between. Rules kept: nothing begins while a replica is missing anywhere, or
where one broker less would stop writes; the active controller goes last, so that its office moves
once; the next broker goes only when the one before was seen to stop, serves again, and is in the
ISR of all its partitions. A restart is recognised by its end of a connection, so it does not matter
how it is done. Not here: how a node is restarted (the caller's).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import NamedTuple

from anabranch.client.admin import describe_cluster
from anabranch.client.cluster import BrokerAddress, Cluster
from anabranch.client.connection import Connection, ConnectionLost
from anabranch.client.overview import controller_of
from anabranch.client.partitions import Topic, describe_topics
from anabranch.core.errors import ApiError, ErrorCode

LOOK_SECONDS = 0.2
NAMED = 5
"""Obstacles that are told one by one; more are counted."""

Restart = Callable[[BrokerAddress], Awaitable[None]]
Tell = Callable[[str, BrokerAddress, float], None]


class Registered(NamedTuple):
    """A broker as the cluster lists it."""

    address: BrokerAddress
    is_fenced: bool


class Plan(NamedTuple):
    """Who is restarted in which order, and what stands against it, in sentences.

    While there are `obstacles` nothing begins; `risks` are what clients would feel.
    """

    order: tuple[BrokerAddress, ...]
    controller_id: int
    obstacles: tuple[str, ...] = ()
    risks: tuple[str, ...] = ()


def plan_roll(
    brokers: Sequence[Registered],
    topics: Sequence[Topic],
    controller_id: int,
    chosen: Sequence[int] = (),
) -> Plan:
    """Plan the restart of the chosen brokers, of all when none is chosen."""
    known = {each.address.broker_id for each in brokers}
    wanted = set(chosen) or known
    order = sorted(
        (each.address for each in brokers if each.address.broker_id in wanted),
        key=lambda each: (each.broker_id == controller_id, each.broker_id),
    )
    obstacles = [
        f"broker {each} is not registered; known: {', '.join(map(str, sorted(known)))}"
        for each in sorted(wanted - known)
    ]
    obstacles += [
        f"broker {each.address.broker_id} does not serve; start it, or forget it with `anabranch "
        f"cluster unregister {each.address.broker_id}`"
        for each in brokers
        if each.is_fenced
    ]
    obstacles += _few(list(missing(topics)), "more partitions miss replicas")
    risks = _few(list(_unspared(topics, wanted)), "more partitions cannot spare a broker")
    return Plan(tuple(order), controller_id, tuple(obstacles), tuple(risks))


def missing(topics: Sequence[Topic]) -> Iterator[str]:
    """A sentence for each partition that nobody leads, or of which replicas are not in sync."""
    for topic in topics:
        for each in topic.partitions:
            place = f"{topic.name}-{each.partition}"
            away = sorted(set(each.replicas) - set(each.isr))
            if each.leader < 0:
                yield f"nobody leads {place}"
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
                    f"{place} has {len(each.replicas)} replicas and min.insync.replicas="
                    f"{topic.minimum}, so acks=all fails while one is away; lower that"
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
            Registered(
                BrokerAddress(each.broker_id, each.host, each.port, each.rack), each.is_fenced
            )
            for each in found.brokers
        ]
        topics = await describe_topics(cluster, None)
        controlling = await controller_of(cluster)
        return plan_roll(brokers, topics, controlling.controller_id, chosen)

    return await cluster.retrying(attempt)


async def roll(
    cluster: Cluster, plan: Plan, restart: Restart, tell: Tell, *, wait_seconds: float
) -> None:
    """Restart the brokers of a plan without obstacles.

    `tell` hears "restarts", and "back" with the seconds that it took. Raises ApiError
    REQUEST_TIMED_OUT when a broker does not stop, or is not back in time: the rest is left alone.
    """
    loop = asyncio.get_running_loop()
    for number, broker in enumerate(plan.order):
        begun = loop.time()
        left = [each.broker_id for each in plan.order[number + 1 :]]
        witness = await Connection.open(broker.host, broker.port)
        try:
            tell("restarts", broker, 0.0)
            await restart(broker)
            until = begun + wait_seconds
            await _stopped(witness, broker, until, left)
        finally:
            await witness.close()
        await _back(cluster, broker, until, left)
        tell("back", broker, loop.time() - begun)


async def _stopped(
    witness: Connection, broker: BrokerAddress, until: float, left: list[int]
) -> None:
    while witness.is_open:
        if asyncio.get_running_loop().time() > until:
            why = f"broker {broker.broker_id} still runs as before: nothing restarted it"
            raise _too_late(why, left)
        await asyncio.sleep(LOOK_SECONDS)


async def _back(cluster: Cluster, broker: BrokerAddress, until: float, left: list[int]) -> None:
    while True:
        why = await _why_not_back(cluster, broker)
        if why is None:
            return
        if asyncio.get_running_loop().time() > until:
            raise _too_late(why, left)
        await asyncio.sleep(LOOK_SECONDS)


async def _why_not_back(cluster: Cluster, broker: BrokerAddress) -> str | None:
    try:
        await (await Connection.open(broker.host, broker.port)).close()
        await cluster.metadata([])
        if broker.broker_id not in cluster.brokers:
            return f"broker {broker.broker_id} runs, and is not let in yet"
        return next(missing(await describe_topics(cluster, None)), None)
    except (ApiError, ConnectionLost) as fault:
        return f"broker {broker.broker_id} does not serve again: {fault}"


def _too_late(why: str, left: list[int]) -> ApiError:
    rest = f"; not restarted: {', '.join(map(str, left))}" if left else ""
    return ApiError(ErrorCode.REQUEST_TIMED_OUT, f"the roll stopped: {why}{rest}")
