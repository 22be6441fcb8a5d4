"""EndTxn (API key 26): commit or abort a transaction. KIP-98, KIP-890."""

from __future__ import annotations

from typing import Annotated

from anabranch.core.wire.schema import (
    Bool,
    Int16,
    Int32,
    Int64,
    Message,
    String,
)


class EndTxnRequest(Message, api_key=26, versions="0-5", flexible="3+"):
    transactional_id: String = ""
    producer_id: Int64 = 0
    producer_epoch: Int16 = 0
    committed: Bool = False


class EndTxnResponse(Message, api_key=26, versions="0-5", flexible="3+"):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    producer_id: Annotated[Int64, "5+"] = -1
    producer_epoch: Annotated[Int16, "5+"] = -1
