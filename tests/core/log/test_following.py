"""R1, R4: what a log does for a follower: a leader's batches, cuts and new beginnings."""

from __future__ import annotations

from random import Random

import pytest
from tests.core.log.support import NOW_MS, append, batch, new_log, reopen, sync, tags

from anabranch.core.log.files import DiskFull
from anabranch.core.log.log import Log
from anabranch.core.wire.batch import patch
from anabranch.sim.disk import SimDisk

FAR = 3 * 2**31


def from_leader(base_offset: int, *, epoch: int = 0, tag: int = 0, count: int = 2) -> bytearray:
    records = batch(count, tag=tag)
    patch(memoryview(records), 0, base_offset, epoch)
    return records


def gapped() -> Log:
    """Batches at 0 and 2, offsets up to 10 left out, and a batch at 10 in a segment of its own."""
    log = new_log()
    log.append_as_follower(from_leader(0) + from_leader(2, tag=1), now_ms=NOW_MS)
    log.end_offset = 10
    log.roll(NOW_MS)
    log.append_as_follower(from_leader(10, tag=2), now_ms=NOW_MS)
    sync(log)
    return log


def test_a_cut_inside_offsets_that_were_left_out_survives_a_clean_stop() -> None:
    log = gapped()
    assert log.truncate_to(7) == 4
    again = reopen(log, clean=True)
    assert (again.end_offset, tags(again)) == (4, [0, 1])


def test_a_cut_before_the_first_batch_of_a_segment_survives_a_clean_stop() -> None:
    log = new_log()
    log.append_as_follower(from_leader(5), now_ms=NOW_MS)
    sync(log)
    assert log.truncate_to(3) == 0
    assert reopen(log, clean=True).end_offset == 0


def test_a_batch_larger_than_a_segment_may_be_now_is_copied() -> None:
    """`segment.bytes` was lowered since the leader took it: no follower could ever go on."""
    log = new_log(segment_bytes=400)
    large = batch(1, 3000, tag=1)
    patch(memoryview(large), 0, 2, 0)
    records = from_leader(0) + large + from_leader(3, tag=2)
    log.append_as_follower(records, now_ms=NOW_MS)
    assert (log.end_offset, tags(log)) == (5, [0, 1, 2])
    assert [each.base_offset for each in log.segments] == [0, 2, 3]
    sync(log)
    assert tags(reopen(log)) == [0, 1, 2]


def test_a_cut_forgets_an_epoch_that_was_never_written_in() -> None:
    log = new_log()
    append(log, batch(2))
    log.assign_leader_epoch(4)
    log.truncate_to(2)
    assert log.epochs.entries == [(0, 0)]
    assert reopen(log, clean=True).epochs.entries == [(0, 0)]


def test_a_batch_far_behind_an_empty_log_s_end_begins_a_segment() -> None:
    """A compacted log may begin with a batch that no index of segment 0 reaches."""
    log = new_log(cleanup_policy=("compact",))
    log.roll(NOW_MS)
    log.append_as_follower(from_leader(FAR), now_ms=NOW_MS)
    assert log.active is not None and log.active.base_offset == FAR
    assert log.end_offset == FAR + 2
    sync(log)
    for again in (reopen(log), reopen(log, clean=True)):
        assert (again.end_offset, tags(again, 1)) == (FAR + 2, [0])


def test_batches_far_apart_in_one_answer_go_to_segments_of_their_own() -> None:
    log = new_log(cleanup_policy=("compact",))
    answer = from_leader(0) + from_leader(2, tag=1) + from_leader(FAR, tag=2)
    log.append_as_follower(answer, now_ms=NOW_MS)
    assert [segment.base_offset for segment in log.segments] == [0, FAR]
    sync(log)
    assert tags(reopen(log)) == [0, 1, 2]


def test_an_answer_larger_than_a_segment_is_spread_over_several() -> None:
    """The leader's segments may be larger: segment.bytes was lowered since."""
    log = new_log(segment_bytes=250)
    answer = b"".join(bytes(from_leader(2 * each, tag=each)) for each in range(5))
    log.append_as_follower(answer, now_ms=NOW_MS)
    assert (log.end_offset, len(log.segments)) == (10, 5)
    assert tags(reopen(log)) == [0, 1, 2, 3, 4]


def test_a_disk_that_fills_at_a_roll_leaves_no_empty_segment_behind() -> None:
    """Smaller batches may still fit the old segment; an opening would end at the empty one."""
    log = new_log(segment_bytes=250)
    append(log, batch(1))
    file_type = type(log.active.file) if log.active else None
    assert file_type is not None
    whole, truncate = bytearray(batch(2)), file_type.truncate

    def full(self: object, size: int) -> None:
        raise DiskFull("no room")

    file_type.truncate = full  # type: ignore[method-assign]
    try:
        with pytest.raises(DiskFull):
            append(log, whole)
    finally:
        file_type.truncate = truncate  # type: ignore[method-assign]
    append(log, batch(1, size_bytes=1))
    assert len(log.segments) == 1
    assert reopen(log, clean=True).end_offset == 2


@pytest.mark.parametrize("seed", range(8))
def test_an_epoch_table_that_was_synced_survives_a_power_cut(seed: int) -> None:
    """Its new file has an old name: without the name's sync the table before it would be back."""
    disk = SimDisk(Random(seed))
    log = new_log(disk)
    append(log, batch(2))
    sync(log)
    log.append_as_follower(from_leader(2, epoch=3), now_ms=NOW_MS)
    log.close(clean=True)
    disk.cut_power()
    again = reopen(log, recovery_point=4)
    assert again.epochs.entries == [(0, 0), (3, 2)]
    assert log.files.read(f"{log.folder}/leader-epoch-checkpoint").decode().split()[2:] == [
        *("0", "0"),
        *("3", "2"),
    ]
