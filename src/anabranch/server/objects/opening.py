"""From `diskless.storage.url` to a store.

What: the one place that knows which store a URL names. Not here: what a store does,
see `core/diskless/objects.py`.
"""

from __future__ import annotations

import re

from anabranch.core.diskless.objects import ObjectStore
from anabranch.core.errors import StorageFault
from anabranch.server.objects.folder import FOLDER, open_folder
from anabranch.server.objects.memory import MEMORY, MemoryStore


def shown(url: str) -> str:
    """The URL without options and passwords: it goes into logs and sentences."""
    return re.sub(r"(//)[^/@]*@", r"\1", url.partition("?")[0])


async def open_objects(url: str) -> ObjectStore:
    """The store behind `file:///folder` or `memory://name`.

    Raises StorageFault when the URL names no store. Nothing is asked of it yet: see `check`.
    """
    if url.startswith(FOLDER):
        return await open_folder(url)
    if url.startswith(MEMORY):
        return MemoryStore(url)
    raise StorageFault(
        f"diskless.storage.url={shown(url)} names no known store; write file:///path/to/folder"
    )
