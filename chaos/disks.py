"""Small file systems for the logs of some nodes, and how they run out of room.

What: a node's folder is a tmpfs. `full` shrinks it to what it holds and a little more, so that the
kernel itself refuses the next write; at the end it is as large as before. Why shrink and not fill:
nothing is written for it. Rules kept: the mounts belong to this process's own mount namespace
(`private.py`), so that the kernel removes them with it; before that the files move to the machine's
disk, for whoever looks at what a run left. Not here: disks that only seem full
(`anabranch.testing`).
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

ROOMY_BYTES = 4 << 30
"""More than a run writes; memory is used for what is written alone."""
LEAST_FREE_BYTES = 6 << 30
"""Of memory, without which this is left out."""
PAGE_BYTES = 4096


class SmallDisks:
    """The small file systems of one cluster, by broker."""

    def __init__(self, folders: Mapping[int, str]) -> None:
        self._folders = dict(folders)
        for folder in self._folders.values():
            os.makedirs(folder)
            _mount("-t", "tmpfs", "-o", f"size={ROOMY_BYTES}", "tmpfs", folder)

    @property
    def brokers(self) -> list[int]:
        """Whose folder is one."""
        return sorted(self._folders)

    @contextlib.contextmanager
    def full(self, broker_id: int, slack_bytes: int) -> Iterator[None]:
        """Only so many bytes still fit."""
        folder = self._folders[broker_id]
        told = os.statvfs(folder)
        used = (told.f_blocks - told.f_bfree) * told.f_frsize
        size = used + slack_bytes // PAGE_BYTES * PAGE_BYTES + PAGE_BYTES
        try:
            _mount("-o", f"remount,size={size}", folder)
            yield
        finally:
            _mount("-o", f"remount,size={ROOMY_BYTES}", folder)

    def close(self) -> None:
        """Move the files to the machine's disk."""
        folders, self._folders = self._folders, {}
        for folder in folders.values():
            kept = f"{folder}.kept"
            shutil.copytree(folder, kept)
            subprocess.run(["umount", folder], check=False, capture_output=True)
            with contextlib.suppress(OSError):
                os.rmdir(folder)
                os.rename(kept, folder)


def is_memory_enough() -> bool:
    """Whether the logs of a run fit into memory."""
    lines: Iterable[str] = Path("/proc/meminfo").read_text().splitlines()
    free = [int(line.split()[1]) for line in lines if line.startswith("MemAvailable")]
    return bool(free) and free[0] * 1024 >= LEAST_FREE_BYTES


def _mount(*words: str) -> None:
    done = subprocess.run(["mount", *words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise OSError(f"mount {' '.join(words)}: {done.stderr.strip()}")
