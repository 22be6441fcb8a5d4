"""WriteTxnMarkers: a transaction's coordinator ends it in the partitions that took part in it.

KIP: KIP-98, KIP-664 (an administrator ends one that hangs), KIP-890 (epochs of markers), KIP-1228.
Versions: 1-2.
Behaviour: needs CLUSTER_ACTION or ALTER on the cluster. Each partition must be led here; its marker
    is answered when every in-sync replica has it. A coordinator that another one has replaced is
    refused, as is an epoch that a newer producer has fenced. A marker of a transaction that raises
    the epoch (version 2) is written once: sent again, it would end the next transaction. A marker
    in `__consumer_offsets` decides the offsets that the transaction committed there.
Skipped: nothing
"""

from __future__ import annotations

from typing import NamedTuple

from anabranch.core.access.authorize import Operation, ResourceType, cluster_allowed
from anabranch.core.api.acks import Awaited
from anabranch.core.api.context import Broker
from anabranch.core.api.handler import Handler, always
from anabranch.core.broker.gate import Need
from anabranch.core.coordination.groups import offsets
from anabranch.core.coordination.groups.offsets_topic import OFFSETS_TOPIC
from anabranch.core.errors import ApiError, ErrorCode, StorageFault
from anabranch.core.outcome import Outcome, Wait
from anabranch.core.partition.protocol import ACKS_ALL, Partition, Ticket
from anabranch.core.request import Request
from anabranch.core.wire.control import build_end_marker
from anabranch.core.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

LONGEST_MS = 30_000
"""How long a marker waits for its replicas: Kafka's request.timeout.ms. Its coordinator asks again.
"""
RAISES_EPOCH_SINCE = 2
"""`transaction.version` from which a marker has an epoch of its own."""

_NOT_LED = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)
"""What only members of groups are told."""


class Written(NamedTuple):
    """Where a marker is in the log."""

    last_offset: int
    first_offset: int = -1
    log_append_time_ms: int = -1
    start_offset: int = -1


class PendingMarker(NamedTuple):
    """A marker whose replicas are waited for."""

    result: WritableTxnMarkerPartitionResult
    partition: Partition
    ticket: Ticket
    led_from_epoch: int


def run(broker: Broker, request: Request, now_ms: int) -> Outcome:
    """Write the markers; the answer when all of them are committed, or have failed."""
    body: WriteTxnMarkersRequest = request.body
    refusal = None if _allowed(broker, request) else ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    pending: list[PendingMarker] = []
    response = WriteTxnMarkersResponse(markers=[])
    for marker in body.markers:
        told = WritableTxnMarkerResult(producer_id=marker.producer_id, topics=[])
        response.markers.append(told)
        for topic in marker.topics:
            results = []
            for index in topic.partition_indexes:
                result = WritableTxnMarkerPartitionResult(partition_index=index)
                results.append(result)
                try:
                    if refusal is not None:
                        raise ApiError(refusal)
                    entry = _end(broker, marker, topic.name, result, now_ms)
                    if not _settled(broker, entry):
                        pending.append(entry)
                except ApiError as error:
                    is_hidden = error.code in _NOT_LED
                    result.error_code = (
                        ErrorCode.NOT_LEADER_OR_FOLLOWER if is_hidden else error.code
                    )
                    broker.refusals.note(
                        request,
                        "WriteTxnMarkers",
                        error.code,
                        transactional_id=None,
                        producer=(marker.producer_id, marker.producer_epoch),
                        now_ms=broker.steady_ms,
                        place=f"{topic.name}-{index}",
                    )
            told.topics.append(WritableTxnMarkerTopicResult(name=topic.name, partitions=results))
    return _wait(broker, response, pending, now_ms) if pending else response


def _allowed(broker: Broker, request: Request) -> bool:
    return any(
        cluster_allowed(broker.authorizer, request, each)
        for each in (Operation.CLUSTER_ACTION, Operation.ALTER)
    )


def _end(
    broker: Broker,
    marker: WritableTxnMarker,
    topic: str,
    result: WritableTxnMarkerPartitionResult,
    now_ms: int,
) -> PendingMarker:
    """Append a marker. Raises ApiError."""
    replica = broker.partitions.find_leader(broker.image, topic, result.partition_index)
    if not replica.takes_transactions:
        raise ApiError(
            ErrorCode.INVALID_REQUEST, f"{replica.topic_partition} does not support transactions."
        )
    producer_id, epoch = marker.producer_id, marker.producer_epoch
    producers, led_from_epoch = replica.producers, replica.led_from_epoch
    producers.check_marker(producer_id, epoch, marker.coordinator_epoch)
    raises_epoch = marker.transaction_version >= RAISES_EPOCH_SINCE
    if raises_epoch and producers.has_marker(producer_id, epoch):
        return PendingMarker(result, replica, Written(replica.end_offset - 1), led_from_epoch)
    batch = build_end_marker(
        committed=marker.transaction_result,
        producer_id=producer_id,
        producer_epoch=epoch,
        coordinator_epoch=marker.coordinator_epoch,
        now_ms=now_ms,
    )
    if topic == OFFSETS_TOPIC:
        shard = broker.groups.shard_in(result.partition_index, now_ms)
        committed = marker.transaction_result
        offsets.decide(broker.groups, shard, batch, producer_id, now_ms, committed=committed)
    else:
        _append(broker, replica, batch, now_ms)
    broker.verifier.ended(replica.topic_partition, producer_id, epoch, raises_epoch=raises_epoch)
    return PendingMarker(result, replica, Written(replica.end_offset - 1), led_from_epoch)


def _append(broker: Broker, replica: Partition, batch: bytearray, now_ms: int) -> None:
    try:
        replica.append(batch, required_acks=ACKS_ALL, now_ms=now_ms, client=False)
    except StorageFault as fault:
        replica.failed(fault, broker.mailbox)
        raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, str(fault)) from fault
    broker.changed[replica.topic_partition] = None
    if replica.needs_sync(now_ms):
        broker.unsynced.add(replica.topic_partition)


def _settled(broker: Broker, entry: PendingMarker) -> bool:
    """Whether a marker's fate is known; writes it into the answer."""
    result, partition, ticket, led_from_epoch = entry
    state: ErrorCode | None = ErrorCode.NOT_LEADER_OR_FOLLOWER
    if broker.partitions.get(*partition.topic_partition) is partition:
        state = partition.acknowledged(ticket, led_from_epoch)
    if state is not None:
        result.error_code = state
    return state is not None


def _wait(
    broker: Broker, response: WriteTxnMarkersResponse, pending: list[PendingMarker], now_ms: int
) -> Wait:
    awaited = Awaited()
    for _, partition, ticket, led_from_epoch in pending:
        broker.acks.wait(partition, ticket, led_from_epoch, awaited)

    def poll(_now_ms: int, expired: bool) -> WriteTxnMarkersResponse | None:
        pending[:] = [entry for entry in pending if not _settled(broker, entry)]
        if pending and not expired:
            return None
        for entry in pending:
            entry.result.error_code = ErrorCode.REQUEST_TIMED_OUT
        return response

    return Wait((awaited,), now_ms + LONGEST_MS, poll)


HANDLER = Handler(
    api_key=27,
    name="WriteTxnMarkers",
    versions=range(1, 3),
    broker=run,
    needs=(
        Need(Operation.CLUSTER_ACTION, ResourceType.CLUSTER),
        Need(Operation.ALTER, ResourceType.CLUSTER),
    ),
    of_broker=always,
    kips=("KIP-98", "KIP-664", "KIP-890", "KIP-1228"),
)
