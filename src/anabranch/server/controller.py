"""The shell around the controller: performs what its tenure asks for, and wakes it in time.

What: carries out the tenure's calls of the metadata store and its dials, each in a task of its own,
brings it the answers, and has its timers go off. Rule kept: effects are performed in order, and an
answer leaves only when the tenure says so. Source: the architecture's "How a decision is made".
Not here: what is decided (`core/controller`), and the lease, appends and snapshots
(`core/controller/tenure`).
"""

from __future__ import annotations

import asyncio
import contextlib
import time
import traceback
from collections.abc import Callable, Coroutine, Hashable, Iterable, Sequence
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

from anabranch.core.controller.controller import METADATA_KEY, Controller
from anabranch.core.controller.reasons import folded
from anabranch.core.controller.result import Reason
from anabranch.core.controller.tenure import effects, events
from anabranch.core.controller.tenure.lease import LeaseTimes
from anabranch.core.controller.tenure.performer import Performer, refusal
from anabranch.core.controller.tenure.tenure import Tenure
from anabranch.core.errors import CorruptStore, StorageFault, TooOld
from anabranch.core.metadata.features import bootstrap_records
from anabranch.core.metadata.store import MetadataStore, StoreAway
from anabranch.core.metadata.store_check import UNKNOWN_URL, CopyEnd
from anabranch.core.outcome import Propose
from anabranch.core.settings.broker import BrokerConfig
from anabranch.core.tiering.seals import Progress
from anabranch.core.types import TopicId
from anabranch.core.wire.metadata_records import MetadataRecord
from anabranch.server.clocks import steady_ms, wall_ms
from anabranch.server.diskless.rows import LogRowsShell
from anabranch.server.liveness_probe import Watch, dial
from anabranch.server.logs import logger
from anabranch.server.own_faults import tell_unexpected
from anabranch.server.store_calls import carried_out
from anabranch.server.store_patience import Patience

LOG = logger("controller")
TIMING = LeaseTimes()
MOST_LOGGED = 100
"""Lines about one decision: a broker that dies may lead thousands of partitions, and everybody
waits while lines are written."""


class ControllerShell(Performer):
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
        patience: Patience | None = None,
        first_users: Sequence[MetadataRecord] = (),
    ) -> None:
        """`first_users`: records that a new cluster begins with."""
        self.controller = Controller(node_id, cluster_id, config, rng or Random())
        self.tenure = Tenure(
            self.controller, f"{home or node_id}/{time.time_ns():x}", endpoint=endpoint, copy=copy,
            store_url=store_url, timing=TIMING,
            first_records=lambda least: (*bootstrap_records(least), *first_users),
        )  # fmt: skip
        self.store = store
        self.on_changed = on_changed
        self.on_stop = on_stop or LOG.error
        self.rows: LogRowsShell | None = None
        """What keeps the rows of diskless partitions, where there are such."""
        self._tasks: dict[asyncio.Task[None], effects.Effect] = {}
        self._ticking: asyncio.Task[None] | None = None
        self._sooner = asyncio.Event()
        self._wakes_ms = 0
        self._watching: Watch | None = None
        self._settled = asyncio.Event()
        self._start_fault: StorageFault | None = None
        self._is_away = False
        """Whether the store gave no answer to what was asked of it last."""
        self._patience = patience or Patience(config.initial_broker_registration_timeout_ms)

    async def start(self) -> None:
        """Take the lease when nobody else holds it, else wait for it in the background.

        A store that is away is waited for, as in `open_for_start`. Raises StorageFault when it
        stays away, refuses, or is older than this node's copy.
        """
        self._step(events.Start())
        self._ticking = asyncio.create_task(self._tick())
        await self._settled.wait()
        if self._start_fault is not None:
            raise self._start_fault

    async def stop(self) -> None:
        """Finish appends under way, give the lease back, end the tasks. The store stays open."""
        if owed := self.tenure.owed:
            await asyncio.wait(owed, timeout=self.tenure.state.timing.lease_timeout_ms / 1000)
        self._step(events.Leave())
        if self._ticking is not None:
            self._ticking.cancel()
        for task, effect in self._tasks.items():
            if not isinstance(effect, effects.ReleaseLease):
                task.cancel()
        ending = [*self._tasks, *filter(None, (self._ticking,))]
        await asyncio.gather(*ending, return_exceptions=True)

    def look_at_lease(self) -> None:
        """To be called before anything is answered: see `Tenure.look`."""
        self._look(steady_ms())

    def submit(self, propose: Propose) -> asyncio.Future[Any]:
        """The answer to a decision once it, and all it stands on, is committed.

        Call it before anything else may decide. The future raises ApiError NOT_CONTROLLER when the
        append failed or its outcome is unknown.
        """
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._step(events.Decide(propose.result, future))
        return future

    def connection_closed(self, broker_id: int, broker_epoch: int) -> None:
        """A connection on which a broker sent heartbeats has closed, for any cause."""
        self._step(events.ConnectionClosed(broker_id, broker_epoch))

    def heard_of_seals(self, topic_id: TopicId, migration: int, progress: Progress) -> None:
        """How far a topic is that becomes diskless."""
        self.controller.duties.migrations.heard(topic_id, migration, progress)

    def statistics(self) -> dict[str, int]:
        """Numbers for the metrics page."""
        return self.tenure.statistics()

    # Steps.

    def _step(self, event: events.Event) -> None:
        self.controller.wall_ms = wall_ms()
        self.tenure.step(event, steady_ms())
        self._perform()

    def _guarded(self, step: Callable[[], None]) -> None:
        """A controller with only some of its parts is none: the node stops and says why."""
        try:
            step()
        except Exception as fault:
            tell_unexpected(fault, "a step of the controller")
            self._step(_broken(fault))

    async def _tick(self) -> None:
        while True:
            self._guarded(self._tick_once)
            self._sooner.clear()
            self._wakes_ms = self.tenure.next_tick_ms
            wait_ms = max(0, self._wakes_ms - steady_ms())
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait_ms / 1000):
                    await self._sooner.wait()

    def _tick_once(self) -> None:
        self.controller.wall_ms = wall_ms()
        self.tenure.tick(steady_ms())
        self._perform()

    def _performed(self) -> None:
        if self.tenure.is_settled and not self._is_away:
            self._settled.set()
        if self.tenure.next_tick_ms < self._wakes_ms:
            self._sooner.set()

    # What a tenure asks for.

    def _start_task(self, effect: effects.Effect, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks[task] = effect
        task.add_done_callback(lambda ended: self._tasks.pop(ended, None))

    def _call(self, call: effects.StoreCall) -> None:
        self._start_task(call, self._carry_out(call))

    async def _carry_out(self, call: effects.StoreCall) -> None:
        event: events.Event | None
        try:
            event = await carried_out(self.store, call)
            self._is_away = False
        except StorageFault as fault:
            if not self._settled.is_set():
                self._fault_at_start(fault)
            if isinstance(call, effects.ReleaseLease):
                epoch = call.lease.epoch
                LOG.warning("the lease was not given back", epoch=epoch, why=str(fault))
            for_good = isinstance(fault, TooOld | CorruptStore)
            event = events.StoreFailed(call, str(fault), for_good=for_good)
        except Exception as fault:
            tell_unexpected(fault, "a call of the metadata store")
            event = _broken(fault)
        if event is not None:
            self._guarded(partial(self._step, event))

    def _dial(self, effect: effects.Dial) -> None:
        self._start_task(effect, self._dial_broker(effect))

    async def _dial_broker(self, effect: effects.Dial) -> None:
        endpoint = effect.probe.endpoint
        answer = await dial(endpoint.host, endpoint.port)
        self._guarded(partial(self._step, events.Probed(effect, answer)))

    def _watch(self, effect: effects.Watch) -> None:
        if self._watching is not None:
            self._watching.stop()
            self._watching = None
        lease = effect.lease
        if lease is not None and lease.endpoint:
            gone = partial(self._step, events.HolderGone(lease.epoch))
            self._watching = Watch(lease.endpoint, partial(self._guarded, gone))

    def _answer(self, effect: effects.Answer) -> None:
        if not effect.ticket.done():
            effect.ticket.set_result(effect.response)

    def _refuse(self, effect: effects.Refuse) -> None:
        if not effect.ticket.done():
            effect.ticket.set_exception(refusal())

    def _moved(self) -> None:
        self.on_changed((METADATA_KEY,))

    def _began(self, effect: effects.Began) -> None:
        LOG.info("active controller", epoch=effect.epoch, offset=effect.end_offset)
        if self.rows is not None:
            self.rows.began(effect.epoch, effect.end_offset)

    def _resigned(self, effect: effects.Resigned) -> None:
        LOG.warning("resigned as controller", epoch=effect.epoch, why=effect.why)
        for task, call in self._tasks.items():
            if isinstance(call, effects.WriteSnapshot):  # the next term stores its own
                task.cancel()
        if self.rows is not None:
            self.rows.resigned()

    def _tell(self, effect: effects.Told) -> None:
        match effect:
            case effects.Decided(reasons):
                said = list(folded(reasons, Reason.told))
                for reason, sentence in said[:MOST_LOGGED]:
                    LOG.info(sentence, code=reason.code)
                if len(said) > MOST_LOGGED:
                    LOG.info("more follows from this decision", lines=len(said) - MOST_LOGGED)
            case effects.Troubled(sentence):
                if self._settled.is_set() or not self._is_away:  # else it was said once
                    LOG.error(sentence)

    def _stop(self, effect: effects.Stop) -> None:
        if self._settled.is_set():
            self.on_stop(effect.sentence)
        else:
            self._fail_start(StorageFault(effect.sentence))

    def _fault_at_start(self, fault: StorageFault) -> None:
        """What passes is waited for a while: the tenure asks again."""
        left_ms = self._patience.left_ms() if isinstance(fault, StoreAway) else 0
        if left_ms <= 0:
            self._fail_start(fault)
        elif not self._is_away:
            self._is_away = True
            LOG.warning("waiting for the metadata store", timeout_ms=left_ms, why=str(fault))

    def _fail_start(self, fault: StorageFault) -> None:
        self._start_fault = self._start_fault or fault
        self._settled.set()


def _broken(fault: Exception) -> events.Broke:
    frame = traceback.extract_tb(fault.__traceback__)[-1]
    place = f"{Path(frame.filename).name}:{frame.lineno}"
    return events.Broke(f"the controller failed: {type(fault).__name__} at {place}: {fault}")
