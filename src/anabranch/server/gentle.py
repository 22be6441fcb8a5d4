"""Work that takes long, made in a thread so that clients notice little of it.

What: `in_parts` makes one part after the other, and pauses after each for much longer than it
took. Why: a thread that computes takes turns with the loop, and a processor from the other
processes of the machine. A snapshot of a hundred thousand partitions is a second of work, and
nobody waits for it: it may take twenty.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from typing import TypeVar

PAUSE_SHARE = 19
"""A pause is so many times as long as the part before it: a twentieth of a processor at most. With
a third, nodes that share two processors made their clients wait for 0.2 s while 100,000 partitions
changed: all of them make a snapshot then."""
ResultT = TypeVar("ResultT")


async def in_parts(parts: Iterator[ResultT]) -> list[ResultT]:
    """All parts. Whoever is cancelled meanwhile waits for one of them at most."""
    made: list[ResultT] = []
    while True:
        part, cpu_seconds = await asyncio.to_thread(_make, parts)
        if part is None:
            return made
        made.append(part)
        await asyncio.sleep(PAUSE_SHARE * cpu_seconds)


def _make(parts: Iterator[ResultT]) -> tuple[ResultT | None, float]:
    """The next part, and the CPU seconds that it took: not those in which others had the turn."""
    begin = time.thread_time()
    return next(parts, None), time.thread_time() - begin
