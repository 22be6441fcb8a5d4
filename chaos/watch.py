"""What the metadata log says while everything fails: leaders, elections, the lease.

What: a thread reads the store as a controller does and keeps the image it makes. Why the store and
no broker: brokers are what is being killed, and a count that a process keeps dies with it. Rule
kept: it only reads, but for `steal_lease`, which is one of the faults. Not here: what clients saw
(`check`), what the nodes logged (`node_logs`).
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

from anabranch.core.controller.partitions.election_counts import elections_in
from anabranch.core.errors import StorageFault
from anabranch.core.metadata.batches import decode_batches
from anabranch.core.metadata.image import RECOVERING, MetadataImage, PartitionImage
from anabranch.core.metadata.replay import replay_batch
from anabranch.core.metadata.snapshot import from_snapshot
from anabranch.core.metadata.store import NOBODY, Lease, MetadataStore
from anabranch.core.wire.metadata_records import PartitionChangeRecord
from anabranch.stores.metadata.engines import open_store

T = TypeVar("T")

LOOK_SECONDS = 0.25
READ_BYTES = 8 << 20
THIEF = 99
"""No broker has this id."""


class Watch:
    """Reads the store at `url` until `stop`; what it found last is in its attributes."""

    def __init__(self, url: str) -> None:
        self._url = url
        self.image = MetadataImage.empty()
        self.lease: Lease | None = None
        self.first_epoch = 0
        self.elections = self.unclean_elections = self.last_known = 0
        self.fault: BaseException | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._store: MetadataStore | None = None
        self._is_up = threading.Event()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), daemon=True)

    def start(self) -> Watch:
        """Begin; the cluster has made its store before."""
        self._thread.start()
        self._is_up.wait(30)
        return self

    def stop(self) -> None:
        """Look once more, and end. Raises what went wrong in the thread."""
        self._ended.set()
        self._thread.join()
        if self.fault is not None:
            raise self.fault

    @property
    def controller(self) -> int:
        """Who holds the lease; -1: nobody that is a broker."""
        lease = self.lease
        return lease.holder if lease is not None and lease.holder != THIEF else NOBODY

    @property
    def lease_changes(self) -> int:
        """Times that somebody took the lease since the watch began."""
        return 0 if self.lease is None else self.lease.epoch - self.first_epoch

    def partition(self, topic: str, index: int) -> PartitionImage | None:
        """A partition as it is committed."""
        return self.image.partition(topic, index)

    def topic_id(self, topic: str) -> Any:
        """The id of a topic as it is committed; None: there is none."""
        found = self.image.topic(topic)
        return None if found is None else found.topic_id

    def unwell(self) -> list[str]:
        """A sentence a partition that nobody leads, that moves, or that has not all replicas in
        sync. Raises what went wrong in the thread."""
        if self.fault is not None:
            raise self.fault
        found = []
        image = self.image
        for topic in image.topics_by_id.values():
            for index, each in sorted(topic.partitions.items()):
                if each.leader < 0 or set(each.isr) != set(each.replicas):
                    found.append(
                        f"{topic.name}-{index}: leader {each.leader}, in sync {list(each.isr)} "
                        f"of {list(each.replicas)}, eligible {list(each.elr)}"
                    )
                elif each.adding or each.removing:
                    found.append(
                        f"{topic.name}-{index}: moves to {list(each.adding)} "
                        f"from {list(each.removing)}"
                    )
        fenced = [each.broker_id for each in image.brokers.values() if not each.active]
        return found + [f"broker {each} is fenced" for each in fenced]

    def steal_lease(self, seconds: float) -> bool:
        """Take the lease from whoever has it and keep it for so long; False: another was faster."""
        assert self._loop is not None
        return asyncio.run_coroutine_threadsafe(self._steal(seconds), self._loop).result(60)

    async def _steal(self, seconds: float) -> bool:
        assert self._store is not None
        with contextlib.suppress(StorageFault):
            taken = await self._store.take_lease(await self._store.lease(), THIEF, "thief", "")
            if taken is not None:
                await asyncio.sleep(seconds)
                await self._store.release_lease(taken)
                return True
        return False

    async def _run(self) -> None:
        self._loop = asyncio.get_running_loop()
        try:
            await self._follow()
        except BaseException as fault:
            self.fault = fault
        finally:
            self._is_up.set()

    async def _follow(self) -> None:
        store = self._store = await open_store(self._url)
        while True:
            is_last = self._ended.is_set()
            if await self._heard(self._look(store)) and self.lease is not None:
                self._is_up.set()
            if is_last:
                break
            await asyncio.sleep(LOOK_SECONDS)
        await store.close()

    async def _heard(self, question: Coroutine[Any, Any, None]) -> bool:
        try:
            await question
        except StorageFault:
            return False
        return True

    async def _look(self, store: MetadataStore) -> None:
        self.lease = await store.lease() or self.lease
        if self.lease is not None and not self.first_epoch:
            self.first_epoch = self.lease.epoch
        if (await store.end()).start_offset > self.image.next_offset:
            await self._begin_at_snapshot(store)
        while batches := await store.read(self.image.next_offset, READ_BYTES):
            for stored in batches:
                for batch in decode_batches(stored.payload):
                    self._take(batch.records, batch.last_offset, stored.epoch)

    def _take(self, records: Any, last_offset: int, epoch: int) -> None:
        counts = elections_in(records)
        last_known = sum(map(self._is_last_known, records)) if counts.unclean else 0
        self.elections += counts.elections
        self.last_known += last_known
        self.unclean_elections += counts.unclean - last_known
        self.image, _ = replay_batch(self.image, records, last_offset, epoch)

    def _is_last_known(self, record: Any) -> bool:
        """Whether the last leader of all came back and was elected (KIP-966): marked as unclean,
        since a disk may have lost something, and allowed."""
        if type(record) is not PartitionChangeRecord or record.leader_recovery_state != RECOVERING:
            return False
        topic = self.image.topic_by_id(record.topic_id)
        before = None if topic is None else topic.partitions.get(record.partition_id)
        return before is not None and before.last_known_elr == (record.leader,)

    async def _begin_at_snapshot(self, store: MetadataStore) -> None:
        """The log was trimmed beyond what was read: elections in between are not counted."""
        snapshot = await store.load_snapshot()
        assert snapshot is not None
        records = [each for batch in decode_batches(snapshot.payload) for each in batch.records]
        self.image = from_snapshot(records, snapshot.end_offset, snapshot.epoch)
