"""A file system of its own for objects, which can stand still or be full.

What: an ext4 image on a loop device. `still` freezes it: the kernel lets every write wait, as a
network file system does whose server is gone; `full` gives all of its room to one file. Rules kept:
the mount belongs to this process's own mount namespace (`private.py`); who freezes is a child that
thaws when this process ends, whatever ends it, and after `LONGEST_SECONDS` at the latest, because
nothing can kill a process that waits for a frozen file system. Not here: when (`plan`).
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

ROOM_BYTES = 6 << 30
"""More than a run writes; the image takes of the machine's disk what is written alone."""
LONGEST_SECONDS = 20.0
TOOLS = ("mkfs.ext4", "fsfreeze", "fallocate", "mount", "umount")
FREEZE = """
trap '' PIPE
trap 'fsfreeze --unfreeze "$1" 2>/dev/null' EXIT
while fsfreeze --freeze "$1"; do
    echo frozen 2>/dev/null
    read -r -t "$2"
    ended=$?
    fsfreeze --unfreeze "$1"
    [ "$ended" -gt 128 ] && [ "$3" != 0 ] || exit 0
    read -r -t "$3"
    [ "$?" -gt 128 ] || exit 0
done
"""
"""Frozen for $2 seconds, thawed for $3, again and again until standard input ends; with 0: once."""


def is_possible() -> bool:
    """Whether this machine has what it takes."""
    return all(map(shutil.which, TOOLS)) and os.path.exists("/dev/loop-control")


class Volume:
    """A new one; `path` is a folder on it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._image = path.with_suffix(".img")
        with self._image.open("wb") as image:
            image.truncate(ROOM_BYTES)
        _run("mkfs.ext4", "-q", "-E", "lazy_itable_init=1,lazy_journal_init=1", str(self._image))
        path.mkdir()
        _run("mount", "-o", "loop", str(self._image), str(path))

    @contextlib.contextmanager
    def still(self, for_s: float = LONGEST_SECONDS, then_s: float = 0.0) -> Iterator[None]:
        """Nothing can be written; with `then_s`, it can for so long after each `for_s`."""
        words = ["bash", "-c", FREEZE, "freeze", str(self.path), f"{for_s:g}", f"{then_s:g}"]
        with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
            assert child.stdout is not None
            if not child.stdout.readline():
                raise OSError(f"{self.path} cannot be frozen")
            yield  # leaving closes the child's input, and waits until it has thawed

    @contextlib.contextmanager
    def full(self) -> Iterator[None]:
        """No byte more fits."""
        filler = self.path / "filler"
        try:
            told = os.statvfs(self.path)
            with contextlib.suppress(OSError):  # what was free a moment ago may not be now
                _run("fallocate", "-l", str(told.f_bavail * told.f_frsize), str(filler))
            with contextlib.suppress(OSError), filler.open("ab") as rest:
                while True:
                    rest.write(bytes(4096))
                    rest.flush()
            yield
        finally:
            filler.unlink(missing_ok=True)

    def close(self, kept: Path) -> None:
        """Move what lies there to a folder, and remove the file system."""
        with contextlib.suppress(OSError, shutil.Error):
            for each in self.path.iterdir():
                if each.name != "lost+found":
                    shutil.copytree(each, kept / each.name, dirs_exist_ok=True)
        subprocess.run(["umount", str(self.path)], check=False, capture_output=True)
        with contextlib.suppress(OSError):
            self._image.unlink()
            self.path.rmdir()


def _run(*words: str) -> None:
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        raise OSError(f"{' '.join(words)}: {done.stderr.strip()}")
