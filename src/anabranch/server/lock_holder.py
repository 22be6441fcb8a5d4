"""Which process holds a lock file, for the error that another one is given.

The system knows it (fcntl's F_GETLK): nothing is written into the file, which Kafka keeps empty.
Not here: the locks themselves (`folders.py`).
"""

from __future__ import annotations

import fcntl
import os
import struct
import sys

FLOCK = struct.Struct("hhqqi4x")
"""Linux' `struct flock`: type, whence, start, length, process id."""


def holder(descriptor: int) -> str:
    """The process that holds a write lock of this file, as `process 17 (java)`; empty where the
    system does not say, or it is this one."""
    if sys.platform != "linux":
        return ""
    asked = FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
    try:
        kind, *_, pid = FLOCK.unpack(fcntl.fcntl(descriptor, fcntl.F_GETLK, asked))
    except OSError:
        return ""
    if kind == fcntl.F_UNLCK or pid <= 0:  # 0: of another container
        return ""
    return f"process {pid}{_named(pid)}"


def _named(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/comm") as file:
            return f" ({file.read().strip()})"
    except OSError:
        return ""
