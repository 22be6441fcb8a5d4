"""The simulated disk: what a power cut, a failed sync, a full folder and a broken one leave."""

from __future__ import annotations

from random import Random

import pytest

from anabranch.core.errors import StorageFault
from anabranch.core.log.files import DiskFull
from anabranch.sim.disk import PAGE_BYTES, VOLUME_BYTES, SimDisk

FILES = ("a", "b", "c", "d")
SEEDS = range(60)


def disk_with(folder: str, seed: int = 0) -> SimDisk:
    """A disk with a folder of synced files."""
    disk = SimDisk(Random(seed))
    disk.make_dirs(folder)
    for name in FILES:
        disk.write_atomic(f"{folder}/{name}", name.encode(), sync=True)
    disk.sync_dir("x")
    disk.sync_dir(folder)
    return disk


def names_in(disk: SimDisk, *folders: str) -> dict[str, tuple[str, ...]]:
    return {each: tuple(disk.list(each)) for each in folders if disk.is_dir(each)}


@pytest.mark.parametrize("seed", SEEDS)
def test_a_renamed_folder_has_one_of_its_names_and_all_that_is_in_it(seed):
    disk = disk_with("x/t-0", seed)
    disk.rename("x/t-0", "x/t-0.delete")
    if seed % 2:
        disk.remove_tree("x/t-0.delete")
    if seed % 3 == 0:
        disk.make_dirs("x/t-0")
        disk.write_atomic("x/t-0/new", b"new", sync=True)
    disk.cut_power()
    found = names_in(disk, "x/t-0", "x/t-0.delete")
    if found.get("x/t-0") == FILES:
        assert found == {"x/t-0": FILES}, "what came later is not there"
    else:
        assert set(found.get("x/t-0", ())) <= {"new"}
        left = found.get("x/t-0.delete", ())
        assert set(left) <= set(FILES) if seed % 2 else left == FILES


def test_both_names_of_a_renamed_folder_are_met():
    met = set()
    for seed in SEEDS:
        disk = disk_with("x/t-0", seed)
        disk.rename("x/t-0", "x/t-0.delete")
        disk.cut_power()
        met |= names_in(disk, "x/t-0", "x/t-0.delete").keys()
    assert met == {"x/t-0", "x/t-0.delete"}


@pytest.mark.parametrize("seed", SEEDS)
def test_a_renamed_folder_whose_parent_was_synced_has_its_new_name(seed):
    disk = disk_with("x/t-0", seed)
    disk.rename("x/t-0", "x/t-0.delete")
    disk.sync_dir("x")
    disk.cut_power()
    assert names_in(disk, "x/t-0", "x/t-0.delete") == {"x/t-0.delete": FILES}


@pytest.mark.parametrize("seed", SEEDS)
def test_of_several_renames_the_first_survive(seed):
    disk = disk_with("x/t-0", seed)
    disk.rename("x/t-0", "x/t-0.first")
    disk.make_dirs("x/t-0")
    disk.write_atomic("x/t-0/new", b"new", sync=True)
    disk.rename("x/t-0", "x/t-0.second")
    disk.cut_power()
    found = names_in(disk, "x/t-0", "x/t-0.first", "x/t-0.second")
    if "x/t-0.first" not in found:
        assert found == {"x/t-0": FILES}
    assert [*found.values()].count(FILES) == 1


@pytest.mark.parametrize("seed", SEEDS)
def test_what_was_removed_for_good_does_not_come_back_under_the_same_name(seed):
    disk = disk_with("x/t-0", seed)
    disk.remove_tree("x/t-0")
    disk.sync_dir("x")
    disk.make_dirs("x/t-0")
    disk.write_atomic("x/t-0/new", b"new", sync=True)
    disk.cut_power()
    assert set(disk.list("x/t-0")) <= {"new"}


def test_a_file_that_was_removed_is_not_made_again_by_a_sync():
    disk = disk_with("x")
    file = disk.open("x/a", create=True)
    disk.remove("x/a")
    with pytest.raises(StorageFault):
        file.sync()
    assert not disk.exists("x/a")


@pytest.mark.parametrize("how", ["read", "write", "write_atomic", "make_empty"])
def test_no_file_is_made_in_a_folder_that_is_gone(how):
    """Seed 20000024: a handle read the file of a log whose folder had got another name, and so
    made a file that stood in the way when the partition came back."""
    disk = SimDisk(Random(1))
    disk.make_dirs("a/t-0")
    handle = disk.open("a/t-0/0.log", create=True)
    disk.rename("a/t-0", "a/t-0-delete")
    calls = {
        "read": lambda: handle.read(0, 10),
        "write": lambda: handle.write(0, b"x"),
        "write_atomic": lambda: disk.write_atomic("a/t-0/0.log", b"x", sync=True),
        "make_empty": lambda: disk.make_empty("a/t-0/0.log"),
    }
    with pytest.raises(StorageFault, match="its folder is not there"):
        calls[how]()
    assert not disk.exists("a/t-0/0.log")


def test_after_a_failed_sync_the_next_one_succeeds_and_stores_nothing():
    disk = disk_with("x")
    file = disk.open("x/a", create=True)
    file.write(0, [b"lost" * PAGE_BYTES])
    disk.fail_in = 1
    with pytest.raises(StorageFault):
        file.sync()
    assert not disk.synced_again
    file.sync()
    assert disk.synced_again == {"x/a"}
    assert file.read(0, 4) == b"lost", "memory still has it"
    disk.started()
    assert file.read(0, 4) == b"a\0\0\0"


def test_what_is_written_once_more_after_a_failed_sync_is_stored():
    disk = disk_with("x")
    file = disk.open("x/a", create=True)
    for content in (b"lost", b"kept"):
        file.write(0, [content])
        disk.fail_in = 1 if content == b"lost" else -1
        try:
            file.sync()
        except StorageFault:
            assert content == b"lost"
    disk.started()
    assert file.read(0, 4) == b"kept"


def test_a_sync_after_a_start_stores_what_is_seen_to_its_end():
    disk = disk_with("x")
    file = disk.open("x/a", create=True)
    file.write(0, [b"longer"])
    disk.fail_in = 1
    with pytest.raises(StorageFault):
        file.sync()
    disk.started()
    file.sync()
    disk.cut_power()
    assert disk.read("x/a") == b"a" + bytes(5), "nothing is left to be lost"


@pytest.mark.parametrize("seed", range(10))
def test_no_power_cut_takes_a_disk_s_own_place_away(seed):
    disk = SimDisk(Random(seed))
    disk.mount("node/d1")
    disk.write_atomic("node/d1/file", b"synced", sync=True)
    disk.cut_power()
    assert disk.is_dir("node/d1")
    assert disk.read("node/d1/file") == b"synced"


def test_folders_fill_up_and_break_one_by_one():
    disk = disk_with("x/d0")
    disk.make_dirs("x/d1")
    disk.rooms["x/d0"] = 10
    disk.write_atomic("x/d1/e", bytes(100), sync=True)
    with pytest.raises(DiskFull):
        disk.write_atomic("x/d0/e", bytes(100), sync=True)
    disk.broken.add("x/d1")
    for call in (disk.read, lambda path: disk.open(path).write(0, [b"x"]), disk.remove):
        with pytest.raises(StorageFault):
            call("x/d1/e")
    assert disk.read("x/d0/a") == b"a"
    disk.cut_power()
    assert disk.broken == {"x/d1"}, "a power cut mends no disk"


def test_a_reserve_is_space_that_can_be_given_back():
    disk = disk_with("x/d0")
    size_bytes = disk.volume_bytes("x/d0") // 16
    assert disk.volume_bytes("x/d0") == VOLUME_BYTES
    disk.reserve("x/d0", size_bytes)
    disk.rooms["x/d0"] = 0
    with pytest.raises(DiskFull):
        disk.write_atomic("x/d0/e", b"e", sync=True)
    assert disk.give_back("x/d0")
    assert disk.free_bytes("x/d0") == size_bytes
    with pytest.raises(DiskFull):
        disk.reserve("x/d0", size_bytes + 1)
    assert not disk.give_back("x/d0")


def change_names(disk: SimDisk, random: Random) -> None:
    """Something that a process does to names, or a power cut."""
    folder, other = random.sample(("x/s", "x/t", "x/t/u"), 2)
    path = f"{folder}/{random.choice(FILES)}"
    if not disk.is_dir(folder):
        disk.make_dirs(folder)
        return
    match random.randrange(8):
        case 0:
            disk.write_atomic(path, b"1", sync=random.random() < 0.5)
        case 1 | 2:
            disk.open(path, create=True).write(0, (b"1",))
        case 3:
            disk.make_empty(path)
        case 4:
            disk.remove(path)
        case 5:
            disk.remove_tree(folder)
        case 6 if not disk.exists(other) and not other.startswith(folder):
            disk.rename(folder, other)
        case 7 if random.random() < 0.2:
            disk.cut_power()


@pytest.mark.parametrize("seed", SEEDS)
def test_a_synced_folder_s_names_are_stored_as_a_process_sees_them(seed):
    random = Random(seed)
    disk = disk_with("x/t", seed)
    for _ in range(200):
        change_names(disk, random)
        folder = random.choice(("x", "x/s", "x/t", "x/t/u"))
        if disk.is_dir(folder) and random.random() < 0.3:
            disk.sync_dir(folder)
            seen, stored = (
                {name: names[name] for name in names if name.rpartition("/")[0] == folder}
                for names in (disk.names, disk.stored_names)
            )
            assert stored == seen
            assert disk.list(folder) == sorted(name.rpartition("/")[2] for name in seen)
            assert disk.stored_names.get(folder, ...) is disk.names.get(folder, ...)
