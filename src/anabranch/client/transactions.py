"""Transactions as an administrator sees them: list, describe, find what hangs, abort it.

Lists come from all coordinators, a transaction's state from its own, a partition's producers from
its leader. A transaction hangs when a partition holds it open and its coordinator does not: records
behind it are then withheld from read_committed readers for good. What counts as hanging, and what
an abort sends, is as in Kafka 4.1's `kafka-transactions` (KIP-664). Raises ApiError with the code
of whatever is refused. Not here: producing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from anabranch.client.cluster import Cluster, check
from anabranch.client.groups import TRANSACTION, Place, coordinated
from anabranch.core.errors import ApiError, ErrorCode
from anabranch.core.wire.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
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
    wanted = sorted(places)

    async def attempt() -> list[Open]:
        by_leader: dict[int, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
        leaders = {topic: await cluster.leaders(topic) for topic in {name for name, _ in wanted}}
        for topic, index in wanted:
            leader = leaders[topic].get(index)
            if leader is None:
                raise ApiError(
                    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"There is no partition {topic}-{index}."
                )
            by_leader[leader][topic].append(index)
        found = []
        for leader, topics in sorted(by_leader.items()):
            found += await _producers_on(cluster, leader, topics)
        return sorted(found)

    return await cluster.retrying(attempt)


async def _producers_on(
    cluster: Cluster, leader: int, topics: Mapping[str, list[int]]
) -> list[Open]:
    asked = [TopicRequest(name=name, partition_indexes=found) for name, found in topics.items()]
    request = DescribeProducersRequest(topics=asked)
    response: DescribeProducersResponse = await cluster.send_to(leader, request)
    found = []
    for topic in response.topics:
        for partition in topic.partitions:
            place = topic.name, partition.partition_index
            check(partition.error_code, partition.error_message, of=f"{place[0]}-{place[1]}")
            found += [_open(place, each) for each in partition.active_producers]
    return found


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
    coordinator says that the partition takes part."""
    candidates = [
        each
        for each in await producers(cluster, places)
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
        leader = (await cluster.leaders(topic)).get(index)
        if leader is None:
            raise ApiError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"There is no partition {topic}-{index}."
            )
        connection = await cluster.connection_to(leader)
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
