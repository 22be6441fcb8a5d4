"""DescribeClientQuotas (API key 48): the quotas that a filter matches. KIP-546."""

from __future__ import annotations

from anabranch.core.wire.schema import (
    Bool,
    Float64,
    Int8,
    Int16,
    Int32,
    Message,
    NullableString,
    String,
    Struct,
)


class ComponentData(Struct):
    entity_type: String = ""
    match_type: Int8 = 0
    match: NullableString = ""


class DescribeClientQuotasRequest(Message, api_key=48, versions="0-1", flexible="1+"):
    components: list[ComponentData] = []
    strict: Bool = False


class EntityData(Struct):
    entity_type: String = ""
    entity_name: NullableString = ""


class ValueData(Struct):
    key: String = ""
    value: Float64 = 0.0


class EntryData(Struct):
    entity: list[EntityData] = []
    values: list[ValueData] = []


class DescribeClientQuotasResponse(Message, api_key=48, versions="0-1", flexible="1+"):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: NullableString = ""
    entries: list[EntryData] | None = []
