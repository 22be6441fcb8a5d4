"""From `metadata.store.url` to a store.

What: the one place that knows which engine a URL names. Why: an engine is imported only when it is
chosen. Not here: what a store does, see `core/metadata/store.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeVar

from anabranch.core.errors import StorageFault
from anabranch.core.metadata.store import MetadataStore, StoreAway
from anabranch.core.settings.urls import SQLITE, names_no_file, without_secrets
from anabranch.core.types import NEVER_MS
from anabranch.server.clocks import steady_ms
from anabranch.server.logs import logger

ResultT = TypeVar("ResultT")

LOG = logger("node")
TRY_AGAIN_S = 0.5

POSTGRES = ("postgresql://", "postgres://")


async def open_store(url: str) -> MetadataStore:
    """The store behind `sqlite:///absolute/path/metadata.db` or `postgresql://host/database`.

    Raises StorageFault when the URL names no known engine or the store cannot be opened.
    """
    if url.startswith(POSTGRES):
        try:
            from anabranch.server.metadata_store.postgres import PostgresStore
        except ImportError:
            raise StorageFault(
                "metadata.store.url names PostgreSQL, whose driver is not installed; "
                "run pip install 'psycopg[binary]'"
            ) from None
        return await PostgresStore.open(url)
    if not url.startswith(SQLITE) or names_no_file(url):
        raise StorageFault(
            f"metadata.store.url={without_secrets(url)} names no known store; write "
            "sqlite:///path/to/metadata.db or postgresql://user@host:5432/database"
        )
    from anabranch.server.metadata_store.sqlite import SqliteStore

    return await SqliteStore.open(url.removeprefix(SQLITE))


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
