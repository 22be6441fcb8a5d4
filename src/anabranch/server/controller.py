"""The shell around the controller: the lease, the queue of appends, what is due by time.

What: takes the lease, reads the committed log, and then turns every decision into an append: plans
stand on one another at once, appends that wait for the disk share the next transaction, and an
answer leaves when everything it stands on is committed. Rule kept: when the store says deposed or
cannot say, the controller resigns, forgets what it planned, and reads again; without a confirmed
lease it answers nothing but NOT_CONTROLLER. Takers measure silence on their own monotonic clock.
Source: the architecture's "How a decision is made". Not here: what is decided (`core/controller`).
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Coroutine, Hashable, Iterable
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any

from anabranch.core.controller.controller import METADATA_KEY, Controller
from anabranch.core.controller.history import carrying
from anabranch.core.controller.partitions.election_counts import ElectionCounts, elections_in
from anabranch.core.controller.result import Result
from anabranch.core.controller.tenure.giving_way import GivenBack
from anabranch.core.errors import ApiError, ErrorCode, StorageFault, TooOld
from anabranch.core.metadata.batches import (
    encode_batch,
    encode_snapshot,
    leader_change_batch,
)
from anabranch.core.metadata.committed_log import CommittedBatch, SnapshotView
from anabranch.core.metadata.features import bootstrap_records
from anabranch.core.metadata.image import NO_LEADER, MetadataImage
from anabranch.core.metadata.levels import level_of, to_write
from anabranch.core.metadata.replay import replay_batch
from anabranch.core.metadata.snapshot import snapshot_is_due, snapshot_records
from anabranch.core.metadata.store import (
    NOBODY,
    Committed,
    Lease,
    MetadataStore,
    Snapshot,
    StoredBatch,
)
from anabranch.core.metadata.store_check import UNKNOWN_URL, CopyEnd
from anabranch.core.outcome import Propose
from anabranch.core.settings.broker import BrokerConfig
from anabranch.core.types import BrokerId
from anabranch.server.clocks import steady_ms, wall_ms
from anabranch.server.committed_reading import compare_with_copy, read_holding
from anabranch.server.dialling import Probing, Watch
from anabranch.server.logs import logger

LOG = logger("controller")
LEASE_TIMEOUT_S = 6.0
"""Silence after which another process takes the lease, and after which the holder stops itself."""
RENEW_S = 2.0
WATCH_S = 0.5
"""How often a waiting controller looks at the lease."""
IDLE_MS = 1000
"""How often the clock is looked at when nothing is due: a wake-up more for the forgiving of what
was not heard while this process did not run."""


@dataclass(slots=True)
class Waiting:
    """An answer that leaves when the log is committed up to `offset`."""

    offset: int
    future: asyncio.Future[Any]
    response: Any


class ControllerShell:
    """One node's controller; active or waiting for the lease."""

    def __init__(
        self,
        node_id: int,
        cluster_id: str,
        store: MetadataStore,
        config: BrokerConfig,
        *,
        on_changed: Callable[[Iterable[Hashable]], None],
        endpoint: str = "",
        home: str = "",
        copy: CopyEnd | None = None,
        on_stop: Callable[[str], None] | None = None,
        rng: Random | None = None,
        store_url: str = UNKNOWN_URL,
    ) -> None:
        self.controller = Controller(node_id, cluster_id, config, rng or Random())
        self.store = store
        self.endpoint = endpoint
        self.incarnation = f"{home or node_id}/{time.time_ns():x}"
        self.on_changed = on_changed
        self.on_stop = on_stop or LOG.error
        self._copy = copy
        self._store_url = store_url
        self._lease: Lease | None = None
        self._confirmed_s = 0.0
        self._pending: list[StoredBatch] = []
        self._waiting: list[Waiting] = []
        self._electing: dict[int, tuple[ElectionCounts, int]] = {}
        """First offset of an uncommitted batch -> whom it elects, and when that was decided."""
        self.elections_total = self.unclean_elections_total = self.elections_ms_total = 0
        self._stopping = False
        self._committed = MetadataImage.empty()
        self._wake = asyncio.Event()
        self._lost = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._snapshot_task: asyncio.Task[None] | None = None
        self._snapshot_ms = 0
        self._was_in_office = False
        self._watch: Watch | None = None
        self._holder_is_gone = asyncio.Event()
        self._took_office = asyncio.Event()
        self._probing = Probing(self.controller, self._submit_own)

    async def start(self) -> None:
        """Take the lease when nobody else holds it, else wait for it in the background.

        Raises StorageFault when the store is unreachable or older than this node's copy.
        """
        if self._copy is not None:
            await compare_with_copy(self.store, self._copy, self._store_url)
        await self._try_office(await self.store.lease(), silent=False)
        for work in (self._stay_or_wait, self._append_pending, self._tick):
            self._tasks.append(asyncio.create_task(self._guarded(work)))

    async def stop(self) -> None:
        """Finish appends under way, give the lease back, end the tasks. The store stays open."""
        if owed := [waiting.future for waiting in self._waiting]:
            await asyncio.wait(owed, timeout=LEASE_TIMEOUT_S)
        lease = self._lease
        self._stopping = True
        self._resign("this node stops")
        self._watch_holder(None)
        self._probing.stop()
        for task in (*self._tasks, *filter(None, (self._snapshot_task,))):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if lease is not None:
            await self._give_back(lease)

    async def _give_back(self, lease: Lease) -> None:
        """Others take over at once; when the store cannot be reached, after the lease's time."""
        try:
            await self.store.release_lease(lease)
        except StorageFault as fault:
            LOG.warning("the lease was not given back", epoch=lease.epoch, why=str(fault))

    async def _give_way(self, why: str) -> None:
        """Leave the lease to others for the time in which they would take it from a dead holder."""
        lease, until_ms = self._lease, steady_ms() + round(LEASE_TIMEOUT_S * 1000)
        if lease is not None:
            self.controller.given_back = GivenBack(lease.epoch, until_ms)
        self._resign(why)
        if lease is not None:
            await self._give_back(lease)

    async def _guarded(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """A controller with only some of its tasks is none: the node stops and says why."""
        try:
            await work()
        except Exception as fault:
            sentence = f"the controller failed: {type(fault).__name__}: {fault}"
            self._resign(sentence)
            self.on_stop(sentence)

    def look_at_lease(self) -> None:
        """Resign when the lease's time is over: to be called before anything is answered, since a
        process that was frozen may find requests in its sockets before its timers."""
        if self.controller.active and time.monotonic() - self._confirmed_s > LEASE_TIMEOUT_S:
            self._resign("the lease was not confirmed in time")

    def submit(self, propose: Propose) -> asyncio.Future[Any]:
        """The answer to a decision once it, and all it stands on, is committed.

        Call it before anything else may decide. The future raises ApiError NOT_CONTROLLER when the
        append failed or its outcome is unknown.
        """
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.look_at_lease()
        if not self.controller.active:
            future.set_exception(_not_controller())
            return future
        result = propose.result
        if result.records:
            self._plan(result)
        needed = self.controller.image.next_offset
        if self.controller.log.end_offset >= needed:
            future.set_result(result.response)
        else:
            self._waiting.append(Waiting(needed, future, result.response))
        return future

    def _plan(self, result: Result[Any]) -> None:
        controller, now_ms = self.controller, wall_ms()
        first, level = controller.image.next_offset, level_of(controller.image)
        records = to_write(controller.image, result.records)
        told = controller.history.plan(records, result.reasons, now_ms, first)
        payload = encode_batch(
            told, base_offset=first, epoch=controller.epoch, now_ms=now_ms, level=level
        )
        end = first + len(records)
        counts = elections_in(records)
        if counts.elections:
            self._electing[first] = counts, steady_ms()
        controller.advance(records, end - 1)
        self._queue(StoredBatch(first, end, controller.epoch, payload))
        for reason in result.reasons:
            LOG.info(reason.sentence, code=reason.code)

    def _queue(self, batch: StoredBatch) -> None:
        self._pending.append(batch)
        self._wake.set()

    async def _append_pending(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._pending:
                batches, self._pending = self._pending, []
                lease, epoch, asked_s = self._lease, self.controller.epoch, time.monotonic()
                assert lease is not None  # who resigns drops what is pending
                answer = await self.store.append(lease, batches[0].first_offset, batches)
                if self.controller.epoch != epoch or not self.controller.active:
                    continue
                if isinstance(answer, Committed):
                    self._confirmed_s = asked_s
                    self._commit(batches)
                else:
                    self._resign(f"an append was not committed: {answer}")

    def _commit(self, batches: list[StoredBatch]) -> None:
        log = self.controller.log
        for batch in batches:
            log.extend(CommittedBatch(*batch))
            self._count_elections(batch.first_offset)
            self.controller.history.commit(batch.first_offset)
        ready = [waiting for waiting in self._waiting if waiting.offset <= log.end_offset]
        self._waiting = self._waiting[len(ready) :]
        for waiting in ready:
            if not waiting.future.done():
                waiting.future.set_result(waiting.response)
        if self.controller.image.next_offset == log.end_offset:
            self._committed = self.controller.image
            self._maybe_snapshot()
        self.on_changed((METADATA_KEY,))

    def _count_elections(self, first_offset: int) -> None:
        """A batch is committed: whom it elects is elected."""
        if first_offset in self._electing:
            counts, decided_ms = self._electing.pop(first_offset)
            self.elections_total += counts.elections
            self.unclean_elections_total += counts.unclean
            self.elections_ms_total += counts.elections * (steady_ms() - decided_ms)

    def _resign(self, why: str) -> None:
        if self.controller.active and not self._stopping:
            LOG.warning("resigned as controller", epoch=self.controller.epoch, why=why)
        self.controller.resign()
        self._lease = None
        self._pending = []
        self._electing.clear()
        waiting, self._waiting = self._waiting, []
        for each in waiting:
            if not each.future.done():
                each.future.set_exception(_not_controller())
        self._lost.set()
        self.on_changed((METADATA_KEY,))

    # The lease

    async def _stay_or_wait(self) -> None:
        while True:
            try:
                if self.controller.active:
                    await self._stay()
                else:
                    await self._wait_for_office()
            except TooOld as fault:
                self.on_stop(str(fault))
                return
            except StorageFault as fault:
                LOG.error(str(fault))
                self._resign(str(fault))
                await asyncio.sleep(WATCH_S)

    async def _stay(self) -> None:
        self._lost.clear()
        try:
            async with asyncio.timeout(RENEW_S):
                await self._lost.wait()
            return
        except TimeoutError:
            pass
        lease = self._lease
        if lease is None:
            return
        asked_s = time.monotonic()
        try:
            async with asyncio.timeout(self._confirmed_s + LEASE_TIMEOUT_S - asked_s):
                renewed = await self.store.renew_lease(lease)
        except TimeoutError:
            self._resign("the lease could not be confirmed in time")
            return
        if renewed is None:
            self._resign("another controller took the lease")
        elif self._lease is lease:
            self._lease = renewed
            self._confirmed_s = asked_s

    async def _wait_for_office(self) -> None:
        seen = await self.store.lease()
        since_s = time.monotonic()
        while not self.controller.active:
            gone = self._holder_is_gone.is_set()
            silent = gone or time.monotonic() - since_s > LEASE_TIMEOUT_S
            if await self._try_office(seen, silent=silent):
                self._watch_holder(None)
                return
            self._watch_holder(seen)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(WATCH_S):
                    await self._holder_is_gone.wait()
            now = await self.store.lease()
            if seen is None or now is None or now.epoch != seen.epoch:
                self._holder_is_gone.clear()  # somebody was quicker: it was another that is gone
            if now != seen:
                seen, since_s = now, time.monotonic()

    def _watch_holder(self, lease: Lease | None) -> None:
        """Keep a connection to whoever holds the lease: when its process is gone, its epoch need
        not be waited for, since an append under it is refused once another has taken the lease."""
        self.controller.elsewhere = NO_LEADER if lease is None else BrokerId(lease.holder)
        endpoint = "" if lease is None or lease.holder == NOBODY else lease.endpoint
        if endpoint == (self._watch.endpoint if self._watch is not None else ""):
            return
        if self._watch is not None:
            self._watch.stop()
        self._holder_is_gone.clear()
        self._watch = Watch(endpoint, self._holder_is_gone.set) if endpoint else None

    async def _try_office(self, seen: Lease | None, *, silent: bool) -> bool:
        node_id = self.controller.node_id
        if seen is not None and self._is_a_twin_s(seen):
            self.on_stop(
                f"another process is controller with node.id={node_id} on the same metadata store; "
                "run one process a node.id"
            )
            return False
        if not self._is_free(seen) and not silent:
            return False
        given_back = self.controller.given_back
        if seen is not None and given_back.is_left_to_others(seen.epoch, steady_ms()):
            return False
        lease = await self.store.take_lease(seen, node_id, self.incarnation, self.endpoint)
        if lease is None:
            return False
        self._was_in_office = True
        try:
            return await self._begin_epoch(lease)
        except TooOld:
            await self._give_back(lease)
            raise

    def _is_free(self, lease: Lease | None) -> bool:
        """Whether nobody can be in office: not an earlier process of this node either, since its
        listener or folder is held by this one. Another of this id may be alive."""
        if lease is None or lease.holder == NOBODY:
            return True
        return lease.was_given(self.controller.node_id, self.incarnation, self.endpoint)

    def _is_a_twin_s(self, lease: Lease) -> bool:
        """Whether another process of this node's id took over: two would take turns for ever."""
        same_id = lease.holder == self.controller.node_id
        return self._was_in_office and same_id and lease.process != self.incarnation

    async def _begin_epoch(self, lease: Lease) -> bool:
        """Mark the new epoch in the log, and take office when that is committed.

        Only then is it known that all of the log was read: a store's copy that is behind would
        otherwise be served, and make every follower stop. A new log also gets the feature levels.
        """
        image, log, history = await read_holding(self.store, lease, RENEW_S)
        first = image.next_offset
        payload = leader_change_batch(
            base_offset=first,
            epoch=lease.epoch,
            leader_id=self.controller.node_id,
            now_ms=wall_ms(),
        )
        batch = StoredBatch(first, first + 1, lease.epoch, payload)
        asked_s = time.monotonic()
        answer = await self.store.append(lease, first, [batch])
        if not isinstance(answer, Committed):
            LOG.warning("did not become controller", epoch=lease.epoch, why=str(answer))
            return False
        log.extend(CommittedBatch(*batch))
        image, _delta = replay_batch(image, (), first, lease.epoch)
        self._lease, self._confirmed_s = lease, asked_s
        self._committed = image
        self._snapshot_ms = steady_ms()
        self.controller.take_office(lease.epoch, image, log, steady_ms())
        self.controller.history = history
        self._took_office.set()
        if not image.features:
            minimum = self.controller.static_config.min_insync_replicas
            self._plan(Result(bootstrap_records(minimum), None))
        LOG.info("active controller", epoch=lease.epoch, offset=log.end_offset)
        return True

    # What is due by time

    async def _tick(self) -> None:
        controller, due_ms = self.controller, steady_ms()
        while True:
            now_ms = steady_ms()
            if now_ms - due_ms > controller.sessions.check_interval_ms:
                controller.sessions.forgive(now_ms - due_ms, now_ms)  # heartbeats may lie unread
            if why := controller.gives_way(now_ms):
                await self._give_way(why)
            result = controller.tick(now_ms)
            if result is not None:
                self._submit_own(result)
            self._probing.begin()
            due_ms = now_ms + IDLE_MS
            if controller.active:
                due_ms = max(now_ms + 1, min(due_ms, controller.next_tick_ms))
            self._took_office.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout((due_ms - now_ms) / 1000):
                    await self._took_office.wait()
            due_ms = min(due_ms, steady_ms())

    def _submit_own(self, result: Result[None]) -> None:
        """Make a decision durable that nobody asked for."""
        self.submit(Propose(result)).add_done_callback(_read_exception)

    def connection_closed(self, broker_id: int, broker_epoch: int) -> None:
        """A connection on which a broker sent heartbeats has closed, for any cause."""
        self.controller.connection_closed(broker_id, broker_epoch, steady_ms())
        self._probing.begin()

    def _maybe_snapshot(self) -> None:
        new_bytes = self.controller.log.bytes_since_snapshot
        age_ms = steady_ms() - self._snapshot_ms
        busy = self._snapshot_task is not None and not self._snapshot_task.done()
        if not busy and snapshot_is_due(self.controller.config, new_bytes, age_ms):
            self._snapshot_ms += age_ms
            work = self._guarded(partial(self._take_snapshot, self._committed))
            self._snapshot_task = asyncio.create_task(work)

    async def _take_snapshot(self, image: MetadataImage) -> None:
        """Made in a thread from the immutable image, while decisions go on."""
        log, now_ms = self.controller.log, wall_ms()
        said = self.controller.history.newest(image.next_offset)
        payload = await asyncio.to_thread(
            lambda: encode_snapshot(
                carrying(snapshot_records(image), said),
                epoch=image.epoch,
                last_contained_ms=now_ms,
                now_ms=now_ms,
                level=level_of(image),
            )
        )
        previous = log.snapshot.end_offset if log.snapshot is not None else 0
        snapshot = Snapshot(image.next_offset, image.epoch, payload)
        try:
            await self.store.save_snapshot(snapshot, keep_log_from=previous)
        except StorageFault as fault:
            LOG.error("no snapshot of the metadata could be stored", why=str(fault))
            return
        if self.controller.log is not log:
            return
        log.take_snapshot(SnapshotView(*snapshot))
        LOG.info("snapshot of the metadata", offset=image.next_offset, size_bytes=len(payload))

    def statistics(self) -> dict[str, int]:
        """Numbers for the metrics page."""
        return {
            **self.controller.statistics(),
            "waiting": len(self._waiting),
            "elections_total": self.elections_total,
            "unclean_elections_total": self.unclean_elections_total,
            "elections_ms_total": self.elections_ms_total,
        }


def _not_controller() -> ApiError:
    return ApiError(ErrorCode.NOT_CONTROLLER, "This node is not the controller.")


def _read_exception(future: asyncio.Future[Any]) -> None:
    if not future.cancelled():
        future.exception()
