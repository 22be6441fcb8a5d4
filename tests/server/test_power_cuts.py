"""R5: what a node writes is old or new, never a mixture, wherever the power goes.

The checkpoints, epochs and segments of a log have their tests in `tests/core/log`; here is what the
shell adds: the calls beneath a file that is replaced, the folders, and the copy of the metadata.
"""

from __future__ import annotations

import os
from contextlib import suppress
from random import Random
from types import SimpleNamespace

import pytest
from controller_kit import topic

from anabranch.core.errors import StorageFault
from anabranch.core.log.memory_files import MemoryFiles
from anabranch.core.metadata.batches import encode_batch, encode_snapshot
from anabranch.core.metadata.following.copy import MetadataCopy
from anabranch.core.metadata.levels import level_of
from anabranch.core.metadata.snapshot import snapshot_records
from anabranch.server import folders
from anabranch.server.files import RealFiles
from anabranch.sim.disk import SimDisk

# The calls beneath.


class PowerCut(BaseException):
    """Nothing runs behind it."""


class Calls:
    """What the system was asked for, by the names of files; from `left` calls on the power is
    gone."""

    def __init__(self):
        self.made = []
        self.left = 1000

    def note(self, *call):
        if not self.left:
            raise PowerCut
        self.left -= 1
        self.made.append(call)


@pytest.fixture
def calls(monkeypatch):
    noted, names = Calls(), {}
    real = SimpleNamespace(open=os.open, write=os.write, fsync=os.fsync, replace=os.replace)

    def opened(path, *rest, **named):
        handle = real.open(path, *rest, **named)
        names[handle] = os.path.basename(path)
        return handle

    def written(handle, data):
        noted.note("write", names[handle])
        return real.write(handle, data)

    def synced(handle):
        noted.note("sync", names[handle])
        real.fsync(handle)

    def replaced(source, target):
        noted.note("rename", os.path.basename(source), os.path.basename(target))
        real.replace(source, target)

    monkeypatch.setattr(os, "open", opened)
    monkeypatch.setattr(os, "write", written)
    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "replace", replaced)
    return noted


def replacing(name, folder):
    """The calls that replace a file: its new bytes are safe before they have its name."""
    return [
        ("write", f"{name}.tmp"),
        ("sync", f"{name}.tmp"),
        ("rename", f"{name}.tmp", name),
        ("sync", folder),
    ]


@pytest.mark.parametrize("left", range(5))
def test_a_small_file_is_the_old_one_or_the_new_one(tmp_path, calls, left):
    files, path = RealFiles(), str(tmp_path / "checkpoint")
    files.write_atomic(path, b"old", sync=True)
    calls.made.clear()
    calls.left = left
    with suppress(PowerCut):
        files.write_atomic(path, b"new", sync=True)
    assert calls.made == replacing("checkpoint", tmp_path.name)[:left]
    assert files.read(path) == (b"new" if left > 2 else b"old")


def test_folders_and_whose_they_are_are_safe_before_they_are_used(tmp_path, calls):
    place = tmp_path / "disks" / "one"
    held = folders.HeldFolders(1, [str(place)], str(place))
    held.hold()
    assert calls.made == [("sync", "disks"), ("sync", tmp_path.name)]
    calls.made.clear()
    held.settle("cluster")
    assert calls.made == replacing("meta.properties", "one")
    held.release()
    calls.made.clear()
    again = folders.HeldFolders(1, [str(place)], str(place))
    again.hold()
    again.settle("cluster")
    assert (calls.made, again.directories) == ([], held.directories)
    again.release()


@pytest.mark.parametrize("left", range(5))
def test_a_node_that_dies_while_it_marks_a_folder_marks_it_again(tmp_path, calls, left):
    held = folders.HeldFolders(1, [str(tmp_path)], str(tmp_path))
    held.hold()
    calls.left = left
    with suppress(PowerCut):
        held.settle("cluster")
    held.release()
    calls.left = 1000
    again = folders.HeldFolders(1, [str(tmp_path)], str(tmp_path))
    again.hold()
    assert (again.metas[str(tmp_path)] is None) == (left < 3)
    assert again.settle("cluster") == "cluster"
    again.release()


# The copy of the metadata, on a disk that loses what was not synced.

COMMITTED = [
    encode_batch([topic(number), topic(number + 500)], base_offset=2 * number, epoch=1, now_ms=1)
    for number in range(60)
]


def images():
    """The image at each offset at which a batch ends."""
    copy = MetadataCopy.open(MemoryFiles(), "data", 1)
    found = {0: copy.image}
    for batch in COMMITTED:
        copy.append(batch, 1)
        found[int(copy.image.next_offset)] = copy.image
    return found


class Copying:
    """A node that follows the metadata, and loses its power again and again."""

    def __init__(self, seed):
        self.random = Random(seed)
        self.disk = SimDisk(self.random)
        self.images = images()
        self.written = self.safe = 0
        """Where the copy ended at most, and where the newest snapshot did that is on the disk."""

    def open(self):
        copy = MetadataCopy.open(self.disk, "data", 1)
        end = int(copy.image.next_offset)
        assert self.safe <= end <= self.written
        assert copy.image == self.images[end]
        return copy

    def live(self, copy):
        """Until everything is copied, the disk refuses, or the node stops in order."""
        end = int(copy.image.next_offset)
        while end < 2 * len(COMMITTED):
            some = COMMITTED[end // 2 : end // 2 + self.random.randint(1, 4)]
            self.written = max(self.written, end + 2 * len(some))
            copy.append(b"".join(some), 1)
            end += 2 * len(some)
            step = self.random.random()
            if step < 0.3:
                copy.write_snapshot(copy.image, 1)
                self.safe = end
            elif step < 0.4:
                end = self.load(copy, end)
            elif step < 0.5:
                copy.log.roll(1)
            elif step < 0.7:
                copy.trim(1)
            elif step < 0.75:
                copy.close()
                self.safe = end
                return

    def load(self, copy, end):
        """Somebody who is far behind is given a snapshot."""
        image = self.images[self.random.randrange(end, 2 * len(COMMITTED) + 1, 2)]
        payload = encode_snapshot(
            snapshot_records(image), epoch=1, last_contained_ms=1, now_ms=1, level=level_of(image)
        )
        end = int(image.next_offset)
        self.written = max(self.written, end)
        copy.load(payload, end, 1)
        self.safe = end
        return end


@pytest.mark.parametrize("seed", range(60))
def test_a_copy_of_the_metadata_is_what_was_committed_up_to_somewhere(seed):
    """And no shorter than the newest snapshot that was written."""
    world = Copying(seed)
    for _life in range(6):
        copy = world.open()
        world.disk.fail_in = world.random.randint(1, 80)
        with suppress(StorageFault):
            world.live(copy)
        world.disk.fail_in = -1
        end = world.random.random()
        if end < 0.5:
            world.disk.cut_power()
        elif end < 0.7:
            world.disk.started()
    copy = world.open()
    while copy.image.next_offset < 2 * len(COMMITTED):
        world.live(copy)
        copy = world.open()
    assert copy.image == world.images[2 * len(COMMITTED)]
