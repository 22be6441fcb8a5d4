"""ListConfigResources (API key 74; version 0 lists client metrics alone). KIP-714, KIP-1142."""

from __future__ import annotations

from typing import Annotated

from anabranch.core.wire.schema import Int8, Int16, Int32, Message, String, Struct


class ListConfigResourcesRequest(Message, api_key=74, versions="0-1", flexible="0+"):
    resource_types: Annotated[list[Int8], "1+"] = []


class ConfigResource(Struct):
    resource_name: String = ""
    resource_type: Annotated[Int8, "1+"] = 16


class ListConfigResourcesResponse(Message, api_key=74, versions="0-1", flexible="0+"):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    config_resources: list[ConfigResource] = []
