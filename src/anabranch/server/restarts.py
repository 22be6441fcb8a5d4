"""Work that goes on for as long as a node runs, whatever happens in it.

What: `restarted` says what a task's work failed with, and begins it again. Why: a task that nobody
waits for ends without a word, and a node that compacts or drops nothing any more fills its disk
weeks later. Rule kept: only for work of which a turn may be left out; without registration or
metadata a node must stop (`registration.py`, `metadata_log.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from anabranch.server.logs import EventLog
from anabranch.server.own_faults import tell_unexpected

AGAIN_S = 1.0
"""Between a fault and the next beginning: what fails at once shall not fill the log."""


async def restarted(work: Callable[[], Awaitable[None]], name: str, log: EventLog) -> None:
    """Do work that should never end; `name` is what is said to have failed."""
    while True:
        try:
            await work()
        except Exception as fault:
            tell_unexpected(fault, name)
            log.error(f"{name} failed", why=f"{type(fault).__name__}: {fault}")
        await asyncio.sleep(AGAIN_S)
