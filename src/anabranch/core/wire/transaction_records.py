"""Keys and values of the topic `__transaction_state`: the state of each transactional id.

Each starts with an int16 and is then laid out by its schema:

    key    int16 version of the schema: 0
    value  int16 version of the schema: 0 or 1, which has tagged fields

A value that is absent (null) is a tombstone: the id is forgotten. Source: Kafka 4.1's
TransactionLogKey and TransactionLogValue.
"""

from __future__ import annotations

from typing import Annotated

from anabranch.core.errors import ProtocolError
from anabranch.core.types import Buffer
from anabranch.core.wire.codec import decode_exact
from anabranch.core.wire.offsets_records import first_int16, with_int16
from anabranch.core.wire.schema import (
    Int8,
    Int16,
    Int32,
    Int64,
    Message,
    String,
    Struct,
)


class TransactionLogKey(Message, type_id=0, versions="0", flexible="none"):
    transactional_id: String = ""


class PartitionsSchema(Struct):
    topic: String = ""
    partition_ids: list[Int32] = []


class TransactionLogValue(Message, type_id=0, versions="0-1", flexible="1+"):
    producer_id: Int64 = 0
    previous_producer_id: Annotated[Int64, "1+", "tag 0"] = -1
    next_producer_id: Annotated[Int64, "1+", "tag 1"] = -1
    producer_epoch: Int16 = 0
    next_producer_epoch: Annotated[Int16, "1+", "tag 3"] = -1
    transaction_timeout_ms: Int32 = 0
    transaction_status: Int8 = 0
    transaction_partitions: Annotated[list[PartitionsSchema] | None, "0+"] = []
    transaction_last_update_timestamp_ms: Int64 = 0
    transaction_start_timestamp_ms: Int64 = 0
    client_transaction_version: Annotated[Int16, "1+", "tag 2"] = 0


KEY_VERSION = 0


def encode_key(transactional_id: str) -> bytes:
    """The key of a transactional id."""
    return with_int16(KEY_VERSION, TransactionLogKey(transactional_id=transactional_id), 0)


def decode_key(key: Buffer) -> str | None:
    """The transactional id that a key names; None for a key of a later version, which is passed
    over as Kafka does. Raises ProtocolError."""
    if first_int16(key, "TransactionLogKey", "version") != KEY_VERSION:
        return None
    return decode_exact(TransactionLogKey, key, 0, 2).transactional_id


def encode_value(value: TransactionLogValue, version: int) -> bytes:
    """A value for the log, with its version before it."""
    return with_int16(version, value, version)


def decode_value(value: Buffer) -> TransactionLogValue:
    """The value of a record; raises ProtocolError, also for a version that is not known."""
    version = first_int16(value, "TransactionLogValue", "version")
    if version not in TransactionLogValue.versions:
        raise ProtocolError("TransactionLogValue", version, "version", 0, "no such version")
    return decode_exact(TransactionLogValue, value, version, 2)
