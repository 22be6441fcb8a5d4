"""BrokerHeartbeat (API key 63): a broker is alive, and what it wants. KIP-631, KIP-858."""

from __future__ import annotations

from typing import Annotated

from anabranch.core.wire.schema import (
    Bool,
    Int16,
    Int32,
    Int64,
    Message,
    Uuid,
)


class BrokerHeartbeatRequest(Message, api_key=63, versions="0-1", flexible="0+"):
    broker_id: Int32 = 0
    broker_epoch: Int64 = -1
    current_metadata_offset: Int64 = 0
    want_fence: Bool = False
    want_shut_down: Bool = False
    offline_log_dirs: Annotated[list[Uuid], "1+", "tag 0"] = []


class BrokerHeartbeatResponse(Message, api_key=63, versions="0-1", flexible="0+"):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    is_caught_up: Bool = False
    is_fenced: Bool = True
    should_shut_down: Bool = False
