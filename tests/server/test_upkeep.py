"""R5, R15: what happens to logs as time passes: checkpoints, retention, clocks that go back."""

from __future__ import annotations

import collections
import threading

import pytest
from immutables import Map
from server_kit import eventually
from test_partitions import World

from anabranch.core.controller.image import RESOURCE_TOPIC
from anabranch.core.errors import StorageFault
from anabranch.core.settings.broker import BrokerConfig
from anabranch.core.types import TopicPartition


@pytest.fixture
def world(monkeypatch):
    """Its timers are due every few milliseconds."""
    monkeypatch.setattr("anabranch.server.upkeep.TICK_S", 0.001)
    monkeypatch.setattr("anabranch.server.lasting.AGAIN_S", 0.001)
    made = World()
    made.broker.config = BrokerConfig.of({"replica.high.watermark.checkpoint.interval.ms": "5"})
    return made


async def test_retention_drops_old_segments(world):
    world.configs[RESOURCE_TOPIC, "t"] = Map({"retention.ms": "1000", "segment.ms": "10"})
    world.publish(world.create("t", 1))
    world.append()
    world.now_ms += 100
    world.append()
    world.now_ms += 10_000
    await world.upkeep.clean()
    assert world.replica().log.start_offset == 2


async def test_the_timers_write_checkpoints(world):
    world.publish(world.create("t", 1))
    world.append()
    world.upkeep.start()
    await eventually(lambda: world.files.exists("/a/replication-offset-checkpoint"))
    world.upkeep.stop()
    await world.shell.stop()
    assert b"t 0 1" in world.files.read("/a/replication-offset-checkpoint")


async def test_upkeep_goes_on_after_a_fault_that_nobody_thought_of(world, monkeypatch, caplog):
    world.publish(world.create("t", 1))
    faults = [ValueError("a bug"), ValueError("another")]

    def fail(_now_ms):
        if faults:
            raise faults.pop()

    monkeypatch.setattr(world.upkeep, "_flush_due", fail)
    world.upkeep.start()
    await eventually(lambda: world.files.exists("/a/replication-offset-checkpoint"))
    world.upkeep.stop()
    await world.shell.stop()
    assert caplog.messages.count("the upkeep of logs failed") == 2


async def test_a_folder_that_nobody_writes_to_is_asked_too(world, monkeypatch):
    """A volume that is gone, or that the system made read-only, says so when it is synced."""
    world.publish(world.create("t", 2))
    gone, asked = threading.Event(), collections.Counter()

    def sync_dir(path):
        asked[path, threading.current_thread() is threading.main_thread()] += 1
        if path == "/b" and gone.is_set():
            raise StorageFault("/b: Read-only file system")

    monkeypatch.setattr(world.files, "sync_dir", sync_dir)
    world.upkeep.start()
    await eventually(lambda: min(asked["/a", False], asked["/b", False]) > 2)
    assert world.replica(index=1).folder == "/b"
    gone.set()
    await eventually(lambda: world.broker.partitions.offline_folders == {"/b"})
    assert world.replica(index=1) is None
    before = asked["/b", False], asked["/a", False]
    await eventually(lambda: asked["/a", False] > before[1] + 2)
    assert asked["/b", False] == before[0]
    world.upkeep.stop()
    await world.shell.stop()


async def test_a_disk_that_does_not_answer_holds_nothing_up(world, monkeypatch):
    world.publish(world.create("t", 2))
    answers, asked = threading.Event(), collections.Counter()

    def sync_dir(path):
        asked[path] += 1
        if path == "/b":
            assert answers.wait(20)

    monkeypatch.setattr(world.files, "sync_dir", sync_dir)
    world.upkeep.start()
    await eventually(lambda: asked["/a"] > 3)
    world.append(3)
    kept = world.shell.folders["/a"]
    await eventually(lambda: kept.high_watermarks.get(TopicPartition("t", 0)) == 3)
    assert asked["/b"] == 1
    answers.set()
    await eventually(lambda: asked["/b"] > 1)
    world.upkeep.stop()
    await world.shell.stop()


async def test_checkpoints_are_written_when_the_wall_clock_goes_back(world):
    world.publish(world.create("t", 1))
    world.upkeep.start()
    world.now_ms -= 86_400_000
    world.append(3)
    kept = world.shell.folders["/a"]
    await eventually(lambda: kept.high_watermarks.get(TopicPartition("t", 0)) == 3)
    world.upkeep.stop()
    await world.shell.stop()
