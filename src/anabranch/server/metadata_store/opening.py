"""From `metadata.store.url` to a store.

What: the one place that knows which engine a URL names. Why: an engine is imported only when it is
chosen. Not here: what a store does, see `core/controller/metadata_store.py`.
"""

from __future__ import annotations

import re

from anabranch.core.controller.metadata_store import MetadataStore
from anabranch.core.errors import StorageFault

SQLITE = "sqlite://"
POSTGRES = ("postgresql://", "postgres://")


def shown(url: str) -> str:
    """The URL without a password: it goes into logs and error texts."""
    return re.sub(r"(//[^:@/]*):[^@/]*@", r"\1@", url)


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
                "run pip install 'anabranch[postgres]'"
            ) from None
        return await PostgresStore.open(url)
    if not url.startswith(SQLITE):
        raise StorageFault(
            f"metadata.store.url={shown(url)} names no known store; write "
            "sqlite:///path/to/metadata.db or postgresql://user@host:5432/database"
        )
    from anabranch.server.metadata_store.sqlite import SqliteStore

    return await SqliteStore.open(url.removeprefix(SQLITE))
