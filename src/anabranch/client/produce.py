"""Sending whole batches to the leaders of their partitions."""

from __future__ import annotations

from typing import NamedTuple

from anabranch.client.cluster import Cluster, check
from anabranch.client.connection import Connection
from anabranch.core.partition.protocol import ACKS_ALL
from anabranch.core.types import Buffer
from anabranch.core.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)

BY_NAME = 12
"""The newest version that names topics; later ones carry ids, which this client has no use for.
From it on, a batch adds its partition to the transaction by itself (KIP-890)."""
BEFORE_IMPLICIT = 11
"""The newest version in which a batch's partition must be in the transaction already."""
ANSWER_GRACE_SECONDS = 10.0
"""A broker answers a request that ran out of time by itself; this is its time to do so."""


class Produced(NamedTuple):
    """Where a batch landed: its first offset (-1 with acks=0) and the time that the log gave it."""

    base_offset: int
    log_append_time_ms: int


async def produce(
    cluster: Cluster,
    topic: str,
    partition: int,
    batch: Buffer,
    *,
    acks: int = ACKS_ALL,
    timeout_ms: int = 30_000,
) -> Produced:
    """Send one record batch and wait for its acknowledgement (none with acks=0).

    Tried again while that can help; a batch without a producer id may then be written twice, as
    by every Kafka client that is not idempotent. Raises ApiError or ConnectionLost.
    """

    async def attempt() -> Produced:
        connection = await cluster.connection_to(await cluster.leader(topic, partition))
        return await produce_on(
            connection, topic, partition, batch, acks=acks, timeout_ms=timeout_ms
        )

    return await cluster.retrying(attempt)


async def produce_on(
    connection: Connection,
    topic: str,
    partition: int,
    batch: Buffer,
    *,
    acks: int = ACKS_ALL,
    timeout_ms: int = 30_000,
    transactional_id: str | None = None,
    newest: int = BY_NAME,
) -> Produced:
    """One attempt, at a broker that should lead it; `newest` is the newest version to use. Raises
    ApiError or ConnectionLost."""
    data = TopicProduceData(
        name=topic, partition_data=[PartitionProduceData(index=partition, records=batch)]
    )
    request = ProduceRequest(
        transactional_id=transactional_id, acks=acks, timeout_ms=timeout_ms, topic_data=[data]
    )
    version = min(newest, connection.version_for(ProduceRequest.api_key))
    if acks == 0:
        await connection.send_unanswered(request, version)
        return Produced(-1, -1)
    response: ProduceResponse = await connection.send(
        request, version, timeout_seconds=timeout_ms / 1000 + ANSWER_GRACE_SECONDS
    )
    result = response.responses[0].partition_responses[0]
    check(result.error_code, result.error_message)
    return Produced(result.base_offset, result.log_append_time_ms)
