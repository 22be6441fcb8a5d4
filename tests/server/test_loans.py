"""Parts of real files that are sent without being read: they stay what they were. R3, R5."""

from __future__ import annotations

import errno
import os
import random
from pathlib import Path

import pytest

from anabranch.core.errors import StorageFault
from anabranch.core.log.config import LogConfig
from anabranch.core.log.files import DiskFull
from anabranch.core.log.log import Log
from anabranch.core.log.logs import LogFolder
from anabranch.core.types import TopicId, TopicPartition
from anabranch.core.wire.records import Record, build_batch
from anabranch.server import loans
from anabranch.server.files import RealFiles
from anabranch.server.loans import FileLoan

KEY = TopicPartition("flights", 0)
TOPIC_ID = TopicId(bytes(range(16)))
NOW_MS = 1_700_000_000_000
CONFIG = LogConfig(
    segment_bytes=20_000, index_interval_bytes=300, retention_ms=1, file_delete_delay_ms=0
)
END = 2**62


@pytest.fixture(autouse=True)
def small_ones_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loans, "LENT_BYTES", 1)
    monkeypatch.setattr(loans.Lender, "is_in_memory", lambda *_range: True)


def append(log: Log, batches: int, fill: bytes = b"x") -> None:
    for _ in range(batches):
        record = Record(0, NOW_MS, None, fill * 200, ())
        log.append_as_leader(
            build_batch([record, record._replace(offset=1)]), leader_epoch=0, now_ms=NOW_MS
        )


def new_log(path: Path, batches: int) -> Log:
    log = LogFolder(RealFiles(), str(path)).create_log(KEY, TOPIC_ID, CONFIG, now_ms=NOW_MS)
    append(log, batches)
    return log


def lent(log: Log, offset: int = 0, max_bytes: int = 10_000, upto: int = END) -> FileLoan:
    loan = log.lend(offset, max_bytes=max_bytes, upto=upto, at_least_one=True)
    assert isinstance(loan, FileLoan)
    return loan


def read(log: Log, offset: int = 0, max_bytes: int = 10_000, upto: int = END) -> bytes:
    return bytes(log.read(offset, max_bytes=max_bytes, upto=upto, at_least_one=True))


def test_what_is_lent_is_what_a_reader_would_get(tmp_path: Path) -> None:
    log, chance = new_log(tmp_path, 150), random.Random(1)
    for _ in range(500):
        log.hints.clear()
        offset = chance.randrange(log.end_offset)
        upto = chance.choice([END, chance.randint(offset, log.end_offset)])
        how = {
            "max_bytes": chance.choice([1, 400, 900, 5000, 30_000]),
            "upto": upto,
            "at_least_one": chance.choice([True, False]),
        }
        loan, held = log.lend(offset, **how), bytes(log.read(offset, **how))
        assert len(loan) == len(held)
        if isinstance(loan, FileLoan):
            assert loan.read() == held
            assert held.startswith(bytes(loan.head))
        else:
            assert bytes(loan) == held


@pytest.mark.parametrize("sizes", [(10, 3_000), (10, 500, 3_000), (3_000, 10, 3_000), (5_000,)])
def test_what_is_lent_is_worth_it_wherever_a_limit_falls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sizes: tuple[int, ...]
) -> None:
    """Whether a part is lent is decided by its own length, not by what it was cut from."""
    monkeypatch.setattr(loans, "LENT_BYTES", 2_000)
    log, kinds = new_log(tmp_path, 0), set()
    for size in sizes * 3:
        log.append_as_leader(
            build_batch([Record(0, NOW_MS, None, b"x" * size, ())]), leader_epoch=0, now_ms=NOW_MS
        )
    for offset in range(log.end_offset):
        for most in (1, 61, 100, 600, 1_999, 2_001, 3_100, 4_000, 7_000):
            how = {"max_bytes": most, "upto": END, "at_least_one": True}
            loan, held = log.lend(offset, **how), bytes(log.read(offset, **how))
            kinds.add(is_lent := isinstance(loan, FileLoan))
            assert is_lent == (len(held) >= loans.LENT_BYTES)
            if isinstance(loan, FileLoan):
                assert loan.read() == held
                assert 0 < loan.end_offset <= log.end_offset
    assert kinds == ({True} if sizes == (5_000,) else {True, False})


def test_what_was_lent_outlives_a_truncation_and_what_follows_it(tmp_path: Path) -> None:
    log = new_log(tmp_path, 20)
    before, loan = read(log), lent(log)
    log.truncate_to(4)
    append(log, 20, b"y")
    assert loan.read() == before
    after = read(log)
    assert after[:900] != before[:900] or after != before
    assert after == lent(log).read()
    assert read(log, 0, upto=4) == before[: len(read(log, 0, upto=4))]
    log.close(clean=False)
    opened = LogFolder(RealFiles(), str(tmp_path)).open_log(KEY, TOPIC_ID, CONFIG, now_ms=NOW_MS)
    assert opened.end_offset == log.end_offset
    assert read(opened) == after
    assert not list(tmp_path.rglob("*.tmp"))


def test_a_truncation_beyond_what_was_lent_keeps_the_file(tmp_path: Path) -> None:
    log = new_log(tmp_path, 20)
    before, loan = read(log, upto=10), lent(log, upto=10)
    [path] = tmp_path.rglob("*.log")
    inode = path.stat().st_ino
    log.truncate_to(10)
    append(log, 20, b"y")
    assert path.stat().st_ino == inode
    assert loan.read() == before
    log.truncate_to(8)
    assert path.stat().st_ino != inode
    assert loan.read() == before


def test_what_was_lent_outlives_its_file(tmp_path: Path) -> None:
    log = new_log(tmp_path, 150)
    before, loan = read(log), lent(log)
    log.apply_retention(NOW_MS + 10_000, log.end_offset)
    log.remove_deleted_files(NOW_MS + 100_000)
    assert log.start_offset > 0
    assert loan.read() == before


def test_what_was_lent_outlives_a_file_that_takes_the_name(tmp_path: Path) -> None:
    log = new_log(tmp_path, 20)
    before, loan = read(log), lent(log)
    log.truncate_fully(0)
    append(log, 20, b"z")
    assert read(log) != before
    assert loan.read() == before


@pytest.mark.parametrize("name", ["sendfile", "fsync", "replace"])
def test_a_cut_that_fails_leaves_file_and_loan(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    files = RealFiles()
    file = files.open(f"{tmp_path}/a", create=True)
    file.write(0, [b"0123456789"])
    loan = file.lend(0, 10)
    assert loan is not None

    def full(*_arguments: object, **_named: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(os, name, full)
        with pytest.raises(StorageFault, match="No space left") as fault:
            file.truncate(4)
    assert not isinstance(fault.value, DiskFull)  # the log is not as it was before the call
    assert loan.read() == b"0123456789" == file.read(0, 10)
    assert os.listdir(tmp_path) == ["a"]
    file.truncate(4)
    file.write(4, [b"ABCDEF"])
    assert loan.read() == b"0123456789"
    assert file.read(0, 20) == b"0123ABCDEF" == (tmp_path / "a").read_bytes()


def test_a_bounded_number_is_lent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loans, "MOST_LOANS", 3)
    files = RealFiles()
    file = files.open(f"{tmp_path}/a", create=True)
    file.write(0, [b"0123456789"])
    before = len(os.listdir("/proc/self/fd"))
    given = [file.lend(0, 10) for _ in range(5)]
    assert [loan is not None for loan in given] == [True, True, True, False, False]
    given.clear()
    assert files.lender.count == 0
    assert len(os.listdir("/proc/self/fd")) == before
    assert file.lend(2, 3).read() == b"234"  # type: ignore[union-attr]


def test_small_parts_are_not_lent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loans, "LENT_BYTES", 10)
    file = RealFiles().open(f"{tmp_path}/a", create=True)
    file.write(0, [bytes(20)])
    assert file.lend(0, 9) is None
    assert file.lend(0, 10) is not None


def test_what_is_not_in_memory_is_not_lent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    files = RealFiles()
    size = 1 << 20
    file = files.open(f"{tmp_path}/a", create=True)
    file.write(0, [bytes(size)])
    if file.lend(100, size - 200) is None:
        pytest.skip("this kernel does not say what it has in memory")
    file.sync()
    os.posix_fadvise(file.handle, size // 2, 0, os.POSIX_FADV_DONTNEED)
    if files.lender.is_in_memory(file.handle, size // 2, size // 2):
        pytest.skip("this file system keeps its pages")
    assert file.lend(0, size) is None
    assert file.lend(0, size // 4) is not None


def test_a_kernel_that_does_not_say_what_is_in_memory_is_asked_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    files, calls = RealFiles(), []
    file = files.open(f"{tmp_path}/a", create=True)
    file.write(0, [bytes(1 << 20)])
    files.lender._call = lambda *arguments: calls.append(arguments) or -1  # type: ignore[assignment]
    assert file.lend(0, 1 << 20) is None
    assert file.lend(0, 1 << 20) is None
    assert len(calls) == 1
