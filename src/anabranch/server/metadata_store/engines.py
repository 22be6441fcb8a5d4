"""From `metadata.store.url` to a store.

What: the one place that knows which engine a URL names. Why: an engine is imported only when it is
chosen. Not here: what a store does, see `core/metadata/store.py`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeVar

from anabranch.core.errors import StorageFault
from anabranch.core.metadata.store import MetadataStore, StoreAway
from anabranch.core.settings.urls import SQLITE, names_no_file, without_secrets
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


async def open_for_start(url: str, timeout_ms: int) -> MetadataStore:
    """As `open_store`, for a node that starts: see `waited_for`."""
    return await waited_for(partial(open_store, url), timeout_ms)


async def waited_for(call: Callable[[], Awaitable[ResultT]], timeout_ms: int) -> ResultT:
    """What a call gives for a node that starts: a store that is away is waited for, and said so.

    Raises StorageFault when it refuses, and when it is still away after `timeout_ms`.
    """
    until_s = time.monotonic() + timeout_ms / 1000
    said = False
    while True:
        try:
            return await call()
        except StoreAway as away:
            if time.monotonic() >= until_s:
                raise
            if not said:
                LOG.warning("waiting for the metadata store", timeout_ms=timeout_ms, why=str(away))
            said = True
        await asyncio.sleep(TRY_AGAIN_S)
