"""What a pass of compaction may do to a log, and what makes it worthless."""

from __future__ import annotations

import contextlib
from itertools import product

import pytest
from tests.core.log.compacting import IO_BYTES, MAP_BYTES, batches_of
from tests.core.log.support import KEY, NOW_MS, TOPIC_ID, append, marker, reopen, sync

from anabranch.core.errors import CorruptLog
from anabranch.core.log import cleanable, cleaner, compaction
from anabranch.core.log.config import LogConfig
from anabranch.core.log.log import Log
from anabranch.core.log.logs import LogFolder
from anabranch.core.log.memory_files import MemoryFiles
from anabranch.core.log.segment import LOG, offset_name
from anabranch.core.log.segment_swap import Stale
from anabranch.core.log.upkeep import look_after
from anabranch.core.wire.records import Record, build_batch, decode_records

CONFIG = LogConfig(cleanup_policy=("compact",), min_cleanable_dirty_ratio=0.0)


class World:
    """A compacted log of three segments, each with the same key."""

    def __init__(self) -> None:
        self.folder = LogFolder(MemoryFiles(), "data")
        self.log = self.folder.create_log(KEY, TOPIC_ID, CONFIG, now_ms=NOW_MS)
        for value in (b"1", b"2", b"3"):
            append(self.log, build_batch([Record(0, NOW_MS, b"k", value)]))
            self.log.roll(NOW_MS)
        sync(self.log)
        self.hosted = True

    def dirt(self) -> cleanable.Dirt:
        end = self.log.end_offset
        return cleaner.dirt_of(self.folder, KEY, self.log, now_ms=NOW_MS, high_watermark=end)

    def steps(self):
        job = compaction.job(
            self.log, self.dirt(), now_ms=NOW_MS, map_bytes=MAP_BYTES, io_bytes=IO_BYTES
        )
        *_, outcome = compaction.run(self.log.files, job)
        before = cleaner.before_pass(self.log, job)
        return cleaner.install(
            self.folder,
            self.log,
            before,
            outcome,
            is_hosted=lambda: self.hosted,
            clock_ms=lambda: NOW_MS,
        )

    def change(self, what: str, written: dict[int, bytes]) -> None:
        """Something happens behind the first three records; `written` is what is there then."""
        match what:
            case "a":
                value = b"%d" % len(written)
                records = build_batch([Record(0, NOW_MS, b"other" + value, value)])
                written[append(self.log, records)] = value
            case "c" if written:  # not all in-sync replicas have it
                offset = max(written)
                self.log.truncate_to(offset)
                del written[offset]
            case "r" if self.log.active.size:
                self.log.roll(NOW_MS)

    def kept(self) -> dict[int, bytes]:
        """The records behind the first three."""
        records = [record for each in batches_of(self.log) for record in decode_records(each)]
        return {each.offset: each.value for each in records if each.offset >= 3}


def run(world: World, steps, hosted_for: int = 100) -> None:
    """Make every step, and take the partition away after some."""
    for number, step in enumerate(steps):
        step.call()
        world.hosted = number < hosted_for


def test_a_recovery_point_covers_what_a_pass_read_before_the_first_segment_is_replaced():
    world = World()
    assert world.folder.promised(KEY) == 0
    segments = list(world.log.segments)
    for step in world.steps():
        if world.log.segments != segments:
            assert world.folder.promised(KEY) == 3
        step.call()
    assert len(world.log.segments) == 2
    assert world.folder.clean_points[KEY] == 3
    assert not world.dirt().dirty_bytes


def test_a_pass_over_a_log_that_changed_replaces_nothing():
    world = World()
    steps = world.steps()
    before = batches_of(world.log)
    world.log.truncate_to(1)
    with pytest.raises(Stale):
        run(world, steps)
    assert batches_of(world.log) == before[:1]
    assert not [name for name in world.log.files.list(world.log.folder) if "swapping" in name]


@pytest.mark.parametrize("at", range(8))
def test_what_comes_to_a_log_under_a_pass_stays(at):
    """A follower's log is cut, grows and closes segments between any two steps of a pass, in any
    order; a segment that the pass has read may take records again."""
    for changes in product("acr", repeat=4):
        world = World()
        steps, written = world.steps(), {}
        with contextlib.suppress(Stale):
            for number, step in enumerate(steps):
                if number == at:
                    for change in changes:
                        world.change(change, written)
                step.call()
        assert world.log.end_offset == 3 + len(written), changes
        assert world.kept() == written, changes


@pytest.mark.parametrize("offset", [-1, 0, 1, 2])
@pytest.mark.parametrize("at", range(10))
def test_a_log_that_is_cut_and_filled_under_a_pass_keeps_what_it_is_filled_with(at, offset):
    """Seed 61000483: a follower's log was cut while names were synced between the exchange of
    segments and the clearing up of those that went, and began others of the same names. Whether
    the process lives on or ends after any step: what was written is there, and nothing else."""
    for crashes_after in range(at, 12):
        world = World()
        steps, cut_at = world.steps(), None
        with contextlib.suppress(Stale):
            for number, step in enumerate(steps):
                if number == at:
                    cut_at = refill(world.log, offset)
                if number == crashes_after:
                    break
                step.call()
        if cut_at is None:
            continue
        written = {each: b"new %d" % each for each in range(cut_at, 4)}
        assert cut_off(values(world.log), cut_at) == written
        assert world.folder.clean_points.get(KEY, 0) <= cut_at or not offset
        for segment in world.log.segments:
            path = f"{world.log.folder}/{offset_name(segment.base_offset, LOG)}"
            assert world.log.files.size(path) == segment.size
        recovery_point = min(cut_at, world.folder.promised(KEY))
        assert cut_off(values(reopen(world.log, recovery_point=recovery_point)), cut_at) == written


def refill(log: Log, offset: int) -> int:
    """Cut a log, at its start if the offset is negative, and write until there are four records
    again, each in a segment of its own; where the new records begin."""
    if offset < 0:
        log.truncate_fully(0)
    else:
        log.truncate_to(offset)
    cut_at = log.end_offset
    for number in range(cut_at, 4):
        append(log, build_batch([Record(0, NOW_MS, b"%d" % number, b"new %d" % number)]))
        log.roll(NOW_MS)
    return cut_at


def values(log: Log) -> dict[int, bytes | None]:
    records = [record for each in batches_of(log) for record in decode_records(each)]
    return {each.offset: each.value for each in records}


def cut_off(found: dict[int, bytes | None], offset: int) -> dict[int, bytes | None]:
    return {each: value for each, value in found.items() if each >= offset}


@pytest.mark.parametrize("steps_before", range(6))
def test_a_partition_that_goes_under_a_pass_gets_no_checkpoint(steps_before):
    world = World()
    steps = world.steps()
    with pytest.raises(Stale):
        run(world, steps, hosted_for=steps_before)
    assert KEY not in world.folder.clean_points


def test_neither_a_full_folder_s_log_nor_one_that_failed_is_compacted():
    world = World()
    assert cleaner.may_be_cleaned(world.log)
    world.folder.room.refused(0)
    assert not cleaner.may_be_cleaned(world.log)


def test_of_two_logs_the_dirtier_goes_first_and_a_clean_one_not_at_all():
    world = World()
    dirt = world.dirt()
    cleaner_one = dirt._replace(clean_bytes=dirt.dirty_bytes)
    none = dirt._replace(dirty_bytes=0, clean_bytes=1)
    found = [("b", world.log, cleaner_one), ("c", world.log, none), ("a", world.log, dirt)]
    chosen, highest = cleaner.dirtiest(found)
    assert [name for name, _ in chosen] == ["a", "b"]
    assert highest == 1.0


def test_segments_that_a_pass_reads_do_not_expire_meanwhile():
    world = World()
    world.log.delete_records_before(2)
    assert not look_after(world.log, NOW_MS, 3, is_cleaning=True)
    assert world.log.segments[0].base_offset == 0
    assert look_after(world.log, NOW_MS, 3, is_cleaning=False)
    assert world.log.segments[0].base_offset == 2


@pytest.mark.parametrize("committed", [True, False])
@pytest.mark.parametrize("is_promised", [False, True])
def test_rot_in_a_marker_that_a_pass_went_by_is_found_and_costs_no_record(committed, is_promised):
    """The marker was synced; then its disk rotted it, and the process died. What lies behind the
    recovery point would be cut without a word, and the transaction could end the other way: by then
    the pass has removed the record that would count. So the recovery point covers the marker."""
    world = World()
    run(world, world.steps())
    mine = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0, "transactional": True}
    append(world.log, build_batch([Record(0, NOW_MS, b"k", b"of 7")], **mine))
    world.log.roll(NOW_MS)
    sync(world.log)
    if is_promised:  # by the checkpoint that is written every minute
        world.folder.checkpoint()
    marked = world.log.active.size
    end = marker(7, committed=committed)
    world.log.append_as_leader(end, leader_epoch=0, now_ms=NOW_MS, client=False)
    sync(world.log)
    run(world, world.steps())
    assert [each.value for one in batches_of(world.log)[:-1] for each in decode_records(one)] == (
        [b"of 7"] if committed else [b"3"]
    )
    path = world.log.active.file.path
    world.log.files.contents[path][marked + 70] ^= 1
    again = LogFolder(world.log.files, "data")
    assert again.partitions()
    with pytest.raises(CorruptLog):
        again.open_log(KEY, TOPIC_ID, CONFIG, now_ms=NOW_MS)
