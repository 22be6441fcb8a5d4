"""Transactions as an administrator sees them: list, describe, find what hangs, abort it.

Lists come from all coordinators, a transaction's state from its own, a partition's producers from
its leader. A transaction hangs when a partition holds it open and its coordinator does not: records
behind it are then withheld from read_committed readers for good. What counts as hanging, and what
an abort sends, is as in Kafka 4.1's `kafka-transactions` (KIP-664). Raises ApiError with the code
of whatever is refused. Not here: producing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple

from anabranch.client.cluster import Cluster, check
from anabranch.client.groups import TRANSACTION, Place, coordinated
from anabranch.core.errors import ApiError, ErrorCode
from anabranch.core.wire.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicRequest,
)
from anabranch.core.wire.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TransactionState,
)
from anabranch.core.wire.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
)
from anabranch.core.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

ANY_AGE = -1
KAFKA_MARKERS = 1
"""The version in which an administrator writes a marker: the coordinator's own say more."""


class Listed(NamedTuple):
    """A transactional id that a coordinator knows."""

    transactional_id: str
    coordinator: int
    producer_id: int
    state: str


class Described(NamedTuple):
    """A transactional id's last transaction."""

    transactional_id: str
    coordinator: int
    producer_id: int
    producer_epoch: int
    state: str
    timeout_ms: int
    start_ms: int
    """-1 when none is under way."""
    partitions: list[Place]


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


async def list_transactions(
    cluster: Cluster,
    *,
    states: Iterable[str] = (),
    producer_ids: Iterable[int] = (),
    longer_than_ms: int = ANY_AGE,
) -> list[Listed]:
    """The transactional ids of all coordinators, by name."""
    request = ListTransactionsRequest(
        state_filters=list(states), producer_id_filters=list(producer_ids)
    )
    if longer_than_ms >= 0:
        request.duration_filter = longer_than_ms

    async def attempt() -> list[Listed]:
        found = []
        for broker_id in sorted(cluster.brokers):
            response: ListTransactionsResponse = await cluster.send_to(broker_id, request)
            check(response.error_code)
            found += [
                Listed(each.transactional_id, broker_id, each.producer_id, each.transaction_state)
                for each in response.transaction_states
            ]
        return sorted(found)

    return await cluster.retrying(attempt)


async def describe_transaction(cluster: Cluster, transactional_id: str) -> Described:
    """Raises ApiError TRANSACTIONAL_ID_NOT_FOUND for an id that its coordinator does not know."""

    async def ask(broker_id: int) -> Described:
        request = DescribeTransactionsRequest(transactional_ids=[transactional_id])
        response: DescribeTransactionsResponse = await cluster.send_to(broker_id, request)
        (state,) = response.transaction_states
        check(state.error_code, of=f"Transactional id {transactional_id}")
        return _described(state, broker_id)

    return await coordinated(cluster, transactional_id, ask, TRANSACTION)


def _described(state: TransactionState, broker_id: int) -> Described:
    return Described(
        state.transactional_id,
        broker_id,
        state.producer_id,
        state.producer_epoch,
        state.transaction_state,
        state.transaction_timeout_ms,
        state.transaction_start_time_ms,
        sorted((each.topic, index) for each in state.topics for index in each.partitions),
    )


async def producers(cluster: Cluster, places: Iterable[Place]) -> list[Open]:
    """What the leaders of partitions remember of their producers."""
    found = []
    for place, answer in await _asked_leaders(cluster, places):
        check(answer.error_code, answer.error_message, of=f"{place[0]}-{place[1]}")
        found += [_open(place, each) for each in answer.active_producers]
    return sorted(found)


async def _asked_leaders(
    cluster: Cluster, places: Iterable[Place]
) -> list[tuple[Place, PartitionResponse]]:
    """What each partition's leader answers; errors that may pass have been waited for."""
    wanted = sorted(places)

    async def attempt() -> list[tuple[Place, PartitionResponse]]:
        by_leader: dict[int, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
        for (topic, index), leader in (await _leaders(cluster, wanted)).items():
            by_leader[leader][topic].append(index)
        answers = []
        for leader, topics in sorted(by_leader.items()):
            request = DescribeProducersRequest(
                topics=[
                    TopicRequest(name=name, partition_indexes=indexes)
                    for name, indexes in topics.items()
                ]
            )
            response: DescribeProducersResponse = await cluster.send_to(leader, request)
            for answered in response.topics:
                for each in answered.partitions:
                    place = answered.name, each.partition_index
                    if each.error_code != ErrorCode.INVALID_REQUEST:
                        check(each.error_code, each.error_message, of=f"{place[0]}-{place[1]}")
                    answers.append((place, each))
        return answers

    return await cluster.retrying(attempt)


async def _leaders(cluster: Cluster, places: Iterable[Place]) -> dict[Place, int]:
    """The leaders of these partitions; others of the same topic need none. Raises ApiError."""
    by_topic: dict[str, list[int]] = defaultdict(list)
    for topic, index in places:
        by_topic[topic].append(index)
    leaders = {}
    for topic, indexes in by_topic.items():
        known = {
            each.partition_index: each.leader_id for each in (await cluster.topic(topic)).partitions
        }
        for index in indexes:
            leader = known.get(index)
            if leader is None:
                raise ApiError(
                    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"There is no partition {topic}-{index}."
                )
            if leader < 0:
                raise ApiError(
                    ErrorCode.LEADER_NOT_AVAILABLE, f"Partition {topic}-{index} has no leader."
                )
            leaders[topic, index] = leader
    return leaders


def _open(place: Place, state: ProducerState) -> Open:
    return Open(
        *place,
        state.producer_id,
        state.producer_epoch,
        state.coordinator_epoch,
        state.current_txn_start_offset,
        state.last_timestamp,
        state.last_sequence,
    )


async def find_hanging(
    cluster: Cluster, places: Iterable[Place], *, now_ms: int, longest_ms: int
) -> list[Open]:
    """Transactions that partitions hold open, that are older than any may be, and of which no
    coordinator says that the partition takes part. Diskless partitions have none: their leaders
    refuse to describe producers (INVALID_REQUEST), and are passed over."""
    known = [
        _open(place, each)
        for place, answer in await _asked_leaders(cluster, places)
        for each in answer.active_producers
    ]
    candidates = [
        each
        for each in sorted(known)
        if each.start_offset >= 0 and now_ms - each.last_timestamp > longest_ms
    ]
    if not candidates:
        return []
    ids = {each.producer_id for each in candidates}
    listed = {
        each.producer_id: each.transactional_id
        for each in await list_transactions(cluster, producer_ids=sorted(ids))
    }
    under_way: dict[int, list[Place]] = {}
    for producer_id, transactional_id in listed.items():
        under_way[producer_id] = await _taking_part(cluster, transactional_id, producer_id)
    return [
        each
        for each in candidates
        if (each.topic, each.partition) not in under_way.get(each.producer_id, ())
    ]


async def _taking_part(cluster: Cluster, transactional_id: str, producer_id: int) -> list[Place]:
    try:
        described = await describe_transaction(cluster, transactional_id)
    except ApiError as fault:
        if fault.code != ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
            raise
        return []
    return described.partitions if described.producer_id == producer_id else []


async def abort(
    cluster: Cluster,
    place: Place,
    *,
    producer_id: int,
    producer_epoch: int,
    coordinator_epoch: int,
) -> None:
    """Have a partition's leader write the marker that ends a transaction as aborted."""
    topic, index = place
    marker = WritableTxnMarker(
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transaction_result=False,
        topics=[WritableTxnMarkerTopic(name=topic, partition_indexes=[index])],
        coordinator_epoch=coordinator_epoch,
    )

    async def attempt() -> None:
        leaders = await _leaders(cluster, [place])
        connection = await cluster.connection_to(leaders[place])
        request = WriteTxnMarkersRequest(markers=[marker])
        response: WriteTxnMarkersResponse = await connection.send(request, KAFKA_MARKERS)
        (result,) = response.markers[0].topics[0].partitions
        check(result.error_code, of=f"{topic}-{index}")

    await cluster.retrying(attempt)


async def abort_of(
    cluster: Cluster,
    place: Place,
    *,
    producer_id: int,
    producer_epoch: int,
    coordinator_epoch: int,
) -> None:
    """Abort the open transaction of a producer. Raises ApiError INVALID_TXN_STATE without one: a
    marker for a producer that is not known would only lie in the log."""
    if not any(
        each.producer_id == producer_id and each.start_offset >= 0
        for each in await producers(cluster, [place])
    ):
        raise _nothing_open(place, f"is of producer {producer_id}")
    await abort(
        cluster,
        place,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        coordinator_epoch=coordinator_epoch,
    )


def _nothing_open(place: Place, which: str) -> ApiError:
    topic, index = place
    return ApiError(
        ErrorCode.INVALID_TXN_STATE,
        f"No open transaction of {topic}-{index} {which}; "
        "`anabranch transactions producers` shows those that are open.",
    )


async def abort_at(cluster: Cluster, place: Place, start_offset: int) -> Open:
    """Abort the open transaction whose first record has this offset; what it was."""
    for each in await producers(cluster, [place]):
        if each.start_offset == start_offset >= 0:
            await abort(
                cluster,
                place,
                producer_id=each.producer_id,
                producer_epoch=each.producer_epoch,
                coordinator_epoch=max(each.coordinator_epoch, 0),
            )
            return each
    raise _nothing_open(place, f"begins at offset {start_offset}")
