"""The demo's act with a second cluster: the flights are mirrored, and a group goes on there.

What: one broker as the second cluster, the mirror in the demo's own Spark session, and readers of
both ends through confluent-kafka. The mirror writes exactly once: the markers of its transactions
lie between the records, so a group's offsets there may be larger than those of here.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any, NamedTuple

import click
from confluent_kafka import Consumer, KafkaError, TopicPartition

from anabranch.cli.demo.acts import (
    BATCH_MESSAGES,
    PARTITIONS,
    POLL_SECONDS,
    QUIET,
    WAIT_SECONDS,
)
from anabranch.core.sentences import number_of

if TYPE_CHECKING:
    from anabranch.core.mirror.config import Config

GROUP = "dashboards"
WAVE_SECONDS = 2.5
"""A wave of tasks; a fast machine needs one, a slow one some."""
REMOTE = "first.{}"
"""What a topic is called in the second cluster."""

Rest = dict[int, list[tuple[bytes | None, bytes | None]]]
"""Partition -> key and value of each record that a group has still to read."""


class Mirrored(NamedTuple):
    """Where the group is, here and there, and how long mirroring took."""

    here: dict[int, int]
    there: dict[int, int]
    seconds: float


def mirror(spark: Any, first: str, second: str, topic: str) -> Mirrored:
    """Mirror a topic of which `GROUP` has read a half, until nothing is left to mirror."""
    from anabranch.core.mirror.config import read_config

    here = read_half(first, topic)
    config = read_config(keys(first, second, topic))
    begin = time.perf_counter()
    there = asyncio.run(_mirrored(spark, config))
    seconds = time.perf_counter() - begin
    return Mirrored(here, {partition: there[partition] for partition in here}, seconds)


def keys(first: str, second: str, topic: str) -> dict[str, str]:
    """An mm2.properties of MirrorMaker 2: two clusters, one flow, exactly once."""
    factors = ("", "offset.storage.", "checkpoints.topic.")
    return {
        "clusters": "first, second",
        "first.bootstrap.servers": first,
        "second.bootstrap.servers": second,
        "first->second.enabled": "true",
        "topics": topic,
        "groups": GROUP,
        "first.consumer.isolation.level": "read_committed",
        "second.exactly.once.source.support": "enabled",
        "emit.heartbeats.enabled": "false",
        "emit.offset-syncs.enabled": "false",
        **{f"{each}replication.factor": "1" for each in factors},
    }


async def _mirrored(spark: Any, config: Config) -> dict[int, int]:
    from anabranch.pipelines.mirror.driver import run_mirror
    from anabranch.pipelines.mirror.lag import flow_lag
    from anabranch.pipelines.mirror.translation import translated

    (flow,), told = config.flows, list[str]()
    until = time.monotonic() + WAIT_SECONDS
    while True:
        await run_mirror(
            spark, config, tell=told.append, stop=asyncio.Event(), most_waves=1,
            wave_seconds=WAVE_SECONDS,
        )  # fmt: skip
        if (left := (await flow_lag(flow)).records) == 0:
            break
        if time.monotonic() > until:
            why = told[-1] if told else "it was too slow"
            raise click.ClickException(f"not mirrored: {number_of(left, 'record')}: {why}")
    found = await translated(flow, GROUP)
    return {each.partition: each.downstream for each in found.offsets}


def read_half(bootstrap: str, topic: str) -> dict[int, int]:
    """Commit offsets for `GROUP`, as if it had read a half of each partition."""
    consumer = _consumer(bootstrap)
    try:
        half = {}
        for partition in range(PARTITIONS):
            _, end = consumer.get_watermark_offsets(TopicPartition(topic, partition), WAIT_SECONDS)
            half[partition] = end // 2
        places = [TopicPartition(topic, *each) for each in half.items()]
        consumer.commit(offsets=places, asynchronous=False)
        return half
    finally:
        consumer.close()


def rest_of(bootstrap: str, topic: str, offsets: dict[int, int]) -> Rest:
    """All committed records from these offsets on."""
    consumer = _consumer(bootstrap)
    consumer.assign([TopicPartition(topic, *each) for each in offsets.items()])
    found: Rest = {partition: [] for partition in offsets}
    left, until = set(offsets), time.monotonic() + WAIT_SECONDS
    try:
        while left:
            for message in consumer.consume(BATCH_MESSAGES, timeout=POLL_SECONDS):
                error, partition = message.error(), message.partition()
                assert partition is not None
                if error is None:
                    found[partition].append((message.key(), message.value()))
                elif error.code() == KafkaError._PARTITION_EOF:
                    left.discard(partition)
            if time.monotonic() > until:
                raise click.ClickException(f"{topic} could not be read in time")
    finally:
        consumer.close()
    return found


def _consumer(bootstrap: str) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": GROUP,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
            **QUIET,
        }
    )
