"""Two flows in one mirror, groups that are followed, and diskless topics on the target."""

from __future__ import annotations

import time

import pytest
from tests.pipelines.mirror.test_driver import commit, committed, run
from tests.pipelines.mirror.test_slot import batch, mirror, seen


@pytest.mark.slow
def test_active_active_brings_each_record_to_the_other_side_once(clusters, spark):
    topic = clusters.topic()
    clusters.west.create_topic(topic, partitions=1, config={"retention.ms": -1})
    clusters.produce(topic, 0, batch(0, 40))
    clusters.produce(topic, 0, batch(500, 30), cluster=clusters.west)
    more = {"west->east.enabled": "true", "topics": f"{topic}, .*{topic}"}
    _, told = run(clusters, spark, waves=3, seconds=2.0, **more)
    assert told == []
    assert seen(clusters.read(clusters.west, f"east.{topic}")) == seen(
        clusters.read(clusters.east, topic)
    )
    assert seen(clusters.read(clusters.east, f"west.{topic}")) == seen(
        clusters.read(clusters.west, topic)
    )
    for cluster in (clusters.east, clusters.west):
        names = cluster.topics() if hasattr(cluster, "topics") else []
        assert not [each for each in names if each.count(".") > 1 and topic in each]


@pytest.mark.slow
def test_a_group_is_followed_within_a_second_or_so(clusters, spark):
    topic = clusters.topic()
    clusters.produce(topic, 0, batch(0, 100))
    group = f"g-{topic}"
    commit(clusters.east, group, {(topic, 0): 5})
    seconds = []

    def move():
        until(lambda: committed(clusters.west, group).get((f"east.{topic}", 0)) == 5)
        for offset in (30, 60, 20):
            commit(clusters.east, group, {(topic, 0): offset})
            begin = time.monotonic()
            until(
                lambda offset=offset: committed(clusters.west, group)[f"east.{topic}", 0] == offset
            )
            seconds.append(time.monotonic() - begin)

    run(
        clusters, spark, waves=3, seconds=8.0, during=move, topics=topic, groups=group,
        **{
            "sync.group.offsets.enabled": "true", "sync.group.offsets.continuous": "true",
            "emit.checkpoints.interval.seconds": "600",
            "sync.group.offsets.interval.seconds": "600",
        },
    )  # fmt: skip
    assert len(seconds) == 3, "the last one is a step back that the group made itself"


def until(condition):
    """Wait for something."""
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)


@pytest.mark.slow
def test_groups_that_have_members_on_the_target_are_left_alone(clusters, spark):
    import confluent_kafka

    topic = clusters.topic()
    clusters.produce(topic, 0, batch(0, 100))
    mirror(clusters, topic, {})
    group = f"g-{topic}"
    commit(clusters.east, group, {(topic, 0): 50})
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": clusters.west.bootstrap_servers, "group.id": group}
    )
    consumer.subscribe([f"east.{topic}"])
    until(lambda: consumer.poll(0.2) is not None or consumer.assignment())
    _, told = run(
        clusters, spark, topics=topic, groups=group, **{"sync.group.offsets.enabled": "true"}
    )
    consumer.close()
    assert [each for each in told if f"group {group} has members on west" in each]
    assert committed(clusters.west, group).get((f"east.{topic}", 0), -1) != 50


@pytest.mark.slow
def test_a_cluster_that_is_away_stops_its_own_flows_only(clusters, spark):
    topic = clusters.topic()
    clusters.produce(topic, 0, batch(0, 10))
    more = {
        "clusters": "east, west, north", "north.bootstrap.servers": "127.0.0.1:1",
        "east->north.enabled": "true", "topics": topic,
    }  # fmt: skip
    totals, told = run(clusters, spark, **more)
    assert totals.records >= 10
    away = "Cluster north (north.bootstrap.servers) cannot be used: 127.0.0.1:1"
    assert [each for each in told if each.startswith(away)]
    assert len(clusters.read(clusters.west, f"east.{topic}")) == 10
