"""R5, R15: what happens to logs as time passes: checkpoints, retention, clocks that go back."""

from __future__ import annotations

import pytest
from immutables import Map
from server_kit import eventually
from test_partitions import World

from anabranch.core.controller.image import RESOURCE_TOPIC
from anabranch.core.settings.broker import BrokerConfig
from anabranch.core.types import TopicPartition


@pytest.fixture
def world():
    return World()


async def test_retention_drops_old_segments(world):
    world.configs[RESOURCE_TOPIC, "t"] = Map({"retention.ms": "1000", "segment.ms": "10"})
    world.publish(world.create("t", 1))
    world.append()
    world.now_ms += 100
    world.append()
    world.now_ms += 10_000
    await world.upkeep.clean()
    assert world.replica().log.start_offset == 2


async def test_the_timers_write_checkpoints(world, monkeypatch):
    monkeypatch.setattr("anabranch.server.upkeep.TICK_S", 0.001)
    world.broker.config = BrokerConfig.of({"replica.high.watermark.checkpoint.interval.ms": "5"})
    world.publish(world.create("t", 1))
    world.append()
    world.upkeep.start()
    await eventually(lambda: world.files.exists("/a/replication-offset-checkpoint"))
    world.upkeep.stop()
    await world.shell.stop()
    assert b"t 0 1" in world.files.read("/a/replication-offset-checkpoint")


async def test_checkpoints_are_written_when_the_wall_clock_goes_back(world, monkeypatch):
    monkeypatch.setattr("anabranch.server.upkeep.TICK_S", 0.001)
    world.broker.config = BrokerConfig.of({"replica.high.watermark.checkpoint.interval.ms": "5"})
    world.publish(world.create("t", 1))
    world.upkeep.start()
    world.now_ms -= 86_400_000
    world.append(3)
    kept = world.shell.folders["/a"]
    await eventually(lambda: kept.high_watermarks.get(TopicPartition("t", 0)) == 3)
    world.upkeep.stop()
    await world.shell.stop()
