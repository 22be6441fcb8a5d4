"""Metadata (API key 3): brokers, topics, leaders. KIP-430, KIP-516."""

from __future__ import annotations

from typing import Annotated

from anabranch.core.types import ZERO_TOPIC_ID
from anabranch.core.wire.schema import (
    Bool,
    Int16,
    Int32,
    Message,
    NullableString,
    String,
    Struct,
    TopicUuid,
)


class MetadataRequestTopic(Struct):
    topic_id: Annotated[TopicUuid, "10+"] = ZERO_TOPIC_ID
    name: Annotated[NullableString, "nullable 10+"] = ""


class MetadataRequest(Message, api_key=3, versions="0-13", flexible="9+"):
    topics: Annotated[list[MetadataRequestTopic] | None, "nullable 1+"] = []
    allow_auto_topic_creation: Annotated[Bool, "4+"] = True
    include_cluster_authorized_operations: Annotated[Bool, "8-10"] = False
    include_topic_authorized_operations: Annotated[Bool, "8+"] = False


class MetadataResponseBroker(Struct):
    node_id: Int32 = 0
    host: String = ""
    port: Int32 = 0
    rack: Annotated[NullableString, "1+"] = None


class MetadataResponsePartition(Struct):
    error_code: Int16 = 0
    partition_index: Int32 = 0
    leader_id: Int32 = 0
    leader_epoch: Annotated[Int32, "7+"] = -1
    replica_nodes: list[Int32] = []
    isr_nodes: list[Int32] = []
    offline_replicas: Annotated[list[Int32], "5+"] = []


class MetadataResponseTopic(Struct):
    error_code: Int16 = 0
    name: Annotated[NullableString, "nullable 12+"] = ""
    topic_id: Annotated[TopicUuid, "10+"] = ZERO_TOPIC_ID
    is_internal: Annotated[Bool, "1+"] = False
    partitions: list[MetadataResponsePartition] = []
    topic_authorized_operations: Annotated[Int32, "8+"] = -2147483648


class MetadataResponse(Message, api_key=3, versions="0-13", flexible="9+"):
    throttle_time_ms: Annotated[Int32, "3+"] = 0
    brokers: list[MetadataResponseBroker] = []
    cluster_id: Annotated[NullableString, "2+"] = None
    controller_id: Annotated[Int32, "1+"] = -1
    topics: list[MetadataResponseTopic] = []
    cluster_authorized_operations: Annotated[Int32, "8-10"] = -2147483648
    error_code: Annotated[Int16, "13+"] = 0
