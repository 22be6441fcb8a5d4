"""A transaction that hangs: a partition holds it open, and no coordinator knows of it.

Why: until KIP-890 a late batch could leave one behind, and read_committed readers stop there until
an administrator aborts it; an application's monitoring wants to be tested against that. How: with
`transaction.partition.verification.enable` off for a moment, a batch of a producer of our own is
taken as an old client's. Not here: the partition's side (`core.broker.verifying`).
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, NamedTuple

from anabranch.client.admin import ConfigOperation, ResourceKind, alter_configs
from anabranch.core.errors import ApiError, ErrorCode
from anabranch.core.wire.messages.init_producer_id import InitProducerIdRequest
from anabranch.core.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from anabranch.core.wire.records import Record, build_batch
from anabranch.testing.queries import check_topic

if TYPE_CHECKING:
    from anabranch.client.cluster import Cluster

SETTING = "transaction.partition.verification.enable"
OLD_VERSION = 9
"""Of Produce: its clients tell the coordinator themselves which partitions take part."""
NAME = "anabranch-hanging"
AGAIN_SECONDS = 0.02
"""Brokers learn of a setting within a few milliseconds."""


class FoundTransaction(NamedTuple):
    """The transaction as `anabranch transactions find-hanging` shows it."""

    topic: str
    partition: int
    producer_id: int
    producer_epoch: int
    start_offset: int


async def hang(cluster: Cluster, topic: str, partition: int, value: bytes) -> FoundTransaction:
    """Begin a transaction with one record, of which only the partition knows."""
    await check_topic(cluster, topic)
    response = await cluster.send(InitProducerIdRequest(transactional_id=None))
    if response.error_code:
        raise ApiError(ErrorCode(response.error_code))
    producer_id = response.producer_id
    await _switch(cluster, ConfigOperation.SET, "false")
    try:
        offset = await cluster.retrying(
            lambda: _first_record(cluster, topic, partition, producer_id, value)
        )
    finally:
        await _switch(cluster, ConfigOperation.DELETE, None)
    return FoundTransaction(topic, partition, producer_id, 0, offset)


async def _switch(cluster: Cluster, operation: ConfigOperation, text: str | None) -> None:
    await alter_configs(cluster, ResourceKind.BROKER, "", [(operation, SETTING, text)])


async def _first_record(
    cluster: Cluster, topic: str, partition: int, producer_id: int, value: bytes
) -> int:
    while True:
        connection = await cluster.connection_to(await cluster.leader(topic, partition))
        answer = await connection.send(_request(topic, partition, producer_id, value), OLD_VERSION)
        (told,) = answer.responses[0].partition_responses
        if told.error_code == ErrorCode.NONE:
            return int(told.base_offset)
        if told.error_code not in (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.INVALID_TXN_STATE,
                                   ErrorCode.INVALID_PRODUCER_ID_MAPPING):  # fmt: skip
            raise ApiError(ErrorCode(told.error_code), told.error_message or "")
        await asyncio.sleep(AGAIN_SECONDS)


def _request(topic: str, partition: int, producer_id: int, value: bytes) -> ProduceRequest:
    batch = build_batch(
        [Record(0, int(time.time() * 1000), None, value)],
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=0,
        transactional=True,
    )
    data = PartitionProduceData(index=partition, records=batch)
    return ProduceRequest(
        transactional_id=NAME,
        acks=-1,
        timeout_ms=30_000,
        topic_data=[TopicProduceData(name=topic, partition_data=[data])],
    )


async def end(cluster: Cluster, hanging: FoundTransaction) -> None:
    """Abort it, unless that was done."""
    from anabranch.client import partition_producers, transactions

    place = hanging.topic, hanging.partition
    for each in await partition_producers.producers(cluster, [place]):
        if each.producer_id == hanging.producer_id and each.start_offset == hanging.start_offset:
            await transactions.abort_at(cluster, place, each.start_offset)
