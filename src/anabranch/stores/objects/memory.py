"""`memory://name`: objects of one process, for tests. All that open one name share its objects."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Sequence

from anabranch.core.diskless.objects import Listed, ObjectMissing, ObjectTaken, Source
from anabranch.core.types import Buffer
from anabranch.stores.objects.existing_object import whole
from anabranch.stores.objects.keys import check_key, short_object
from anabranch.stores.objects.store_check import check_store

MEMORY = "memory://"
LIST_PAGE = 1000
_STORES: dict[str, dict[str, tuple[bytes, int]]] = {}


class MemoryStore:
    """Objects in a dictionary that is kept until the process ends."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._objects = _STORES.setdefault(url, {})

    async def put(self, key: str, buffers: Sequence[Buffer]) -> None:
        check_key(key, self.url)
        held = self._objects.setdefault(key, (b"".join(buffers), time.time_ns() // 1_000_000))[0]
        if held != b"".join(buffers):
            raise ObjectTaken(f"{self.url}: object {key} exists")

    async def put_large(self, key: str, source: Source) -> None:
        await self.put(key, [bytes(piece) async for piece in whole(source)])

    async def read(self, key: str, ranges: Sequence[tuple[int, int]]) -> list[Buffer]:
        held = memoryview(self._held(key))
        for position, length in ranges:
            if position + length > len(held):
                raise short_object(self.url, key, len(held), position, length)
        return [held[position : position + length] for position, length in ranges]

    async def size(self, key: str) -> int:
        return len(self._held(key))

    def _held(self, key: str) -> bytes:
        try:
            return self._objects[key][0]
        except KeyError:
            raise ObjectMissing(f"{self.url}: there is no object {key}") from None

    async def delete(self, keys: Sequence[str]) -> list[str]:
        for key in keys:
            self._objects.pop(key, None)
        return list(keys)

    async def list(self, prefix: str) -> AsyncIterator[list[Listed]]:
        found = [
            Listed(key, len(held), modified_ms)
            for key, (held, modified_ms) in sorted(self._objects.items())
            if key.startswith(prefix)
        ]
        for start in range(0, len(found), LIST_PAGE):
            yield found[start : start + LIST_PAGE]

    async def check(self, cluster_id: str) -> None:
        await check_store(self, cluster_id)

    async def close(self) -> None:
        """The objects stay."""
