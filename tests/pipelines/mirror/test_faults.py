"""What goes wrong between two clusters is told with place and remedy, and the rest goes on."""

from __future__ import annotations

import asyncio

import pytest
from tests.pipelines.mirror.conftest import TwoClusters
from tests.pipelines.mirror.test_flows import until
from tests.pipelines.mirror.test_slot import EXACTLY_ONCE, MODES, batch, mirror, seen

from anabranch.client.admin import (
    ConfigOperation,
    ResourceKind,
    alter_configs,
    delete_records,
    delete_topic,
)
from anabranch.client.cluster import Cluster
from anabranch.core.wire.records import Record, build_batch
from anabranch.testing import LocalCluster


def admin(cluster, work):
    """Run `work(cluster)`."""

    async def run():
        async with Cluster(cluster.bootstrap_servers) as found:
            return await work(found)

    return asyncio.run(run())


def recreate(clusters, cluster, topic, partitions=1):
    """Delete a topic and create it again."""
    admin(cluster, lambda found: delete_topic(found, topic))
    cluster.create_topic(topic, partitions=partitions, config={"retention.ms": -1})


@pytest.mark.slow
@MODES
def test_a_topic_made_again_at_the_source_follows_the_old_records(clusters, more):
    topic = clusters.topic()
    clusters.produce(topic, 0, batch(0, 50))
    mirror(clusters, topic, more)
    recreate(clusters, clusters.east, topic)
    clusters.produce(topic, 0, batch(900, 5))
    (answer,) = mirror(clusters, topic, more)
    assert "deleted and created again at the source" in answer.notes[0]
    values = [each.value for each in clusters.read(clusters.west, f"east.{topic}")]
    assert values == [b"v%d" % each for each in (*range(50), *range(900, 905))]
    (answer,) = mirror(clusters, topic, more)
    assert answer.notes == [] and answer.records == 0


@pytest.mark.slow
@MODES
def test_a_topic_made_again_on_the_target_is_mirrored_again(clusters, more):
    topic = clusters.topic()
    clusters.produce(topic, 0, batch(0, 50))
    mirror(clusters, topic, more)
    recreate(clusters, clusters.west, f"east.{topic}")
    (answer,) = mirror(clusters, topic, more)
    assert "deleted and created again on the target" in answer.notes[0]
    assert len(clusters.read(clusters.west, f"east.{topic}")) == 50


@pytest.mark.slow
def test_retention_that_overtook_is_told_with_its_offsets(clusters):
    topic = clusters.topic()
    clusters.produce(topic, 0, batch(0, 20))
    mirror(clusters, topic, {})
    clusters.produce(topic, 0, batch(20, 20))
    admin(clusters.east, lambda found: delete_records(found, topic, {0: 30}))
    (answer,) = mirror(clusters, topic, {})
    assert f"{topic}-0: retention removed offsets 20 to 29" in answer.notes[0]
    values = [each.value for each in clusters.read(clusters.west, f"east.{topic}")]
    assert values == [b"v%d" % each for each in (*range(20), *range(30, 40))]


@pytest.mark.slow
@MODES
def test_a_record_beyond_the_targets_limit_stops_its_partition_only(clusters, more):
    topic = clusters.topic(partitions=2)
    large = build_batch([Record(0, 1, b"k", b"small"), Record(1, 1, b"k", b"x" * 5_000)])
    mirror(clusters, topic, more, seconds=0.5)

    async def limit(found):
        change = [(ConfigOperation.SET, "max.message.bytes", "1000")]
        await alter_configs(found, ResourceKind.TOPIC, f"east.{topic}", change)

    admin(clusters.west, limit)
    clusters.produce(topic, 0, large)
    clusters.produce(topic, 1, batch(0, 30))
    (answer,) = mirror(clusters, topic, more, seconds=5.0)
    assert list(answer.faults) == [f"{topic}-0"]
    assert "offset 1 makes a batch of" in answer.faults[f"{topic}-0"]
    assert "Raise max.message.bytes" in answer.faults[f"{topic}-0"]
    assert len(clusters.read(clusters.west, f"east.{topic}", 1)) == 30
    assert [each.value for each in clusters.read(clusters.west, f"east.{topic}", 0)] == [b"small"]


@pytest.mark.slow
@MODES
def test_what_the_target_refuses_stops_its_partition_only(clusters, more):
    topic, other = clusters.topic(), clusters.topic()
    names = f"{topic}, {other}"
    mirror(clusters, names, more, seconds=0.5)

    async def limit(found):
        change = [(ConfigOperation.SET, "message.timestamp.before.max.ms", "1000")]
        await alter_configs(found, ResourceKind.TOPIC, f"east.{topic}", change)

    admin(clusters.west, limit)
    clusters.produce(topic, 0, batch(0, 30))
    clusters.produce(other, 0, batch(0, 30))
    (answer,) = mirror(clusters, names, more, seconds=6.0)
    assert list(answer.faults) == [f"{topic}-0"]
    assert "INVALID_TIMESTAMP" in answer.faults[f"{topic}-0"]
    values = {each.value for each in clusters.read(clusters.west, f"east.{other}")}
    assert values == {b"v%d" % each for each in range(30)}


def test_a_batch_beyond_the_limit_is_cut(clusters):
    topic = clusters.topic()
    mirror(clusters, topic, {}, seconds=0.5)

    async def limit(found):
        change = [(ConfigOperation.SET, "max.message.bytes", "2000")]
        await alter_configs(found, ResourceKind.TOPIC, f"east.{topic}", change)

    admin(clusters.west, limit)
    clusters.produce(topic, 0, batch(0, 500))
    (answer,) = mirror(clusters, topic, {})
    assert answer.faults == {} and answer.opened == {"too large": 1}
    assert len(clusters.read(clusters.west, f"east.{topic}")) == 500


@pytest.mark.slow
def test_a_topic_that_goes_meanwhile_stops_alone(clusters):
    topic, other = clusters.topic(), clusters.topic()
    clusters.produce(topic, 0, batch(0, 10))
    clusters.produce(other, 0, batch(0, 10))

    def delete():
        admin(clusters.east, lambda found: delete_topic(found, topic))

    (answer,) = mirror(clusters, f"{topic}, {other}", {}, seconds=14.0, during=delete)
    assert f"{topic}-0" in answer.faults and "deleted" in answer.faults[f"{topic}-0"]
    assert f"{other}-0" not in answer.faults
    assert seen(clusters.read(clusters.west, f"east.{other}")) == seen(
        clusters.read(clusters.east, other)
    )


@pytest.mark.slow
def test_a_second_mirror_with_the_same_name_fences_the_first(clusters):
    topic = clusters.topic()
    clusters.produce(topic, 0, batch(0, 100))
    answers = {}

    def second():
        answers["second"] = mirror(clusters, topic, EXACTLY_ONCE, seconds=3.0)

    def third():
        clusters.produce(topic, 0, batch(100, 50))

    def both():
        second()
        third()

    (first,) = mirror(clusters, topic, EXACTLY_ONCE, seconds=8.0, during=both)
    assert any("is fenced" in each for each in first.notes)
    mirror(clusters, topic, EXACTLY_ONCE)
    values = [each.value for each in clusters.read(clusters.west, f"east.{topic}")]
    assert values == [b"v%d" % each for each in range(150)]


@pytest.mark.slow
def test_records_that_the_source_lost_are_told_and_what_came_instead_is_mirrored(clusters):
    config = {"unclean.leader.election.enable": "true", "min.insync.replicas": 1}
    with LocalCluster(brokers=2, processes=True, config=config) as east:
        pair = TwoClusters(east, clusters.west)
        east.create_topic("cut", partitions=1, replication_factor=2, config={"retention.ms": -1})
        leader = east.leader("cut")
        other = ({each.broker_id for each in east.brokers} - {leader}).pop()
        pair.produce("cut", 0, batch(0, 10))
        east.wait_in_sync("cut")
        east.kill(other)
        pair.produce("cut", 0, batch(10, 10))
        mirror(pair, "cut", {})
        east.kill(leader)
        east.start_broker(other)
        until(lambda: east.leader("cut") == other)
        pair.produce("cut", 0, batch(500, 40))
        (answer,) = mirror(pair, "cut", {}, seconds=6.0)
        assert "cut-0: the source lost offsets 10 to 19" in answer.notes[0]
        values = [each.value for each in pair.read(clusters.west, "east.cut")]
        assert values == [b"v%d" % each for each in (*range(20), *range(500, 540))]
