"""From `diskless.coordinator.url` to a coordinator.

What: the one place that knows which engine a URL names; an engine is imported only when it is
chosen. Not here: what a coordinator does, see `core/diskless/coordinator.py`.
"""

from __future__ import annotations

from anabranch.core.diskless.coordinator import Coordinator
from anabranch.core.errors import StorageFault
from anabranch.core.settings.urls import SQLITE, names_no_file, without_secrets
from anabranch.stores.metadata.engines import POSTGRES


async def open_coordinator(url: str, cluster_id: str, *, makes: bool = True) -> Coordinator:
    """The coordinator behind `sqlite:///absolute/path.db`, a path, or
    `postgresql://host/database`; it belongs to the cluster from then on. It is made when it is not
    there, unless `makes` is False.

    Raises StorageFault when the URL names no known engine or it refuses, CoordinatorAway when it
    does not answer now.
    """
    if url.startswith(POSTGRES):
        try:
            from anabranch.stores.coordinator.postgres import PostgresCoordinator
        except ImportError:
            raise StorageFault(
                "diskless.coordinator.url names PostgreSQL, whose driver is not installed; "
                "run pip install 'psycopg[binary]'"
            ) from None
        return await PostgresCoordinator.open(url, cluster_id, makes=makes)
    if "://" in url and not url.startswith(SQLITE):
        raise StorageFault(
            f"diskless.coordinator.url={without_secrets(url)} names no known coordinator; write "
            "sqlite:///path/to/diskless.db or postgresql://user@host:5432/database"
        )
    from anabranch.stores.coordinator.sqlite import SqliteCoordinator

    path = url.removeprefix(SQLITE)
    if names_no_file(url) or path in ("", ":memory:"):
        raise StorageFault(
            f"diskless.coordinator.url={url} names no file; write sqlite:///path/to/diskless.db"
        )
    return await SqliteCoordinator.open(path, cluster_id, makes=makes)
