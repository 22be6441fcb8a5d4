"""A log of which another store holds the older part: where it begins, and where its disk does.

Nothing is copied here: a test says up to where it was, as whoever copies will.
"""

from __future__ import annotations

from random import Random

import pytest
from tests.core.log.support import END, KEY, NOW_MS, TOPIC_ID, append, batch, sync

from anabranch.core.errors import ApiError, Bug, ErrorCode
from anabranch.core.log.checkpoints import LOG_STARTS
from anabranch.core.log.config import LogConfig
from anabranch.core.log.future_log import FutureLog
from anabranch.core.log.logs import LogFolder
from anabranch.core.log.memory_files import MemoryFiles

DAY_MS = 86_400_000
TIERED = LogConfig(segment_bytes=600, has_remote=True, file_delete_delay_ms=0)


class World:
    """A folder with one log, and which batches were ever in it."""

    def __init__(self, seed: int, config: LogConfig = TIERED) -> None:
        self.random = Random(seed)
        self.files = MemoryFiles()
        self.config = config
        self.now_ms = NOW_MS
        self.folder = LogFolder(self.files, "/logs")
        self.log = self.folder.create_log(KEY, TOPIC_ID, config, now_ms=NOW_MS)
        self.written: dict[int, tuple[int, bytes]] = {}
        """Offset -> (leader epoch, batch that holds it)."""
        self.epoch = 0
        self.start = self.noted = 0

    def append(self) -> None:
        self.now_ms += self.random.randrange(DAY_MS // 8)
        self.epoch += self.random.random() < 0.2
        records = batch(self.random.randint(1, 4), timestamp=self.now_ms)
        first = append(self.log, records, leader_epoch=self.epoch, now_ms=self.now_ms)
        for offset in range(first, self.log.end_offset):
            self.written[offset] = (self.epoch, bytes(records))

    def drop(self) -> None:
        """Some segments are in the other store, or lie before the log start."""
        log, committed = self.log, self.random.choice([self.log.end_offset, 0, 20])
        offset = self.random.choice([log.end_offset, log.local_start_offset + 5, log.start_offset])
        before, size_bytes = log.local_start_offset, log.size_bytes
        if self.random.random() < 0.3:
            log.apply_retention(self.now_ms + 99 * DAY_MS, committed)
            offset = log.start_offset
        else:
            log.drop_local(offset, self.now_ms, committed)
        after = log.local_start_offset
        assert after in (before, *(each.base_offset for each in log.segments))
        if log.size_bytes < size_bytes:
            first_base = log.segments[0].base_offset
            assert first_base <= min(offset, committed)
            assert log.noted_start_offset >= min(log.start_offset, first_base)

    def delete(self) -> None:
        self.log.delete_records_before(self.random.randint(self.start, self.log.end_offset))
        self.start = self.log.start_offset

    def cut(self) -> None:
        self.log.truncate_to(self.random.randint(self.log.local_start_offset, self.log.end_offset))
        self.forget()

    def begin_at(self) -> None:
        """As a follower whose leader has only a later part on its disk."""
        offset = self.random.randint(self.start, self.log.end_offset + 5)
        self.log.truncate_fully(offset, self.start)
        assert (self.log.start_offset, self.log.local_start_offset) == (self.start, offset)
        self.written.clear()

    def forget(self) -> None:
        self.written = {
            offset: one for offset, one in self.written.items() if offset < self.log.end_offset
        }

    def checkpoint(self) -> None:
        sync(self.log)
        self.folder.checkpoint()
        self.noted = self.start

    def restart(self) -> None:
        """The process ends; without a checkpoint of the log start it may be an older one."""
        if clean := self.random.random() < 0.5:
            self.folder.close()
            self.noted = self.start
        local = self.log.local_start_offset
        end = self.log.end_offset
        self.folder = LogFolder(self.files, "/logs")
        self.log = self.folder.open_log(KEY, TOPIC_ID, self.config, now_ms=self.now_ms)
        assert self.log.end_offset == end
        assert self.log.start_offset <= self.start, "what another store holds is still of the log"
        self.start = self.log.start_offset
        assert self.noted <= self.start, "a log start never goes back behind its checkpoint"
        assert self.log.local_start_offset <= local
        if clean:
            assert self.start == self.noted

    def move(self) -> None:
        """The log moves to another folder."""
        other = LogFolder(self.files, f"/other{self.random.getrandbits(60)}")
        future = FutureLog(self.log, self.folder, other, unique="u", now_ms=self.now_ms)
        while not future.has_all:
            future.copy(self.random.choice([1, 1 << 20]), self.now_ms)
        before = self.log
        taken = future.take_place(unique="u", now_ms=self.now_ms)
        assert taken.log.start_offset == before.start_offset
        epochs = [taken.log.epochs.epoch_of(each) for each in range(self.start, before.end_offset)]
        assert epochs == [before.epochs.epoch_of(e) for e in range(self.start, before.end_offset)]
        back = FutureLog(taken.log, other, self.folder, unique="v", now_ms=self.now_ms)
        while not back.has_all:
            back.copy(1 << 20, self.now_ms)
        self.log = back.take_place(unique="v", now_ms=self.now_ms).log
        self.noted = self.start
        self.folder.remove_deleted(self.now_ms + 1)

    def check(self) -> None:
        log = self.log
        assert log.start_offset <= log.local_start_offset <= log.end_offset
        assert log.start_offset >= self.start
        first_base = log.segments[0].base_offset if log.segments else log.end_offset
        assert first_base <= log.local_start_offset
        for offset in range(max(0, log.start_offset - 2), log.end_offset):
            if offset < log.local_start_offset:
                with pytest.raises(ApiError) as caught:
                    log.read(offset, max_bytes=1, upto=END, at_least_one=True)
                is_remote = offset >= log.start_offset
                assert (caught.value.code == ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE) == is_remote
            elif offset in self.written:
                epoch, held = self.written[offset]
                found = log.read(offset, max_bytes=1, upto=END, at_least_one=True)
                assert bytes(found)[16:] == held[16:]
                assert log.epochs.epoch_of(offset) == epoch
        found = log.offset_for_timestamp(0, upto=END)
        assert found is None or found.offset >= log.local_start_offset


ACTS = ("append", "append", "append", "drop", "drop", "delete", "cut", "begin_at", "checkpoint",
        "restart", "move")  # fmt: skip


UNNOTED = ("append", "append", "append", "append", "drop", "begin_at")
"""Nothing after which a checkpoint has the log start."""


@pytest.mark.parametrize("seed", range(60))
def test_both_starts_are_right_whatever_happens(seed: int) -> None:
    world = World(seed)
    for step in range(60):
        act = world.random.choice(ACTS if seed % 3 or step >= 30 else UNNOTED)
        if act in ("begin_at", "cut", "delete") and world.random.random() < 0.7:
            continue
        getattr(world, act)()
        world.check()


def filled(config: LogConfig = TIERED) -> World:
    world = World(1, config)
    for _ in range(30):
        world.append()
    return world


def test_what_is_dropped_is_still_of_the_log() -> None:
    """However old and large a log is: what it is to retain is decided for both parts together."""
    log = filled().log
    log.apply_retention(NOW_MS + 99 * DAY_MS, END)
    assert (log.start_offset, log.local_start_offset) == (0, 0)
    offset = log.segments[2].base_offset
    log.drop_local(offset + 1, NOW_MS, END)
    assert (log.start_offset, log.local_start_offset) == (0, offset)
    log.drop_local(END, NOW_MS, END)
    assert (log.start_offset, log.local_start_offset) == (0, log.segments[0].base_offset)
    assert len(log.segments) == 1, "the active segment stays"


def test_a_log_that_is_all_on_this_disk_drops_nothing() -> None:
    with pytest.raises(Bug):
        filled(LogConfig(segment_bytes=600)).log.drop_local(END, NOW_MS, END)


def test_a_log_without_another_store_begins_where_its_disk_does() -> None:
    world = filled(LogConfig(segment_bytes=600, retention_bytes=1500))
    world.log.apply_retention(world.now_ms, END)
    assert 0 < world.log.start_offset == world.log.local_start_offset


def test_the_checkpoint_has_the_log_start() -> None:
    """As Kafka's: also where no local segment begins there."""
    world = filled()
    log = world.log
    log.delete_records_before(3)
    world.checkpoint()
    local = log.segments[3].base_offset
    log.drop_local(local, NOW_MS, END)
    assert log.local_start_offset == local
    world.folder.checkpoint()
    assert world.files.read(f"/logs/{LOG_STARTS}") == f"0\n1\n{KEY.topic} 0 3\n".encode()
    again = LogFolder(world.files, "/logs").open_log(KEY, TOPIC_ID, TIERED, now_ms=NOW_MS)
    assert (again.start_offset, again.local_start_offset) == (3, local)


def test_a_copy_that_begins_in_the_middle_knows_after_a_crash_where_the_log_does() -> None:
    world = World(1)
    world.log.truncate_fully(40, 3)
    world.append()
    world.log.drop_local(END, NOW_MS, END)
    again = LogFolder(world.files, "/logs").open_log(KEY, TOPIC_ID, TIERED, now_ms=NOW_MS)
    assert again.start_offset <= 3
    assert again.local_start_offset == 40


def test_the_first_segments_go_when_a_checkpoint_has_where_the_log_begins() -> None:
    world = filled()
    world.log.drop_local(END, NOW_MS, END)
    assert world.log.local_start_offset > 0
    assert world.files.read(f"/logs/{LOG_STARTS}") == f"0\n1\n{KEY.topic} 0 0\n".encode()
    again = LogFolder(world.files, "/logs").open_log(KEY, TOPIC_ID, TIERED, now_ms=NOW_MS)
    assert again.start_offset == 0


def test_segments_stay_until_a_checkpoint_has_the_log_start() -> None:
    world = filled()
    log = world.log
    world.checkpoint()
    log.delete_records_before(3)
    log.drop_local(END, NOW_MS, END)
    assert log.local_start_offset == 3
    world.checkpoint()
    log.drop_local(END, NOW_MS, END)
    assert (log.start_offset, log.local_start_offset) == (3, log.segments[0].base_offset)


def test_a_log_whose_older_part_may_leave_from_now_on_begins_where_it_did() -> None:
    """No checkpoint has its start, which the first segment's name tells."""
    world = filled(LogConfig(segment_bytes=600, retention_bytes=1500))
    world.log.apply_retention(world.now_ms, END)
    world.checkpoint()
    again = LogFolder(world.files, "/logs").open_log(KEY, TOPIC_ID, TIERED, now_ms=NOW_MS)
    assert (again.start_offset, again.start_is_assumed) == (0, True)  # some may have left before
    again.settle_start(again.local_start_offset)  # nothing is remote
    assert 0 < world.log.start_offset == again.start_offset == again.local_start_offset
