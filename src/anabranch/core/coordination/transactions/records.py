"""What the coordinator writes to `__transaction_state`: as Kafka 4.1 writes it.

A transactional id -> producer, state, partitions and times. A null value forgets the id. Version 1
has what KIP-890 added; it is written where transaction.version is above 0. Not here: the schema
(`core/wire/transaction_records`).
"""

from __future__ import annotations

from anabranch.core.coordination.transactions.states import (
    DEAD,
    EMPTY,
    PREPARE_EPOCH_FENCE,
    STATES_BY_NUMBER,
)
from anabranch.core.coordination.transactions.transaction import (
    FENCE_EPOCH,
    NO_PARTITIONS,
    NO_PRODUCER_ID,
    Transaction,
)
from anabranch.core.errors import ProtocolError
from anabranch.core.types import TopicPartition
from anabranch.core.wire.records import Record
from anabranch.core.wire.transaction_records import (
    PartitionsSchema,
    TransactionLogValue,
    decode_value,
    encode_key,
    encode_value,
)

FLEXIBLE_VERSION = 1


def transaction_record(
    transactional_id: str, transaction: Transaction, now_ms: int, server_version: int
) -> Record:
    """An id's state as it stands in the log. `server_version` is the cluster's transaction.version,
    which says in which version of the schema."""
    version = min(server_version, FLEXIBLE_VERSION)
    value = TransactionLogValue(
        producer_id=transaction.producer_id,
        producer_epoch=transaction.producer_epoch,
        transaction_timeout_ms=transaction.timeout_ms,
        transaction_status=transaction.state.number,
        transaction_partitions=_by_topic(transaction),
        transaction_last_update_timestamp_ms=transaction.updated_ms,
        transaction_start_timestamp_ms=transaction.started_ms,
    )
    if version >= FLEXIBLE_VERSION:
        value.previous_producer_id = transaction.previous_producer_id
        value.next_producer_id = transaction.next_producer_id
        value.client_transaction_version = transaction.client_version
    return Record(0, now_ms, encode_key(transactional_id), encode_value(value, version))


def _by_topic(transaction: Transaction) -> list[PartitionsSchema] | None:
    if transaction.state is EMPTY:
        return None
    topics: dict[str, list[int]] = {}
    for place in sorted(transaction.partitions):
        topics.setdefault(place.topic, []).append(place.partition)
    return [PartitionsSchema(topic=name, partition_ids=ids) for name, ids in topics.items()]


def tombstone(transactional_id: str, now_ms: int) -> Record:
    """An id that is forgotten."""
    return Record(0, now_ms, encode_key(transactional_id), None)


def transaction_of(value: bytes) -> Transaction:
    """What a value of the log says. Raises ProtocolError, also for a state that is never written
    and for a schema that is newer than this version of Anabranch.

    It does not say whether the coordinator fenced the producer, but for the last epoch: only a
    producer that goes on with another id ends its own transaction with that."""
    said = decode_value(value)
    state = STATES_BY_NUMBER.get(said.transaction_status)
    if state is None or state in (DEAD, PREPARE_EPOCH_FENCE):
        why = f"no transaction is kept in state {said.transaction_status}"
        raise ProtocolError("TransactionLogValue", 0, "transaction_status", 0, why)
    return Transaction(
        producer_id=said.producer_id,
        producer_epoch=said.producer_epoch,
        timeout_ms=said.transaction_timeout_ms,
        state=state,
        partitions=frozenset(
            TopicPartition(topic.topic, index)
            for topic in said.transaction_partitions or ()
            for index in topic.partition_ids
        )
        or NO_PARTITIONS,
        started_ms=said.transaction_start_timestamp_ms,
        updated_ms=said.transaction_last_update_timestamp_ms,
        previous_producer_id=said.previous_producer_id,
        next_producer_id=said.next_producer_id,
        client_version=said.client_transaction_version,
        is_fenced=(said.producer_epoch == FENCE_EPOCH and said.next_producer_id == NO_PRODUCER_ID),
    )
