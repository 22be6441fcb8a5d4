"""From `diskless.storage.url` or `remote.storage.url` to a store.

What: the one place that knows which store a URL names. Why: obstore is an optional package, and is
imported only for stores in a cloud. Not here: what a store does, see `core/diskless/objects.py`.
"""

from __future__ import annotations

from anabranch.core.diskless.claim import SETTING
from anabranch.core.diskless.objects import ObjectStore
from anabranch.core.errors import StorageFault
from anabranch.stores.objects.folder import FOLDER, open_folder
from anabranch.stores.objects.keys import shown
from anabranch.stores.objects.memory import MEMORY, MemoryStore

CLOUDS = ("s3://", "gs://", "az://")


async def open_objects(url: str, setting: str = SETTING) -> ObjectStore:
    """The store behind `file:///folder`, `memory://name`, `s3://bucket/prefix`,
    `gs://bucket/prefix` or `az://container/prefix`; `setting` is what has the URL.

    Raises StorageFault when the URL names no store. Nothing is asked of it yet: see `check`.
    """
    if url.startswith(FOLDER):
        return await open_folder(url, setting)
    if url.startswith(MEMORY):
        return MemoryStore(url)
    if url.startswith(CLOUDS):
        try:
            from anabranch.stores.objects.cloud import open_cloud
        except ImportError:
            raise StorageFault(
                f"{setting}={shown(url)} needs a package that is not installed; "
                "run pip install obstore"
            ) from None
        return open_cloud(url, setting)
    raise StorageFault(
        f"{setting}={shown(url)} names no known store; write file:///path/to/folder, "
        "s3://bucket/prefix, gs://bucket/prefix or az://container/prefix"
    )
