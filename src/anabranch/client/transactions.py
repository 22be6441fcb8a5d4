"""Transactions as an administrator sees them: list, describe, find what hangs, abort it.

Lists come from all coordinators, a transaction's state from its own, a partition's producers from
its replicas (`partition_producers`). A transaction hangs when a partition holds it open and its
coordinator does not: records behind it are then withheld from read_committed readers for good. What
counts as hanging, and what an abort sends, is as in Kafka 4.1's `kafka-transactions` (KIP-664).
Raises ApiError with the code of whatever is refused. Not here: producing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from anabranch.client.cluster import Cluster, check
from anabranch.client.every_broker import (
    PASS_OVER_SECONDS,
    Fault,
    ask_every_broker,
    coordinating,
    said,
    still_loading,
)
from anabranch.client.groups import TRANSACTION, Place, coordinated
from anabranch.client.partition_producers import Open, ask_partitions, leaders, producers
from anabranch.core.coordination.transactions.topic import TRANSACTION_TOPIC
from anabranch.core.errors import ApiError, ErrorCode
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


class Lists(NamedTuple):
    """What came of asking all brokers for their transactional ids."""

    ids: list[Listed]
    """By name."""
    faults: dict[int, Fault]
    """The brokers that did not answer, and why: some or all of their ids are missing."""


class Described(NamedTuple):
    """A transactional id's last transaction."""

    transactional_id: str
    coordinator: int
    producer_id: int
    producer_epoch: int
    state: str
    timeout_ms: int
    start_ms: int
    """When the last one began; -1 when its producer has begun none since it started."""
    partitions: list[Place]


async def list_transactions(
    cluster: Cluster,
    *,
    states: Iterable[str] = (),
    producer_ids: Iterable[int] = (),
    longer_than_ms: int = ANY_AGE,
    pattern: str | None = None,
) -> Lists:
    """The transactional ids of all coordinators. A pattern matches whole ids (KIP-1152); raises
    ApiError INVALID_REGULAR_EXPRESSION for one that is not RE2's syntax. What may pass is waited
    for until the cluster's deadline, PASS_OVER_SECONDS at most. What a coordinator could not load
    is not listed: see `silent_coordinators`."""
    request = ListTransactionsRequest(
        state_filters=list(states),
        producer_id_filters=list(producer_ids),
        transactional_id_pattern=pattern,
    )
    if longer_than_ms >= 0:
        request.duration_filter = longer_than_ms

    async def ask(broker_id: int) -> tuple[list[Listed], Fault | None]:
        return await _listed(cluster, broker_id, request)

    told, faults = await ask_every_broker(cluster, ask)
    ids = {each.transactional_id: each for each in told}
    return Lists(sorted(ids.values()), faults)


async def _listed(
    cluster: Cluster, broker_id: int, request: ListTransactionsRequest
) -> tuple[list[Listed], Fault | None]:
    """The ids of a broker; those that it has read where it still reads others."""
    response: ListTransactionsResponse = await cluster.send_to(broker_id, request)
    pattern = request.transactional_id_pattern
    refuses_pattern = response.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
    loads = still_loading(response.error_code, of=f"Pattern {pattern!r}" if refuses_pattern else "")
    ids = [
        Listed(each.transactional_id, broker_id, each.producer_id, each.transaction_state)
        for each in response.transaction_states
    ]
    return ids, loads


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


async def silent_coordinators(cluster: Cluster, lists: Lists) -> dict[Place, Fault]:
    """The partitions of transactional ids whose coordinator cannot answer, and why: a broker lists
    the ids that it could load, and says nothing of the others. Empty where the client may not ask
    (TOPIC_AUTHORIZATION_FAILED)."""
    partitions = await coordinating(cluster, TRANSACTION_TOPIC, exists=bool(lists.ids))
    places = [(TRANSACTION_TOPIC, each.partition_index) for each in partitions]
    faults = (await ask_partitions(cluster, places, seconds=PASS_OVER_SECONDS)).faults
    return {
        place: fault
        for place, fault in faults.items()
        if not isinstance(fault, ApiError) or fault.code != ErrorCode.TOPIC_AUTHORIZATION_FAILED
    }


async def find_hanging(
    cluster: Cluster,
    places: Iterable[Place],
    *,
    now_ms: int,
    longest_ms: int,
    broker_id: int | None = None,
    pass_over: Callable[[str], None] | None = None,
) -> list[Open]:
    """Transactions that partitions hold open, that are older than any may be, and of which no
    coordinator says that the partition takes part. With `broker_id` this broker's replicas are
    asked, not the leaders.

    `pass_over` gets a sentence for each partition that cannot be asked, and for each transaction
    that a coordinator which cannot answer may know; without it the first fault is raised."""
    seconds = None if pass_over is None else PASS_OVER_SECONDS
    asked = await ask_partitions(cluster, places, broker_id=broker_id, seconds=seconds)
    for (topic, index), fault in asked.faults.items():
        if pass_over is None:
            raise fault
        pass_over(said(fault, f"{topic}-{index}"))
    candidates = [
        each
        for each in asked.producers
        if each.start_offset >= 0 and now_ms - each.last_timestamp > longest_ms
    ]
    if not candidates:
        return []
    lists = await list_transactions(
        cluster, producer_ids=sorted({each.producer_id for each in candidates})
    )
    known = await _where_under_way(cluster, lists.ids)
    hanging = [
        each
        for each in candidates
        if (each.topic, each.partition) not in known.get(each.producer_id, ())
    ]
    unknown = [each for each in hanging if each.producer_id not in known]
    silent = await _silent(cluster, lists) if unknown else {}
    for who, fault in silent.items():
        if pass_over is None:
            raise fault
        for each in unknown:
            pass_over(
                f"{each.topic}-{each.partition}, producer {each.producer_id}: its coordinator may "
                f"be {who}"
            )
    return [each for each in hanging if not silent or each.producer_id in known]


async def _silent(cluster: Cluster, lists: Lists) -> dict[str, Fault]:
    """The coordinators that cannot answer: who they are, with a sentence, and why."""
    partitions = await silent_coordinators(cluster, lists)
    return {
        **{said(fault, f"broker {each}"): fault for each, fault in lists.faults.items()},
        **{
            f"that of {said(fault, f'{topic}-{index}')}": fault
            for (topic, index), fault in partitions.items()
        },
    }


async def _where_under_way(cluster: Cluster, ids: Iterable[Listed]) -> dict[int, list[Place]]:
    """Where the transactions of these ids take part, by producer id."""
    return {
        each.producer_id: await _taking_part(cluster, each.transactional_id, each.producer_id)
        for each in ids
    }


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
        leader = (await leaders(cluster, [place]))[place]
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
