"""A node that starts waits for its metadata store, and says so.

Not here: which store a URL names (`stores/metadata/engines.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeVar

from anabranch.core.metadata.store import MetadataStore, StoreAway
from anabranch.core.types import NEVER_MS
from anabranch.server.clocks import steady_ms
from anabranch.server.logs import logger
from anabranch.stores.metadata.engines import open_store

ResultT = TypeVar("ResultT")

LOG = logger("node")
TRY_AGAIN_S = 0.5


class Patience:
    """How long a node that starts waits for its store, whatever it asks: so long after it first
    found the store away."""

    def __init__(self, timeout_ms: int) -> None:
        self._timeout_ms = timeout_ms
        self._until_ms = NEVER_MS

    def left_ms(self) -> int:
        """What is left of it, now that the store is away; 0 or less when it is over."""
        now_ms = steady_ms()
        self._until_ms = min(self._until_ms, now_ms + self._timeout_ms)
        return self._until_ms - now_ms


async def open_for_start(url: str, patience: Patience) -> MetadataStore:
    """As `open_store`, for a node that starts: see `waited_for`."""
    return await waited_for(partial(open_store, url), patience)


async def waited_for(call: Callable[[], Awaitable[ResultT]], patience: Patience) -> ResultT:
    """What a call gives for a node that starts: a store that is away is waited for, and said so.

    Raises StorageFault when it refuses, and when it is still away when the patience is over.
    """
    said = False
    while True:
        try:
            return await call()
        except StoreAway as away:
            left_ms = patience.left_ms()
            if left_ms <= 0:
                raise
            if not said:
                LOG.warning("waiting for the metadata store", timeout_ms=left_ms, why=str(away))
            said = True
        await asyncio.sleep(TRY_AGAIN_S)
