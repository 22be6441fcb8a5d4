"""Going over and back: what a group reads again, what never arrived, what is ahead, and undo."""

from __future__ import annotations

import json
from contextlib import suppress

import pytest
from tests.pipelines.mirror.test_command import file as file  # noqa: PLC0414 - a fixture
from tests.pipelines.mirror.test_command import verb
from tests.pipelines.mirror.test_driver import commit, committed
from tests.pipelines.mirror.test_slot import EXACTLY_ONCE, MODES, batch, mirror

from anabranch.testing import ClusterError

IDENTITY = {
    "replication.policy.class": "org.apache.kafka.connect.mirror.IdentityReplicationPolicy",
    "west->east.enabled": "true",
}


@MODES
def test_a_planned_failover_reads_nothing_again_and_skips_nothing(clusters, file, more):
    topic = clusters.topic(partitions=2)
    clusters.produce(topic, 0, batch(0, 500))
    clusters.produce(topic, 1, batch(0, 50))
    mirror(clusters, topic, more)
    with suppress(ClusterError):
        clusters.east.create_topic("heartbeats", config={"retention.ms": -1})
    clusters.produce("heartbeats", 0, batch(0, 1))
    clusters.produce(topic, 1, batch(50, 7))
    group = f"g-{topic}"
    commit(clusters.east, group, {(topic, 0): 321, (topic, 1): 50})
    path = file(topics=topic, groups=group, **more)
    plan = json.loads(verb("failover", path, "--json"))
    assert [each["read_again"] for each in plan["groups"]] == [0, 0]
    assert [(each["partition"], each["first"], each["records"]) for each in plan["missing"]] == [
        (1, 50, 7)
    ]
    assert plan["ahead"] == [] and committed(clusters.west, group) == {}
    output = verb("failover", path, "--execute")
    assert f"done Commit 2 offsets of group {group} on west." in output
    assert f"groups delete --bootstrap-server {clusters.west.bootstrap_servers}" in output
    remote = f"east.{topic}"
    there = committed(clusters.west, group)
    following = [each.value for each in clusters.read(clusters.west, remote)
                 if each.offset >= there[remote, 0]]  # fmt: skip
    assert following[0] == b"v321" and len(following) == 179
    clusters.produce(remote, 0, batch(0, 3), cluster=clusters.west)
    plan = json.loads(verb("failover", path, "--json"))
    assert [(each["partition"], each["records"]) for each in plan["ahead"]] == [(0, 3)]


@pytest.mark.slow
def test_without_the_source_the_last_checkpoints_count(clusters, file, spark):
    from tests.pipelines.mirror.test_driver import run

    topic = clusters.topic()
    clusters.produce(topic, 0, batch(0, 100))
    group = f"g-{topic}"
    commit(clusters.east, group, {(topic, 0): 60})
    run(clusters, spark, topics=topic, groups=group, waves=2)
    path = file(topics=topic, groups=group, **{"east.bootstrap.servers": "127.0.0.1:1"})
    plan = json.loads(verb("failover", path, "--json"))
    assert not plan["left_answers"]
    mine = [each for each in plan["groups"] if each["group"] == group]
    assert [(each["offset"], each["read_again"]) for each in mine] == [(60, None)]
    assert "cannot be known" in plan["notes"][0]


def test_groups_go_back_to_where_they_have_read(clusters, file):
    topic = clusters.topic()
    clusters.produce(topic, 0, batch(0, 100))
    mirror(clusters, topic, EXACTLY_ONCE)
    group = f"g-{topic}"
    commit(clusters.east, group, {(topic, 0): 10})
    commit(clusters.west, group, {(f"east.{topic}", 0): 70})
    path = file(topics=topic, groups=group, **EXACTLY_ONCE)
    output = verb("failback", path, "--execute")
    assert f"--topic {topic}:0 --to-offset 10 --execute" in output
    assert committed(clusters.east, group)[topic, 0] == 70


@pytest.mark.slow
def test_under_the_same_names_only_what_is_new_comes_back(clusters, file):
    topic = clusters.topic()
    clusters.produce(topic, 0, batch(0, 100))
    flow = {"east->west.topics": topic, "west->east.topics": topic, **IDENTITY}
    mirror(clusters, topic, flow)
    clusters.produce(topic, 0, batch(100, 5), cluster=clusters.west)
    group = f"g-{topic}"
    commit(clusters.west, group, {(topic, 0): 103})
    path = file(topics=topic, groups=group, **flow)
    verb("failback", path, "--flow", "east->west", "--execute")
    mirror(clusters, topic, flow, flow=1)
    values = [each.value for each in clusters.read(clusters.east, topic)]
    assert values == [b"v%d" % each for each in range(105)]
