"""What partitions remember of their producers, as an administrator asks for it (KIP-664).

A partition's leader is asked, or one broker for its own replicas: each answers from its own log.
Rule kept: a partition that cannot be asked stands in no other one's way; who asks is told of each
one why. Not here: what a coordinator knows (`transactions`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from anabranch.client.cluster import Cluster, check, may_help
from anabranch.client.connection import ConnectionLost
from anabranch.client.every_broker import Fault
from anabranch.client.groups import Place
from anabranch.core.errors import ApiError, ErrorCode
from anabranch.core.wire.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    TopicRequest,
)


class Open(NamedTuple):
    """A producer that a partition remembers; `start_offset` is -1 unless a transaction is open."""

    topic: str
    partition: int
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    start_offset: int
    last_timestamp: int
    last_sequence: int


class Asked(NamedTuple):
    """What came of asking some partitions."""

    answers: dict[Place, PartitionResponse]
    faults: dict[Place, Fault]
    """Why the others did not answer."""

    @property
    def producers(self) -> list[Open]:
        """Those of all partitions that answered."""
        return sorted(
            Open(
                *place,
                each.producer_id,
                each.producer_epoch,
                each.coordinator_epoch,
                each.current_txn_start_offset,
                each.last_timestamp,
                each.last_sequence,
            )
            for place, answer in self.answers.items()
            for each in answer.active_producers
        )


async def producers(
    cluster: Cluster, places: Iterable[Place], *, broker_id: int | None = None
) -> list[Open]:
    """What partitions remember, by their leaders or by this broker. Raises what one of them does
    not answer for; a diskless one has no producers to describe (INVALID_REQUEST)."""
    asked = await ask_partitions(cluster, places, broker_id=broker_id)
    for fault in asked.faults.values():
        raise fault
    for (topic, index), answer in asked.answers.items():
        if answer.error_message:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"{topic}-{index}: {answer.error_message}")
    return asked.producers


async def ask_partitions(
    cluster: Cluster,
    places: Iterable[Place],
    *,
    broker_id: int | None = None,
    seconds: float | None = None,
) -> Asked:
    """Ask each partition's leader, or one broker for all. What may pass is waited for until the
    cluster's deadline, `seconds` at most."""
    wanted = sorted(places)
    asked = Asked({}, {})

    async def attempt() -> None:
        asked.faults.clear()
        left = [place for place in wanted if place not in asked.answers]
        await _ask_once(cluster, left, broker_id, asked)
        for fault in asked.faults.values():
            if may_help(fault):
                raise fault

    try:
        await cluster.retrying(attempt, seconds=seconds)
    except (ApiError, ConnectionLost):
        if not asked.faults:
            raise
    return asked


async def _ask_once(
    cluster: Cluster, places: list[Place], broker_id: int | None, asked: Asked
) -> None:
    if broker_id is None:
        where = await leaders(cluster, places, asked.faults.__setitem__)
    else:
        where = dict.fromkeys(places, broker_id)
    by_broker: dict[int, list[Place]] = defaultdict(list)
    for place, broker in where.items():
        by_broker[broker].append(place)
    for broker, its_places in sorted(by_broker.items()):
        try:
            response: DescribeProducersResponse = await cluster.send_to(broker, _about(its_places))
        except (ApiError, ConnectionLost) as fault:
            asked.faults.update(dict.fromkeys(its_places, fault))
            continue
        for place, answer in _answers(response):
            try:
                check(answer.error_code, answer.error_message, of=f"{place[0]}-{place[1]}")
                asked.answers[place] = answer
            except ApiError as fault:
                asked.faults[place] = fault


def _about(places: Iterable[Place]) -> DescribeProducersRequest:
    topics: dict[str, list[int]] = defaultdict(list)
    for topic, index in places:
        topics[topic].append(index)
    return DescribeProducersRequest(
        topics=[
            TopicRequest(name=name, partition_indexes=indexes) for name, indexes in topics.items()
        ]
    )


def _answers(response: DescribeProducersResponse) -> Iterator[tuple[Place, PartitionResponse]]:
    for answered in response.topics:
        for each in answered.partitions:
            yield (answered.name, each.partition_index), each


def _refuse(_place: Place, fault: Fault) -> None:
    raise fault


async def leaders(
    cluster: Cluster,
    places: Iterable[Place],
    without: Callable[[Place, Fault], None] = _refuse,
) -> dict[Place, int]:
    """The leaders of these partitions; others of the same topic need none. One without a leader is
    for `without`, which by default raises."""
    by_topic: dict[str, list[int]] = defaultdict(list)
    for topic, index in places:
        by_topic[topic].append(index)
    found = {}
    for topic, indexes in by_topic.items():
        try:
            partitions = (await cluster.topic(topic)).partitions
        except ApiError as fault:
            for index in indexes:
                without((topic, index), fault)
            continue
        known = {each.partition_index: each.leader_id for each in partitions}
        for index in indexes:
            leader = known.get(index)
            if leader is not None and leader >= 0:
                found[topic, index] = leader
            else:
                without((topic, index), _leaderless(topic, index, is_known=leader is not None))
    return found


def _leaderless(topic: str, index: int, *, is_known: bool) -> ApiError:
    if is_known:
        code, sentence = ErrorCode.LEADER_NOT_AVAILABLE, "Partition {}-{} has no leader."
    else:
        code, sentence = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "There is no partition {}-{}."
    return ApiError(code, sentence.format(topic, index))
