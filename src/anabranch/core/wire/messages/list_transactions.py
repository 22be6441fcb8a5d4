"""ListTransactions (API key 66): ids of one coordinator. KIP-664, KIP-994, KIP-1152."""

from __future__ import annotations

from typing import Annotated

from anabranch.core.wire.schema import (
    Int16,
    Int32,
    Int64,
    Message,
    NullableString,
    String,
    Struct,
)


class ListTransactionsRequest(Message, api_key=66, versions="0-2", flexible="0+"):
    state_filters: list[String] = []
    producer_id_filters: list[Int64] = []
    duration_filter: Annotated[Int64, "1+"] = -1
    transactional_id_pattern: Annotated[NullableString, "2+"] = None


class TransactionState(Struct):
    transactional_id: String = ""
    producer_id: Int64 = 0
    transaction_state: String = ""


class ListTransactionsResponse(Message, api_key=66, versions="0-2", flexible="0+"):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    unknown_state_filters: list[String] = []
    transaction_states: list[TransactionState] = []
