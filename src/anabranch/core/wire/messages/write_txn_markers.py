"""WriteTxnMarkers (API key 27): a transaction's coordinator ends it in partitions.

Source: KIP-98, KIP-1228 (version 2: how the transaction was begun).
"""

from __future__ import annotations

from typing import Annotated

from anabranch.core.wire.schema import (
    Bool,
    Int8,
    Int16,
    Int32,
    Int64,
    Message,
    String,
    Struct,
)


class WritableTxnMarkerTopic(Struct):
    name: String = ""
    partition_indexes: list[Int32] = []


class WritableTxnMarker(Struct):
    producer_id: Int64 = 0
    producer_epoch: Int16 = 0
    transaction_result: Bool = False
    topics: list[WritableTxnMarkerTopic] = []
    coordinator_epoch: Int32 = 0
    transaction_version: Annotated[Int8, "2+"] = 0


class WriteTxnMarkersRequest(Message, api_key=27, versions="1-2", flexible="1+"):
    markers: list[WritableTxnMarker] = []


class WritableTxnMarkerPartitionResult(Struct):
    partition_index: Int32 = 0
    error_code: Int16 = 0


class WritableTxnMarkerTopicResult(Struct):
    name: String = ""
    partitions: list[WritableTxnMarkerPartitionResult] = []


class WritableTxnMarkerResult(Struct):
    producer_id: Int64 = 0
    topics: list[WritableTxnMarkerTopicResult] = []


class WriteTxnMarkersResponse(Message, api_key=27, versions="1-2", flexible="1+"):
    markers: list[WritableTxnMarkerResult] = []
