"""R17: partitions that a full disk keeps from being opened, and what becomes of them."""

from __future__ import annotations

import asyncio
from unittest.mock import Mock

import msgspec
import pytest
from server_kit import eventually
from test_partitions import FOLDERS, STATE, World, look_for_room, retry_roomless

from anabranch.core.errors import CorruptLog
from anabranch.core.log.files import DiskFull
from anabranch.core.log.logs import LogFolder
from anabranch.core.log.room import FULL_AT_LEAST_MS
from anabranch.core.metadata.image import MetadataDelta
from anabranch.core.types import TopicPartition


@pytest.fixture
def world(monkeypatch):
    monkeypatch.setattr("anabranch.server.partitions.FIRST_SLICE_S", 60.0)
    made = World()
    clock = [1_000_000]
    monkeypatch.setattr("anabranch.server.hosting_performer.steady_ms", lambda: clock[0])

    def room_again():
        clock[0] += FULL_AT_LEAST_MS
        asyncio.run(look_for_room(made.shell))

    made.room_again = room_again
    return made


def no_room(patched):
    """Nothing is opened or made while this lasts."""
    for name in ("open_log", "create_log"):
        patched.setattr(LogFolder, name, Mock(side_effect=DiskFull("no space left")))


def test_a_new_partition_waits_for_room_and_no_other(world, monkeypatch, caplog):
    world.publish(world.create("t", 1))

    def full(*_arguments, **_options):
        raise DiskFull("no space left")

    write = world.files.write_atomic
    monkeypatch.setattr(world.files, "write_atomic", full)
    world.publish(world.create("more", 1))
    assert TopicPartition("more", 0) in world.broker.partitions.offline
    assert not world.broker.partitions.offline_folders
    assert world.append().first_offset == 0
    retry_roomless(world.shell)
    assert world.replica("more") is None
    assert caplog.messages.count("a partition waits for space") == 1
    monkeypatch.setattr(world.files, "write_atomic", write)
    world.room_again()
    retry_roomless(world.shell)
    assert world.append(name="more").first_offset == 0
    assert not world.broker.partitions.offline and not world.broker.partitions.roomless
    names = [name for folder in FOLDERS for name in world.files.list(folder)]
    assert not any(name.endswith("-stray") for name in names)


def test_a_log_that_a_full_disk_kept_from_being_opened_is_opened_later(world, monkeypatch):
    world.publish(world.create("t", 1))
    world.append(count=3)
    world.restart()
    with monkeypatch.context() as patched:
        patched.setattr(LogFolder, "open_log", Mock(side_effect=DiskFull("no space left")))
        world.publish()
        assert world.replica() is None
        retry_roomless(world.shell)
    retry_roomless(world.shell)
    assert world.replica().log.end_offset == 3
    world.publish(world.delete("t"))
    assert not world.broker.partitions.roomless


def test_a_topic_that_is_deleted_waits_for_no_room(world, monkeypatch):
    monkeypatch.setattr(world.files, "write_atomic", Mock(side_effect=DiskFull("no space left")))
    world.publish(world.create("t", 2))
    assert len(world.broker.partitions.roomless) == 2
    world.publish(world.delete("t"))
    assert not world.broker.partitions.roomless and not world.broker.partitions.offline


def test_a_new_partition_goes_where_there_is_room(world, monkeypatch):
    with monkeypatch.context() as patched:
        create = LogFolder.create_log

        def only_in_b(folder, *about, **options):
            if folder.path == "/a":
                raise DiskFull("no space left")
            return create(folder, *about, **options)

        patched.setattr(LogFolder, "create_log", only_in_b)
        world.publish(world.create("t", 3))
        retry_roomless(world.shell)
        assert [world.replica(index=each).folder for each in range(3)] == ["/b"] * 3
        assert not world.broker.partitions.offline
    world.room_again()
    world.publish(world.create("u", 1))
    assert world.replica("u").folder == "/a"


def test_a_log_that_is_rotten_once_there_is_room_is_left_alone(world, monkeypatch, caplog):
    """Tried again, it would pass for one that is gone, and an empty log take its place."""
    world.publish(world.create("t", 1))
    world.append(count=3)
    world.restart()
    fault = CorruptLog("rot", path="", position=0, first_offset=0, last_offset=0)
    with monkeypatch.context() as patched:
        patched.setattr(LogFolder, "open_log", Mock(side_effect=[DiskFull("full"), fault]))
        world.publish()
        for _ in range(3):
            retry_roomless(world.shell)
    assert world.replica() is None
    assert not world.broker.partitions.roomless
    assert list(world.broker.partitions.offline) == [TopicPartition("t", 0)]
    assert caplog.messages.count("a partition is offline: its log is damaged") == 1
    world.restart()
    world.publish()
    assert world.replica().log.end_offset == 3


def test_a_partition_that_moved_away_waits_for_no_room_and_holds_up_no_other(world, monkeypatch):
    with monkeypatch.context() as patched:
        no_room(patched)
        world.publish(world.create("t", 2))
        topic = world.topics["t"]
        away = msgspec.structs.replace(STATE, replicas=(2,), isr=(2,), leader=2, partition_epoch=1)
        world.topics["t"] = msgspec.structs.replace(topic, partitions=topic.partitions.set(0, away))
        world.publish(MetadataDelta(changed_partitions={topic.topic_id: (0,)}))
        assert list(world.broker.partitions.offline) == [TopicPartition("t", 1)]
        retry_roomless(world.shell)
    world.room_again()
    retry_roomless(world.shell)
    assert world.replica(index=0) is None
    assert world.append(index=1).first_offset == 0
    assert not world.broker.partitions.offline


def test_a_topic_may_come_again_whose_log_waited_for_room_as_it_was_deleted(world, monkeypatch):
    world.publish(world.create("t", 1))
    world.append(count=3)
    world.restart()
    with monkeypatch.context() as patched:
        no_room(patched)
        world.publish()
    world.publish(world.delete("t"))
    world.room_again()
    world.publish(world.create("t", 1, unique=2))
    assert world.replica().log.end_offset == 0
    assert not world.broker.partitions.offline_folders


async def test_what_waited_for_room_is_opened_in_slices(world, monkeypatch):
    with monkeypatch.context() as patched:
        no_room(patched)
        world.publish(world.create("t", 50))
    monkeypatch.setattr("anabranch.server.partitions.FIRST_SLICE_S", 0.0)
    monkeypatch.setattr("anabranch.server.partitions.SLICE_S", 0.0)
    await asyncio.to_thread(world.room_again)
    retry_roomless(world.shell)
    assert len(world.broker.partitions) < 50
    await eventually(lambda: not world.shell.hosting.work_left)
    assert len(world.broker.partitions) == 50
