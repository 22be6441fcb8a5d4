"""The shell around a broker's diskless half: calls of coordinator and store, watch, timers.

What: `DisklessShell` makes the calls that `broker.diskless` wants, each in a task, and brings what
came of it back as a step of its own. Rule kept: nothing is decided here; no call waits for ever; a
call whose end is not known is told as such. Not here: which calls (`core/diskless`), opening both
(`stores.py`), rows of the active controller (`rows.py`).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any

from anabranch.core.diskless import admission, retention_rounds
from anabranch.core.diskless import effects as does
from anabranch.core.diskless.coordinator import CoordinatorAway, Deposed, OlderCopy
from anabranch.core.diskless.objects import ObjectsAway
from anabranch.core.diskless.pause import Pause
from anabranch.core.diskless.retention_rounds import AskStates, Expire, RoundEnded, Shortened
from anabranch.core.diskless.rows import Change, CommitState, Committed
from anabranch.core.errors import StorageFault
from anabranch.core.tiering.compaction_lag import DirtyTopic
from anabranch.core.tiering.lag import TopicLag
from anabranch.core.types import NEVER_MS
from anabranch.server.chains import carried_out
from anabranch.server.clocks import steady_ms, wall_ms
from anabranch.server.diskless.tiering_lags import TieringLags
from anabranch.server.diskless.upkeep import DisklessUpkeep
from anabranch.server.logs import logger
from anabranch.server.own_faults import tell_unexpected
from anabranch.stores.coordinator.front import Front
from anabranch.stores.objects.store_check import check_commits

if TYPE_CHECKING:
    from anabranch.core.api.context import Broker
    from anabranch.server.diskless.stores import Stores

LOG = logger("diskless")

CALL_SECONDS, READ_SECONDS = 30.0, 10.0
"""How long a call may take, and one that a reader waits for; a commit that takes longer is asked
for."""
HEDGE_SECONDS = 0.5
"""After so long an object is read a second time: of the two answers the first one counts."""
MOST_HEDGED = 2
"""Reads that are made a second time at once. Where more are late the store is slow as a whole: it
would have twice the work, and their bytes twice the memory."""
LEAVE_SECONDS = 5.0
"""How long a stopping broker waits for the objects that are under way."""
LAG_SECONDS, LAG_PAUSE_SECONDS = 10.0, 0.1
"""Between two measurements of lags, and between two pages of one."""
LAG_PAGE = 200
"""Partitions that are measured at once: a few milliseconds."""


class DisklessShell:
    """Calls and time for `broker.diskless`. `begin` begins a step, `settle` ends it; `read_on` has
    connections that were held up read again."""

    def __init__(
        self,
        broker: Broker,
        begin: Callable[[], None],
        settle: Callable[[], None],
        read_on: Callable[[], None],
    ) -> None:
        self._broker = broker
        self._machine = broker.diskless
        self._begin, self._settle, self._read_on = begin, settle, read_on
        self._stores: Stores | None = None
        self._cluster_id = ""
        self._upkeep: DisklessUpkeep | None = None
        self._tiering: TieringLags | None = None
        self._is_checking = False
        self._is_refused = False
        """Whether the coordinator was found to be an older copy."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._puts: dict[int, set[asyncio.Task[None]]] = {}
        """By object."""
        self._timer: asyncio.TimerHandle | None = None
        self._due_ms = NEVER_MS
        self._stopping = self._is_leaving = False
        self._nothing_waits = asyncio.Event()
        self._hedges = Hedges(MOST_HEDGED)
        self._said: set[str] = set()
        self._why_deposed = ""

    def wait(self, why: str) -> None:
        """Coordinator or store cannot be used yet, and why."""
        self._machine.wait(why)

    def start(self, stores: Stores, cluster_id: str) -> None:
        """The broker is registered: tell the coordinator, and take what producers send."""
        self._stores = stores
        self._machine.start(interval_ms=stores.interval_ms)
        self._cluster_id = cluster_id
        self.registered()
        self._start(self._watch())
        self._start(self._retain())
        self._start(self._measure())
        self._tiering = TieringLags(self._broker, stores)
        self._start(self._tiering.run())

    def registered(self) -> None:
        """The controller gave this process an epoch, the first one or another."""
        if self._stores is not None:
            self._start(self._register())

    async def leave(self) -> None:
        """No client sends any more: let what is under way end."""
        self._is_leaving = True
        self._look_for_the_end()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LEAVE_SECONDS):
                await self._nothing_waits.wait()

    async def stop(self) -> None:
        """Make no more calls."""
        self._stopping = True
        if self._timer is not None:
            self._timer.cancel()
        tasks = tuple(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._upkeep is not None:
            await self._upkeep.stop()

    def statistics(self) -> dict[str, float]:
        """What is done beside serving, for metrics."""
        return {} if self._upkeep is None else self._upkeep.statistics()

    def tiering_lags(self) -> list[TopicLag]:
        """How far tiering is behind, for metrics."""
        return [] if self._tiering is None else self._tiering.newest()

    def compaction_lags(self) -> list[DirtyTopic]:
        """How far compaction is behind, for metrics."""
        return [] if self._tiering is None else self._tiering.dirty()

    def perform(self) -> None:
        """Make the calls that are wanted; called when `broker.diskless` has marked itself."""
        if self._stores is None or self._stopping:
            return
        machine = self._machine
        for effect in machine.take_effects():
            if isinstance(effect, does.ReadOn):
                asyncio.get_running_loop().call_soon(self._read_on)
            elif isinstance(effect, does.EndPuts):
                self._end_puts(effect.object_id)
            else:
                self._begin_call(effect)
        if machine.older is not None and not self._is_refused:
            self._ask_nothing_more(self._stores, machine.older)
        if machine.why_deposed != self._why_deposed:
            self._why_deposed = machine.why_deposed
            if self._why_deposed:
                LOG.error("the coordinator refused this broker's epoch", why=self._why_deposed)
        while machine.complaints:
            what, why = machine.complaints.popleft()
            LOG.error("an object cannot be read", object=what, why=why)
        due_ms = machine.next_tick_ms
        if due_ms != self._due_ms:
            self._arm(due_ms)
        if self._is_leaving:
            self._look_for_the_end()

    def _look_for_the_end(self) -> None:
        if not self._machine.writing.waiting_bytes:
            self._nothing_waits.set()

    # Calls.

    def _start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _begin_call(self, effect: does.Effect) -> None:
        task = self._start(self._make(effect))
        if isinstance(effect, does.PutObject):
            self._puts.setdefault(effect.object_id, set()).add(task)
            task.add_done_callback(partial(self._put_ended, effect.object_id))

    def _put_ended(self, object_id: int, task: asyncio.Task[None]) -> None:
        puts = self._puts.get(object_id, set())
        puts.discard(task)
        if not puts:
            self._puts.pop(object_id, None)

    def _end_puts(self, object_id: int) -> None:
        """All that are under way; the one that has succeeded is this very step."""
        for task in self._puts.pop(object_id, ()):
            if task is not asyncio.current_task():
                task.cancel()

    async def _make(self, effect: does.Effect) -> None:
        assert self._stores is not None
        call, away = _CALLS[type(effect)]
        seconds = READ_SECONDS if isinstance(effect, _READS) else CALL_SECONDS
        result: Any
        try:
            async with asyncio.timeout(seconds):
                result = await call(self, self._stores, effect)
        except TimeoutError:
            result = away(f"no answer within {seconds:.0f} s")
        except StorageFault as fault:
            result = fault
        except Exception as fault:  # a call that is not ended would hold up all others
            tell_unexpected(fault, type(effect).__name__)
            LOG.error("a call failed", call=type(effect).__name__, fault=repr(fault))
            result = away(f"{type(fault).__name__}: {fault}")
        self._say(type(effect).__name__, result)
        if isinstance(result, Committed) and result.state is CommitState.REFUSED:
            LOG.warning("an object was refused; its producers retry", why=result.why)
        self._step(partial(self._machine.answered, effect, result))

    def _step(self, step: Callable[[int], object]) -> None:
        if self._stopping:
            return
        self._begin()
        step(self._broker.steady_ms)
        self._settle()

    def _refuse(self, fault: OlderCopy) -> None:
        self._step(partial(self._machine.refuse, fault))

    def _ask_nothing_more(self, stores: Stores, fault: OlderCopy) -> None:
        """The coordinator is an older copy."""
        self._is_refused = True
        LOG.error("diskless records are refused", why=str(fault))
        if isinstance(stores.coordinator, Front):
            stores.coordinator.refuse_all(fault)

    def _say(self, name: str, result: Any) -> None:
        """Once for each kind of call that fails, and once when it does not any more."""
        if isinstance(result, OlderCopy):
            self._refuse(result)
        if isinstance(result, Deposed) or name == does.CallClaims.__name__:
            return  # nothing waits for it: `perform` says so
        if isinstance(result, StorageFault):
            if name not in self._said:
                self._said.add(name)
                LOG.warning("diskless records wait", call=name, why=str(result))
        elif name in self._said:
            self._said.discard(name)
            LOG.info("diskless records are accepted again", call=name)

    async def _prepare(self, stores: Stores, effect: does.PrepareObjects) -> Any:
        _, broker_id, epoch = self._machine.writing.identity
        return await stores.coordinator.prepare(broker_id, epoch, effect.count, effect.lease_ms)

    async def _by_time(self, stores: Stores, effect: does.FindByTime) -> Any:
        if effect.timestamp is None:
            return await stores.coordinator.newest(effect.key)
        return await stores.coordinator.by_time(effect.key, effect.timestamp, effect.first)

    async def _read_object(self, stores: Stores, effect: does.ReadObject) -> Any:
        return await hedged(
            lambda: stores.objects.read(effect.object_key, effect.ranges),
            HEDGE_SECONDS,
            self._hedges,
        )

    # Time.

    def _arm(self, due_ms: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._due_ms = due_ms
        if due_ms != NEVER_MS:
            seconds = max(0, due_ms - steady_ms()) / 1000
            self._timer = asyncio.get_running_loop().call_later(seconds, self._ring)

    def _ring(self) -> None:
        self._timer, self._due_ms = None, NEVER_MS
        self._step(lambda _: self._machine.ring())

    # Beside the calls.

    async def _register(self) -> None:
        await carried_out(admission.admission(self._broker), self._admit)

    async def _admit(self, step: admission.Step) -> None:
        assert self._stores is not None
        match step:
            case Pause(pause_ms):
                await asyncio.sleep(pause_ms / 1000)
            case admission.Register(broker_id, epoch):
                try:
                    await self._stores.coordinator.register(broker_id, epoch)
                except StorageFault:
                    raise
                except Exception as fault:  # nothing is taken before this has succeeded
                    tell_unexpected(fault, "registering at the coordinator")
                    raise unforeseen(fault) from fault
            case admission.Waiting(fault):
                self._say("Register", fault)
            case admission.Refused(epoch, why):
                self._step(partial(self._machine.deposed, epoch, why))
            case admission.Admitted(epoch):
                self._say("Register", None)
                self._keep_up(self._stores, self._cluster_id)
                self._step(partial(self._machine.registered, self._cluster_id, epoch))

    def _keep_up(self, stores: Stores, cluster_id: str) -> None:
        """The coordinator knows this broker: begin what is done beside serving."""
        if self._upkeep is not None:
            return
        self._upkeep = DisklessUpkeep(self._broker, stores.coordinator, stores.objects, cluster_id)
        self._machine.note_commit = self._upkeep.committed
        self._machine.note_changes = self._upkeep.heard
        known = self._machine.by_key.values()
        self._upkeep.heard([Change(each.key, each.state) for each in known if each.state])
        self._upkeep.start()

    async def _check_again(self, stores: Stores) -> None:
        """Whether the coordinator knows what brokers noted: what listened to it has ended, so
        another server may be in its place, and this broker may have heard of no commit. Nothing
        waits for it, since the store may be away."""
        if self._is_checking:
            return
        self._is_checking = True
        try:
            mark = await stores.coordinator.mark()
            await check_commits(stores.objects, stores.coordinator, self._cluster_id, mark)
        except OlderCopy as fault:
            self._refuse(fault)
        except StorageFault:  # it says nothing of the coordinator
            pass
        finally:
            self._is_checking = False

    async def _watch(self) -> None:
        assert self._stores is not None
        pause_ms = 0

        def broken(_now_ms: int) -> None:
            nonlocal pause_ms
            pause_ms = self._machine.watch_broken()

        while True:
            is_open = False
            try:
                async for changes in self._stores.coordinator.changes():
                    if not is_open:
                        is_open = True
                        self._say("Watch", None)
                        self._step(lambda _: self._machine.watch_opened())
                    if changes:
                        self._step(lambda _, told=changes: self._machine.changed(told))  # type: ignore[misc]
                fault: StorageFault = CoordinatorAway("the watch ended")
            except StorageFault as problem:
                fault = problem
            except Exception as problem:  # what moves would be missed for good
                tell_unexpected(problem, "watching the coordinator")
                fault = unforeseen(problem)
            self._say("Watch", fault)
            self._step(broken)
            await asyncio.sleep(pause_ms / 1000)
            self._start(self._check_again(self._stores))

    async def _measure(self) -> None:
        """Rounds of lags, a page at a time."""
        assert self._stores is not None
        while True:
            await asyncio.sleep(LAG_SECONDS)
            keys = sorted(self._machine.by_key)
            self._machine.lags.forget_gone()
            for first in range(0, len(keys), LAG_PAGE):
                page = keys[first : first + LAG_PAGE]
                try:
                    states = await self._stores.coordinator.states(page)
                except StorageFault:  # other calls say so
                    break
                except Exception as fault:  # the rounds go on
                    tell_unexpected(fault, "a round of measuring")
                    LOG.error("a round of measuring failed", fault=repr(fault))
                    break
                self._step(lambda _, page=page, told=states: self._machine.measured(page, told))  # type: ignore[misc]
                await asyncio.sleep(LAG_PAUSE_SECONDS)

    async def _retain(self) -> None:
        """Rounds of retention, which go on whatever happens."""
        while True:
            try:
                await carried_out(retention_rounds.rounds(self._broker), self._look_over)
            except Exception as fault:
                tell_unexpected(fault, "a round of retention")
                LOG.error("a round of retention failed", fault=repr(fault))

    async def _look_over(self, step: retention_rounds.Step) -> Any:
        assert self._stores is not None
        coordinator = self._stores.coordinator
        match step:
            case Pause(pause_ms):
                await asyncio.sleep(pause_ms / 1000)
                return wall_ms()
            case AskStates(keys):
                return await coordinator.states(keys)
            case Expire((key, older_than_ms, most_bytes), most_runs):
                return await coordinator.expire(
                    key, older_than_ms=older_than_ms, most_bytes=most_bytes, most_runs=most_runs
                )
            case Shortened(change):
                self._step(lambda _: self._machine.changed([change]))
            case RoundEnded(fault):
                self._say("Retention", fault)
        return None


def unforeseen(fault: Exception) -> CoordinatorAway:
    """What a call of the coordinator raised that nobody foresaw, as a fault that may pass."""
    return CoordinatorAway(f"{type(fault).__name__}: {fault}")


class Hedges:
    """How many calls may be made a second time now."""

    def __init__(self, most: int) -> None:
        self.left = most


async def hedged(call: Callable[[], Awaitable[Any]], after_seconds: float, hedges: Hedges) -> Any:
    """What a call gives that may be made twice: again when the first has no answer in time, and not
    too many others are made again. Raises what the last one raises."""
    calls = {asyncio.ensure_future(call())}
    is_hedged = False
    try:
        done, _ = await asyncio.wait(calls, timeout=after_seconds)
        if not done and hedges.left > 0:
            is_hedged = True
            hedges.left -= 1
            calls.add(asyncio.ensure_future(call()))
        waiting = set(calls)
        while True:
            done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            answers = [each for each in done if each.exception() is None]
            if answers or not waiting:
                return (answers or list(done))[0].result()
    finally:
        hedges.left += is_hedged
        for each in calls:
            each.cancel()


_READS = (
    does.AskStates, does.FindRuns, does.FindByTime, does.ReadObject, does.LookAtFacts,
)  # fmt: skip
_Call = Callable[["DisklessShell", Any, Any], Awaitable[Any]]
_CALLS: dict[type, tuple[_Call, type[StorageFault]]] = {
    does.PrepareObjects: (DisklessShell._prepare, CoordinatorAway),
    does.PutObject: (lambda _, on, it: on.objects.put(it.object_key, it.buffers), ObjectsAway),
    does.CommitObject: (lambda _, on, it: on.coordinator.commit(it.commit), CoordinatorAway),
    does.AskOutcome: (lambda _, on, it: on.coordinator.outcome(it.object_key), CoordinatorAway),
    does.RefuseObjects: (lambda _, on, it: on.coordinator.refuse(it.object_ids), CoordinatorAway),
    does.AskStates: (lambda _, on, it: on.coordinator.states(it.keys), CoordinatorAway),
    does.FindRuns: (lambda _, on, it: on.coordinator.find(it.wanted), CoordinatorAway),
    does.FindByTime: (DisklessShell._by_time, CoordinatorAway),
    does.DeleteBefore: (
        lambda _, on, it: on.coordinator.delete_before(it.wanted),
        CoordinatorAway,
    ),
    does.ReadObject: (DisklessShell._read_object, ObjectsAway),
    does.LookAtFacts: (lambda _, on, it: on.remote.look(it.key), CoordinatorAway),
    does.CallClaims: (
        lambda _, on, it: getattr(on.tiering, it.call)(*it.arguments),
        CoordinatorAway,
    ),
}
"""How each effect is performed, and what it is when it has no answer."""
