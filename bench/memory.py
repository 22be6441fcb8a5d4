"""Keeps the machine's memory backed while servers are measured, so that a round measures a server.

A virtual machine may hand its free memory back to its host within seconds; the first touch of such
a page then costs ten times a write to a page that is there, whoever the server is, and which of two
servers meets more of them is chance. So the free memory is filled, before each round that writes a
lot, with clean pages of a sparse file that cost no disk: the kernel takes them back when a server
writes, and they have a host's page behind them.
"""

from __future__ import annotations

from os import SEEK_END
from pathlib import Path

LEFT_FREE_BYTES = 512 << 20
"""Free memory that is left alone: the kernel itself keeps about as much."""
PIECE_BYTES = 1 << 20
CHECK_PIECES = 256


def free_bytes() -> int:
    """Memory that holds nothing at all, in bytes."""
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemFree:"):
            return int(line.split()[1]) * 1024
    return 0


def fill_free_memory(folder: Path) -> None:
    """Fill the free memory with pages of a sparse file in `folder`; the file grows as it goes."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "sparse"
    path.touch()
    piece = bytearray(PIECE_BYTES)
    with path.open("r+b", buffering=0) as file:
        end = file.seek(0, SEEK_END)
        while free_bytes() > LEFT_FREE_BYTES:
            end = file.truncate(end + CHECK_PIECES * PIECE_BYTES)
            while file.readinto(piece):
                pass
