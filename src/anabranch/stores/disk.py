"""Folders on a disk whose names survive a power cut, and limits of a disk.

Not here: the files of partitions (`server/files.py`).
"""

from __future__ import annotations

import contextlib
import errno
import os

NO_SPACE = frozenset({errno.ENOSPC, errno.EDQUOT})
BUFFERS_A_WRITE = 1024  # IOV_MAX


def sync_path(path: str, flags: int) -> None:
    """Have the disk store what was written under a path. Raises OSError."""
    handle = os.open(path, flags | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def sync_folder(path: str) -> None:
    """Make the names in a folder survive a power cut. Raises OSError."""
    sync_path(path, os.O_RDONLY | os.O_DIRECTORY)


def make_folder(path: str) -> None:
    """Make a folder and its parents; with their names, what is synced in it survives a power cut.

    Raises OSError."""
    parents, above = [], os.path.abspath(path)
    while not os.path.lexists(above):
        above = os.path.dirname(above)
        parents.append(above)
    os.makedirs(path, exist_ok=True)
    for parent in parents:
        with contextlib.suppress(PermissionError):  # a parent may be one that we cannot list
            sync_folder(parent)
