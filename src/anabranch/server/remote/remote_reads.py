"""Brings what readers of remote segments lack from the store.

What: the calls for `RemoteCache`, each in a task; what came, or the fault, is told in a step of its
own, in which all that wait for it go on; who has waited for `remote.fetch.max.wait.ms` goes on
before. Rules kept: what several lack is asked for once; a broker has so many calls under way at
once, those of all partitions take turns, and together they keep to
`remote.log.manager.fetch.max.bytes.per.second`. Not here: what is
lacking (`core/remote/tail.py`), what stays in memory (`core/remote/cache.py`).
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from anabranch.core.diskless.objects import ObjectsAway
from anabranch.core.errors import StorageFault
from anabranch.core.log.files import Bringer
from anabranch.core.remote.cache import (
    MOST_TROUBLES,
    PiecesOf,
    RemoteAsk,
    RemoteCache,
    RemoteRead,
)
from anabranch.core.remote.copy_pace import CopyPace
from anabranch.core.remote.keys import place_of
from anabranch.server.clocks import steady_ms
from anabranch.server.logs import logger
from anabranch.server.own_faults import tell_unexpected
from anabranch.server.remote.remote_counts import DELETED, IdleShare, RemoteCounts

if TYPE_CHECKING:
    from anabranch.core.api.context import Broker
    from anabranch.core.diskless.objects import ObjectStore
    from anabranch.core.types import Buffer

LOG = logger("remote")
MOST_BYTES, MOST_INDEX_BYTES = 64 << 20, 32 << 20
"""In memory, of batches and of decoded indexes: some fifty readers' pieces, and the indexes of some
hundred segments of a gigabyte. `remote.log.index.file.cache.total.size.bytes` may be less."""
AGAIN = "the broker asks again; check that it reaches the store"
MEND = (
    "put the object back from a copy of the store; `anabranch remote verify` names all that are "
    "missing or changed, and kafka-delete-records.sh gives up records before an offset"
)
NOT_YET = "the store of remote segments cannot be used yet"


class RemoteReads:
    """The reads of one broker. `begin` begins a step, `settle` ends it."""

    def __init__(
        self, broker: Broker, begin: Callable[[], None], settle: Callable[[], None]
    ) -> None:
        self.cache = RemoteCache(MOST_BYTES, MOST_INDEX_BYTES, steady_ms)
        self._begin, self._settle = begin, settle
        self._objects: ObjectStore | None = None
        self._broker = broker
        self.counts = RemoteCounts()
        self.reads = self.read_ms = 0
        self.idle = IdleShare()
        self.cache.on_damaged = self._damaged
        self._said: OrderedDict[str, str] = OrderedDict()
        self._running = 0
        self._pace = CopyPace()
        self._is_stopped = False
        self._ended = asyncio.Condition()
        self._waiting: dict[RemoteAsk, list[Callable[[], None]]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        broker.bringers.register(Bringer.REMOTE, self.bring)

    @property
    def waiting(self) -> int:
        """Reads that wait for their turn."""
        return len(self._waiting) - self._running

    def sample(self) -> None:
        """Note how many reads are under way."""
        self.idle.sample(self._running, self._broker.config.remote_log_reader_threads)

    def start(self, objects: ObjectStore) -> None:
        """The store can be used."""
        self._objects = objects

    async def stop(self) -> None:
        """Make no more calls; those who wait are answered when the node stops its requests."""
        self._is_stopped = True
        tasks = tuple(self._tasks)
        for each in tasks:
            each.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def bring(self, reads: Iterable[RemoteRead], done: Callable[[], None]) -> None:
        """Have asked for what a request lacks; `done` is called in the step in which the last of it
        is there, or has failed."""
        asks = {read.ask for read in reads}
        left = len(asks)

        def one_ended() -> None:
            nonlocal left
            left -= 1
            if left == 0:
                waited.cancel()
                done()

        def has_waited() -> None:
            nonlocal left
            left = -1
            if self._is_stopped:
                return
            self._begin()
            done()
            self._settle()

        wait_s = self._broker.config.remote_fetch_max_wait_ms / 1000
        waited = asyncio.get_running_loop().call_later(wait_s, has_waited)

        for ask in asks:
            if ask not in self._waiting:
                self._waiting[ask] = []
                task = asyncio.get_running_loop().create_task(self._bring(ask))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
            self._waiting[ask].append(one_ended)

    async def _bring(self, ask: RemoteAsk) -> None:
        result: Sequence[Buffer] | StorageFault
        try:
            result = await self._in_turn(ask)
        except StorageFault as fault:
            self._say(ask.object_key, str(fault), AGAIN if isinstance(fault, ObjectsAway) else MEND)
            result = fault
        except Exception as fault:  # who waits for it must not wait for ever
            tell_unexpected(fault, "reading a remote segment")
            LOG.error("reading a remote segment failed", fault=repr(fault))
            result = StorageFault(f"{type(fault).__name__}: {fault}")
        own_bytes = self._broker.config.remote_log_index_file_cache_total_size_bytes
        self.cache.most_index_bytes = min(MOST_INDEX_BYTES, own_bytes)
        self._begin()
        self.cache.brought(ask, result)
        for ended in self._waiting.pop(ask):
            ended()
        self._settle()

    async def _in_turn(self, ask: RemoteAsk) -> Sequence[Buffer]:
        async with self._ended:
            await self._ended.wait_for(
                lambda: self._running < self._broker.config.remote_log_reader_threads
            )
            self._running += 1
        began_ms, topic = steady_ms(), self._topic_of(ask.object_key)
        try:
            with self.counts.attempt(topic, "fetch"):
                found = await self._read(ask)
            self.counts.add(topic, "fetch_bytes", sum(map(len, found)))
            return found
        finally:
            self.reads += 1
            self.read_ms += steady_ms() - began_ms
            self._running -= 1
            async with self._ended:
                self._ended.notify()

    def _damaged(self, object_key: str, why: str) -> None:
        self.counts.add(self._topic_of(object_key), "fetch_errors")
        self._say(object_key, why, MEND)

    def _say(self, object_key: str, why: str, remedy: str) -> None:
        """Once, as long as it is the same."""
        if self._said.get(object_key) == why:
            return
        self._said[object_key] = why
        if len(self._said) > MOST_TROUBLES:
            self._said.popitem(last=False)
        told = {"topic": self._topic_of(object_key), "object": object_key}
        LOG.warning("a remote segment cannot be read", **told, why=why, remedy=remedy)

    def _topic_of(self, object_key: str) -> str:
        place = place_of(object_key)
        found = None if place is None else self._broker.image.topic_by_id(place.key.topic_id)
        return DELETED if found is None else found.name

    async def _read(self, ask: RemoteAsk) -> Sequence[Buffer]:
        objects = self._objects
        if objects is None:
            raise StorageFault(NOT_YET)
        if isinstance(ask, PiecesOf):
            await self._paced(sum(size for _, size in ask.ranges))
            return await objects.read(ask.object_key, ask.ranges)
        size = await objects.size(ask.object_key)
        await self._paced(size)
        return await objects.read(ask.object_key, [(0, size)])

    async def _paced(self, byte_size: int) -> None:
        limit = self._broker.config.remote_log_manager_fetch_max_bytes_per_second
        self._pace.bytes_per_second = limit
        wait_ms = self._pace.wait_ms(byte_size, steady_ms())
        if wait_ms > 0:
            await asyncio.sleep(wait_ms / 1000)
