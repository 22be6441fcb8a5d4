"""AlterPartition (API key 56): a leader changes the in-sync replicas. KIP-497, KIP-704, KIP-903."""

from __future__ import annotations

from typing import Annotated

from anabranch.core.types import ZERO_TOPIC_ID
from anabranch.core.wire.schema import (
    Int8,
    Int16,
    Int32,
    Int64,
    Message,
    Struct,
    TopicUuid,
)


class BrokerState(Struct):
    broker_id: Annotated[Int32, "3+"] = 0
    broker_epoch: Annotated[Int64, "3+"] = -1


class AlterPartitionRequestPartitionData(Struct):
    partition_index: Int32 = 0
    leader_epoch: Int32 = 0
    new_isr: Annotated[list[Int32], "0-2"] = []
    new_isr_with_epochs: Annotated[list[BrokerState], "3+"] = []
    leader_recovery_state: Int8 = 0
    partition_epoch: Int32 = 0


class AlterPartitionRequestTopicData(Struct):
    topic_id: TopicUuid = ZERO_TOPIC_ID
    partitions: list[AlterPartitionRequestPartitionData] = []


class AlterPartitionRequest(Message, api_key=56, versions="2-3", flexible="0+"):
    broker_id: Int32 = 0
    broker_epoch: Int64 = -1
    topics: list[AlterPartitionRequestTopicData] = []


class AlterPartitionResponsePartitionData(Struct):
    partition_index: Int32 = 0
    error_code: Int16 = 0
    leader_id: Int32 = 0
    leader_epoch: Int32 = 0
    isr: list[Int32] = []
    leader_recovery_state: Int8 = 0
    partition_epoch: Int32 = 0


class AlterPartitionResponseTopicData(Struct):
    topic_id: TopicUuid = ZERO_TOPIC_ID
    partitions: list[AlterPartitionResponsePartitionData] = []


class AlterPartitionResponse(Message, api_key=56, versions="2-3", flexible="0+"):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    topics: list[AlterPartitionResponseTopicData] = []
