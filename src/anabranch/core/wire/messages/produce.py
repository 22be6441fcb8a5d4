"""Produce (API key 0): a client appends record batches. KIP-98, KIP-467, KIP-951, KIP-516."""

from __future__ import annotations

from typing import Annotated

from anabranch.core.types import ZERO_TOPIC_ID
from anabranch.core.wire.schema import (
    Int16,
    Int32,
    Int64,
    Message,
    NullableRecords,
    NullableString,
    String,
    Struct,
    TopicUuid,
)


class PartitionProduceData(Struct):
    index: Int32 = 0
    records: NullableRecords = None


class TopicProduceData(Struct):
    name: Annotated[String, "0-12"] = ""
    topic_id: Annotated[TopicUuid, "13+"] = ZERO_TOPIC_ID
    partition_data: list[PartitionProduceData] = []


class ProduceRequest(Message, api_key=0, versions="3-13", flexible="9+"):
    transactional_id: NullableString = None
    acks: Int16 = 0
    timeout_ms: Int32 = 0
    topic_data: list[TopicProduceData] = []


class BatchIndexAndErrorMessage(Struct):
    batch_index: Annotated[Int32, "8+"] = 0
    batch_index_error_message: Annotated[NullableString, "8+"] = None


class LeaderIdAndEpoch(Struct, constant=True):
    leader_id: Annotated[Int32, "10+"] = -1
    leader_epoch: Annotated[Int32, "10+"] = -1


class PartitionProduceResponse(Struct):
    index: Int32 = 0
    error_code: Int16 = 0
    base_offset: Int64 = 0
    log_append_time_ms: Int64 = -1
    log_start_offset: Annotated[Int64, "5+"] = -1
    record_errors: Annotated[list[BatchIndexAndErrorMessage], "8+"] = []
    error_message: Annotated[NullableString, "8+"] = None
    current_leader: Annotated[LeaderIdAndEpoch, "10+", "tag 0"] = LeaderIdAndEpoch()


class TopicProduceResponse(Struct):
    name: Annotated[String, "0-12"] = ""
    topic_id: Annotated[TopicUuid, "13+"] = ZERO_TOPIC_ID
    partition_responses: list[PartitionProduceResponse] = []


class NodeEndpoint(Struct):
    node_id: Annotated[Int32, "10+"] = 0
    host: Annotated[String, "10+"] = ""
    port: Annotated[Int32, "10+"] = 0
    rack: Annotated[NullableString, "10+"] = None


class ProduceResponse(Message, api_key=0, versions="3-13", flexible="9+"):
    responses: list[TopicProduceResponse] = []
    throttle_time_ms: Int32 = 0
    node_endpoints: Annotated[list[NodeEndpoint], "10+", "tag 0"] = []
