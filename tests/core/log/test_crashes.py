"""R5, R15: any crash point and any fault leave a prefix that contains everything flushed."""

from __future__ import annotations

from contextlib import suppress
from random import Random

import pytest
from hypothesis import example, given, settings
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
        self.memory = Random(seed + 1)
        """What the kernel forgets of the pages that it takes for written."""
        self.folder = LogFolder(self.disk, "data")
        self.log: Log = self.folder.create_log(KEY, TOPIC_ID, CONFIG, now_ms=NOW_MS)
        self.disk.stored_names = dict(self.disk.names)
        self.appended: list[tuple[int, int, int]] = []
        """(first offset, last offset, tag) of every batch that may be there."""
        self.sequences: dict[int, int] = {}
        self.flushed = 0
        self.tag = 0
        self.retired = 0
        self.refused = False

    @staticmethod
    def epoch(tag: int) -> int:
        """The leader epoch of a batch."""
        return tag // 7

    def append(self) -> None:
        """One batch; one that failed may be there after a restart, but not after a full disk."""
        self.tag += 1
        count, size_bytes = self.random.randint(1, 4), self.random.choice([10, 300, 1500])
        producer: dict[str, int] = {}
        if self.tag % 3 == 0:
            known = self.log.producers.producers.get(5)
            first = known.last_sequence + 1 if known is not None else 0
            producer = {"producer_id": 5, "producer_epoch": 0, "base_sequence": first}
            self.sequences[self.tag] = first + count - 1
        before = self.log.end_offset
        try:
            append(
                self.log,
                batch(count, size_bytes, tag=self.tag, **producer),
                leader_epoch=self.epoch(self.tag),
            )
        except DiskFull:
            if self.log.fault is None:
                assert self.log.end_offset == before
                return
        except StorageFault:
            assert self.log.fault is not None
        self.appended.append((before, before + count - 1, self.tag))

    def sync(self) -> None:
        """One round; what it covers must never be missing again."""
        try:
            sync(self.log)
        except DiskFull:
            return
        except StorageFault as fault:
            self.log.fail(fault)
        self.flushed = max(self.flushed, self.log.flushed_offset)

    def fail_to_sync(self) -> None:
        """A round of which one file is not stored; the process ends there, or learns of it."""
        target = None
        with suppress(StorageFault):
            target = self.log.sync_target()
        if target is None:
            return
        failing = self.random.randrange(len(target[1]))
        try:
            for number, one in enumerate(target[1]):
                if number == failing:
                    self.disk.fail_in = 1
                one.sync()
        except StorageFault as fault:
            if self.random.random() < 0.5:
                self.log.fail(fault)
            self.restart(power=False)
        else:  # what was to fail needed no disk
            self.log.synced(target[0])
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
        start_offset = self.log.start_offset
        offset = self.random.randint(start_offset, self.log.end_offset)
        try:
            end = self.log.truncate_to(offset)
        except StorageFault as fault:
            self.log.fail(fault)
            begun = [first for first, last, _ in self.appended if last >= offset]
            end = min([offset, *begun])
            # Cut within the batch that the log starts in, it begins anew: what lay before goes too.
            self.flushed = min(self.flushed, end) if end >= start_offset else 0
            self.refused = True
            return
        self.appended = [one for one in self.appended if one[1] < end]
        self.retired = min(self.retired, end)
        self.flushed = min(self.flushed, end)

    def retire(self) -> None:
        """Raise the log start and drop the segments before it."""
        offset = self.random.randint(self.log.start_offset, self.log.end_offset)
        self.retired = max(self.retired, offset)
        try:
            self.log.delete_records_before(offset)
            self.log.apply_retention(NOW_MS, self.log.end_offset)
            self.log.remove_deleted_files(NOW_MS)
        except StorageFault as fault:
            self.log.fail(fault)

    def stop(self) -> None:
        """An orderly stop, and a power cut right behind it: what was closed is all there."""
        with suppress(StorageFault):
            self.folder.close()
        self.flushed = max(self.flushed, self.log.flushed_offset)
        self.restart(power=True)

    def restart(self, *, power: bool) -> None:
        """The process dies, perhaps with the power; then everything is checked."""
        self.disk.fail_in, self.disk.free = -1, 1 << 60
        if power or self.refused:  # a cut that was never synced may be undone only once
            self.disk.cut_power()
            self.refused = False
        if self.memory.random() < 0.5:
            self.disk.started()
        self.folder = LogFolder(self.disk, "data")
        found = self.folder.partitions()
        if self.flushed:
            assert [each.topic_id for each in found] == [TOPIC_ID]
        if not found:
            assert self.flushed == 0
            self.log = self.folder.create_log(KEY, TOPIC_ID, CONFIG, now_ms=NOW_MS)
        else:
            self.log = self.folder.open_log(KEY, TOPIC_ID, CONFIG, now_ms=NOW_MS)
        self.check()

    def check(self) -> None:
        """What is served is what was appended, from the log start on, without a hole."""
        log = self.log
        assert log.start_offset <= self.retired
        assert log.end_offset >= self.flushed
        found = tags(log, self.random.choice([1, 700, 1 << 20]))
        skipped = sum(last < log.start_offset for _, last, _ in self.appended)
        kept = self.appended[skipped : skipped + len(found)]
        assert found == [tag for _, _, tag in kept]
        self.appended = self.appended[: skipped + len(found)]
        if found:
            assert kept[-1][1] == log.end_offset - 1
        self.retired = max(log.start_offset, min(self.retired, log.end_offset))
        self.flushed = max(min(self.flushed, log.end_offset), log.flushed_offset)
        written = [(self.epoch(tag), first) for first, _, tag in kept]
        assert self.begins(log.epochs.entries) == self.begins(written)
        producer = log.producers.producers.get(5)
        numbered = [tag for _, _, tag in kept if tag % 3 == 0]
        if numbered:
            assert producer is not None
            assert producer.last_sequence == self.sequences[numbered[-1]]

    def begins(self, entries: list[tuple[int, int]]) -> dict[int, int]:
        """Where each leader epoch begins among the records that were not deleted."""
        found: dict[int, int] = {}
        for epoch, offset in entries:
            begin = max(offset, self.retired)
            if begin < self.log.end_offset:
                found = {each: other for each, other in found.items() if other < begin}
                found.setdefault(epoch, begin)
        return found


STEPS = ["append"] * 6 + [
    "sync",
    "sync",
    "fail_to_sync",
    "fail_to_sync",
    "checkpoint",
    "truncate",
    "retire",
    "stop",
    "full",
    "fail",
    "kill",
    "cut",
]


@settings(max_examples=150, deadline=None)
@example(124, ["append", "append", "fail", "sync", "kill", "sync"])
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


UNCHECKED_BYTES = (*range(8), *range(12, 16))
"""Where a batch has its base offset and leader epoch, which its checksum leaves out."""


def is_unchecked(stored: bytes, byte: int) -> bool:
    """Whether a byte of a segment belongs to a batch's base offset or leader epoch."""
    at = 0
    while at <= byte:
        end = at + 12 + int.from_bytes(stored[at + 8 : at + 12])
        if at <= byte < end:
            return byte - at in UNCHECKED_BYTES
        at = end
    return False


@settings(max_examples=60, deadline=None)
@example(15, 992)
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
    unchecked = is_unchecked(world.disk.read(segment.file.path), position // 8)
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
        # a raised offset or epoch is found where the next batch goes back to the true one
        assert rot.position <= position // 8 or unchecked
        return
    found = tags(log)
    assert log.end_offset >= promised
    if log.recovery.cut_bytes:
        assert found == [tag for _, _, tag in world.appended[: len(found)]]
    else:  # the leader epoch lies outside of the checksum
        assert len(found) == len(world.appended)


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("is_flushed", [False, True])
def test_a_power_cut_after_an_orderly_stop_takes_nothing(seed: int, is_flushed: bool) -> None:
    """The marker says that nothing need be checked: indexes and producers must be safe, too."""
    world = World(seed)
    for number in range(40):
        producer = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 2 * number}
        append(world.log, batch(2, 300, NOW_MS + 1000 * number, tag=number, **producer))
    if is_flushed:
        sync(world.log)
    world.folder.close()
    world.disk.cut_power()
    folder = LogFolder(world.disk, "data")
    assert (folder.clean, list(folder.partitions())) == (True, [(KEY, TOPIC_ID)])
    log = folder.open_log(KEY, TOPIC_ID, CONFIG, now_ms=NOW_MS)
    assert (log.recovery.scanned_bytes, log.recovery.rebuilt_indexes) == (0, 0)
    assert tags(log) == list(range(40))
    assert log.active is not None
    assert log.active.max_timestamp == NOW_MS + 39_001
    assert log.producers.producers[7].last_sequence == 79
    found = log.offset_for_timestamp(NOW_MS + 38_500, upto=80)
    assert found is not None and found.offset == 78


@pytest.mark.parametrize("seed", range(20))
def test_whose_a_log_is_is_safe_with_what_a_killed_process_left(seed: int) -> None:
    """A kill takes nothing that was written, and the power may go later: after the next round."""
    world = World(seed)
    world.append()
    folder = LogFolder(world.disk, "data")
    log = folder.open_log(KEY, TOPIC_ID, CONFIG, now_ms=NOW_MS)
    sync(log)
    folder.checkpoint()
    world.disk.cut_power()
    assert [one.topic_id for one in LogFolder(world.disk, "data").partitions()] == [TOPIC_ID]


def test_a_folder_that_does_not_say_whose_it_is_is_told() -> None:
    """A power cut took what was in `partition.metadata`: its bytes must not be another topic's."""
    world = World(3)
    world.append()
    world.disk.write_atomic("data/flights-0/partition.metadata", b"", sync=True)
    folder = LogFolder(world.disk, "data")
    assert [one.topic_id for one in folder.partitions()] == [None]
    folder.open_log(KEY, TOPIC_ID, CONFIG, now_ms=NOW_MS)
    assert [one.topic_id for one in LogFolder(world.disk, "data").partitions()] == [TOPIC_ID]


def test_a_log_that_begins_anew_behind_deleted_records_syncs_no_file_of_before() -> None:
    """Everything that a power cut left lies before the log start; the folder stays in service."""
    world = World(4)
    for _ in range(30):
        world.append()
    end_offset, segments = world.log.end_offset, world.log.segments
    assert len(segments) > 2
    world.log.delete_records_before(end_offset)
    world.folder.checkpoint()
    segments[-1].file.truncate(0)
    log = LogFolder(world.disk, "data").open_log(KEY, TOPIC_ID, CONFIG, now_ms=NOW_MS)
    assert (log.start_offset, log.end_offset) == (end_offset, end_offset)
    sync(log)
    assert [name for name in world.disk.list(log.folder) if name.endswith(".log")] == [
        f"{end_offset:020d}.log"
    ]


@pytest.mark.parametrize("seed", range(20))
def test_a_log_that_begins_anew_behind_deleted_records_stays_there(seed: int) -> None:
    """Its first segment's name says where it starts, and the checkpoint does not any more."""
    world = World(seed)
    for _ in range(30):
        world.append()
    end_offset = world.log.end_offset
    world.log.delete_records_before(end_offset)
    world.folder.checkpoint()
    world.log.segments[-1].file.truncate(0)
    folder = LogFolder(world.disk, "data")
    folder.open_log(KEY, TOPIC_ID, CONFIG, now_ms=NOW_MS)
    folder.checkpoint()
    world.disk.cut_power()
    log = LogFolder(world.disk, "data").open_log(KEY, TOPIC_ID, CONFIG, now_ms=NOW_MS)
    assert (log.start_offset, log.end_offset) == (end_offset, end_offset)


@pytest.mark.parametrize("seed", range(10))
def test_indexes_that_were_made_again_are_safe(seed: int) -> None:
    """Their segment was synced long ago, so that no later round writes them."""
    world = World(seed)
    for _ in range(30):
        world.append()
    world.sync()
    world.checkpoint()
    first = world.log.segments[0]
    made = [first.stem + suffix for suffix in (".index", ".timeindex", ".txnindex")]
    for path in made:
        world.disk.remove(path)
    world.disk.sync_dir(world.log.folder)
    log = LogFolder(world.disk, "data").open_log(KEY, TOPIC_ID, CONFIG, now_ms=NOW_MS)
    log.aborted_transactions(0, log.end_offset)
    written = [world.disk.read(path) for path in made]
    world.disk.cut_power()
    assert [world.disk.read(path) for path in made] == written


@pytest.mark.parametrize("fail_in", range(1, 60))
def test_a_log_that_is_dropped_whole_does_not_come_back_without_its_first_segment(
    fail_in: int,
) -> None:
    """It would then begin at a later offset than anybody decided."""
    for seed in range(10):
        world = World(seed)
        for _ in range(20):
            world.append()
        world.sync()
        world.disk.fail_in = fail_in
        with suppress(StorageFault):
            world.log.truncate_fully(0)
        world.disk.cut_power()
        names = [name for name in world.disk.list(world.log.folder) if name.endswith(".log")]
        assert not names or names[0] == f"{0:020d}.log"


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("steps", range(4))
def test_a_draft_is_the_checkpoint_or_it_is_not(seed: int, steps: int) -> None:
    """As the cleaner has it written, adopted and synced, each in its own time."""
    world = World(seed)
    world.append()
    world.sync()
    world.checkpoint()
    before = world.log.end_offset
    world.append()
    world.sync()
    folder, draft = world.folder, world.folder.draft_synced(KEY)
    if steps > 0:
        folder.write_draft(draft)
    if steps > 1:
        assert folder.adopt(draft)
    if steps > 2:
        world.disk.sync_dir("data")
    world.disk.cut_power()
    promised = LogFolder(world.disk, "data").promised(KEY)
    allowed = [{before}, {before}, {before, world.log.end_offset}, {world.log.end_offset}]
    assert promised in allowed[steps]
    world.restart(power=False)


@pytest.mark.parametrize("seed", range(8))
def test_whose_a_log_is_is_safe_with_its_first_records(seed: int) -> None:
    world = World(seed)
    world.append()
    world.sync()
    world.disk.cut_power()
    assert [one.topic_id for one in LogFolder(world.disk, "data").partitions()] == [TOPIC_ID]


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
