"""Reserves of folders: kept, given back to what must be written, taken again."""

from __future__ import annotations

import os
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
from test_partitions import look_for_room

from anabranch.core.broker.hosting.effects import TellController
from anabranch.core.broker.hosting.events import FolderOpened, Refused
from anabranch.core.log.files import DiskFull
from anabranch.core.log.logs import LogFolder
from anabranch.core.log.room import FULL_AT_LEAST_MS, RESERVE_SHARE
from anabranch.core.metadata.following.effects import MakeRoom, RoomMade
from anabranch.core.replication.partitions import Partitions
from anabranch.server.files import RESERVE, RealFiles
from anabranch.server.metadata_log import MetadataFollower
from anabranch.server.partitions import PartitionShell

KEPT = 64 << 10
FAULT = DiskFull("no space left")


class Kept(SimpleNamespace):
    """A folder with its room."""

    def reserve_bytes(self):
        path = f"{self.path}/{RESERVE}"
        return os.stat(path).st_blocks * 512 if os.path.exists(path) else 0

    def open(self):
        self.shell.answer(FolderOpened(self.folder, (), KEPT * RESERVE_SHARE))

    def refuse(self):
        self.shell.answer(Refused(self.path, FAULT))


@pytest.fixture
def kept(tmp_path, monkeypatch):
    files, path = RealFiles(), str(tmp_path)
    monkeypatch.setattr(files, "volume_bytes", lambda _path: KEPT * RESERVE_SHARE)
    clock = [1_000]
    monkeypatch.setattr("anabranch.server.hosting_performer.steady_ms", lambda: clock[0])
    folder, partitions, told = LogFolder(files, path), Partitions(1), []
    shell = PartitionShell(Mock(partitions=partitions), files, [path], clock_ms=lambda: 0)
    shell.performs(TellController, lambda _: told.append(set(partitions.full_folders)))
    kept = Kept(
        path=path, files=files, folder=folder, partitions=partitions,
        shell=shell, rooms=shell.rooms, told=told, clock=clock,
    )  # fmt: skip
    kept.open()
    return kept


def test_a_full_disk_gives_back_what_is_kept_and_says_so_once(kept):
    assert kept.reserve_bytes() >= KEPT and not kept.told
    kept.refuse()
    kept.refuse()
    assert kept.reserve_bytes() == 0
    assert kept.told == [{kept.path}]


async def test_what_was_given_back_is_kept_again_when_there_is_room(kept, monkeypatch):
    kept.refuse()
    kept.clock[0] += FULL_AT_LEAST_MS
    with monkeypatch.context() as patched:
        patched.setattr(kept.files, "free_bytes", lambda _path: 2 * KEPT)
        await look_for_room(kept.shell)
        patched.setattr(kept.files, "free_bytes", lambda _path: 3 * KEPT)
        patched.setattr(kept.files, "reserve", Mock(side_effect=FAULT))
        await look_for_room(kept.shell)
    assert kept.folder.room.is_full and kept.reserve_bytes() == 0
    await look_for_room(kept.shell)
    assert kept.reserve_bytes() >= KEPT
    assert kept.told == [{kept.path}, set()]


async def test_a_reserve_that_is_needed_while_it_is_taken_is_given_back(kept, monkeypatch):
    kept.refuse()
    kept.clock[0] += FULL_AT_LEAST_MS
    reserve = kept.files.reserve

    def needed(path, size_bytes):
        reserve(path, size_bytes)
        kept.rooms.make_room(kept.path, FAULT)

    monkeypatch.setattr(kept.files, "reserve", needed)
    await look_for_room(kept.shell)
    assert kept.folder.room.is_full and kept.reserve_bytes() == 0


def test_what_must_be_written_beside_a_reserve_is_given_it_once(kept):
    assert not kept.rooms.make_room("/proc", FAULT), "another volume"
    assert kept.rooms.make_room(kept.path, FAULT)
    assert kept.told == [{kept.path}], "and records are refused from now on"
    assert not kept.rooms.make_room(kept.path, FAULT)


def test_a_disk_that_is_full_at_the_start_keeps_nothing_and_is_told(kept, monkeypatch):
    kept.files.give_back(kept.path)
    monkeypatch.setattr(os, "posix_fallocate", Mock(side_effect=OSError(28, "No space left")))
    kept.open()
    assert kept.folder.room.is_full and RESERVE not in os.listdir(kept.path)


def test_where_files_cannot_be_allocated_they_are_written(kept, monkeypatch):
    kept.files.give_back(kept.path)
    monkeypatch.setattr(os, "posix_fallocate", Mock(side_effect=OSError(95, "not supported")))
    kept.open()
    assert kept.reserve_bytes() >= KEPT


@pytest.mark.parametrize("there_is_some", [True, False])
async def test_metadata_that_does_not_fit_is_written_into_what_is_given_back(there_is_some):
    """The shell asks the rooms; the machine has its own tests."""
    stop = Mock()
    follower = MetadataFollower(Mock(), Mock(), "cluster", 1, Mock(), stop)
    follower.make_room = Mock(return_value=there_is_some)
    follower._following = machine = Mock()
    machine.take_effects.side_effect = [[MakeRoom(FAULT)], []]
    follower._perform()
    follower.make_room.assert_called_once_with(FAULT)
    assert machine.step.call_args.args[0] == RoomMade(there_is_some)
