"""Diskless topics at the source, on the target, and on both sides."""

from __future__ import annotations

import asyncio

import pytest
from tests.pipelines.mirror.test_slot import EXACTLY_ONCE, MODES, batch, mirror, seen

from anabranch.pipelines.mirror.driver_flow import FlowState

DISKLESS = {"diskless.enable": True}


def synced(clusters, topic, more):
    """Compare settings as the driver's duty does; what was told."""
    told = []

    async def work():
        state = FlowState(clusters.config(topics=topic, **more).flows[0], told.append)
        try:
            await state.open()
            await state.topics.refresh(state.source, state.target)
            await state.topics.sync_configs(state.source, state.target)
        finally:
            await state.close()

    asyncio.run(work())
    return told


def check(clusters, topic):
    source, target = clusters.east, clusters.west
    for partition in range(2):
        copied = clusters.read(target, f"east.{topic}", partition)
        assert seen(copied) == seen(clusters.read(source, topic, partition))
        assert len(copied) == 3_015


def fill(clusters, topic, first, count):
    for partition in range(2):
        clusters.produce(topic, partition, batch(first, count))


@pytest.mark.parametrize("on_target", [False, True], ids=["classic-target", "diskless-target"])
@pytest.mark.parametrize("at_source", [False, True], ids=["classic-source", "diskless-source"])
def test_records_go_from_and_to_either_kind(clusters, at_source, on_target):
    topic = clusters.topic(partitions=2, config=DISKLESS if at_source else None)
    if on_target:
        config = {"retention.ms": -1, **DISKLESS}
        clusters.west.create_topic(f"east.{topic}", partitions=2, config=config)
    fill(clusters, topic, 0, 5)
    fill(clusters, topic, 5, 3_000)
    (answer,) = mirror(clusters, topic, {}, seconds=3.0)
    assert (answer.faults, answer.notes) == ({}, [])
    fill(clusters, topic, 3_005, 10)
    (answer,) = mirror(clusters, topic, {}, seconds=3.0)
    assert (answer.faults, answer.notes, answer.records) == ({}, [], 20)
    check(clusters, topic)
    assert synced(clusters, topic, {}) == []
    assert synced(clusters, topic, {"use.defaults.from": "source"}) == []


@MODES
def test_a_diskless_source_has_a_classic_target(clusters, more):
    topic = clusters.topic(partitions=2, config=DISKLESS)
    fill(clusters, topic, 0, 3_015)
    (answer,) = mirror(clusters, topic, more, seconds=3.0)
    assert answer.faults == {}
    check(clusters, topic)


def test_a_diskless_target_takes_no_transactions_which_is_told(clusters):
    topic, other = clusters.topic(), clusters.topic()
    clusters.west.create_topic(f"east.{topic}", partitions=1, config=DISKLESS)
    for each in (topic, other):
        clusters.produce(each, 0, batch(0, 30))
    (answer,) = mirror(clusters, f"{topic}, {other}", EXACTLY_ONCE, seconds=6.0)
    assert list(answer.faults) == [f"{topic}-0"]
    told = f"east.{topic} is diskless and does not support transactions"
    assert told in answer.faults[f"{topic}-0"]
    assert "use a classic topic" in answer.faults[f"{topic}-0"]
    assert len(clusters.read(clusters.west, f"east.{other}")) == 30
    assert clusters.read(clusters.west, f"east.{topic}") == []
