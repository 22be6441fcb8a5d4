"""Which incarnations a broker's folders have seen: through crashes at any point, and in copies."""

from __future__ import annotations

import itertools
from random import Random

import pytest

from anabranch.core.log.files import DiskFull
from anabranch.core.log.incarnations import INCARNATIONS, MOST_ATTEMPTS, FolderNotes
from anabranch.core.log.memory_files import MemoryFiles
from anabranch.core.wire.own_fields import FolderHistory, untagged
from anabranch.sim.disk import SimDisk

FOLDERS = {"/a": b"a" * 16, "/b": b"b" * 16}
ENDINGS = {"lives": (True, True), "dies registered": (True, False), "dies before": (False, False)}


class Lives:
    """Processes on the same folders, one after the other."""

    def __init__(self) -> None:
        self.files = MemoryFiles()
        for folder in FOLDERS:
            self.files.make_dirs(folder)
        self.registered = b""
        """The incarnation that the controller knows."""
        self.number = 0

    def live(self, *, registers: bool = True, hears: bool = True) -> bool:
        """One life; whether its folders were taken for those of the registered incarnation."""
        self.number += 1
        incarnation_id = self.number.to_bytes(16)
        notes = FolderNotes(self.files, FOLDERS)
        notes.begin(incarnation_id)
        told = untagged(FolderHistory, notes.told())
        before = self.registered
        knows = [before in map(bytes, each.incarnation_ids) for each in told.folders]
        if registers:
            self.registered = incarnation_id
        if hears:
            notes.registered(incarnation_id, 7)
        assert notes.faults == []
        return not before or all(knows)

    def contents(self) -> dict[str, bytes]:
        """The account of each folder."""
        return {folder: self.files.read(f"{folder}/{INCARNATIONS}") for folder in FOLDERS}

    def put(self, contents: dict[str, bytes]) -> None:
        """Folders get accounts of before."""
        for folder, account in contents.items():
            self.files.write_atomic(f"{folder}/{INCARNATIONS}", account, sync=True)


@pytest.mark.parametrize("endings", list(itertools.product(ENDINGS, repeat=4)))
def test_the_registered_incarnation_is_known_whenever_processes_die(
    endings: tuple[str, ...],
) -> None:
    lives = Lives()
    for ending in endings:
        registers, hears = ENDINGS[ending]
        assert lives.live(registers=registers, hears=hears)
    assert lives.live()


@pytest.mark.parametrize("endings", list(itertools.product(ENDINGS, repeat=3)))
@pytest.mark.parametrize("copied", [("/a", "/b"), ("/a",)], ids=["all folders", "one folder"])
def test_a_copy_of_before_the_registered_incarnation_does_not_know_it(
    endings: tuple[str, ...], copied: tuple[str, ...]
) -> None:
    lives = Lives()
    lives.live()
    copy = {folder: lives.contents()[folder] for folder in copied}
    for ending in endings:
        registers, hears = ENDINGS[ending]
        lives.live(registers=registers, hears=hears)
    has_changed = lives.registered != (1).to_bytes(16)
    lives.put(copy)
    assert lives.live() is not has_changed


def test_processes_that_never_register_fill_no_folder() -> None:
    lives = Lives()
    lives.live()
    for _ in range(2 * MOST_ATTEMPTS):
        assert lives.live(registers=False, hears=False)
    sizes = {len(account) for account in lives.contents().values()}
    lives.live(registers=False, hears=False)
    assert {len(account) for account in lives.contents().values()} == sizes


def test_a_rotten_account_knows_nothing() -> None:
    lives = Lives()
    lives.live()
    lives.files.write_atomic(f"/a/{INCARNATIONS}", b"rotten", sync=True)
    notes = FolderNotes(lives.files, FOLDERS)
    notes.begin(b"i" * 16)
    told = untagged(FolderHistory, notes.told())
    seen = {bytes(each.directory_id)[:1]: len(each.incarnation_ids) for each in told.folders}
    assert seen == {b"a": 1, b"b": 2}
    assert "cannot be read" in notes.faults[0]


class TightFiles(MemoryFiles):
    """A disk that may be full: then it takes no account, and lets go of what is there."""

    def __init__(self) -> None:
        super().__init__()
        self.is_full = False

    def write_atomic(self, path: str, data: bytes, *, sync: bool) -> None:
        if self.is_full:
            raise DiskFull(f"{path}: no space")
        super().write_atomic(path, data, sync=sync)


TROUBLES = list(itertools.product(itertools.product((False, True), ENDINGS), repeat=4))
"""Of each process: whether the disk is full, and how its life ends."""


def assert_known(told: dict[int, bytes], registered: bytes) -> None:
    """No folder is taken for older than the registered incarnation."""
    for each in untagged(FolderHistory, told).folders:
        assert not registered or registered in map(bytes, each.incarnation_ids)


@pytest.mark.parametrize("full", list(itertools.product((False, True), repeat=2)))
def test_a_folder_that_takes_no_account_is_not_taken_for_an_older_one(
    full: tuple[bool, ...],
) -> None:
    """A full disk holds every record that was acknowledged, however the processes on it end."""
    for troubles in TROUBLES:
        if tuple(is_full for is_full, _ in troubles[:2]) != full:
            continue
        files = TightFiles()
        registered = b""
        for number, (is_full, ending) in enumerate(troubles, 1):
            files.is_full = is_full
            registers, hears = ENDINGS[ending]
            incarnation_id = number.to_bytes(16)
            notes = FolderNotes(files, FOLDERS)
            notes.begin(incarnation_id)
            assert_known(notes.told(), registered)
            if registers:
                registered = incarnation_id
            if hears:
                notes.registered(incarnation_id, 7)
            assert is_full or not notes.faults


def test_a_folder_that_was_full_takes_its_account_when_it_has_room() -> None:
    """Seed 60022979: a copy of it was put back, and could not be told from the folder."""
    files = TightFiles()
    files.is_full = True
    notes = FolderNotes(files, FOLDERS)
    notes.begin(b"1" * 16)
    notes.registered(b"1" * 16, 7)
    assert len(notes.faults) == 2, "each folder is named once"
    notes.again(())
    files.is_full = False
    notes.again(("/a",))
    assert notes.lacking == {"/a"} and not files.exists(f"/a/{INCARNATIONS}")
    notes.again(())
    assert not notes.lacking and len(notes.faults) == 2
    copy = {folder: files.read(f"{folder}/{INCARNATIONS}") for folder in FOLDERS}
    later = FolderNotes(files, FOLDERS)
    later.begin(b"2" * 16)
    later.registered(b"2" * 16, 8)
    for folder, account in copy.items():
        files.write_atomic(f"{folder}/{INCARNATIONS}", account, sync=True)
    copied = FolderNotes(files, FOLDERS)
    copied.begin(b"3" * 16)
    for each in untagged(FolderHistory, copied.told()).folders:
        assert list(map(bytes, each.incarnation_ids)) == [b"1" * 16, b"3" * 16]


@pytest.mark.parametrize("seed", range(10))
def test_a_power_cut_brings_no_account_back_that_a_full_disk_has_replaced(seed: int) -> None:
    disk = SimDisk(Random(seed))
    for folder in FOLDERS:
        disk.mount(folder)
    for number in (1, 2):
        notes = FolderNotes(disk, FOLDERS)
        disk.rooms = dict.fromkeys(FOLDERS, 0) if number == 2 else {}
        notes.begin(number.to_bytes(16))
        notes.registered(number.to_bytes(16), 7)
        disk.cut_power()
    notes = FolderNotes(disk, FOLDERS)
    notes.begin((3).to_bytes(16))
    assert_known(notes.told(), (2).to_bytes(16))


def test_a_folder_tells_the_epoch_of_its_last_registered_incarnation() -> None:
    """Also through lives that were never registered; an account of before has none."""
    files = MemoryFiles()
    for folder in FOLDERS:
        files.make_dirs(folder)
    files.write_atomic(f"/a/{INCARNATIONS}", b'{"version": 0, "ids": []}', sync=True)
    told = []
    for number, epoch in enumerate((-1, 40, -1, 50, -1), 1):
        notes = FolderNotes(files, FOLDERS)
        notes.begin(number.to_bytes(16))
        history = untagged(FolderHistory, notes.told())
        told.append({each.broker_epoch for each in history.folders})
        if epoch >= 0:
            notes.registered(number.to_bytes(16), epoch)
        assert not notes.faults
    assert told == [{-1}, {-1}, {40}, {40}, {50}]
