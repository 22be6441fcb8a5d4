"""AddPartitionsToTxn (API key 24): partitions of one or many transactions. KIP-98, KIP-890."""

from __future__ import annotations

from typing import Annotated

from anabranch.core.wire.schema import (
    Bool,
    Int16,
    Int32,
    Int64,
    Message,
    String,
    Struct,
)


class AddPartitionsToTxnTopic(Struct):
    name: String = ""
    partitions: list[Int32] = []


class AddPartitionsToTxnTransaction(Struct):
    transactional_id: String = ""
    producer_id: Int64 = 0
    producer_epoch: Int16 = 0
    verify_only: Bool = False
    topics: list[AddPartitionsToTxnTopic] = []


class AddPartitionsToTxnRequest(Message, api_key=24, versions="0-5", flexible="3+"):
    transactions: Annotated[list[AddPartitionsToTxnTransaction], "4+"] = []
    v3_and_below_transactional_id: Annotated[String, "0-3"] = ""
    v3_and_below_producer_id: Annotated[Int64, "0-3"] = 0
    v3_and_below_producer_epoch: Annotated[Int16, "0-3"] = 0
    v3_and_below_topics: Annotated[list[AddPartitionsToTxnTopic], "0-3"] = []


class AddPartitionsToTxnPartitionResult(Struct):
    partition_index: Int32 = 0
    partition_error_code: Int16 = 0


class AddPartitionsToTxnTopicResult(Struct):
    name: String = ""
    results_by_partition: list[AddPartitionsToTxnPartitionResult] = []


class AddPartitionsToTxnResult(Struct):
    transactional_id: String = ""
    topic_results: list[AddPartitionsToTxnTopicResult] = []


class AddPartitionsToTxnResponse(Message, api_key=24, versions="0-5", flexible="3+"):
    throttle_time_ms: Int32 = 0
    error_code: Annotated[Int16, "4+"] = 0
    results_by_transaction: Annotated[list[AddPartitionsToTxnResult], "4+"] = []
    results_by_topic_v3_and_below: Annotated[list[AddPartitionsToTxnTopicResult], "0-3"] = []
