"""A new assignment for whole topics on given brokers, as `--generate` proposes it.

What: what is there, and what `spread` placement would do with the same partitions on these brokers,
topic after topic so that they even each other out. Of a partition that moves it is those that it
had, and as many as it will have. Rule kept: the same cluster and the same words give the same
proposal. Not here: the least moves that cure a fault (`anabranch plan`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import chain
from random import Random

from anabranch.client.admin import cordoned_in, describe_cluster
from anabranch.client.cluster import Cluster, check_there
from anabranch.client.partitions import settings_of
from anabranch.client.reassignments import assignment, held, under_way
from anabranch.core.errors import ApiError, ErrorCode
from anabranch.core.placement.constraints import SETTING
from anabranch.core.placement.placer import Ask, Loads, UsableBroker, place
from anabranch.core.placement.reassignment_file import Moves
from anabranch.core.placement.spread import spread
from anabranch.core.types import TopicPartition


async def propose(
    cluster: Cluster, topics: Sequence[str], broker_ids: Sequence[int], *, ignore_racks: bool
) -> tuple[Moves, Moves]:
    """The replicas of the topics now, and as proposed. Raises ApiError."""
    moving = await under_way(cluster)
    now = await assignment(cluster, topics)
    known = {place.topic for place in now}
    for topic in topics:
        if topic not in known:
            check_there(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, topic)
    settings = await settings_of(cluster, topics)
    for topic in topics:
        if settings.get(topic, {}).get(SETTING):
            raise ApiError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"Topic {topic} has placement constraints, which --generate does not support: use "
                f"`anabranch plan observers --topic {topic}`.",
            )
    brokers = await _usable(cluster, broker_ids, ignore_racks=ignore_racks)
    proposed: Moves = {}
    wanted = {place: moving[place].target if place in moving else row for place, row in now.items()}
    for topic in topics:
        proposed.update(_proposed(topic, wanted, brokers, proposed))
    had = {
        place: moving[place].original if place in moving else held(row)
        for place, row in now.items()
    }
    return had, proposed


async def _usable(
    cluster: Cluster, broker_ids: Sequence[int], *, ignore_racks: bool
) -> list[UsableBroker]:
    response = await describe_cluster(cluster)
    found = {each.broker_id: each for each in response.brokers}
    for broker_id in broker_ids:
        if broker_id not in found:
            known = ", ".join(map(str, sorted(found)))
            raise ApiError(
                ErrorCode.BROKER_ID_NOT_REGISTERED,
                f"Broker {broker_id} is not registered; known: {known}.",
            )
        if broker_id in cordoned_in(response):
            raise ApiError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"Broker {broker_id} is cordoned: omit it, or run `anabranch cluster uncordon "
                f"--broker {broker_id}` first.",
            )
    return [
        UsableBroker(each, None if ignore_racks else found[each].rack, found[each].is_fenced)
        for each in broker_ids
    ]


def _proposed(topic: str, now: Moves, brokers: Sequence[UsableBroker], before: Moves) -> Moves:
    """One topic's lists; `before` are those of the topics proposed already."""
    rows = {where.partition: row for where, row in now.items() if where.topic == topic}
    loads = Loads(
        Counter(chain.from_iterable(before.values())), Counter(row[0] for row in before.values())
    )
    ask = Ask(len(rows), max(map(len, rows.values())), loads=loads)
    lists = place(spread, brokers, ask, Random(topic)).rows
    return {
        TopicPartition(topic, index): row for index, row in zip(sorted(rows), lists, strict=True)
    }
