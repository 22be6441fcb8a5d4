"""The object store: what any store must do, whatever stands behind it.

What: eight calls on immutable objects. A local folder, S3, GCS, Azure and memory implement it
(`stores/objects`), and a simulated one. Rules kept: `put` is durable when it returns and never
replaces; a name that is taken is compared, so that a put may be made again and no broker takes
another's object for its own; a reader sees all of an object or none of it. Each raises
`ObjectsAway` when the store does not answer (a put may have happened), `ObjectMissing`, or
StorageFault with a sentence that names the store, the cause and the remedy. Not here: what is in an
object (`layout.py`), caches.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import NamedTuple, Protocol

from anabranch.core.errors import StorageFault
from anabranch.core.types import Buffer

INCOMPLETE = ".incomplete-"
"""Stands behind the name of an object in the name of what is put before it has its own."""


class ObjectsAway(StorageFault):
    """The store does not answer now, or refuses for a while. A put may have happened."""


class ObjectMissing(StorageFault):
    """There is no such object, or less of it than there should be."""


class ObjectTaken(StorageFault):
    """An object of that name exists with other bytes, and is not replaced."""


class Listed(NamedTuple):
    """One object of a listing."""

    key: str
    byte_size: int
    modified_ms: int


class Source(Protocol):
    """The bytes of a large object, which are never in memory all at once."""

    byte_size: int

    def pieces(self) -> AsyncIterator[Buffer]:
        """All of them, in order and from the beginning, each time that it is called. A piece may be
        overwritten once the next one is asked for. What it raises ends the put: it is how a put is
        called off."""


class ObjectStore(Protocol):
    """All calls are for the loop's thread."""

    url: str
    """Where it is, for sentences; without secrets."""

    async def put(self, key: str, buffers: Sequence[Buffer]) -> None:
        """Store one object whole; it may be there already, byte for byte, by an earlier attempt
        that had no answer. Raises ObjectTaken."""

    async def put_large(self, key: str, source: Source) -> None:
        """The same for an object of any size, a few pieces at a time. An object that a put which
        was cut off has left begins with the name and `INCOMPLETE`. Raises what the source
        raises."""

    async def read(self, key: str, ranges: Sequence[tuple[int, int]]) -> list[Buffer]:
        """(position, length) ranges of one object. Raises ObjectMissing."""

    async def size(self, key: str) -> int:
        """Length in bytes. Raises ObjectMissing."""

    async def delete(self, keys: Sequence[str]) -> list[str]:
        """Remove objects; those that are not there count as removed. The keys that were removed."""

    def list(self, prefix: str) -> AsyncIterator[list[Listed]]:
        """Objects by name, in pages; what is put meanwhile may be missing."""

    async def check(self, cluster_id: str) -> None:
        """Whether it can be written, read and deleted in, never replaces, and belongs to this
        cluster (`claim.py`); said before anybody needs it."""

    async def close(self) -> None:
        """Let go of connections."""
