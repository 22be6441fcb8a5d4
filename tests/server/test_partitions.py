"""The shell around hosted replicas, over files in memory and on a real loop."""

import asyncio
from random import Random
from unittest.mock import Mock

import pytest
from immutables import Map
from msgspec.structs import replace
from server_kit import eventually
from tests.core.api.in_memory_node import take_offline

from anabranch.core.access.authorize import AllowAll
from anabranch.core.api.context import Broker
from anabranch.core.api.fetch_sessions import FetchSessions
from anabranch.core.errors import CorruptLog, StorageFault
from anabranch.core.log.checkpoints import CLEAN_SHUTDOWN, PARTITION_METADATA
from anabranch.core.log.files import DiskFull
from anabranch.core.log.memory_files import MemoryFiles
from anabranch.core.log.room import FULL_AT_LEAST_MS
from anabranch.core.metadata.following.effects import Act
from anabranch.core.metadata.image import (
    RESOURCE_TOPIC,
    BrokerImage,
    MetadataDelta,
    MetadataImage,
    PartitionImage,
    TopicImage,
)
from anabranch.core.replication.partitions import Partitions
from anabranch.core.settings.broker import BrokerConfig
from anabranch.core.types import TopicId, TopicPartition
from anabranch.core.wire.records import Record, build_batch
from anabranch.server.partitions import PartitionShell
from anabranch.server.upkeep import Upkeep

NOW_MS = 1_700_000_000_000
FOLDERS = ["/a", "/b"]
STATE = PartitionImage(replicas=(1,), isr=(1,), leader=1, leader_epoch=0, partition_epoch=0)


class World:
    """A broker, its disk and its clock; `restart` is a new process on the same disk."""

    def __init__(self):
        self.files = MemoryFiles()
        self.now_ms = NOW_MS
        self.topics = {}
        self.configs = {}
        self.restart()

    def restart(self):
        self.broker = Broker(
            broker_id=1,
            broker_epoch=3,
            cluster_id="c",
            config=BrokerConfig.of({}),
            image=MetadataImage.empty(),
            partitions=Partitions(1),
            fetch_sessions=FetchSessions(10, Random(1)),
            authorizer=AllowAll(),
            allocate_producer_id=lambda: None,
        )
        self.shell = PartitionShell(self.broker, self.files, FOLDERS, clock_ms=lambda: self.now_ms)
        self.upkeep = Upkeep(self.broker, self.shell, clock_ms=lambda: self.now_ms)

    @property
    def image(self):
        return MetadataImage(
            topics_by_id=Map({topic.topic_id: topic for topic in self.topics.values()}),
            topic_ids_by_name=Map({topic.name: topic.topic_id for topic in self.topics.values()}),
            brokers=Map({1: BrokerImage(1, 3, bytes(16), Map())}),
            configs=Map(self.configs),
        )

    def create(self, name, partitions=2, unique=1):
        topic_id = TopicId(name.encode().ljust(15, b"_")[:15] + bytes([unique]))
        states = Map(dict.fromkeys(range(partitions), STATE))
        self.topics[name] = TopicImage(name, topic_id, states)
        return MetadataDelta(
            created_topics=(topic_id,), changed_partitions={topic_id: tuple(range(partitions))}
        )

    def delete(self, name):
        return MetadataDelta(deleted_topics=(self.topics.pop(name),))

    def publish(self, delta=None, *deleted_before):
        moved = Act(self.image, MetadataDelta(), delta, frozenset(deleted_before))
        self.shell.publish(moved)

    def replica(self, name="t", index=0):
        return self.broker.partitions.get(name, index)

    def append(self, count=1, name="t", index=0):
        records = [Record(each, self.now_ms, b"k", b"v") for each in range(count)]
        batch = build_batch(records)
        return self.replica(name, index).append(batch, required_acks=1, now_ms=self.now_ms)


async def look_for_room(shell):
    """Have full folders looked at, and wait until that is done."""
    shell.hosting.folders.look()
    shell.perform()
    while shell.rooms.looking:
        await asyncio.gather(*shell.rooms.looking.values())
        await asyncio.sleep(0)


def retry_roomless(shell):
    """Have what waits for room tried again."""
    shell.hosting.retry_roomless()
    shell.run()


@pytest.fixture
def world(monkeypatch):
    """On a busy machine, too, what a test publishes is done at once, unless it says otherwise."""
    monkeypatch.setattr("anabranch.server.partitions.FIRST_SLICE_S", 60.0)
    return World()


def test_a_small_topic_is_ready_when_publish_returns(world):
    world.publish(world.create("t"))
    assert world.replica().is_leader
    assert world.broker.image.topic("t") is not None
    assert TopicPartition("t", 1) in world.broker.changed


def test_a_full_disk_does_not_fill_the_log(world, caplog, monkeypatch):
    """It may be the same disk."""
    clock = [1_000]
    monkeypatch.setattr("anabranch.server.hosting_performer.steady_ms", lambda: clock[0])
    world.publish(world.create("t", 4))
    for _ in range(3):
        for _ in range(1000):
            world.broker.faults += [
                (world.replica(index=each), DiskFull("no room")) for each in range(4)
            ]
            world.shell.take_faults()
        clock[0] += FULL_AT_LEAST_MS
        asyncio.run(look_for_room(world.shell))
    assert caplog.messages.count("a disk is full") == 3 * len(FOLDERS)
    assert world.broker.partitions.offline == {}


def test_a_folder_that_the_node_does_without_is_not_opened(world):
    """It could not be locked: what can be read of it may be another process's."""
    world.publish(world.create("t", 4))
    world.restart()
    world.broker.partitions.offline_folders.add("/b")
    world.publish()
    assert list(world.shell.folders) == ["/a"]
    assert [world.replica(index=each) is None for each in range(4)] == [False, True, False, True]
    assert sorted(world.broker.partitions.offline) == [TopicPartition("t", each) for each in (1, 3)]


@pytest.mark.parametrize(("deleted", "end_offset"), [("t", 0), ("u", 1)])
def test_the_log_of_a_topic_that_went_before_the_first_image_is_left(world, deleted, end_offset):
    """Its name was lost with the power, and the topic made again."""
    world.publish(world.create("t", 1))
    world.append()
    world.files.remove(f"/a/t-0/{PARTITION_METADATA}")
    world.create("t", 1, unique=2)
    world.restart()
    world.publish(None, deleted)
    assert world.replica().log.end_offset == end_offset


def test_partitions_are_spread_over_the_folders(world):
    world.publish(world.create("t", 4))
    assert [world.replica(index=each).folder for each in range(4)] == ["/a", "/b", "/a", "/b"]


async def test_a_big_topic_is_created_in_slices(world, monkeypatch):
    monkeypatch.setattr("anabranch.server.partitions.FIRST_SLICE_S", 0.0)
    monkeypatch.setattr("anabranch.server.partitions.SLICE_S", 0.0)
    world.publish(world.create("t", 50))
    assert len(world.broker.partitions) < 50
    woken = []
    world.shell.on_changed = lambda: woken.append(len(world.broker.changed))
    await eventually(lambda: not world.shell.hosting.work_left)
    assert len(world.broker.partitions) == 50
    assert woken


async def test_records_and_high_watermark_survive_a_clean_restart(world):
    world.publish(world.create("t"))
    world.append(3)
    await world.shell.stop()
    assert world.files.exists(f"/a/{CLEAN_SHUTDOWN}")
    world.restart()
    world.publish()
    assert not world.files.exists(f"/a/{CLEAN_SHUTDOWN}")
    assert (world.replica().log.end_offset, world.replica().high_watermark) == (3, 3)


def test_records_survive_a_killed_process(world):
    world.publish(world.create("t"))
    world.append(3)
    world.restart()
    world.publish()
    assert world.replica().log.end_offset == 3


def test_a_deleted_topic_is_out_of_sight_at_once_and_off_the_disk_later(world):
    world.publish(world.create("t", 1))
    world.append()
    world.publish(world.delete("t"))
    assert world.replica() is None
    [left] = [name for name in world.files.list("/a") if name.startswith("t-0.")]
    assert left.endswith("-delete")
    world.now_ms += 60_000
    world.shell.folders["/a"].remove_deleted(world.now_ms)
    assert not world.files.exists(f"/a/{left}")


def test_a_topic_that_is_made_again_begins_empty(world):
    world.publish(world.create("t", 1))
    world.append(3)
    world.publish(world.delete("t"))
    world.publish(world.create("t", 1, unique=2))
    assert world.replica().log.end_offset == 0


def test_the_log_of_an_earlier_topic_of_that_name_is_set_aside(world):
    world.publish(world.create("t", 1))
    world.append(3)
    world.restart()
    world.create("t", 1, unique=2)
    world.publish()
    assert world.replica().log.end_offset == 0
    assert any(name.endswith("-stray") for name in world.files.list("/a"))


def test_a_replica_that_was_moved_away_meanwhile_is_set_aside(world, caplog):
    world.publish(world.create("t", 2))
    world.append(3)
    world.restart()
    moved = replace(STATE, replicas=(2, 3), isr=(2, 3), leader=2, directories=())
    topic = world.topics["t"]
    world.topics["t"] = replace(topic, partitions=topic.partitions.set(0, moved))
    world.publish()
    assert world.replica() is None
    assert world.replica(index=1) is not None
    kept = {name.partition(".")[0]: name for name in world.files.list("/a")}
    assert kept["t-0"].endswith("-stray"), "its bytes are kept: the metadata may be an old copy"
    assert "set aside the log of a replica that was moved away" in caplog.text


def test_logs_that_the_metadata_does_not_know_are_left_alone(world):
    world.publish(world.create("t", 1))
    world.append(3)
    world.restart()
    world.topics.clear()
    world.publish()
    assert world.replica() is None
    assert "t-0" in world.files.list("/a")


def test_a_changed_configuration_reaches_replica_and_log(world):
    world.publish(world.create("t"))
    world.configs[RESOURCE_TOPIC, "t"] = Map({"retention.ms": "77", "min.insync.replicas": "2"})
    world.publish(MetadataDelta(changed_configs=frozenset({(RESOURCE_TOPIC, "t")})))
    assert world.replica().log.config.retention_ms == 77
    assert world.replica().min_insync_replicas == 2


def test_a_changed_broker_default_reaches_every_log(world):
    world.publish(world.create("t"))
    world.broker.config = BrokerConfig.of({}, dynamic_default={"log.retention.ms": "55"})
    world.publish(MetadataDelta())
    assert world.replica().log.config.retention_ms == 55


def test_a_failed_folder_takes_its_partitions_offline_and_no_other(world):
    world.publish(world.create("t", 2))
    world.shell.folder_failed("/a", StorageFault("no disk"))
    assert world.replica(index=0) is None
    assert world.replica(index=1) is not None
    assert TopicPartition("t", 0) in world.broker.partitions.offline
    world.publish(world.create("u", 2))
    assert {world.replica("u", each).folder for each in range(2)} == {"/b"}


def test_the_node_stops_when_no_folder_is_left(world):
    sentences = []
    world.shell.on_fatal = sentences.append
    world.publish(world.create("t", 2))
    for folder in FOLDERS:
        world.shell.folder_failed(folder, StorageFault("no disk"))
    [sentence] = sentences
    assert "log.dirs" in sentence


async def test_rot_takes_only_its_partition_offline_and_leaves_no_clean_marker(world):
    world.publish(world.create("t", 4))
    rot = CorruptLog("rot", path="x", position=0, first_offset=0, last_offset=0)
    world.broker.faults.append((world.replica(), rot))
    world.shell.take_faults()
    assert world.replica() is None
    assert world.replica(index=2) is not None
    await world.shell.stop()
    assert not world.files.exists(f"/a/{CLEAN_SHUTDOWN}")
    assert world.files.exists(f"/b/{CLEAN_SHUTDOWN}")


def test_a_rotten_log_goes_with_its_topic(world):
    world.publish(world.create("t", 1))
    world.append(3)
    rot = CorruptLog("rot", path="x", position=0, first_offset=0, last_offset=0)
    world.broker.faults.append((world.replica(), rot))
    world.shell.take_faults()
    world.publish(world.delete("t"))
    assert "t-0" not in world.files.list("/a")
    world.publish(world.create("t", 1, unique=2))
    assert world.replica().log.end_offset == 0


async def test_without_metadata_nothing_is_touched(world):
    world.files.make_dirs("/a")
    world.files.write_atomic(f"/a/{CLEAN_SHUTDOWN}", b'{"version":0,"brokerEpoch":1}', sync=True)
    await world.shell.stop()
    assert world.files.exists(f"/a/{CLEAN_SHUTDOWN}")


def test_a_disk_that_is_away_at_start_gets_no_empty_logs_in_its_place(world):
    """Else its records would seem lost, and the empty log would be the one found ever after."""
    world.publish(world.create("t", 2))
    world.append(3, index=1)  # in /b
    world.shell.folders["/b"].checkpoint()
    kept = dict(world.files.contents)
    world.files.contents["/b/recovery-point-offset-checkpoint"] = bytearray(b"unreadable")
    world.restart()
    world.publish()
    assert world.broker.partitions.offline_folders == {"/b"}
    assert TopicPartition("t", 1) in world.broker.partitions.offline
    assert not world.files.exists("/a/t-1")
    world.publish(world.create("new", 1))
    assert world.replica("new").folder == "/a"
    world.files.contents.update(kept)
    world.restart()
    world.publish()
    assert world.replica(index=1).log.end_offset == 3


def test_a_log_whose_folder_is_gone_is_missed(world):
    """Flushed records whose folder is gone are lost: the partition does not begin anew silently."""
    world.publish(world.create("t", 1))
    world.append(3)
    log = world.replica().log
    end_offset, files = log.sync_target()
    for file in files:
        file.sync()
    log.synced(end_offset)
    world.shell.folders["/a"].checkpoint()
    world.files.remove_tree("/a/t-0")
    world.restart()
    world.publish()
    assert TopicPartition("t", 0) in world.broker.partitions.offline
    world.publish(world.delete("t"))
    world.publish(world.create("t", 1, unique=2))
    assert world.replica().log.end_offset == 0


def test_two_power_cuts_in_a_row_show_nothing_that_was_not_committed(world):
    """What replaces committed records that a power cut took is not committed by their mark."""
    both = PartitionImage(replicas=(1, 2), isr=(1, 2), leader=1, leader_epoch=0, partition_epoch=0)
    delta = world.create("t", 1)
    topic = world.topics["t"]
    world.topics["t"] = TopicImage(topic.name, topic.topic_id, Map({0: both}))
    world.publish(delta)
    world.append()
    size = world.replica().log.active.size
    world.append(2)
    world.replica().follower_fetched(2, 3)
    for folder in world.shell.working():
        world.shell.checkpoint_high_watermarks(folder)
    del world.files.contents[world.replica().log.active.file.path][size:]
    world.restart()
    world.publish()
    assert (world.replica().log.end_offset, world.replica().high_watermark) == (1, 1)
    world.append(5)
    world.restart()
    world.publish()
    assert (world.replica().log.end_offset, world.replica().high_watermark) == (6, 1)


def test_a_topic_deleted_before_a_crash_is_not_missed_when_it_is_created_again(world):
    world.publish(world.create("t", 1))
    world.append(3)
    log = world.replica().log
    log.synced(log.sync_target()[0])
    world.shell.folders["/a"].checkpoint()
    world.publish(world.delete("t"))
    world.create("t", 1, unique=2)  # the metadata has it, and this process never came to it
    world.restart()
    world.publish()
    assert world.replica().log.end_offset == 0


async def test_a_node_that_stops_while_it_starts_opens_no_more_logs(world, monkeypatch):
    """Thousands may be left, and whoever stops it kills it after a while."""
    world.publish(world.create("t", 50))
    world.append(count=3, index=49)
    await world.shell.stop()
    world.restart()
    with monkeypatch.context() as patched:
        patched.setattr("anabranch.server.partitions.FIRST_SLICE_S", 0.0)
        world.publish()
        await world.shell.stop()
    assert len(world.broker.partitions) < 50
    world.restart()
    world.publish()
    assert len(world.broker.partitions) == 50
    assert all(folder.clean for folder in world.shell.folders.values())
    assert (world.replica(index=49).log.end_offset, world.replica(index=49).high_watermark) == (
        3,
        3,
    )


async def test_what_was_deleted_is_deleted_although_the_node_stops(world, monkeypatch):
    world.publish(world.create("t", 10))
    with monkeypatch.context() as patched:
        patched.setattr("anabranch.server.partitions.FIRST_SLICE_S", 0.0)
        world.publish(world.delete("t"))
        await world.shell.stop()
    names = [name for folder in FOLDERS for name in world.files.list(folder)]
    assert not any(name.startswith("t-") and not name.endswith("-delete") for name in names)


async def test_a_node_that_fails_to_follow_after_a_while_stops(world, monkeypatch):
    """Else partitions that came later in the same image would never be hosted, without a word."""
    monkeypatch.setattr("anabranch.server.partitions.FIRST_SLICE_S", 0.0)
    told = asyncio.get_running_loop().create_future()
    world.shell.on_fatal = told.set_result
    world.publish(world.create("t", 4))
    monkeypatch.setattr(world.shell.hosting.logs, "host", Mock(side_effect=ValueError("a bug")))
    async with asyncio.timeout(10):
        assert await told == "following the metadata failed: ValueError: a bug"


def test_a_disk_that_refuses_to_delete_a_rotten_log_fails_alone(world, monkeypatch):
    world.publish(world.create("t", 2))
    take_offline(world.broker.partitions, world.replica())

    def refuse(*_arguments):
        raise StorageFault("read-only")

    monkeypatch.setattr(world.files, "rename", refuse)
    world.publish(world.delete("t"))
    assert "/a" in world.broker.partitions.offline_folders
    assert world.broker.image.topic("t") is None


async def test_metadata_that_comes_while_the_logs_are_closed_is_left_for_the_next_start(
    world, monkeypatch
):
    """The follower stops after the broker: its images must not change what is being closed."""
    monkeypatch.setattr("anabranch.server.partitions.SLICE_S", 0.0)
    world.publish(world.create("t", 4))
    for index in range(4):
        world.append(index=index)
    stopping = asyncio.create_task(world.shell.stop())
    for number in range(6):
        await asyncio.sleep(0)
        world.publish(world.create(f"u{number}", 1))
    world.publish(world.delete("t"))
    await stopping
    assert world.files.exists(f"/a/{CLEAN_SHUTDOWN}")
    assert world.files.exists(f"/b/{CLEAN_SHUTDOWN}")
    world.restart()
    world.publish()
    assert world.replica("u0").log.end_offset == 0
