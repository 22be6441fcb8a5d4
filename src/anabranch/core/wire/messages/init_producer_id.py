"""InitProducerId (API key 22): a producer id and epoch. KIP-98, KIP-360, KIP-939."""

from __future__ import annotations

from typing import Annotated

from anabranch.core.wire.schema import (
    Int16,
    Int32,
    Int64,
    Message,
    NullableString,
)


class InitProducerIdRequest(Message, api_key=22, versions="0-5", flexible="2+"):
    transactional_id: NullableString = ""
    transaction_timeout_ms: Int32 = 0
    producer_id: Annotated[Int64, "3+"] = -1
    producer_epoch: Annotated[Int16, "3+"] = -1


class InitProducerIdResponse(Message, api_key=22, versions="0-5", flexible="2+"):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    producer_id: Int64 = -1
    producer_epoch: Int16 = 0
