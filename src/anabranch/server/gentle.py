"""Work that takes long, made in a thread so that clients notice little of it.

What: `in_parts` makes one part after the other, and pauses after each for longer than it took. Why:
a thread that computes takes turns with the loop, and a processor from the other processes of the
machine. A snapshot of a hundred thousand partitions is a second of work, and nobody waits for it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from typing import TypeVar

PAUSE_SHARE = 2
"""A pause is so many times as long as the part before it: a third of a processor at most."""
ResultT = TypeVar("ResultT")


async def in_parts(parts: Iterator[ResultT]) -> list[ResultT]:
    """All parts. Whoever is cancelled meanwhile waits for one of them at most."""
    made: list[ResultT] = []
    while True:
        begin = time.perf_counter()
        part = await asyncio.to_thread(next, parts, None)
        if part is None:
            return made
        made.append(part)
        await asyncio.sleep(PAUSE_SHARE * (time.perf_counter() - begin))
