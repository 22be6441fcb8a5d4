"""A whole mirror on Spark between two clusters: topics, records, checkpoints, groups, heartbeats."""

from __future__ import annotations

import asyncio

import pytest
from confluent_kafka.admin import AdminClient, ConfigResource, NewPartitions
from tests.pipelines.mirror.test_slot import EXACTLY_ONCE, MODES, batch, seen

from anabranch.client.cluster import Cluster
from anabranch.client.groups import commit_offsets, committed_offsets
from anabranch.core.mirror.formats import (
    read_checkpoint,
    read_heartbeat,
    read_position,
    read_sync,
)
from anabranch.pipelines.mirror.driver import run_mirror
from anabranch.pipelines.mirror.driver_flow import Replaced


def run(clusters, spark, /, *, waves=1, seconds=3.0, during=None, **more):
    """Mirror for some waves; what it has done, and what it told."""
    told = []
    config = clusters.config(**more)

    async def work():
        stop = asyncio.Event()
        job = asyncio.create_task(
            run_mirror(
                spark, config, tell=told.append, stop=stop, most_waves=waves, wave_seconds=seconds
            )
        )
        if during is not None:
            await asyncio.to_thread(during)
        return await job

    return asyncio.run(work()), told


def commit(cluster, group, offsets):
    """Commit offsets of a group without members."""

    async def work():
        async with Cluster(cluster.bootstrap_servers) as found:
            await commit_offsets(found, group, offsets)

    asyncio.run(work())


def committed(cluster, group):
    """What a group has committed."""

    async def work():
        async with Cluster(cluster.bootstrap_servers) as found:
            return await committed_offsets(found, group)

    return asyncio.run(work())


@pytest.mark.slow
@MODES
def test_a_mirror_on_spark(clusters, spark, more):
    topic = clusters.topic(partitions=3, config={"retention.ms": 10**15})
    for partition in range(3):
        clusters.produce(topic, partition, batch(0, 2_000), batch(2_000, 5))
    commit(clusters.east, f"g-{topic}", {(topic, 0): 1_234, (topic, 1): 2_005})
    totals, told = run(
        clusters, spark, topics=topic, groups=f"g-{topic}", waves=2,
        **{"sync.group.offsets.enabled": "true"}, **more,
    )  # fmt: skip
    assert told == []
    assert totals.records >= 3 * 2_005
    remote = f"east.{topic}"
    for partition in range(3):
        target = clusters.read(clusters.west, remote, partition)
        assert seen(target) == seen(clusters.read(clusters.east, topic, partition))
    target = clusters.read(clusters.west, remote, 0)
    there = committed(clusters.west, f"g-{topic}")
    following = next(each for each in target if each.offset >= there[remote, 0])
    assert following.value == b"v1234"
    assert there[remote, 1] == clusters.read(clusters.west, remote, 1)[-1].offset + 1

    checkpoints = [read_checkpoint(each.key, each.value) for each in
                   clusters.read(clusters.west, "east.checkpoints.internal")]  # fmt: skip
    mine = {(each.topic, each.partition): each for each in checkpoints if
            each.group == f"g-{topic}"}  # fmt: skip
    assert mine[remote, 0].upstream == 1_234 and mine[remote, 0].downstream == there[remote, 0]
    syncs = [read_sync(each.key, each.value) for each in
             clusters.read(clusters.east, "mm2-offset-syncs.west.internal")]  # fmt: skip
    assert {each.partition for each in syncs if each.topic == topic} == {0, 1, 2}
    beats = [read_heartbeat(each.key, each.value) for each in
             clusters.read(clusters.west, "heartbeats")]  # fmt: skip
    assert ("east", "west") in {(each.source, each.target) for each in beats}
    positions = [
        read_position(each.key, each.value)
        for partition in range(2)
        for each in clusters.read(clusters.west, "mm2-offsets.east.internal", partition)
    ]
    assert ("east", topic, 0, 2_004) in positions


@pytest.mark.slow
def test_settings_and_new_partitions_follow(clusters, spark):
    topic = clusters.topic(config={"retention.ms": 10**15, "max.message.bytes": 2_000_000})
    clusters.produce(topic, 0, batch(0, 5))
    run(clusters, spark, topics=topic)
    admin = AdminClient({"bootstrap.servers": clusters.west.bootstrap_servers})
    resource = ConfigResource("topic", f"east.{topic}")
    configs = admin.describe_configs([resource])[resource].result()
    assert configs["max.message.bytes"].value == "2000000"
    assert configs["retention.ms"].value == str(10**15)
    source = AdminClient({"bootstrap.servers": clusters.east.bootstrap_servers})
    new = NewPartitions(topic, 2)
    source.create_partitions([new])[topic].result()
    clusters.produce(topic, 1, batch(0, 3))
    run(clusters, spark, topics=topic)
    assert len(clusters.read(clusters.west, f"east.{topic}", 1)) == 3


@pytest.mark.slow
def test_exactly_once_when_the_driver_is_killed_again_and_again(clusters, spark):
    topic = clusters.topic(partitions=2)
    for each in range(4):
        for partition in range(2):
            clusters.produce(topic, partition, batch(each * 500, 500))
        run(clusters, spark, seconds=1.0, topics=topic, **EXACTLY_ONCE)
    for partition in range(2):
        values = [each.value for each in clusters.read(clusters.west, f"east.{topic}", partition)]
        assert values == [b"v%d" % each for each in range(2_000)]


def test_both_ends_the_same_cluster_is_refused(clusters, spark):
    with pytest.raises(Exception, match="lead to the same cluster"):
        run(clusters, spark, **{"west.bootstrap.servers": clusters.east.bootstrap_servers})


@pytest.mark.slow
@MODES
def test_a_mirror_leaves_each_flow_that_another_one_begins_and_ends_without_any(
    clusters, spark, more
):
    """Else each of its waves would fence the other's producers, and so on for ever."""
    out, back = clusters.topic(), clusters.topic(cluster=clusters.west)
    clusters.produce(out, 0, batch(0, 20))
    both = {"east->west.topics": out, "west->east.topics": back, "west->east.enabled": "true"}
    told, waves = [], []

    def of(flow):
        return clusters.config(**more, **{
            "topics": out if flow.startswith("east") else back, "east->west.enabled": "false",
            f"{flow}.enabled": "true",
        })  # fmt: skip

    async def until(condition):
        async with asyncio.timeout(120):
            while not condition():  # noqa: ASYNC110 - of lists that others fill
                await asyncio.sleep(0.1)

    def mirror(config, tell, **how):
        return run_mirror(spark, config, tell=tell, stop=asyncio.Event(), wave_seconds=1.0, **how)

    async def work():
        first = asyncio.create_task(
            mirror(clusters.config(**more, **both), told.append, progress=waves.append)
        )
        try:
            await until(lambda: waves)
            notes = []
            await mirror(of("east->west"), notes.append, most_waves=4)
            await until(lambda: any("east->west: another mirror" in each for each in told))
            await asyncio.to_thread(clusters.produce, back, 0, batch(0, 30), cluster=clusters.west)
            goes_on = len(waves) + 3
            await until(lambda: len(waves) > goes_on)
            await mirror(of("west->east"), notes.append, most_waves=4)
            with pytest.raises(Replaced, match="Another mirror has these flows"):
                await asyncio.wait_for(first, 120)
            return notes
        finally:
            first.cancel()

    notes = asyncio.run(work())
    assert not [each for each in notes if "another mirror" in each]
    assert len(clusters.read(clusters.west, f"east.{out}")) == 20
    assert len(clusters.read(clusters.east, f"west.{back}")) == 30
