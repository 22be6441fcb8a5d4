"""From `metadata.store.url` to a store.

What: the one place that knows which engine a URL names. Why: an engine is imported only when it is
chosen. Not here: what a store does, see `core/controller/metadata_store.py`.
"""

from __future__ import annotations

from anabranch.core.controller.metadata_store import MetadataStore
from anabranch.core.errors import StorageFault

SQLITE = "sqlite://"


async def open_store(url: str) -> MetadataStore:
    """The store behind `sqlite:///absolute/path/metadata.db`.

    Raises StorageFault when the URL names no known engine or the store cannot be opened.
    """
    if not url.startswith(SQLITE):
        raise StorageFault(
            f"metadata.store.url={url} names no known store; write sqlite:///path/to/metadata.db"
        )
    from anabranch.server.metadata_store.sqlite import SqliteStore

    return await SqliteStore.open(url.removeprefix(SQLITE))
