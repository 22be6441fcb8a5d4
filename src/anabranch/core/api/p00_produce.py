"""Produce: a client appends record batches to partitions that this broker leads.

KIP: KIP-98 (idempotence, transactions), KIP-110 (zstd), KIP-467 (record errors), KIP-516 (topic
    ids), KIP-890 (transactions that are verified), KIP-951 (current leader), KIP-966
    (min.insync.replicas).
Versions: 3-13. ApiVersions advertises 0-13, as Kafka 4 does for old librdkafka (KAFKA-18659).
Behaviour: each partition succeeds or fails by itself, in this order of checks: topic id, WRITE on
    the topic, existence, exactly one batch of format 2, acks, internal topics, leadership,
    min.insync.replicas, then the log's own (size, CRC, producer sequence, timestamps, keys). acks=0
    has no answer, and an error closes the connection. acks=1 is answered when the leader has the
    batch; acks=all when every in-sync replica has it, or REQUEST_TIMED_OUT after `timeout_ms`. With
    flush.messages=1 the leader has it when it is flushed. A gap of sequence numbers is reported
    only after a wait for the missing batch (`sequence_gaps`). A transaction's first batch waits
    until the coordinator has confirmed that the partition belongs to it (`core.broker.verifying`);
    batches of other partitions and producers do not.
Skipped: reporting a gap at once.
"""

from __future__ import annotations

from collections.abc import Hashable
from struct import Struct
from typing import TYPE_CHECKING, Any, NamedTuple

from anabranch.core.access.authorize import Operation, ResourceType, topic_allowed
from anabranch.core.api.acks import Awaited
from anabranch.core.api.context import NO_TOPIC, Broker
from anabranch.core.api.handler import Handler
from anabranch.core.api.leader_hints import leader_hint, tell_leaders
from anabranch.core.api.near_clients import count_taken
from anabranch.core.broker.gate import Charge, Need
from anabranch.core.coordination.transactions.refusals import OF_PRODUCERS
from anabranch.core.coordination.transactions.verification import (
    VERIFY_MS,
    TransactionSupport,
    Verification,
)
from anabranch.core.errors import ApiError, ErrorCode, RecordsRefused, StorageFault
from anabranch.core.log.sequence_gaps import Place
from anabranch.core.metadata.topic_names import INTERNAL_TOPICS, is_legal
from anabranch.core.outcome import Hangup, NoAnswer, Outcome, Wait
from anabranch.core.partition.protocol import ACKS_ALL, UNKNOWN_OFFSET, Partition, Ticket
from anabranch.core.replication.partitions import exists
from anabranch.core.request import Request
from anabranch.core.types import ZERO_TOPIC_ID
from anabranch.core.wire.batch import BATCH_OVERHEAD, CODEC_MASK, MAGIC, PREFIX, read_header
from anabranch.core.wire.messages.produce import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)

if TYPE_CHECKING:
    pass

ADMIN_CLIENT = "__admin_client"
"""The client id that Kafka lets write to internal topics."""

_HEAD = Struct(">qiibIh")
"""Of a batch: base offset, length, leader epoch, magic, CRC, attributes."""
_SMALLEST_LENGTH = 14
"""Of the smallest record that any format knows."""
_ZSTD = 4
_TRANSACTIONAL = 0x10
_ZSTD_SINCE = 7
_LEADER_HINT_SINCE = 10
_ABORTABLE_SINCE = 11
_ADDS_SINCE = 12
"""The version whose clients leave it to the partition to join their transaction."""
_TOPIC_IDS_SINCE = 13

_WITHOUT_LOG_START = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.CORRUPT_MESSAGE,
    }
)
"""Refusals that Kafka answers without a log start offset."""


class _Malformed(ApiError):
    """Bytes that cannot be a batch in any format: the client is told how."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.CORRUPT_MESSAGE, message)


class _NoTransactions(ApiError):
    """A batch of a transaction for a diskless topic: the client is told what to do."""

    def __init__(self, topic: str) -> None:
        super().__init__(
            ErrorCode.INVALID_REQUEST,
            f"Topic {topic} is diskless and does not support transactions. Write to it without a "
            "transactional.id, or use a classic topic.",
        )


Pending = tuple[PartitionProduceResponse, Partition, Ticket, int]
"""An appended batch whose acknowledgement must wait: its answer, partition, ticket, and the epoch
from which this broker led without a break when it appended."""


class Unverified(NamedTuple):
    """A batch that waits until its transaction is verified, and where its answer stands."""

    verification: Verification
    topic: TopicProduceData
    name: str
    data: PartitionProduceData
    answer: PartitionProduceResponse


def run(broker: Broker, request: Request, now_ms: int) -> Outcome:
    """Append what the request brings and say, or wait to say, what became of it."""
    body: ProduceRequest = request.body
    response = ProduceResponse(responses=[])
    if not broker.authorizer.allows_all and not _transaction_allowed(broker, request):
        _refuse_all(body, response, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        return _finish(broker, request, response, failed=True)
    pending: list[Pending] = []
    unverified: list[Unverified] = []
    failed, sequence_gaps = False, broker.sequence_gaps
    for topic in body.topic_data:
        answers = []
        name, refusal = _open_topic(broker, request, topic)
        hosted = None if name is None else broker.partitions.topic(name)
        for data in topic.partition_data:
            answer = PartitionProduceResponse(index=data.index, base_offset=-1)
            answers.append(answer)
            try:
                if refusal is not None:
                    raise ApiError(refusal)
                replica = None if hosted is None else hosted.get(data.index)
                if sequence_gaps.first and replica is not None and replica.knows_producers:
                    place, known = _place(topic, data), replica.producers
                    sequence_gaps.check(place, data.records, known, broker.steady_ms)
                found = _append(broker, request, name or "", replica, data, answer, pending, now_ms)
                if found is not None:
                    unverified.append(Unverified(found, topic, name or "", data, answer))
            except (ApiError, StorageFault) as error:
                failed = True
                replica = None if hosted is None else hosted.get(data.index)
                _fail(broker, request, topic, data, answer, replica, error)
        response.responses.append(
            TopicProduceResponse(
                name=topic.name, topic_id=topic.topic_id, partition_responses=answers
            )
        )
        count_taken(broker, request, name or "", answers)
    if unverified:
        return _verify(broker, request, response, unverified, pending, now_ms, failed=failed)
    if pending:
        return _wait(broker, request, response, pending, now_ms)
    if not failed and body.acks:
        return response
    return _finish(broker, request, response, failed=failed)


def _open_topic(
    broker: Broker, request: Request, topic: TopicProduceData
) -> tuple[str | None, ErrorCode | None]:
    """The topic's name, and the error that all its partitions get if there is one."""
    name: str | None = topic.name
    if request.version >= _TOPIC_IDS_SINCE:
        found = broker.image.topic_by_id(topic.topic_id)
        if found is None:
            return None, ErrorCode.UNKNOWN_TOPIC_ID
        name = found.name
    authorizer = broker.authorizer
    if not (
        authorizer.allows_all or topic_allowed(authorizer, request, Operation.WRITE, name or "")
    ):
        return name, ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return name, None


def _append(
    broker: Broker,
    request: Request,
    topic: str,
    replica: Partition | None,
    data: PartitionProduceData,
    answer: PartitionProduceResponse,
    pending: list[Pending],
    now_ms: int,
    *,
    is_verified: bool = False,
) -> Verification | None:
    """Check and append one partition's batch; fill in the answer, or note what it waits for. What
    must come before the append, if anything."""
    if replica is None and not exists(broker.image, topic, data.index):
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    records: Any = data.records
    attributes = _check_batch(records, request.version)
    acks = request.body.acks
    if not -1 <= acks <= 1:
        raise ApiError(ErrorCode.INVALID_REQUIRED_ACKS)
    if topic in INTERNAL_TOPICS and request.client_id != ADMIN_CLIENT:
        raise ApiError(
            ErrorCode.INVALID_TOPIC_EXCEPTION, f"Cannot append to internal topic {topic}"
        )
    if replica is None:
        replica = broker.partitions.find(broker.image, topic, data.index)
    if attributes & _TRANSACTIONAL and not is_verified:
        found = _unverified(broker, request, replica, records)
        if found is not None:
            return found
    answer.log_start_offset = replica.start_offset
    ticket = replica.append(records, required_acks=acks, now_ms=now_ms)
    _take(answer, ticket)
    place = replica.topic_partition
    broker.changed[place] = None
    if replica.needs_sync(now_ms):
        broker.unsynced.add(place)
    if acks:
        led_from_epoch = replica.led_from_epoch
        state = replica.acknowledged(ticket, led_from_epoch, acks)
        if state is None:
            pending.append((answer, replica, ticket, led_from_epoch))
        else:
            answer.error_code = state
    return None


def _unverified(
    broker: Broker, request: Request, replica: Partition, records: Any
) -> Verification | None:
    """What a transactional batch must wait for, if anything."""
    transactional_id = request.body.transactional_id
    if transactional_id is None:
        raise ApiError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    if not replica.takes_transactions:
        raise _NoTransactions(replica.topic_partition.topic)
    header = read_header(records)
    if header.producer_id < 0 or replica.producers.duplicate_of(header) is not None:
        return None
    support = TransactionSupport(
        request.version >= _ADDS_SINCE, request.version >= _ABORTABLE_SINCE
    )
    producer = header.producer_id, header.producer_epoch
    return broker.verifier.needed(replica, transactional_id, *producer, support)


def _verify(
    broker: Broker,
    request: Request,
    response: ProduceResponse,
    unverified: list[Unverified],
    pending: list[Pending],
    now_ms: int,
    *,
    failed: bool,
) -> Wait:
    """Append each batch as soon as its transaction is verified, in the order in which requests
    came; then go on as if all had been appended at once."""
    request.body.topic_data = []

    def poll(now_ms: int, expired: bool) -> Outcome | None:
        nonlocal failed
        left = []
        for entry in unverified:
            if expired or entry.verification.code is not None:
                failed |= not _append_verified(broker, request, entry, pending, now_ms)
            else:
                left.append(entry)
        unverified[:] = left
        if left:
            return None
        # What was appended at once may be committed by now: nothing more would come of it.
        acks = request.body.acks
        pending[:] = [entry for entry in pending if not _settled(broker, entry, acks)]
        if pending:
            return _wait(broker, request, response, pending, now_ms)
        return _finish(broker, request, response, failed=failed)

    keys = tuple(dict.fromkeys(entry.verification for entry in unverified))
    held_bytes = sum(len(entry.data.records or b"") for entry in unverified)
    return Wait(keys, now_ms + VERIFY_MS, poll, most_bytes=held_bytes)


def _append_verified(
    broker: Broker, request: Request, entry: Unverified, pending: list[Pending], now_ms: int
) -> bool:
    """Whether a batch was appended, whose coordinator has answered."""
    verification, topic, name, data, answer = entry
    replica = broker.partitions.get(name, data.index)
    try:
        verification.check(replica)
        assert replica is not None
        place = _place(topic, data)
        broker.sequence_gaps.check(place, data.records, replica.producers, broker.steady_ms)
        _append(broker, request, name, replica, data, answer, pending, now_ms, is_verified=True)
    except (ApiError, StorageFault) as error:
        _fail(broker, request, topic, data, answer, replica, error)
        return False
    return True


def _fail(
    broker: Broker,
    request: Request,
    topic: TopicProduceData,
    data: PartitionProduceData,
    answer: PartitionProduceResponse,
    replica: Partition | None,
    error: ApiError | StorageFault,
) -> None:
    _refuse(broker, answer, error, replica)
    _hold_up(broker, topic, data, answer, replica)
    if answer.error_code in OF_PRODUCERS and request.body.transactional_id is not None:
        header = read_header(data.records or b"")
        broker.refusals.note(
            request,
            "Produce",
            answer.error_code,
            transactional_id=request.body.transactional_id,
            producer=(header.producer_id, header.producer_epoch),
            now_ms=broker.steady_ms,
            place="" if replica is None else f"{replica.topic_partition}",
        )


def _take(answer: PartitionProduceResponse, ticket: Ticket) -> None:
    answer.base_offset = ticket.first_offset
    answer.log_append_time_ms = ticket.log_append_time_ms
    answer.log_start_offset = ticket.start_offset


def _check_batch(records: Any, version: int) -> int:
    """The attributes of the one whole batch that `records` must be."""
    size = 0 if records is None else len(records)
    if size < BATCH_OVERHEAD:
        raise ApiError(ErrorCode.INVALID_RECORD)
    _, length, _, magic, _, attributes = _HEAD.unpack_from(records)
    if length < _SMALLEST_LENGTH:
        raise _Malformed(
            f"Record size {length} is less than the minimum record overhead ({_SMALLEST_LENGTH})"
        )
    if not 0 <= magic <= MAGIC:
        raise _Malformed(f"Invalid magic found in record: {magic}")
    if length + PREFIX != size or magic != MAGIC:
        raise ApiError(ErrorCode.INVALID_RECORD)
    if version < _ZSTD_SINCE and attributes & CODEC_MASK == _ZSTD:
        raise ApiError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
    return int(attributes)


def _refuse(
    broker: Broker,
    answer: PartitionProduceResponse,
    error: ApiError | StorageFault,
    replica: Partition | None,
) -> None:
    if isinstance(error, StorageFault):
        answer.error_code = ErrorCode.KAFKA_STORAGE_ERROR
        answer.log_start_offset = -1
        if replica is not None:
            replica.failed(error, broker.mailbox)
        return
    answer.error_code = error.code
    if error.code in _WITHOUT_LOG_START:
        answer.log_start_offset = -1
    if isinstance(error, _Malformed | _NoTransactions):
        answer.error_message = error.message
    if isinstance(error, RecordsRefused):
        answer.error_message = error.message
        answer.record_errors = [
            BatchIndexAndErrorMessage(batch_index=index, batch_index_error_message=text)
            for index, text in error.record_errors
        ]


def _hold_up(
    broker: Broker,
    topic: TopicProduceData,
    data: PartitionProduceData,
    answer: PartitionProduceResponse,
    replica: Partition | None,
) -> None:
    """What the producer has sent behind this batch waits for it; a gap is not told at once."""
    if topic.topic_id == ZERO_TOPIC_ID and not is_legal(topic.name):
        return  # no topic will ever be there, and names may be long
    if replica is not None and not replica.knows_producers:
        return  # whoever gives it offsets refuses what is behind a gap
    code = ErrorCode(answer.error_code)
    known = None if replica is None else replica.producers
    place, now_ms = _place(topic, data), broker.steady_ms
    told = broker.sequence_gaps.refused(place, data.records, code, known, now_ms)
    if told != code:
        answer.error_code = told
        answer.log_start_offset = -1


def _place(topic: TopicProduceData, data: PartitionProduceData) -> Place:
    return topic.name or topic.topic_id, data.index


def _wait(
    broker: Broker,
    request: Request,
    response: ProduceResponse,
    pending: list[Pending],
    now_ms: int,
) -> Wait:
    """Answer when all pending batches are acknowledged, have failed, or time is up."""
    acks = request.body.acks
    request.body.topic_data = []  # appended: whoever waits long need not hold megabytes

    def poll(_now_ms: int, expired: bool) -> Outcome | None:
        pending[:] = [entry for entry in pending if not _settled(broker, entry, acks)]
        if pending and not expired:
            return None
        for answer, *_ in pending:
            answer.error_code = ErrorCode.REQUEST_TIMED_OUT
        return _finish(broker, request, response, failed=True)

    keys: tuple[Hashable, ...]
    if acks == ACKS_ALL:
        awaited = Awaited()
        for _, replica, ticket, led_from_epoch in pending:
            broker.acks.wait(replica, ticket, led_from_epoch, awaited)
        keys = (awaited,)
    else:
        keys = tuple(replica.topic_partition for _, replica, *_ in pending)
    return Wait(keys, now_ms + max(0, request.body.timeout_ms), poll)


def _settled(broker: Broker, entry: Pending, acks: int) -> bool:
    """Whether one batch's fate is known; writes it into the answer."""
    answer, replica, ticket, led_from_epoch = entry
    topic, index = replica.topic_partition
    if broker.partitions.served(topic, index) is not replica:
        try:
            broker.partitions.find(broker.image, topic, index)
            answer.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
        except ApiError as error:
            answer.error_code = error.code
        return True
    state = replica.acknowledged(ticket, led_from_epoch, acks)
    if state is None:
        return False
    if answer.base_offset == UNKNOWN_OFFSET:
        _take(answer, ticket)
    answer.error_code = state
    return True


def _finish(
    broker: Broker, request: Request, response: ProduceResponse, *, failed: bool
) -> Outcome:
    """The answer, with leaders where they help; for acks=0 silence, or a hangup after an error."""
    if failed:
        _count_refusals(broker, response)
    if request.body.acks == 0:
        if not failed:
            return NoAnswer()
        return Hangup(f"a produce request without acknowledgements failed: {_summary(response)}")
    if failed and request.version >= _LEADER_HINT_SINCE:
        _add_leader_hints(broker, request, response)
    return response


def _count_refusals(broker: Broker, response: ProduceResponse) -> None:
    """For the metric, whatever the cause. Names that no topic of this cluster has are counted
    together: what clients make up must take no memory."""
    for topic in response.responses:
        count = sum(answer.error_code != 0 for answer in topic.partition_responses)
        if count:
            name = _name_of(broker, topic)
            known = name if broker.image.topic(name) is not None else NO_TOPIC
            broker.failed_produces[known] += count


def _name_of(broker: Broker, topic: TopicProduceResponse) -> str:
    if topic.topic_id == ZERO_TOPIC_ID:
        return topic.name
    found = broker.image.topic_by_id(topic.topic_id)
    return "" if found is None else found.name


def _summary(response: ProduceResponse) -> str:
    return ", ".join(
        f"{topic.name}-{answer.index} {ErrorCode(answer.error_code).name}"
        for topic in response.responses
        for answer in topic.partition_responses
        if answer.error_code
    )


def _add_leader_hints(broker: Broker, request: Request, response: ProduceResponse) -> None:
    """Say who leads what is not led here. Who leads, and refuses for another
    cause (`sequence_gaps`), does not name itself: franz-go would send again without a pause."""
    refused = []
    for topic in response.responses:
        name = _name_of(broker, topic)
        refused += [
            (name, answer.index, answer)
            for answer in topic.partition_responses
            if answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
            and leader_hint(broker, request.listener, name, answer.index).leader_id
            != broker.broker_id
        ]
    response.node_endpoints = tell_leaders(
        broker, request.listener, refused, LeaderIdAndEpoch, NodeEndpoint
    )


def _transaction_allowed(broker: Broker, request: Request) -> bool:
    """Whether a request with transactional batches may write under its transactional id."""
    body: ProduceRequest = request.body
    if not any(
        _is_transactional(data) for topic in body.topic_data for data in topic.partition_data
    ):
        return True
    return body.transactional_id is not None and broker.authorizer.authorize(
        request, Operation.WRITE, ResourceType.TRANSACTIONAL_ID, body.transactional_id
    )


def _is_transactional(data: PartitionProduceData) -> bool:
    records = data.records
    if records is None or len(records) < BATCH_OVERHEAD:
        return False
    return bool(_HEAD.unpack_from(records)[-1] & _TRANSACTIONAL)


def _refuse_all(body: ProduceRequest, response: ProduceResponse, code: ErrorCode) -> None:
    for topic in body.topic_data:
        answers = [
            PartitionProduceResponse(index=data.index, base_offset=-1, error_code=code)
            for data in topic.partition_data
        ]
        response.responses.append(
            TopicProduceResponse(
                name=topic.name, topic_id=topic.topic_id, partition_responses=answers
            )
        )


HANDLER = Handler(
    api_key=0,
    name="Produce",
    versions=range(3, 14),
    broker=run,
    advertised=range(14),
    needs=(
        Need(Operation.WRITE, ResourceType.TOPIC),
        Need(Operation.WRITE, ResourceType.TRANSACTIONAL_ID),
    ),
    charge=Charge.PRODUCE,
    kips=("KIP-98", "KIP-110", "KIP-467", "KIP-516", "KIP-890", "KIP-951", "KIP-966"),
    skipped=(
        "A gap of sequence numbers is answered with NOT_LEADER_OR_FOLLOWER for 10 s before "
        "OUT_OF_ORDER_SEQUENCE_NUMBER, because librdkafka producers could otherwise duplicate "
        "records (decision 38).",
    ),
)
