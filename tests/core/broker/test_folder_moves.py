"""AlterReplicaLogDirs: a log moves to another folder while it is written (KIP-113)."""

from __future__ import annotations

import pytest
from tests.core.broker.hosting_kit import FOLDERS, ROT, WALL_MS, Stage
from tests.core.log.compacting import committed_values, compact
from tests.core.log.support import read_batches, sync

from anabranch.core.broker.hosting.effects import Report, TellHosted
from anabranch.core.errors import StorageFault
from anabranch.core.log.cleaner import PassEnd
from anabranch.core.metadata.image import RESOURCE_TOPIC, MetadataDelta
from anabranch.core.types import TopicPartition
from anabranch.core.wire.records import Record, build_batch

PLACE = TopicPartition("t", 0)


class Moving(Stage):
    """A broker with one partition, in folder /a, of some records."""

    def __init__(self, records: int = 20, size_bytes: int = 1000, rate: int = 1 << 30) -> None:
        super().__init__()
        self.broker.config.__dict__["replica_alter_log_dirs_io_max_bytes_per_second"] = rate
        self.publish()
        self.publish(self.create("t"))
        self.size_bytes = size_bytes
        for _ in range(records):
            self.write()
        self.home = self.folder_of(PLACE)
        self.other = next(each for each in FOLDERS if each != self.home)

    @property
    def replica(self):
        return self.partitions.get(*PLACE)

    def write(self, key: bytes = b"k", value: bytes | None = b"") -> None:
        value = bytes(self.size_bytes) if value == b"" else value
        batch = build_batch([Record(0, WALL_MS, key, value)])
        self.replica.append(batch, required_acks=1, now_ms=WALL_MS)

    def compacts(self) -> None:
        self.settings["t"] = {
            "cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0", "delete.retention.ms": "0",
        }  # fmt: skip
        self.publish(MetadataDelta(changed_configs=frozenset({(RESOURCE_TOPIC, "t")})))

    def roll(self) -> None:
        self.replica.log.roll(WALL_MS)
        self.write(b"last")
        sync(self.replica.log)
        self.replica.advance()

    def look(self) -> list:
        """The passes of compaction that begin now."""
        assert not any(self.hosting.cleaner.look(self.now_ms, WALL_MS))
        return self.hosting.cleaner.take_passes()

    def move(self, path: str | None = None) -> None:
        self.partitions.moves.ask(PLACE, path or self.other, self.replica.folder)

    def second(self) -> None:
        self.tick(1000)


def test_a_log_moves_with_all_its_records_and_goes_on():
    stage = Moving()
    old = read_batches(stage.replica.log)
    stage.move()
    stage.second()
    assert stage.folder_of(PLACE) == stage.other
    assert read_batches(stage.replica.log) == old
    assert not stage.partitions.moves.wanted and not stage.partitions.moves.copies
    assert not stage.files.exists(f"{stage.home}/t-0")
    told = [each for each in stage.done if isinstance(each, TellHosted)][-1]
    assert (told.replica.folder, told.is_found) == (stage.other, True)
    stage.write()
    assert stage.replica.end_offset == 21
    assert len(read_batches(stage.replica.log)) == 21


def test_copying_is_paced_and_the_log_is_written_meanwhile():
    stage = Moving(rate=5000)
    stage.move()
    lags = []
    while stage.folder_of(PLACE) == stage.home:
        stage.second()
        lags += [copy.lag for copy in stage.partitions.moves.copies.values()]
        stage.write()
    assert lags == [15, 11, 7, 3]
    assert stage.replica.end_offset == len(read_batches(stage.replica.log))


def test_a_rate_of_nothing_moves_nothing():
    stage = Moving(rate=0)
    stage.move()
    for _ in range(5):
        stage.second()
    assert stage.folder_of(PLACE) == stage.home


def test_a_log_that_is_cut_meanwhile_is_copied_again():
    stage = Moving(rate=5000)
    stage.move()
    stage.second()
    stage.replica.log.truncate_to(3)
    stage.size_bytes = 77
    for _ in range(4):
        stage.write()
    old = read_batches(stage.replica.log)
    for _ in range(5):
        stage.second()
    assert stage.folder_of(PLACE) == stage.other
    assert read_batches(stage.replica.log) == old


def test_a_key_that_was_deleted_does_not_come_back_by_a_move():
    """The copy has taken the value over when the log is compacted, and finds no tombstone then."""
    stage = Moving(records=0, rate=5000)
    stage.compacts()
    stage.write(b"deleted", b"value")
    for number in range(20):
        stage.write(b"%d" % number)
    stage.move()
    stage.second()
    assert stage.partitions.moves.copies
    stage.write(b"deleted", None)
    stage.roll()
    for _ in range(10):
        for begun in stage.look():
            for _ in range(2):  # the first one says from when on a tombstone may go
                compact(begun.replica.log, WALL_MS)
            stage.hosting.cleaner.ended(begun, PassEnd.DONE, "", stage.now_ms)
        stage.second()
    assert stage.folder_of(PLACE) == stage.other
    found = committed_values(stage.replica.log, stage.replica.end_offset)
    assert found.get(b"deleted") is None
    assert found[b"last"] is not None


def test_a_log_is_compacted_before_it_moves_or_afterwards():
    stage = Moving(rate=5000)
    stage.compacts()
    stage.roll()
    (begun,) = stage.look()
    stage.move()
    stage.second()
    assert not stage.partitions.moves.copies
    stage.hosting.cleaner.ended(begun, PassEnd.GIVEN_UP, "", stage.now_ms)
    stage.now_ms += stage.hosting.cleaner.backoff_ms
    stage.second()
    assert stage.partitions.moves.copies
    assert stage.look() == []
    for _ in range(5):
        stage.second()
    assert stage.folder_of(PLACE) == stage.other
    stage.roll()
    assert len(stage.look()) == 1


def test_a_log_that_begins_later_keeps_its_start():
    stage = Moving()
    batch = build_batch([Record(each, WALL_MS, b"k", b"v") for each in range(10)])
    stage.replica.append(batch, required_acks=1, now_ms=WALL_MS)
    stage.replica.log.delete_records_before(25)
    stage.move()
    stage.second()
    assert stage.folder_of(PLACE) == stage.other
    assert (stage.replica.start_offset, stage.replica.end_offset) == (25, 30)
    empty = Moving()
    empty.replica.log.delete_records_before(20)
    empty.move()
    empty.second()
    assert empty.folder_of(PLACE) == empty.other
    assert (empty.replica.start_offset, empty.replica.end_offset) == (20, 20)
    empty.write()
    assert empty.replica.end_offset == 21


def test_the_last_word_counts_and_its_own_folder_ends_a_move():
    stage = Moving(rate=5000)
    stage.move()
    stage.second()
    assert stage.partitions.moves.copies
    stage.move(stage.home)
    stage.second()
    assert not stage.partitions.moves.copies
    assert stage.folder_of(PLACE) == stage.home
    assert not any("-future" in each for each in stage.files.list(stage.other))
    third = next(each for each in FOLDERS if each not in (stage.home, stage.other))
    stage.move()
    stage.second()
    stage.move(third)
    for _ in range(8):
        stage.second()
    assert stage.folder_of(PLACE) == third
    assert not any(each.endswith("-future") for each in stage.files.list(stage.other))


def test_a_topic_that_is_deleted_takes_its_copy_along():
    stage = Moving(rate=5000)
    stage.move()
    stage.second()
    stage.publish(stage.delete("t"))
    stage.second()
    stage.second()
    assert not stage.partitions.moves.copies and not stage.partitions.moves.wanted
    assert not any(each.endswith("-future") for each in stage.files.list(stage.other))


@pytest.mark.parametrize("fault", ["failed", "full"])
def test_a_disk_that_refuses_leaves_the_log_where_it_is(fault):
    stage = Moving(rate=5000)
    stage.move()
    stage.second()
    if fault == "failed":
        stage.failed.add(stage.other)
    else:
        stage.stuck[stage.other] = "full"
    for _ in range(4):
        stage.second()
    assert stage.folder_of(PLACE) == stage.home
    assert not stage.partitions.moves.wanted
    assert stage.replica.end_offset == 20
    sentences = [each.sentence for each in stage.done if isinstance(each, Report)]
    assert "a log was not moved to another folder" in sentences


def test_a_log_stays_if_it_cannot_be_renamed():
    stage = Moving()
    stage.stuck[stage.home] = "full"
    stage.move()
    stage.second()
    assert stage.folder_of(PLACE) == stage.home
    stage.write()
    assert len(read_batches(stage.replica.log)) == 21
    assert "t-0" not in stage.files.list(stage.other)


@pytest.mark.parametrize("kind", [StorageFault, "rot"])
def test_a_log_that_cannot_be_read_takes_its_own_folder_offline_and_no_other(kind, monkeypatch):
    stage = Moving(rate=5000)
    stage.move()
    stage.second()
    log = stage.replica.log

    def fail(*_args, **_more):
        raise ROT if kind == "rot" else StorageFault("no bytes")

    monkeypatch.setattr(type(log), "read", fail)
    for _ in range(3):
        stage.second()
    assert stage.other not in stage.partitions.offline_folders
    assert (stage.home in stage.partitions.offline_folders) == (kind != "rot")
    assert PLACE in stage.partitions.offline
    assert not stage.partitions.moves.copies and not stage.partitions.moves.wanted


def test_a_log_that_begins_is_begun_where_it_was_asked_for():
    stage = Stage()
    stage.publish()
    for path in reversed(FOLDERS):
        place = TopicPartition(f"of-{path[1:]}", 0)
        stage.partitions.moves.ask(place, path, None)
        stage.publish(stage.create(place.topic))
        assert stage.folder_of(place) == path
        stage.tick(1000)
    assert not stage.partitions.moves.wanted


def test_a_move_that_a_stop_interrupted_begins_again():
    stage = Moving(rate=5000)
    stage.move()
    stage.second()
    sync(stage.replica.log)
    stage.hosting.folders.checkpoint()
    stage.perform()
    stage.start()
    stage.publish()
    assert stage.folder_of(PLACE) == stage.home
    assert stage.partitions.moves.wanted == {PLACE: stage.other}
    for _ in range(4):
        stage.second()
    assert stage.folder_of(PLACE) == stage.other
    assert stage.replica.end_offset == 20
