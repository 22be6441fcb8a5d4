"""Flush rounds while partitions come and go, and at the end of a node. R5, R15."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from functools import partial

import pytest
from server_kit import eventually
from test_partitions import World

from anabranch.core.errors import StorageFault
from anabranch.core.log.checkpoints import CLEAN_SHUTDOWN
from anabranch.core.log.failed_sync import MARK
from anabranch.core.types import TopicPartition
from anabranch.server.flush import Flusher

PLACE = TopicPartition("t", 0)


@pytest.fixture
def world(monkeypatch):
    monkeypatch.setattr("anabranch.server.partitions.FIRST_SLICE_S", 60.0)
    world = World()
    world.publish(world.create("t", 1))
    return world


def held_round(world, monkeypatch, fault=None):
    """A flusher whose round ends (with a fault) when the returned event is set."""
    go_on = threading.Event()

    def sync_all(_files):
        go_on.wait(10)
        if fault is not None:
            raise fault

    monkeypatch.setattr("anabranch.server.flush.sync_all", sync_all)
    flusher = Flusher(world.shell, lambda *_keys: None)
    world.append()
    world.broker.unsynced.add(PLACE)
    flusher.start_rounds()
    assert not flusher.is_idle
    return flusher, go_on


async def test_a_topic_deleted_during_its_round_takes_no_folder_offline(world, monkeypatch):
    flusher, go_on = held_round(world, monkeypatch, StorageFault("no such file"))
    world.publish(world.delete("t"))
    go_on.set()
    await eventually(lambda: flusher.is_idle)
    assert not world.broker.partitions.offline_folders


async def test_a_round_that_fails_takes_its_folder_offline(world, monkeypatch):
    flusher, go_on = held_round(world, monkeypatch, StorageFault("bad disk"))
    go_on.set()
    await eventually(lambda: flusher.is_idle)
    assert world.broker.partitions.offline_folders == {"/a"}


async def test_a_last_round_that_fails_leaves_no_clean_marker(world, monkeypatch):
    flusher, go_on = held_round(world, monkeypatch, StorageFault("bad disk"))
    go_on.set()
    await flusher.stop()
    await world.shell.stop()
    assert not world.files.exists(f"/a/{CLEAN_SHUTDOWN}")
    assert world.files.exists(f"/b/{CLEAN_SHUTDOWN}")


async def test_the_end_waits_for_what_came_during_a_round(world, monkeypatch):
    flusher, go_on = held_round(world, monkeypatch)
    flusher._wake = flusher.start_rounds
    world.append()
    world.broker.unsynced.add(PLACE)
    flusher.start_rounds()
    go_on.set()
    await flusher.stop()
    assert world.replica().log.flushed_offset == 2


async def test_a_round_that_takes_long_leaves_the_mark_of_one_that_fails(world, monkeypatch):
    """People kill a process whose disk hangs, and the sync may fail after that."""
    monkeypatch.setattr("anabranch.server.flush.SLOW_S", 0.0)
    flusher, go_on = held_round(world, monkeypatch)
    is_marked = partial(world.files.exists, f"/a/{PLACE}/{MARK}")
    with suppress(TimeoutError):
        async with asyncio.timeout(5):
            await eventually(is_marked)
    go_on.set()
    assert is_marked()
    await eventually(lambda: flusher.is_idle)
    monkeypatch.undo()
    world.append()
    target = world.replica().log.sync_target()
    for file in target[1]:
        file.sync()
    assert not is_marked()
