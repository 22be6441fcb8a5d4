"""Replicas on disk are equal, or the comparison says where they are not."""

from __future__ import annotations

import shutil

import pytest

from anabranch.core.log import checkpoints
from anabranch.core.types import TopicPartition
from anabranch.core.wire.records import Record, build_batch
from chaos import replicas

PLACE = TopicPartition("t-x", 1)
FOLDERS = ("one", "two", "three")
COUNT = 3
BATCHES = 4


def batch(base: int, *, value: bytes = b"value", epoch: int = 0, keys: str = "abc") -> bytes:
    """Three records from `base` on."""
    records = [Record(base + index, 1000, key.encode(), value) for index, key in enumerate(keys)]
    return bytes(build_batch(records, base_offset=base, leader_epoch=epoch))


class Disks:
    """The log folders of three nodes, each with a replica of one partition in two segments."""

    def __init__(self, root, place: TopicPartition = PLACE) -> None:
        self.folders = [root / name for name in FOLDERS]
        self.place = place
        for folder in self.folders:
            path = self._path(folder)
            path.mkdir(parents=True)
            (path / checkpoints.PARTITION_METADATA).write_bytes(
                checkpoints.format_partition_metadata(bytes(16))
            )
            self.write(folder.name, *(batch(base) for base in range(0, COUNT * BATCHES, COUNT)))
        self.mark(checkpoints.HIGH_WATERMARKS, COUNT * BATCHES)

    def _path(self, folder):
        return folder / f"{self.place.topic}-{self.place.partition}"

    def _folder(self, name: str):
        return next(folder for folder in self.folders if folder.name == name)

    def write(self, name: str, *batches: bytes) -> None:
        """All batches of a replica, half of them in a second segment."""
        path = self._path(self._folder(name))
        for old in path.glob("*.log"):
            old.unlink()
        half = len(batches) // 2
        first, second = b"".join(batches[:half]), b"".join(batches[half:])
        (path / f"{0:020d}.log").write_bytes(first)
        (path / f"{int.from_bytes(second[:8], 'big'):020d}.log").write_bytes(second)

    def mark(self, name: str, offset: int, *folders: str) -> None:
        for folder in folders or FOLDERS:
            (self._folder(folder) / name).write_bytes(
                checkpoints.format_offsets({self.place: offset})
            )

    def compared(self) -> replicas.Comparison:
        return replicas.compare(self.folders)


def the_batches(**changes: bytes) -> list[bytes]:
    """The four batches of every replica, some changed: `at_6=…`."""
    return [changes.get(f"at_{base}", batch(base)) for base in range(0, COUNT * BATCHES, COUNT)]


@pytest.fixture
def disks(tmp_path) -> Disks:
    return Disks(tmp_path)


def test_equal_replicas(disks):
    compared = disks.compared()
    assert compared.differences == []
    assert (compared.partitions, compared.batches, compared.records) == (1, 4, 12)
    assert compared.line() == "1 partitions, 4 batches over 12 offsets compared: 0 differences"


def test_replicas_of_a_topic_that_expires_may_begin_at_different_segments(disks):
    (disks.folders[1] / "t-x-1" / f"{0:020d}.log").unlink()
    assert disks.compared().differences
    assert replicas.compare(disks.folders, expiring={"t-x"}).differences == []


def test_nothing_to_compare_proves_nothing(tmp_path):
    assert replicas.compare([tmp_path]).differences


def test_high_watermarks_that_are_not_there_prove_nothing(disks):
    for folder in disks.folders:
        (folder / checkpoints.HIGH_WATERMARKS).unlink()
    assert disks.compared().differences == ["nothing committed has two replicas in these folders"]


def test_a_replica_that_is_not_there(disks):
    shutil.rmtree(disks.folders[1] / "t-x-1")
    assert disks.compared().differences == []
    compared = replicas.compare(disks.folders, {disks.place: {"one", "two", "three"}})
    assert compared.differences == ["t-x-1: no replica in two"]


def test_a_replica_that_was_moved_away_and_is_still_there(disks):
    compared = replicas.compare(disks.folders, {disks.place: {"one", "three"}})
    assert compared.differences == ["t-x-1: a replica is left in two"]


def test_another_value(disks):
    disks.write("two", *the_batches(at_6=batch(6, value=b"other")))
    (told,) = disks.compared().differences
    assert told.startswith("t-x-1: one and two differ first at offset 6: a batch up to 8 with")


def test_equal_records_of_another_leader_epoch(disks):
    disks.write("three", *the_batches(at_3=batch(3, epoch=1)))
    (told,) = disks.compared().differences
    assert "one and three differ first at offset 3" in told


def test_a_missing_batch(disks):
    disks.write("two", *(each for each in the_batches() if each != batch(3)))
    (told,) = disks.compared().differences
    assert told.endswith("with digest " + told[told.rindex("digest") + 7 :])
    assert "offset 3" in told and told.count("no batch begins there") == 1


def test_a_replica_that_lacks_committed_records(disks):
    disks.write("two", *the_batches()[:3])
    assert disks.compared().differences == ["t-x-1: two ends at 9, committed is up to 12"]


def test_the_nodes_that_are_left_write_on_to_internal_topics(tmp_path):
    disks = Disks(tmp_path, TopicPartition("__consumer_offsets", 0))
    disks.write("two", *the_batches()[:3])
    assert disks.compared().differences == []


def test_what_is_not_committed_may_differ(disks):
    disks.mark(checkpoints.HIGH_WATERMARKS, 9)
    disks.write("two", *the_batches(at_9=batch(9, value=b"other")))
    assert disks.compared().differences == []


def test_what_one_has_deleted_is_not_missed(disks):
    disks.mark(checkpoints.LOG_STARTS, 4, "one")
    disks.write("one", *the_batches()[1:])
    assert disks.compared().differences == []


def test_a_checksum_that_does_not_hold(disks):
    rotten = bytearray(batch(6))
    rotten[-1] ^= 1
    disks.write("two", *the_batches(at_6=bytes(rotten)))
    assert "t-x-1 in two: the checksum at offset 6 does not hold" in disks.compared().differences


def test_bytes_that_are_no_batch(disks):
    disks.write("two", *the_batches(), b"\x00" * 20)
    (told,) = [each for each in disks.compared().differences if "no batch" in each]
    assert "20 bytes at the end of" in told


# Compacted logs.


@pytest.fixture
def compacted(disks) -> Disks:
    """Node one has compacted up to offset 6: of its first two batches the second is left."""
    disks.mark(checkpoints.CLEAN_POINTS, 6)
    disks.write("one", *the_batches()[1:])
    return disks


def test_how_far_a_node_has_compacted_is_its_own_affair(compacted):
    assert compacted.compared().differences == []


def test_above_the_clean_point_bytes_are_equal(compacted):
    compacted.write("two", *the_batches(at_9=batch(9, value=b"other")))
    assert any("differ first at offset 9" in each for each in compacted.compared().differences)


def test_below_it_two_replicas_have_one_record_at_an_offset(compacted):
    """A record that a later one replaces may be gone, but not another one."""
    compacted.write("one", batch(3, keys="xbc"), batch(6, keys="xbc"), batch(9))
    compacted.write("two", batch(0), batch(3, keys="abc"), batch(6, keys="xbc"), batch(9))
    compacted.mark(checkpoints.CLEAN_POINTS, 9, "one", "two", "three")
    compacted.write("three", batch(0), batch(3, keys="abc"), batch(6, keys="xbc"), batch(9))
    told = compacted.compared().differences
    assert "t-x-1: one and two have two records at offset 3, compacted" in told


def test_below_it_the_last_record_of_a_key_is_the_same(compacted):
    compacted.write("two", batch(0), batch(3, keys="abd"), batch(6), batch(9))
    (told,) = [each for each in compacted.compared().differences if "key" in each]
    assert told == "t-x-1: one and two differ in key b'd': offsets none and 5"


def test_a_node_that_was_stopped_while_it_put_a_compacted_segment_in_its_place(disks):
    path = disks._path(disks._folder("two"))
    (first, *_), whole = sorted(path.glob("*.log")), b"".join(map(batch, range(0, 12, 3)))
    first.write_bytes(whole)
    assert disks.compared().differences, "two segments with the same records"
    (path / f"{0:020d}.swapping").write_bytes(b"[0, 6]")
    assert not disks.compared().differences
