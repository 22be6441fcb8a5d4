"""BrokerRegistration (API key 62): a broker joins the cluster. KIP-631, KIP-858."""

from __future__ import annotations

from typing import Annotated

from anabranch.core.wire.schema import (
    ZERO_UUID,
    Bool,
    Int16,
    Int32,
    Int64,
    Message,
    NullableString,
    String,
    Struct,
    Uint16,
    Uuid,
)


class Listener(Struct):
    name: String = ""
    host: String = ""
    port: Uint16 = 0
    security_protocol: Int16 = 0


class Feature(Struct):
    name: String = ""
    min_supported_version: Int16 = 0
    max_supported_version: Int16 = 0


class BrokerRegistrationRequest(Message, api_key=62, versions="0-4", flexible="0+"):
    broker_id: Int32 = 0
    cluster_id: String = ""
    incarnation_id: Uuid = ZERO_UUID
    listeners: list[Listener] = []
    features: list[Feature] = []
    rack: NullableString = ""
    is_migrating_zk_broker: Annotated[Bool, "1+"] = False
    log_dirs: Annotated[list[Uuid], "2+"] = []
    previous_broker_epoch: Annotated[Int64, "3+"] = -1


class BrokerRegistrationResponse(Message, api_key=62, versions="0-4", flexible="0+"):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    broker_epoch: Int64 = -1
