"""B6: files on a disk that is slow or full, or of a node that was killed."""

from __future__ import annotations

import os
import time

import pytest

from anabranch.core.errors import StorageFault
from anabranch.core.log.files import DiskFull
from anabranch.server.files import RESERVE
from anabranch.testing.faults import NodeFaults
from anabranch.testing.faulty_files import FaultyFiles


@pytest.fixture
def faults():
    return NodeFaults.private()


@pytest.fixture
def files(faults):
    files = FaultyFiles(faults)
    yield files
    files.close_all()


def test_a_full_disk_takes_nothing_and_gives_everything(faults, files, tmp_path):
    path = f"{tmp_path}/log"
    file = files.open(path, create=True)
    file.write(0, [b"abc"])
    faults.disk_is_full = True
    assert files.free_bytes(str(tmp_path)) == 0
    for attempt in (
        lambda: file.write(3, [b"d"]),
        lambda: files.open(f"{tmp_path}/new", create=True).write(0, [b"d"]),
        lambda: files.write_atomic(f"{tmp_path}/small", b"d", sync=True),
        lambda: files.make_dirs(f"{tmp_path}/folder"),
    ):
        with pytest.raises(DiskFull, match="No space left on device"):
            attempt()
    assert bytes(file.read_blocking(0, 10)) == b"abc"
    file.sync()
    file.truncate(1)
    files.make_dirs(str(tmp_path))
    files.remove(path)
    faults.disk_is_full = False
    files.write_atomic(f"{tmp_path}/small", b"d", sync=True)
    assert os.listdir(tmp_path) == ["small"]


def test_what_a_node_gives_back_of_a_full_disk_is_there_to_be_written_once(faults, files, tmp_path):
    folder = str(tmp_path)
    files.reserve(folder, 10_000)
    assert files.size(f"{folder}/{RESERVE}") == 10_000
    faults.disk_is_full = True
    with pytest.raises(DiskFull):
        files.write_atomic(f"{folder}/a", bytes(1), sync=True)
    assert files.give_back(folder) and not files.give_back(folder)
    files.write_atomic(f"{folder}/a", bytes(9_000), sync=True)
    with pytest.raises(DiskFull):
        files.write_atomic(f"{folder}/b", bytes(9_000), sync=True)
    with pytest.raises(DiskFull):
        files.reserve(folder, 10_000)
    assert os.listdir(folder) == ["a"]


def test_a_slow_disk_takes_its_time_for_what_reaches_it(faults, files, tmp_path):
    file = files.open(f"{tmp_path}/log", create=True)
    file.write(0, [b"abc"])
    faults.disk_ms = 30
    for slow in (
        lambda: file.write(3, [b"d"]),
        file.sync,
        lambda: file.read_blocking(0, 1),
        lambda: file.warm(0, 1),
        lambda: files.write_atomic(f"{tmp_path}/small", b"d", sync=True),
    ):
        begun = time.monotonic()
        slow()
        assert time.monotonic() - begun >= 0.03


def test_a_dead_node_touches_nothing(files, tmp_path):
    file = files.open(f"{tmp_path}/log", create=True)
    file.write(0, [b"abc"])
    files.is_dead = True
    for attempt in (
        lambda: file.write(3, [b"d"]),
        file.sync,
        lambda: file.truncate(0),
        lambda: files.remove(f"{tmp_path}/log"),
        lambda: files.rename(f"{tmp_path}/log", f"{tmp_path}/other"),
        lambda: files.remove_tree(str(tmp_path)),
        lambda: files.open(f"{tmp_path}/new", create=True).write(0, [b"d"]),
    ):
        with pytest.raises(StorageFault, match="the node was killed"):
            attempt()
    assert (tmp_path / "log").read_bytes() == b"abc"
    assert os.listdir(tmp_path) == ["log"]
