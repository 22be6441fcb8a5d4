"""DeleteTopics (API key 20), by name or topic id. KIP-4, KIP-516."""

from __future__ import annotations

from typing import Annotated

from anabranch.core.types import ZERO_TOPIC_ID
from anabranch.core.wire.schema import (
    Int16,
    Int32,
    Message,
    NullableString,
    String,
    Struct,
    TopicUuid,
)


class DeleteTopicState(Struct):
    name: Annotated[NullableString, "6+"] = None
    topic_id: Annotated[TopicUuid, "6+"] = ZERO_TOPIC_ID


class DeleteTopicsRequest(Message, api_key=20, versions="1-6", flexible="4+"):
    topics: Annotated[list[DeleteTopicState], "6+"] = []
    topic_names: Annotated[list[String], "0-5"] = []
    timeout_ms: Int32 = 0


class DeletableTopicResult(Struct):
    name: Annotated[NullableString, "nullable 6+"] = ""
    topic_id: Annotated[TopicUuid, "6+"] = ZERO_TOPIC_ID
    error_code: Int16 = 0
    error_message: Annotated[NullableString, "5+"] = None


class DeleteTopicsResponse(Message, api_key=20, versions="1-6", flexible="4+"):
    throttle_time_ms: Int32 = 0
    responses: list[DeletableTopicResult] = []
