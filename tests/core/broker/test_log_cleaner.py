"""Which hosted logs get a pass of compaction, and what follows from how it ended."""

from __future__ import annotations

import pytest
from tests.core.broker.hosting_kit import FOLDERS, ROT, WALL_MS, Stage
from tests.core.log.compacting import IO_BYTES, MAP_BYTES
from tests.core.log.support import sync

from anabranch.core.broker.hosting.effects import Report
from anabranch.core.broker.hosting.log_cleaner import LOOKED_AT_ONCE
from anabranch.core.errors import Bug, StorageFault
from anabranch.core.log import cleanable, cleaner, compaction
from anabranch.core.log.cleaner import PassEnd, end_of
from anabranch.core.log.files import ColdRead, DiskFull
from anabranch.core.log.segment_swap import Stale
from anabranch.core.metadata.image import RESOURCE_TOPIC, MetadataDelta
from anabranch.core.types import TopicPartition

COMPACTED = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"}


class Cleaned(Stage):
    """A broker with a compacted topic of some partitions, each with dirty segments."""

    def __init__(self, partitions: int = 2, threads: int = 1) -> None:
        super().__init__()
        self.broker.config.__dict__["log_cleaner_threads"] = threads
        self.settings["t"] = COMPACTED
        self.publish()
        self.publish(self.create("t", partitions))
        for index in range(partitions):
            self.dirty(TopicPartition("t", index))
        self.machine = self.hosting.cleaner

    def dirty(self, place: TopicPartition, segments: int = 2) -> None:
        log = self.partitions.get(*place).log
        for _ in range(segments):
            self.append(place)
            log.roll(WALL_MS)
        sync(log)
        self.partitions.get(*place).advance()

    def look(self) -> list:
        """The passes that begin now."""
        for cold in self.machine.look(self.now_ms, WALL_MS):
            assert cold is None
        return self.machine.take_passes()

    def end(self, begun, end: PassEnd) -> None:
        self.machine.ended(begun, end, f"why: {end.value}", self.now_ms)
        self.perform()

    def wait(self) -> None:
        """Until what rests is weighed again."""
        self.now_ms += self.machine.backoff_ms

    def told(self) -> list[Report]:
        return [each for each in self.done if isinstance(each, Report)]


def places(passes) -> list[int]:
    return [each.place.partition for each in passes]


def test_as_many_logs_get_a_pass_as_there_are_threads_and_each_one_at_a_time():
    stage = Cleaned(partitions=3, threads=2)
    first = stage.look()
    assert places(first) == [0, 1]
    assert stage.look() == []
    assert [stage.machine.is_cleaning(TopicPartition("t", each)) for each in range(3)] == [
        True, True, False,
    ]  # fmt: skip
    stage.end(first[0], PassEnd.DONE)
    assert places(stage.look()) == [0], "it is as dirty as before, and came first"


def test_retention_leaves_the_segments_of_a_pass_alone():
    stage = Cleaned(partitions=1)
    replica = stage.partitions.get("t", 0)
    stage.settings["t"] = {**COMPACTED, "cleanup.policy": "compact,delete", "retention.ms": "1"}
    stage.publish(MetadataDelta(changed_configs=frozenset({(RESOURCE_TOPIC, "t")})))
    (begun,) = stage.look()
    stage.hosting.clean_one(replica, WALL_MS + 10_000)
    assert replica.log.start_offset == 0
    stage.end(begun, PassEnd.DONE)
    stage.hosting.clean_one(replica, WALL_MS + 10_000)
    assert replica.log.start_offset > 0


def test_what_follows_from_each_end():
    """The log itself is weighed at once, after a rest, or never again; the other one always is."""
    for end in PassEnd:
        check_what_follows(end)


def check_what_follows(end):
    stage = Cleaned()
    (begun,) = stage.look()
    stage.end(begun, end)
    folder = begun.replica.folder
    assert (folder in stage.partitions.offline_folders) is (end is PassEnd.STORAGE)
    soon = places(stage.look())
    assert soon == ([0] if end in (PassEnd.DONE, PassEnd.COLD) else [1])
    stage = Cleaned()
    (begun,) = stage.look()
    stage.end(begun, end)
    stage.wait()
    later = places(stage.look())
    is_lost = end in (PassEnd.CORRUPT, PassEnd.BUG, PassEnd.STORAGE)
    assert later == ([1] if is_lost else [0])
    is_left_alone = end in (PassEnd.CORRUPT, PassEnd.BUG)
    assert list(stage.machine.uncleanable) == ([begun.place] if is_left_alone else [])
    is_silent = end in (PassEnd.DONE, PassEnd.COLD)
    assert bool(stage.told()) is not is_silent


@pytest.mark.parametrize("end", list(PassEnd))
def test_the_end_of_a_pass_over_a_deleted_log_changes_nothing(end):
    stage = Cleaned()
    (begun,) = stage.look()
    stage.publish(stage.delete("t"))
    before = list(stage.done)
    stage.end(begun, end)
    assert stage.done == before
    assert not stage.machine.uncleanable
    assert not stage.partitions.offline_folders


def test_a_log_made_anew_is_not_taken_for_the_one_that_was_left_alone():
    stage = Cleaned(partitions=1)
    (begun,) = stage.look()
    stage.end(begun, PassEnd.CORRUPT)
    stage.publish(stage.delete("t"))
    stage.publish(stage.create("t"))
    stage.dirty(TopicPartition("t", 0))
    assert places(stage.look()) == [0]
    assert not stage.machine.uncleanable


def test_a_disk_that_does_not_tell_how_dirty_a_log_is_is_reported(monkeypatch):
    def refuse(*_about, **_options):
        raise StorageFault("no disk")

    stage = Cleaned(partitions=1)
    monkeypatch.setattr(cleanable, "dirt", refuse)
    assert stage.look() == []
    assert [replica.topic_partition.topic for replica, _ in stage.broker.faults] == ["t"]


def test_other_work_runs_while_many_logs_are_weighed_and_cold_ones_come_later(monkeypatch):
    stage = Cleaned(partitions=1)
    replica = stage.partitions.get("t", 0)
    many = {TopicPartition("t", each): replica for each in range(2 * LOOKED_AT_ONCE)}
    monkeypatch.setattr(stage.hosting.logs, "compacted", many)
    assert list(stage.machine.look(0, WALL_MS)) == [None, None]
    stage.machine.take_passes()
    cold = ColdRead(stage.files.open("/a/x", create=True), 0, 1)

    def be_cold(*_about, **_options):
        raise cold

    stage = Cleaned(partitions=1)
    monkeypatch.setattr(cleanable, "dirt", be_cold)
    assert list(stage.machine.look(0, WALL_MS)) == [cold]
    assert stage.machine.take_passes() == []


def test_a_pass_that_is_over_has_removed_what_nobody_took_unless_its_log_is_gone():
    stage = Cleaned(partitions=1)
    (begun,) = stage.look()
    job = begun.job(now_ms=WALL_MS, map_bytes=MAP_BYTES, io_bytes=IO_BYTES)
    list(compaction.run(stage.files, job))
    folder = begun.replica.log.folder
    assert any(name.endswith(compaction.CLEANED) for name in stage.files.list(folder))
    begun.discard()
    assert not any(name.endswith(compaction.CLEANED) for name in stage.files.list(folder))
    stage.publish(stage.delete("t"))
    begun.discard()
    with pytest.raises(Stale):
        begun.check()


def test_a_log_that_was_cut_since_it_was_chosen_gets_no_pass():
    """What was weighed may be gone, and other records stand there."""
    stage = Cleaned(partitions=1)
    (begun,) = stage.look()
    log = begun.replica.log
    log.truncate_to(1)
    stage.dirty(begun.place, segments=3)
    with pytest.raises(Stale):
        begun.job(now_ms=WALL_MS, map_bytes=MAP_BYTES, io_bytes=IO_BYTES)


def test_each_kind_of_fault_is_one_end():
    cold = ColdRead(Stage().files.open("x", create=True), 0, 1)
    faults = [Stale("x"), cold, DiskFull("x"), ROT, StorageFault("x"), Bug("x"), ValueError("x")]
    assert [end_of(fault) for fault in faults] == [
        PassEnd.GIVEN_UP, PassEnd.COLD, PassEnd.FULL, PassEnd.CORRUPT, PassEnd.STORAGE,
        PassEnd.BUG, PassEnd.BUG,
    ]  # fmt: skip
    assert cleaner.PassEnd("given up") is PassEnd.GIVEN_UP
    assert len(FOLDERS) > 1, "a failed folder leaves another"
