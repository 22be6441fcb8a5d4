"""AddPartitionsToTxn: partitions join a transaction, or their leaders ask whether they have.

KIP: KIP-98, KIP-890 (batches of brokers, verification)
Versions: 0-5
Behaviour: up to version 3 a producer asks for one transaction, and needs WRITE on its id and on
    each topic; internal ones are refused. While the transaction before is being ended it waits for
    up to `add.partitions.to.txn.retry.backoff.max.ms`, where Kafka answers CONCURRENT_TRANSACTIONS
    at once. From 4 on a broker asks for many (CLUSTER_ACTION), and with `verify_only` nothing
    joins: a partition that has not is TRANSACTION_ABORTABLE. A broker that was answered
    CONCURRENT_TRANSACTIONS may ask with a field of ours (`own_fields`), and then waits as well, for
    up to `add.partitions.to.txn.retry.backoff.ms`. One partition that cannot join
    (unknown, not allowed, or, with INVALID_REQUEST, diskless) prevents all: the others are
    OPERATION_NOT_ATTEMPTED. Before version 2 PRODUCER_FENCED is INVALID_PRODUCER_EPOCH.
Skipped: nothing
"""

from __future__ import annotations

from functools import partial
from typing import Any

from anabranch.core.access.authorize import (
    Operation,
    ResourceType,
    cluster_allowed,
    topic_allowed,
)
from anabranch.core.api.context import Broker
from anabranch.core.api.handler import Handler
from anabranch.core.api.transactions import (
    fenced_code,
    transactional_id_allowed,
    when_decided,
    when_free,
)
from anabranch.core.broker.gate import Need
from anabranch.core.coordination.transactions.coordinator import Decision
from anabranch.core.coordination.transactions.rules import Producer, check_part
from anabranch.core.coordination.transactions.transaction import BUMPS_EPOCHS
from anabranch.core.diskless.migration import phase_in
from anabranch.core.diskless.topics import is_diskless
from anabranch.core.errors import ApiError, ErrorCode
from anabranch.core.metadata.image import RESOURCE_TOPIC
from anabranch.core.metadata.topic_names import INTERNAL_TOPICS
from anabranch.core.outcome import Outcome, then, when_all
from anabranch.core.request import Request
from anabranch.core.types import TopicPartition
from anabranch.core.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)
from anabranch.core.wire.own_fields import has_own

BATCHED_SINCE = 4
FENCED_SINCE = 2

Codes = dict[TopicPartition, int]


def run(broker: Broker, request: Request, now_ms: int) -> Outcome:
    """The code of each partition, or a wait until all are committed."""
    body: AddPartitionsToTxnRequest = request.body
    if request.version < BATCHED_SINCE:
        asked = _of_client(body)

        def tell(result: AddPartitionsToTxnResult) -> AddPartitionsToTxnResponse:
            _note(broker, request, asked, result)
            return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=result.topic_results)

        return then(_one(broker, request, asked, now_ms), tell)
    if not cluster_allowed(broker.authorizer, request, Operation.CLUSTER_ACTION):
        return AddPartitionsToTxnResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    return when_all(
        [_one(broker, request, each, now_ms) for each in body.transactions],
        lambda results: AddPartitionsToTxnResponse(results_by_transaction=results),
    )


def _note(
    broker: Broker,
    request: Request,
    asked: AddPartitionsToTxnTransaction,
    result: AddPartitionsToTxnResult,
) -> None:
    """Leave the first partition that a client was refused for the log. Of a broker's request the
    partition's leader tells its client, and the log."""
    for topic in result.topic_results:
        for each in topic.results_by_partition:
            if each.partition_error_code not in (
                ErrorCode.NONE, ErrorCode.OPERATION_NOT_ATTEMPTED,
            ):  # fmt: skip
                broker.refusals.note(
                    request,
                    "AddPartitionsToTxn",
                    each.partition_error_code,
                    transactional_id=asked.transactional_id,
                    producer=(asked.producer_id, asked.producer_epoch),
                    now_ms=broker.steady_ms,
                    place=f"{topic.name}-{each.partition_index}",
                )
                return


def _of_client(body: AddPartitionsToTxnRequest) -> AddPartitionsToTxnTransaction:
    return AddPartitionsToTxnTransaction(
        transactional_id=body.v3_and_below_transactional_id,
        producer_id=body.v3_and_below_producer_id,
        producer_epoch=body.v3_and_below_producer_epoch,
        topics=body.v3_and_below_topics,
    )


def _one(
    broker: Broker, request: Request, asked: AddPartitionsToTxnTransaction, now_ms: int
) -> Any:
    """The result of one transaction, or a wait for it."""
    name = asked.transactional_id
    producer = Producer(asked.producer_id, asked.producer_epoch)
    partitions = dict.fromkeys(
        TopicPartition(topic.name, index) for topic in asked.topics for index in topic.partitions
    )
    is_client = request.version < BATCHED_SINCE
    if is_client and not transactional_id_allowed(broker, request, Operation.WRITE, name):
        code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        return _result(name, dict.fromkeys(partitions, int(code)))
    refused = _refused(broker, request, partitions)
    if refused:
        codes = dict.fromkeys(partitions, int(ErrorCode.OPERATION_NOT_ATTEMPTED)) | refused
        return _result(name, codes)
    if not name:
        return _result(name, dict.fromkeys(partitions, int(ErrorCode.INVALID_REQUEST)))
    if asked.verify_only:
        return _result(name, _verified(broker, name, producer, list(partitions), now_ms))

    def tell(decision: Decision) -> AddPartitionsToTxnResult:
        code = fenced_code(decision.code, request.version, since=FENCED_SINCE)
        return _result(name, dict.fromkeys(partitions, code))

    ask = partial(
        broker.transactions.add,
        name,
        producer,
        frozenset(partitions),
        0 if is_client else BUMPS_EPOCHS,
    )
    if is_client or has_own(request.body):
        return when_free(broker, name, now_ms, ask, tell, is_client=is_client)
    return when_decided(broker, now_ms, ask, tell)


def _refused(broker: Broker, request: Request, partitions: dict[TopicPartition, None]) -> Codes:
    """The partitions that cannot join, and why."""
    codes: Codes = {}
    for place in partitions:
        code = _fault(broker, request, place)
        if code is not ErrorCode.NONE:
            codes[place] = code
    return codes


def _fault(broker: Broker, request: Request, place: TopicPartition) -> ErrorCode:
    is_client = request.version < BATCHED_SINCE
    if is_client and (
        place.topic in INTERNAL_TOPICS
        or not topic_allowed(broker.authorizer, request, Operation.WRITE, place.topic)
    ):
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    if broker.image.partition(place.topic, place.partition) is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if is_diskless(broker.image, place.topic):
        return ErrorCode.INVALID_REQUEST
    if phase_in(broker.image.config(RESOURCE_TOPIC, place.topic)) is not None:
        return ErrorCode.CONCURRENT_TRANSACTIONS  # again soon: the topic is becoming diskless
    return ErrorCode.NONE


def _verified(
    broker: Broker,
    name: str,
    producer: Producer,
    partitions: list[TopicPartition],
    now_ms: int,
) -> Codes:
    try:
        known = broker.transactions.find(name, now_ms)
    except ApiError as fault:
        return dict.fromkeys(partitions, int(fault.code))
    return {place: check_part(known, producer, place) for place in partitions}


def _result(name: str, codes: Codes) -> AddPartitionsToTxnResult:
    topics: dict[str, list[AddPartitionsToTxnPartitionResult]] = {}
    for place, code in codes.items():
        topics.setdefault(place.topic, []).append(
            AddPartitionsToTxnPartitionResult(
                partition_index=place.partition, partition_error_code=code
            )
        )
    return AddPartitionsToTxnResult(
        transactional_id=name,
        topic_results=[
            AddPartitionsToTxnTopicResult(name=topic, results_by_partition=results)
            for topic, results in topics.items()
        ],
    )


HANDLER = Handler(
    api_key=24,
    name="AddPartitionsToTxn",
    versions=range(6),
    broker=run,
    needs=(
        Need(Operation.CLUSTER_ACTION, ResourceType.CLUSTER),
        Need(Operation.WRITE, ResourceType.TRANSACTIONAL_ID),
        Need(Operation.WRITE, ResourceType.TOPIC),
    ),
    kips=("KIP-98", "KIP-890"),
)
