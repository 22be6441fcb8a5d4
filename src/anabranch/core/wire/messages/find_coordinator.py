"""FindCoordinator (API key 10): which broker coordinates a group or a transaction. KIP-699."""

from __future__ import annotations

from typing import Annotated

from anabranch.core.wire.schema import (
    Int8,
    Int16,
    Int32,
    Message,
    NullableString,
    String,
    Struct,
)


class FindCoordinatorRequest(Message, api_key=10, versions="0-6", flexible="3+"):
    key: Annotated[String, "0-3"] = ""
    key_type: Annotated[Int8, "1+"] = 0
    coordinator_keys: Annotated[list[String], "4+"] = []


class Coordinator(Struct):
    key: Annotated[String, "4+"] = ""
    node_id: Annotated[Int32, "4+"] = 0
    host: Annotated[String, "4+"] = ""
    port: Annotated[Int32, "4+"] = 0
    error_code: Annotated[Int16, "4+"] = 0
    error_message: Annotated[NullableString, "4+"] = ""


class FindCoordinatorResponse(Message, api_key=10, versions="0-6", flexible="3+"):
    throttle_time_ms: Annotated[Int32, "1+"] = 0
    error_code: Annotated[Int16, "0-3"] = 0
    error_message: Annotated[NullableString, "1-3"] = ""
    node_id: Annotated[Int32, "0-3"] = 0
    host: Annotated[String, "0-3"] = ""
    port: Annotated[Int32, "0-3"] = 0
    coordinators: Annotated[list[Coordinator], "4+"] = []
