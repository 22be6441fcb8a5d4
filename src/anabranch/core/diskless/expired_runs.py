"""Which of a partition's oldest runs its retention lets go.

What: a pure walk over the oldest runs. Rules kept: whole runs only, from the oldest on, and never
out of order; by time, a run goes when its newest record is too old, and one whose records have no
timestamp when its commit is (as on classic topics a segment's file); by size, it goes while what is
left has at least the size to be kept (as on classic topics). Not here: who asks, and how often.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple


class Oldest(NamedTuple):
    """What retention looks at of a run."""

    end_offset: int
    byte_size: int
    max_timestamp: int
    """-1: its records have none."""
    committed_ms: int


def outlived(oldest: Iterable[Oldest], byte_size: int, older_than_ms: int, most_bytes: int) -> int:
    """The offset at which a partition may begin, 0 when nothing goes; `byte_size` is of all runs,
    -1 turns a bound off."""
    start_offset = 0
    for end_offset, run_size, max_timestamp, committed_ms in oldest:
        newest_ms = max_timestamp if max_timestamp >= 0 else committed_ms
        is_old = older_than_ms >= 0 and newest_ms < older_than_ms
        is_beyond = most_bytes >= 0 and byte_size - run_size >= most_bytes
        if not (is_old or is_beyond):
            break
        start_offset, byte_size = end_offset, byte_size - run_size
    return start_offset
