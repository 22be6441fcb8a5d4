"""R5, R15: any crash point and any fault leave a prefix that contains everything flushed."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.core.log.support import KEY, NOW_MS, TOPIC_ID, append, batch, sync, tags

from anabranch.core.errors import CorruptLog, StorageFault
from anabranch.core.log.config import LogConfig
from anabranch.core.log.files import DiskFull
from anabranch.core.log.log import Log
from anabranch.core.log.logs import LogFolder
from anabranch.sim.disk import SimDisk

CONFIG = LogConfig(segment_bytes=9000, index_interval_bytes=300, file_delete_delay_ms=0)


class World:
    """One partition on a bad disk, and what its owner may expect of it."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.disk = SimDisk(self.random)
        self.folder = LogFolder(self.disk, "data")
        self.log: Log = self.folder.create_log(KEY, TOPIC_ID, CONFIG, now_ms=NOW_MS)
        self.disk.stored_names = dict(self.disk.names)
        self.appended: list[tuple[int, int]] = []
        self.flushed = 0
        self.tag = 0

    def append(self) -> None:
        """One batch; one that failed may be there after a restart, but not after a full disk."""
        self.tag += 1
        size_bytes = self.random.choice([10, 300, 1500])
        records = batch(self.random.randint(1, 4), size_bytes, tag=self.tag)
        before = self.log.end_offset
        try:
            append(self.log, records, leader_epoch=self.tag // 7)
        except DiskFull:
            if self.log.fault is None:
                assert self.log.end_offset == before
                return
            self.appended.append((before, self.tag))
        except StorageFault:
            self.appended.append((before, self.tag))
        else:
            self.appended.append((before, self.tag))

    def sync(self) -> None:
        """One round; what it covers must never be missing again."""
        try:
            sync(self.log)
        except StorageFault as fault:
            self.log.fail(fault)
        self.flushed = max(self.flushed, self.log.flushed_offset)

    def checkpoint(self) -> None:
        try:
            self.folder.checkpoint()
        except StorageFault as fault:
            self.log.fail(fault)

    def truncate(self) -> None:
        """Cut the end, as a follower does."""
        if self.log.fault is not None:
            return
        offset = self.random.randint(0, self.log.end_offset)
        try:
            end = self.log.truncate_to(offset)
        except StorageFault as fault:
            self.log.fail(fault)
            self.flushed = min(self.flushed, offset)
            return
        self.appended = [one for one in self.appended if one[0] < end]
        self.flushed = min(self.flushed, end)

    def restart(self, *, power: bool) -> None:
        """The process dies, perhaps with the power; then everything is checked."""
        self.disk.fail_in, self.disk.free = -1, 1 << 60
        if power:
            self.disk.cut_power()
        self.folder = LogFolder(self.disk, "data")
        if not self.folder.partitions():
            assert self.flushed == 0
            self.log = self.folder.create_log(KEY, TOPIC_ID, CONFIG, now_ms=NOW_MS)
        else:
            self.log = self.folder.open_log(KEY, TOPIC_ID, CONFIG, now_ms=NOW_MS)
        self.check(power=power)

    def check(self, *, power: bool) -> None:
        found = tags(self.log, self.random.choice([1, 700, 1 << 20]))
        assert found == [tag for _, tag in self.appended[: len(found)]]
        assert self.log.end_offset >= self.flushed
        self.appended = self.appended[: len(found)]
        self.flushed = max(min(self.flushed, self.log.end_offset), self.log.flushed_offset)
        epochs = self.log.epochs.entries
        assert epochs == sorted(epochs)


STEPS = ["append"] * 6 + ["sync", "sync", "checkpoint", "truncate", "full", "fail", "kill", "cut"]


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 2**32), st.lists(st.sampled_from(STEPS), min_size=5, max_size=60))
def test_any_crash_and_any_fault_leave_a_prefix_with_everything_flushed(
    seed: int, steps: list[str]
) -> None:
    world = World(seed)
    for step in [*steps, "cut"]:
        if step in ("kill", "cut"):
            world.restart(power=step == "cut")
        elif step == "full":
            world.disk.free = world.random.randint(0, 5000)
        elif step == "fail":
            world.disk.fail_in = world.random.randint(1, 12)
        elif world.log.fault is None:
            getattr(world, step)()


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32), st.integers(0, 2**32))
def test_a_flipped_bit_is_cut_or_named_but_never_silently_shortens(seed: int, place: int) -> None:
    world = World(seed)
    for _ in range(12):
        world.append()
        if world.random.random() < 0.2:
            world.sync()
            world.checkpoint()
    segment = world.log.segments[-1]
    position = place % (segment.size * 8)
    world.disk.flip_bit(segment.file.path, position // 8, position % 8)
    promised = world.folder._recovery_points.get(KEY, 0)
    folder = LogFolder(world.disk, "data")
    rot: CorruptLog | None = None
    try:
        log = folder.open_log(KEY, TOPIC_ID, CONFIG, now_ms=NOW_MS)
    except CorruptLog as found_rot:
        rot = found_rot
    if rot is not None:
        assert (rot.path, rot.first_offset < promised) == (segment.file.path, True)
        assert rot.position <= position // 8
        return
    found = tags(log)
    assert log.end_offset >= promised
    if log.recovery.cut_bytes:
        assert found == [tag for _, tag in world.appended[: len(found)]]
    else:  # the leader epoch lies outside of the checksum
        assert len(found) == len(world.appended)


def test_a_failed_sync_is_not_tried_again() -> None:
    """A failed fsync leaves unknown bytes behind it: the log stays offline (R5)."""
    world = World(1)
    world.append()
    world.disk.fail_in = 1
    world.sync()
    world.disk.fail_in = -1
    with pytest.raises(StorageFault):
        world.log.sync_target()
    with pytest.raises(StorageFault):
        world.log.read(0, max_bytes=100, upto=100, at_least_one=True)


def test_a_full_disk_leaves_the_log_as_it_was() -> None:
    world = World(2)
    world.append()
    size = world.log.size_bytes
    world.disk.free = 50
    with pytest.raises(DiskFull):
        append(world.log, batch(9, 500))
    assert (world.log.size_bytes, world.log.fault) == (size, None)
    world.disk.free = 1 << 60
    world.append()
    assert tags(world.log) == [1, 2]
