"""R5, R15: what happens to logs as time passes: checkpoints, retention, clocks that go back."""

from __future__ import annotations

import asyncio
import collections
import threading

import pytest
from immutables import Map
from server_kit import eventually
from test_partitions import World
from tests.core.api.in_memory_node import take_offline

from anabranch.core.errors import StorageFault
from anabranch.core.log.files import DiskFull
from anabranch.core.metadata.image import RESOURCE_TOPIC, MetadataDelta
from anabranch.core.settings.broker import BrokerConfig
from anabranch.core.types import TopicPartition

OFTEN = BrokerConfig.of({"replica.high.watermark.checkpoint.interval.ms": "5"})


@pytest.fixture
def world(monkeypatch):
    """Its timers are due every few milliseconds; what a test publishes is done at once, also on a
    busy machine."""
    monkeypatch.setattr("anabranch.server.partitions.FIRST_SLICE_S", 60.0)
    monkeypatch.setattr("anabranch.server.upkeep.TICK_S", 0.001)
    monkeypatch.setattr("anabranch.server.restarts.AGAIN_S", 0.001)
    made = World()
    made.broker.config = OFTEN
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

    tick = world.shell.hosting.tick

    def fail(*clocks):
        if faults:
            raise faults.pop()
        tick(*clocks)

    monkeypatch.setattr(world.shell.hosting, "tick", fail)
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


@pytest.mark.parametrize("is_deleted", [False, True])
async def test_a_disk_that_gives_space_back_slowly_holds_nothing_up(world, monkeypatch, is_deleted):
    """A file of a gigabyte takes half a second, and a topic has hundreds of them."""
    world.configs[RESOURCE_TOPIC, "t"] = Map({"file.delete.delay.ms": "0", "segment.ms": "10"})
    world.publish(world.create("t", 1))
    for _ in range(3):
        world.append()
        world.now_ms += 100
    if is_deleted:
        world.publish(world.delete("t"))
    else:
        world.replica().log.delete_records_before(2)
        await world.upkeep.clean()
    doomed = {each for each in world.files.contents if "delete" in each}
    assert len(doomed) > 5
    answers, asked = threading.Event(), collections.Counter()
    remove = world.files.remove

    def remove_slowly(path):
        if path in doomed:
            asked[path] += 1
            assert threading.current_thread() is not threading.main_thread(), "it holds the loop up"
            assert answers.wait(20)
        remove(path)

    monkeypatch.setattr(world.files, "remove", remove_slowly)
    world.upkeep.start()
    await eventually(lambda: asked)
    world.publish(world.create("other", 1))
    world.append(3, name="other")
    await eventually(
        lambda: (
            sum(
                each.high_watermarks.get(TopicPartition("other", 0), 0)
                for each in world.shell.folders.values()
            )
            == 3
        )
    )
    assert sum(asked.values()) == 1, "one at a time"
    answers.set()
    await eventually(lambda: not doomed & world.files.contents.keys())
    assert set(asked.values()) == {1}
    world.upkeep.stop()
    await world.shell.stop()


@pytest.mark.parametrize(
    ("fault", "is_offline"), [(DiskFull("-"), False), (StorageFault("-"), True)]
)
async def test_what_a_disk_refuses_to_remove_is_acted_on(world, monkeypatch, fault, is_offline):
    world.configs[RESOURCE_TOPIC, "t"] = Map({"file.delete.delay.ms": "0"})
    world.publish(world.create("t", 1))
    world.append()
    world.publish(world.delete("t"))

    def remove_tree(path):
        raise fault

    monkeypatch.setattr(world.files, "remove_tree", remove_tree)
    world.upkeep.start()
    partitions = world.broker.partitions
    await eventually(lambda: partitions.offline_folders or partitions.full_folders)
    assert ("/a" in partitions.offline_folders) is is_offline
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


WATERMARKS = "/a/replication-offset-checkpoint"


@pytest.fixture
def one_folder(world, monkeypatch):
    """Its logs are looked at one by one."""
    monkeypatch.setattr("anabranch.server.upkeep.LOOKED_AT_ONCE", 1)
    monkeypatch.setattr("test_partitions.FOLDERS", ["/a"])
    world.restart()
    return world


def count_writes(world, monkeypatch):
    """Of checkpoints of high watermarks: what was written, and whether on the loop."""
    written, write_atomic = [], world.files.write_atomic

    def counted(path, encoded, *, sync):
        if path.startswith(WATERMARKS):
            written.append((encoded, threading.current_thread() is threading.main_thread()))
        write_atomic(path, encoded, sync=sync)

    monkeypatch.setattr(world.files, "write_atomic", counted)
    return written


async def rounds(world, monkeypatch, count=3):
    """So many rounds of checkpoints, from the first to the last."""
    asked, sync_dir = collections.Counter(), world.files.sync_dir

    def counted(path):
        asked[path] += 1
        sync_dir(path)

    with monkeypatch.context() as patched:
        patched.setattr(world.files, "sync_dir", counted)
        world.broker.config = OFTEN
        world.upkeep.start()
        await eventually(lambda: asked["/a"] >= count)
        world.upkeep.stop()


async def test_high_watermarks_are_written_once_each_time_that_one_moved(one_folder, monkeypatch):
    world = one_folder
    world.publish(world.create("t", 5))
    written = count_writes(world, monkeypatch)
    for count in range(1, 4):
        world.append(index=3)
        await rounds(world, monkeypatch)
        rows = [f"t {index} {count if index == 3 else 0}\n" for index in range(5)]
        assert written == [(("0\n5\n" + "".join(rows)).encode(), False)]
        assert world.files.read(WATERMARKS) == written.pop()[0]


async def test_what_is_written_has_also_what_came_or_failed_meanwhile(one_folder, monkeypatch):
    world = one_folder
    world.publish(world.create("t", 4))
    later = world.create("u", 1)
    world.publish(later)
    for index in range(4):
        world.append(3, index=index)
    world.append(2, "u")
    await world.shell.stop()
    world.restart()
    held = world.topics.pop("u")
    world.publish()
    world.append(index=0)
    look, looks = world.broker.partitions.get, []

    def looked_at(topic, index):
        if (topic, index) == ("t", 0) and not looks:
            looks.append(index)
            take_offline(world.broker.partitions, world.replica(index=3), is_rotten=True)
            world.topics["u"] = held
            world.publish(later)
        return look(topic, index)

    monkeypatch.setattr(world.broker.partitions, "get", looked_at)
    await rounds(world, monkeypatch, count=2)  # the first sync is for the log made anew
    assert looks
    assert world.files.read(WATERMARKS) == b"0\n5\nt 0 4\nt 1 3\nt 2 3\nt 3 3\nu 0 2\n"
    world.shell.checkpoint_high_watermarks(world.shell.folders["/a"])
    assert world.files.read(WATERMARKS) == b"0\n5\nt 0 4\nt 1 3\nt 2 3\nt 3 3\nu 0 2\n"


async def test_a_log_that_is_cut_while_high_watermarks_are_written_is_not_promised(
    one_folder, monkeypatch
):
    world = one_folder
    world.publish(world.create("t", 3))
    folder = world.shell.folders["/a"]
    world.append(3, index=1)
    loop, write_draft, cuts = asyncio.get_running_loop(), folder.write_draft, []

    def cut():
        replica = world.replica(index=1)
        replica.log.truncate_to(0)
        replica.truncated()

    async def cut_once():
        if not cuts:
            cuts.append(cut())

    def beside_a_cut(draft):
        write_draft(draft)
        asyncio.run_coroutine_threadsafe(cut_once(), loop).result(20)

    monkeypatch.setattr(folder, "write_draft", beside_a_cut)
    await rounds(world, monkeypatch, count=1)
    assert cuts
    assert world.files.read(WATERMARKS) == b"0\n3\nt 0 0\nt 1 0\nt 2 0\n"


async def test_a_log_made_anew_while_high_watermarks_are_gathered_has_none_of_the_old_one(
    one_folder, monkeypatch
):
    world = one_folder
    world.publish(world.create("t", 3))
    for index in range(3):
        world.append(3, index=index)
    look, looks = world.broker.partitions.get, []

    def looked_at(topic, index):
        if index == 1 and not looks:
            looks.append(index)
            world.publish(world.delete("t"))
            world.publish(world.create("t", 3, unique=2))
        return look(topic, index)

    monkeypatch.setattr(world.broker.partitions, "get", looked_at)
    written = count_writes(world, monkeypatch)
    await rounds(world, monkeypatch, count=2)  # the first sync is for the log made anew
    assert looks
    assert world.files.read(WATERMARKS) == b"0\n3\nt 0 0\nt 1 0\nt 2 0\n"
    assert [on_loop for _, on_loop in written] == [False, True]


async def test_a_full_disk_keeps_its_checkpoint_and_is_asked_again(one_folder, monkeypatch, caplog):
    world = one_folder
    world.publish(world.create("t", 1))
    world.append()
    write_atomic, full = world.files.write_atomic, [True]

    def refuse(path, encoded, *, sync):
        if full and path.startswith(WATERMARKS):
            raise DiskFull("no room")
        write_atomic(path, encoded, sync=sync)

    monkeypatch.setattr(world.files, "write_atomic", refuse)
    await rounds(world, monkeypatch, count=2)
    assert caplog.messages.count("a checkpoint was not written") >= 2
    assert not world.broker.partitions.offline_folders
    full.clear()
    await rounds(world, monkeypatch, count=1)
    assert world.files.read(WATERMARKS) == b"0\n1\nt 0 1\n"


async def test_others_have_their_turn_while_logs_are_looked_at(one_folder, monkeypatch):
    world = one_folder
    monkeypatch.setattr("anabranch.core.broker.hosting.hosting.LOOKED_AT_ONCE", 1)
    world.publish(world.create("t", 20))
    for index in range(20):
        world.append(index=index)
    world.configs[RESOURCE_TOPIC, "t"] = Map({"flush.ms": "1000"})
    world.publish(MetadataDelta(changed_configs=((RESOURCE_TOPIC, "t"),)))
    log = world.replica(index=7).log
    log.synced(log.sync_target()[0])
    world.broker.unsynced.clear()
    turns = []

    async def others():
        while True:
            turns.append(len(world.broker.unsynced))
            await asyncio.sleep(0)

    for budget in ("FIRST_SLICE_S", "SLICE_S"):
        monkeypatch.setattr(f"anabranch.server.partitions.{budget}", 0.0)
    beside = asyncio.create_task(others())
    shell = world.shell
    for late_ms in (999, 1000):
        assert not world.broker.unsynced
        shell.hosting.tick(0, world.now_ms + late_ms)
        shell.run()
        await eventually(lambda: not shell.hosting.work_left)
    beside.cancel()
    assert {place.partition for place in world.broker.unsynced} == {*range(20)} - {7}
    assert {*range(19)} <= {*turns}
