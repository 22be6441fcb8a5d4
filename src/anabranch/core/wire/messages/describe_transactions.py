"""DescribeTransactions (API key 65): the state of transactional ids. KIP-664."""

from __future__ import annotations

from anabranch.core.wire.schema import (
    Int16,
    Int32,
    Int64,
    Message,
    String,
    Struct,
)


class DescribeTransactionsRequest(Message, api_key=65, versions="0", flexible="0+"):
    transactional_ids: list[String] = []


class TopicData(Struct):
    topic: String = ""
    partitions: list[Int32] = []


class TransactionState(Struct):
    error_code: Int16 = 0
    transactional_id: String = ""
    transaction_state: String = ""
    transaction_timeout_ms: Int32 = 0
    transaction_start_time_ms: Int64 = 0
    producer_id: Int64 = 0
    producer_epoch: Int16 = 0
    topics: list[TopicData] = []


class DescribeTransactionsResponse(Message, api_key=65, versions="0", flexible="0+"):
    throttle_time_ms: Int32 = 0
    transaction_states: list[TransactionState] = []
