"""OffsetFetch (API key 9): the offsets that groups have stored, many groups at once from version 8.

Source: KIP-709.
"""

from __future__ import annotations

from typing import Annotated

from anabranch.core.wire.schema import (
    Bool,
    Int16,
    Int32,
    Int64,
    Message,
    NullableString,
    String,
    Struct,
)


class OffsetFetchRequestTopic(Struct):
    name: Annotated[String, "0-7"] = ""
    partition_indexes: Annotated[list[Int32], "0-7"] = []


class OffsetFetchRequestTopics(Struct):
    name: Annotated[String, "8-9"] = ""
    partition_indexes: Annotated[list[Int32], "8+"] = []


class OffsetFetchRequestGroup(Struct):
    group_id: Annotated[String, "8+"] = ""
    member_id: Annotated[NullableString, "9+"] = None
    member_epoch: Annotated[Int32, "9+"] = -1
    topics: Annotated[list[OffsetFetchRequestTopics] | None, "8+"] = []


class OffsetFetchRequest(Message, api_key=9, versions="1-9", flexible="6+"):
    group_id: Annotated[String, "0-7"] = ""
    topics: Annotated[list[OffsetFetchRequestTopic] | None, "0-7", "nullable 2-7"] = []
    groups: Annotated[list[OffsetFetchRequestGroup], "8+"] = []
    require_stable: Annotated[Bool, "7+"] = False


class OffsetFetchResponsePartition(Struct):
    partition_index: Annotated[Int32, "0-7"] = 0
    committed_offset: Annotated[Int64, "0-7"] = 0
    committed_leader_epoch: Annotated[Int32, "5-7"] = -1
    metadata: Annotated[NullableString, "0-7"] = ""
    error_code: Annotated[Int16, "0-7"] = 0


class OffsetFetchResponseTopic(Struct):
    name: Annotated[String, "0-7"] = ""
    partitions: Annotated[list[OffsetFetchResponsePartition], "0-7"] = []


class OffsetFetchResponsePartitions(Struct):
    partition_index: Annotated[Int32, "8+"] = 0
    committed_offset: Annotated[Int64, "8+"] = 0
    committed_leader_epoch: Annotated[Int32, "8+"] = -1
    metadata: Annotated[NullableString, "8+"] = ""
    error_code: Annotated[Int16, "8+"] = 0


class OffsetFetchResponseTopics(Struct):
    name: Annotated[String, "8-9"] = ""
    partitions: Annotated[list[OffsetFetchResponsePartitions], "8+"] = []


class OffsetFetchResponseGroup(Struct):
    group_id: Annotated[String, "8+"] = ""
    topics: Annotated[list[OffsetFetchResponseTopics], "8+"] = []
    error_code: Annotated[Int16, "8+"] = 0


class OffsetFetchResponse(Message, api_key=9, versions="1-9", flexible="6+"):
    throttle_time_ms: Annotated[Int32, "3+"] = 0
    topics: Annotated[list[OffsetFetchResponseTopic], "0-7"] = []
    error_code: Annotated[Int16, "2-7"] = 0
    groups: Annotated[list[OffsetFetchResponseGroup], "8+"] = []
