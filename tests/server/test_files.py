"""The real disk: recovery on real files, cold reads, bounded handles. R5, R15."""

from __future__ import annotations

import errno
import os
import shutil
import struct
from pathlib import Path

import pytest

from anabranch.core.errors import CorruptLog, StorageFault
from anabranch.core.log.config import LogConfig
from anabranch.core.log.files import ColdRead, DiskFull
from anabranch.core.log.log import Log
from anabranch.core.log.logs import LogFolder
from anabranch.core.types import Buffer, TopicId, TopicPartition
from anabranch.core.wire.batch import walk
from anabranch.core.wire.records import Record, build_batch, decode_records
from anabranch.server.files import WRITE_BYTES, RealFiles

KEY = TopicPartition("flights", 0)
TOPIC_ID = TopicId(bytes(range(16)))
NOW_MS = 1_700_000_000_000
END = 2**62
CONFIG = LogConfig(segment_bytes=20_000, index_interval_bytes=300)


def batch(tag: int, size_bytes: int = 100) -> bytearray:
    value = struct.pack(">q", tag) + bytes([tag % 250 + 1]) * size_bytes
    return build_batch([Record(index, NOW_MS + tag, b"key", value, ()) for index in range(2)])


def warmed(log: Log, offset: int) -> Buffer:
    """What a node does: a read that would wait for the disk is warmed and made again."""
    for _ in range(100):
        try:
            return log.read(offset, max_bytes=5000, upto=END, at_least_one=True)
        except ColdRead as cold:
            cold.file.warm(cold.position, cold.length)
    raise AssertionError("the pages do not stay in memory")


def tags(log: Log) -> list[int]:
    found, offset = [], log.start_offset
    while offset < log.end_offset:
        held = warmed(log, offset)
        for position, header in walk(held):
            value = decode_records(held, position)[0].value or b""
            found.append(struct.unpack(">q", bytes(value)[:8])[0])
            offset = header.next_offset
    return found


def written(path: Path, *, batches: int, flushed: int, size_bytes: int = 100) -> Path:
    """A folder of a node that was killed: the first `flushed` batches were synced."""
    folder = LogFolder(RealFiles(), str(path))
    log = folder.create_log(KEY, TOPIC_ID, CONFIG, now_ms=NOW_MS)
    for tag in range(batches):
        log.append_as_leader(batch(tag, size_bytes), leader_epoch=0, now_ms=NOW_MS)
        if tag + 1 == flushed:
            target = log.sync_target()
            assert target is not None
            for one in target[1]:
                one.sync()
            log.synced(target[0])
            folder.checkpoint()
    log.close(clean=False)
    return path


def reopened(path: Path) -> Log:
    folder = LogFolder(RealFiles(), str(path))
    return folder.open_log(KEY, TOPIC_ID, CONFIG, now_ms=NOW_MS)


def active_file(path: Path) -> Path:
    return max((path / str(KEY)).glob("*.log"))


@pytest.mark.slow
def test_a_segment_cut_at_every_byte_of_its_last_batches_keeps_what_was_flushed(
    tmp_path: Path,
) -> None:
    source = written(tmp_path / "source", batches=12, flushed=9)
    whole = active_file(source).read_bytes()
    starts = [position for position, _ in walk(whole)]
    for size in range(starts[-3], len(whole) + 1):
        copy = tmp_path / "copy"
        shutil.copytree(source, copy)
        os.truncate(active_file(copy), size)
        log = reopened(copy)
        kept = sum(end <= size for end in [*starts[1:], len(whole)])
        assert tags(log) == list(range(kept))
        assert kept >= 9
        assert log.recovery.cut_bytes == size - [*starts, len(whole)][kept]
        log.append_as_leader(batch(kept), leader_epoch=0, now_ms=NOW_MS)
        assert tags(log) == list(range(kept + 1))
        log.close(clean=False)
        shutil.rmtree(copy)


def test_any_zeroed_page_after_the_recovery_point_is_cut(tmp_path: Path) -> None:
    source = written(tmp_path / "source", batches=60, flushed=15, size_bytes=400)
    whole = active_file(source).read_bytes()
    flushed_bytes = [position for position, _ in walk(whole)]
    first_offset = int(active_file(source).stem) // 2
    for page in range(0, len(whole), 4096):
        if first_offset < 15 and page < flushed_bytes[15 - first_offset]:
            continue
        copy = tmp_path / "copy"
        shutil.copytree(source, copy)
        with active_file(copy).open("r+b") as file:
            file.seek(page)
            file.write(bytes(min(4096, len(whole) - page)))
        log = reopened(copy)
        found = tags(log)
        assert found == list(range(len(found)))
        assert len(found) >= 15
        assert log.recovery.cut_bytes > 0
        log.close(clean=False)
        shutil.rmtree(copy)


def test_a_zeroed_page_before_the_recovery_point_is_named(tmp_path: Path) -> None:
    source = written(tmp_path / "source", batches=20, flushed=20)
    with active_file(source).open("r+b") as file:
        file.write(bytes(500))
    with pytest.raises(CorruptLog) as rot:
        reopened(source)
    assert rot.value.path == str(active_file(source))
    assert rot.value.position == 0


@pytest.mark.parametrize("killed", [True, False])
def test_any_index_may_be_deleted(tmp_path: Path, killed: bool) -> None:
    source = written(tmp_path / "source", batches=200, flushed=150)
    if not killed:
        folder = LogFolder(RealFiles(), str(source))
        folder.open_log(KEY, TOPIC_ID, CONFIG, now_ms=NOW_MS)
        folder.close()
    beside = [path.name for path in (source / str(KEY)).iterdir() if path.suffix != ".log"]
    assert len(beside) > 5
    for name in beside:
        copy = tmp_path / "copy"
        shutil.copytree(source, copy)
        (copy / str(KEY) / name).unlink()
        log = reopened(copy)
        assert tags(log) == list(range(200)), name
        assert log.epochs.entries == [(0, 0)]
        log.close(clean=False)
        shutil.rmtree(copy)


def test_few_handles_serve_many_files(tmp_path: Path) -> None:
    files = RealFiles(open_limit=3)
    opened = [files.open(f"{tmp_path}/{number}", create=True) for number in range(20)]
    for number, file in enumerate(opened):
        file.write(0, [b"%d" % number])
    assert files.open_count <= 3
    assert [bytes(file.read(0, 9)) for file in opened] == [b"%d" % n for n in range(20)]
    for file in opened:
        file.sync()
        file.close()
    assert files.open_count == 0


def test_a_read_that_would_wait_is_cold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = RealFiles().open(f"{tmp_path}/data", create=True)
    file.write(0, [b"0123", b"456789"])
    assert bytes(file.read(2, 5)) == b"23456"
    assert bytes(file.read(8, 5)) == b"89"

    def misses(*_: object) -> int:
        raise BlockingIOError

    monkeypatch.setattr(os, "preadv", misses)
    with pytest.raises(ColdRead) as cold:
        file.read(2, 5)
    assert (cold.value.position, cold.value.length) == (2, 5)
    cold.value.file.warm(2, 5)
    monkeypatch.setattr(os, "preadv", lambda *_: 3)
    with pytest.raises(ColdRead):
        file.read(2, 5)
    assert bytes(file.read_blocking(2, 5)) == b"23456"


def test_what_a_disk_refuses_to_a_thread_is_raised_by_the_next_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = RealFiles().open(f"{tmp_path}/data", create=True)
    file.write(0, [b"0123456789"])

    def misses(*_: object) -> int:
        raise BlockingIOError

    def fails(*_: object) -> bytes:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "preadv", misses)
    with monkeypatch.context() as broken:
        broken.setattr(os, "pread", fails)
        file.warm(2, 5)
    with pytest.raises(StorageFault, match="data: Input/output error"):
        file.read(2, 5)
    with pytest.raises(ColdRead):  # and then it is tried again
        file.read(2, 5)


def test_a_file_system_without_nowait_is_read_plainly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = RealFiles().open(f"{tmp_path}/data", create=True)
    file.write(0, [b"0123"])

    def refuses(*_: object) -> int:
        raise OSError(95, "not supported")

    monkeypatch.setattr(os, "preadv", refuses)
    assert bytes(file.read(1, 2)) == b"12"
    assert bytes(file.read(1, 2)) == b"12"


def test_faults_name_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = RealFiles()
    with pytest.raises(StorageFault, match="absent"):
        files.open(f"{tmp_path}/absent").read(0, 1)
    with pytest.raises(StorageFault, match="absent"):
        files.read(f"{tmp_path}/absent")
    file = files.open(f"{tmp_path}/data", create=True)

    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "pwrite", full)
    with pytest.raises(DiskFull, match="data"):
        file.write(0, [b"x"])


def test_a_full_disk_leaves_the_log_usable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = reopened(written(tmp_path, batches=3, flushed=3))
    real = os.pwrite
    room = [20]

    def nearly_full(handle: int, buffer: bytes, position: int) -> int:
        if room[0] == 0:
            raise OSError(28, "No space left on device")
        count = real(handle, memoryview(buffer)[: room[0]], position)
        room[0] -= count
        return count

    monkeypatch.setattr(os, "pwrite", nearly_full)
    with pytest.raises(DiskFull):
        log.append_as_leader(batch(9), leader_epoch=0, now_ms=NOW_MS)
    monkeypatch.setattr(os, "pwrite", real)
    assert active_file(tmp_path).stat().st_size == log.size_bytes
    log.append_as_leader(batch(3), leader_epoch=0, now_ms=NOW_MS)
    assert tags(log) == [0, 1, 2, 3]


def test_small_files_and_folders(tmp_path: Path) -> None:
    files, root = RealFiles(), str(tmp_path)
    files.make_dirs(f"{root}/a/b")
    files.make_dirs(f"{root}/a/b")
    files.write_atomic(f"{root}/a/b/c", b"one", sync=True)
    files.write_atomic(f"{root}/a/b/c", b"two", sync=False)
    files.sync_path(f"{root}/a/b/c")
    files.sync_path(f"{root}/a/b/absent")
    files.sync_dir(f"{root}/a/b")
    assert files.read(f"{root}/a/b/c") == b"two"
    assert files.list(f"{root}/a/b") == ["c"]
    assert files.list(f"{root}/none") == []
    assert (files.size(f"{root}/a/b/c"), files.size(f"{root}/none")) == (3, 0)
    assert files.modified_ms(f"{root}/a/b/c") > NOW_MS
    assert files.free_bytes(root) > 0
    files.rename(f"{root}/a/b/c", f"{root}/a/d")
    assert files.exists(f"{root}/a/d")
    assert files.is_dir(f"{root}/a")
    files.remove(f"{root}/a/d")
    files.remove(f"{root}/a/d")
    files.remove_tree(f"{root}/a")
    files.remove_tree(f"{root}/a")
    assert not files.exists(f"{root}/a")


def test_a_link_to_a_folder_is_removed_and_not_what_it_names(tmp_path):
    """A partition's folder may have been moved to another disk by hand."""
    elsewhere, link = tmp_path / "elsewhere", tmp_path / "flights-0"
    elsewhere.mkdir()
    (elsewhere / "kept").write_bytes(b"")
    link.symlink_to(elsewhere)
    RealFiles().remove_tree(str(link))
    assert not link.is_symlink() and (elsewhere / "kept").exists()


def test_what_another_removes_meanwhile_is_no_fault(tmp_path, monkeypatch):
    """As the next process does with what this one is removing."""
    for name in ("1", "2"):
        (tmp_path / "flights-0" / name).mkdir(parents=True)
        (tmp_path / "flights-0" / name / "log").write_bytes(b"")
    unlink = os.unlink

    def unlinked_already(path, **how):
        unlink(path, **how)
        unlink(path, **how)

    monkeypatch.setattr(os, "unlink", unlinked_already)
    RealFiles().remove_tree(str(tmp_path / "flights-0"))
    assert not (tmp_path / "flights-0").exists()


def test_threads_bring_no_removed_file_back(tmp_path):
    """A warm read or a sync that comes after retention must not leave an empty segment."""
    files = RealFiles()
    file = files.open(str(tmp_path / "segment"), create=True)
    file.write(0, (b"records",))
    file.close()
    os.rename(tmp_path / "segment", tmp_path / "segment.deleted")
    file.warm(0, 7)
    with pytest.raises(StorageFault):
        file.sync()
    assert not (tmp_path / "segment").exists()


def test_a_round_that_outlives_retention_of_its_segment(tmp_path):
    config = LogConfig(segment_bytes=400, retention_bytes=0, cleanup_policy=("delete",))
    folder = LogFolder(RealFiles(), str(tmp_path))
    log = folder.create_log(KEY, TOPIC_ID, config, now_ms=NOW_MS)
    for tag in range(6):
        log.append_as_leader(batch(tag), leader_epoch=0, now_ms=NOW_MS)
    target = log.sync_target()
    assert target is not None
    assert log.apply_retention(NOW_MS, log.end_offset)
    for one in target[1]:
        one.sync()
    log.synced(target[0])
    assert len(list((tmp_path / "flights-0").glob("*.log"))) == len(log.segments)


@pytest.mark.parametrize("size_bytes", [1, WRITE_BYTES, WRITE_BYTES + 1, 5 * WRITE_BYTES + 7])
def test_a_large_write_is_whole_though_it_goes_in_pieces(tmp_path: Path, size_bytes: int) -> None:
    data = os.urandom(size_bytes)
    file = RealFiles().open(str(tmp_path / "a"), create=True)
    file.write(3, (memoryview(data),))
    file.write(3 + size_bytes, (data, b"end"))
    assert (tmp_path / "a").read_bytes() == bytes(3) + data + data + b"end"


def test_the_pieces_of_a_large_write_end_where_runs_of_pages_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A piece that does not costs the page cache nearly twice as much."""
    ends = []
    write = os.pwrite

    def noted(handle: int, data: bytes, position: int) -> int:
        ends.append(position + len(data))
        return write(handle, data, position)

    monkeypatch.setattr(os, "pwrite", noted)
    RealFiles().open(str(tmp_path / "a"), create=True).write(5, (bytes(3 * WRITE_BYTES),))
    assert ends == [WRITE_BYTES, 2 * WRITE_BYTES, 3 * WRITE_BYTES, 3 * WRITE_BYTES + 5]
