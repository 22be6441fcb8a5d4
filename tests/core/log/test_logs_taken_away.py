"""A log that was deleted or set aside does not come back to the place where another one began."""

from __future__ import annotations

from random import Random

import pytest
from tests.core.log.support import KEY, NOW_MS, append, batch, sync

from anabranch.core.log.config import LogConfig
from anabranch.core.log.logs import MOST_RETURNING, LogFolder
from anabranch.core.log.memory_files import MemoryFiles
from anabranch.core.types import TopicId, TopicPartition
from anabranch.server.files import RealFiles
from anabranch.sim.disk import SimDisk

CONFIG = LogConfig(file_delete_delay_ms=0)
OLD, NEW = TopicId(b"o" * 16), TopicId(b"n" * 16)


def folder_with_log(seed, begins=0):
    """A disk whose folder has one log that was written to and never synced. It begins where its
    leader's did."""
    disk = SimDisk(Random(seed))
    folder = LogFolder(disk, "data")
    log = folder.create_log(KEY, OLD, CONFIG, now_ms=NOW_MS)
    if begins:
        log.truncate_fully(begins)
    append(log, batch(1))
    return disk, folder


@pytest.mark.parametrize("is_deleted", [False, True])
@pytest.mark.parametrize("begins", [0, 7])
def test_no_power_cut_brings_an_unnamed_log_back_to_its_place(is_deleted, begins):
    """Whatever survives of a log's files, those of the older one lie elsewhere, or say whose they
    are: it began at an offset, and had its name synced."""
    for seed in range(60):
        disk, folder = folder_with_log(seed, begins)
        disk.stored_names.update(disk.names)  # its names reached the disk by themselves
        old = {name for name in disk.names if name.startswith(f"data/{KEY}/")}
        if is_deleted:
            folder.delete_log(KEY, unique="1", now_ms=NOW_MS)
        else:
            folder.logs.pop(KEY).close(clean=False)
            folder.set_aside(KEY, unique="1")
        folder.create_log(KEY, NEW, CONFIG, now_ms=NOW_MS)
        disk.cut_power()
        left = {name for name in disk.names if name.startswith(f"data/{KEY}/")}
        if any(name.endswith(".log") for name in left & old):
            again = LogFolder(disk, "data")
            assert [one.topic_id for one in again.partitions()] == [OLD], (seed, left)


@pytest.mark.parametrize("is_deleted", [False, True])
@pytest.mark.parametrize("disk", ["real", "memory", "simulated"])
@pytest.mark.parametrize("topic", ["t" * 213, "t" * 214, "t" * 249])
def test_a_log_of_a_topic_with_the_longest_name_is_taken_away(topic, disk, is_deleted, tmp_path):
    """With a name of its own and a suffix it would be longer than disks take, and a name that is
    refused takes the folder offline."""
    path = str(tmp_path) if disk == "real" else "data"
    files = {"real": RealFiles, "memory": MemoryFiles, "simulated": lambda: SimDisk(Random(1))}
    folder = LogFolder(files[disk](), path)
    unique = "f" * 32
    for partition in (0, 99_999):
        place = TopicPartition(topic, partition)
        append(folder.create_log(place, OLD, CONFIG, now_ms=NOW_MS), batch(1))
        if is_deleted:
            folder.delete_log(place, unique=unique, now_ms=NOW_MS)
        else:
            folder.logs.pop(place).close(clean=False)
            folder.set_aside(place, unique=unique)
    names = [each for each in folder.files.list(path) if each.startswith("t")]
    suffix = "-delete" if is_deleted else "-stray"
    assert {each[each.index("-") :] for each in names} == {
        f"-0.{unique}{suffix}",
        f"-99999.{unique}{suffix}",
    }
    folder.remove_deleted(NOW_MS)
    again = LogFolder(folder.files, path)
    assert not again.partitions()
    left = [each for each in folder.files.list(path) if each.startswith("t")]
    assert bool(left) is not is_deleted


@pytest.mark.parametrize("begins", [0, 7])
@pytest.mark.parametrize("seed", range(20))
def test_whose_a_log_is_is_safe_with_the_first_records_after_an_orderly_stop(seed, begins):
    """A log without records is closed without a sync: nothing has made its name safe."""
    disk = SimDisk(Random(seed))
    folder = LogFolder(disk, "data")
    log = folder.create_log(KEY, OLD, CONFIG, now_ms=NOW_MS)
    if begins:
        log.truncate_fully(begins)
    folder.close()
    folder = LogFolder(disk, "data")
    log = folder.open_log(KEY, OLD, CONFIG, now_ms=NOW_MS)
    append(log, batch(1))
    sync(log)
    folder.checkpoint()
    disk.cut_power()
    again = LogFolder(disk, "data")
    assert [one.topic_id for one in again.partitions()] == [OLD]
    assert again.promised(KEY) == begins + 1


@pytest.mark.parametrize("first", range(0, 400, 50))
def test_a_log_of_which_something_is_promised_says_whose_it_is(first):
    """Else it would be taken for that of a topic made again under the name. Whatever was done with
    the log before a power cut."""
    for seed in range(first, first + 50):
        random = Random(seed)
        disk = SimDisk(random)
        folder = LogFolder(disk, "data")
        log = folder.create_log(KEY, OLD, CONFIG, now_ms=NOW_MS)
        done = []
        for _ in range(random.randint(1, 5)):
            done.append(random.choice(["append", "begin", "cut", "sync", "stop", "crash"]))
            if done[-1] == "append":
                append(log, batch(1))
            elif done[-1] == "begin":
                log.truncate_fully(log.end_offset + random.randrange(9))
            elif done[-1] == "cut":
                log.truncate_to(random.randint(log.start_offset, log.end_offset))
            elif done[-1] == "sync":
                sync(log)
            else:
                if done[-1] == "stop":
                    folder.close()
                folder = LogFolder(disk, "data")
                log = folder.open_log(KEY, OLD, CONFIG, now_ms=NOW_MS)
            folder.checkpoint()
        disk.cut_power()
        folder = LogFolder(disk, "data")
        named = [one.topic_id for one in folder.partitions()]
        assert named == [OLD] or not folder.promised(KEY), (seed, done, folder.promised(KEY))


def test_deletions_and_other_logs_sync_nothing(monkeypatch):
    """Names are synced for the log that begins in the place, once for all that were taken away."""
    disk, folder = folder_with_log(1)
    synced = []
    monkeypatch.setattr(disk, "sync_dir", synced.append)
    folder.delete_log(KEY, unique="1", now_ms=NOW_MS)
    folder.create_log(TopicPartition("another", 0), NEW, CONFIG, now_ms=NOW_MS)
    assert synced == []
    folder.create_log(KEY, NEW, CONFIG, now_ms=NOW_MS)
    assert synced == ["data"]


def test_what_is_remembered_of_deleted_logs_is_bounded():
    folder = folder_with_log(1)[1]
    for number in range(MOST_RETURNING + 5):
        place = TopicPartition("t", number)
        folder.create_log(place, NEW, CONFIG, now_ms=NOW_MS)
        folder.delete_log(place, unique="1", now_ms=NOW_MS)
        assert len(folder._may_return) <= MOST_RETURNING
