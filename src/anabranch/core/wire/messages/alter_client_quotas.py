"""AlterClientQuotas (API key 49): quotas are set and removed. KIP-546."""

from __future__ import annotations

from anabranch.core.wire.schema import (
    Bool,
    Float64,
    Int16,
    Int32,
    Message,
    NullableString,
    String,
    Struct,
)


class EntityData(Struct):
    entity_type: String = ""
    entity_name: NullableString = ""


class OpData(Struct):
    key: String = ""
    value: Float64 = 0.0
    remove: Bool = False


class EntryData(Struct):
    entity: list[EntityData] = []
    ops: list[OpData] = []


class AlterClientQuotasRequest(Message, api_key=49, versions="0-1", flexible="1+"):
    entries: list[EntryData] = []
    validate_only: Bool = False


class AlteredEntryData(Struct):
    error_code: Int16 = 0
    error_message: NullableString = ""
    entity: list[EntityData] = []


class AlterClientQuotasResponse(Message, api_key=49, versions="0-1", flexible="1+"):
    throttle_time_ms: Int32 = 0
    entries: list[AlteredEntryData] = []
