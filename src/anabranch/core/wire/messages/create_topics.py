"""CreateTopics (API key 19). KIP-4, KIP-525, KIP-516."""

from __future__ import annotations

from typing import Annotated

from anabranch.core.types import ZERO_TOPIC_ID
from anabranch.core.wire.schema import (
    Bool,
    Int8,
    Int16,
    Int32,
    Message,
    NullableString,
    String,
    Struct,
    TopicUuid,
)


class CreatableReplicaAssignment(Struct):
    partition_index: Int32 = 0
    broker_ids: list[Int32] = []


class CreatableTopicConfig(Struct):
    name: String = ""
    value: NullableString = ""


class CreatableTopic(Struct):
    name: String = ""
    num_partitions: Int32 = 0
    replication_factor: Int16 = 0
    assignments: list[CreatableReplicaAssignment] = []
    configs: list[CreatableTopicConfig] = []


class CreateTopicsRequest(Message, api_key=19, versions="2-7", flexible="5+"):
    topics: list[CreatableTopic] = []
    timeout_ms: Int32 = 60000
    validate_only: Bool = False


class CreatableTopicConfigs(Struct):
    name: Annotated[String, "5+"] = ""
    value: Annotated[NullableString, "5+"] = ""
    read_only: Annotated[Bool, "5+"] = False
    config_source: Annotated[Int8, "5+"] = -1
    is_sensitive: Annotated[Bool, "5+"] = False


class CreatableTopicResult(Struct):
    name: String = ""
    topic_id: Annotated[TopicUuid, "7+"] = ZERO_TOPIC_ID
    error_code: Int16 = 0
    error_message: NullableString = ""
    topic_config_error_code: Annotated[Int16, "5+", "tag 0"] = 0
    num_partitions: Annotated[Int32, "5+"] = -1
    replication_factor: Annotated[Int16, "5+"] = -1
    configs: Annotated[list[CreatableTopicConfigs] | None, "5+"] = []


class CreateTopicsResponse(Message, api_key=19, versions="2-7", flexible="5+"):
    throttle_time_ms: Int32 = 0
    topics: list[CreatableTopicResult] = []
