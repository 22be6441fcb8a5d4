"""From `metadata.store.url` to a store.

What: the one place that knows which engine a URL names. Why: an engine is imported only when it is
chosen. Not here: what a store does, see `core/metadata/store.py`.
"""

from __future__ import annotations

from anabranch.core.errors import StorageFault
from anabranch.core.metadata.store import MetadataStore
from anabranch.core.settings.urls import SQLITE, names_no_file, without_secrets

POSTGRES = ("postgresql://", "postgres://")


async def open_store(url: str) -> MetadataStore:
    """The store behind `sqlite:///absolute/path/metadata.db` or `postgresql://host/database`.

    Raises StorageFault when the URL names no known engine or the store cannot be opened.
    """
    if url.startswith(POSTGRES):
        try:
            from anabranch.stores.metadata.postgres import PostgresStore
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
    from anabranch.stores.metadata.sqlite import SqliteStore

    return await SqliteStore.open(url.removeprefix(SQLITE))
