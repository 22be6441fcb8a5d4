"""What brokers do for diskless topics as time passes: retention and garbage.

What: two loops in each life of a node, each a chain of calls of the simulated coordinator and
store. Each broker drops what is too old or too much of its share of the partitions; brokers take
turns with garbage rounds, whose pace is quick enough for a schedule. Rule kept: a chain stops at
the first call that fails, and begins anew later. Not here: whose share is what
(`core/diskless/retention.py`), when a round of garbage collection is due and what it does
(`core/diskless/garbage.py`, `core/diskless/garbage_round.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any

from anabranch.core.diskless import garbage_round
from anabranch.core.diskless.garbage import GarbageRounds, Pace, turn_of
from anabranch.core.diskless.garbage_round import (
    Call,
    DeleteObjects,
    FindDeletable,
    FindUnknown,
    ForgetObjects,
    ForgetProducers,
    ListObjects,
    MarkExpired,
    Page,
    ReadMark,
)
from anabranch.core.diskless.keys import object_prefix
from anabranch.core.diskless.retention import MOST_RUNS, Limits, to_look_over
from anabranch.core.errors import StorageFault
from anabranch.sim.coordinator import MARK

if TYPE_CHECKING:
    from anabranch.sim.diskless import DisklessPerformer

RETENTION_MS, GARBAGE_MS = 2_000, 500
"""How often each loop looks."""
PACE = Pace(
    round_ms=2_000, grace_ms=4_000, retry_ms=1_000, list_ms=9_000, orphan_ms=20_000,
    idle_producer_ms=86_400_000,
)  # fmt: skip

Ask = Callable[[Callable[[Any], None]], None]
"""Makes one call; takes who is told what it gave."""
Chain = Generator[Ask, Any, None]


class Upkeep:
    """The loops of one life of a node."""

    def __init__(self, performer: DisklessPerformer) -> None:
        self.performer = performer
        self.node = performer.node
        self.rounds = GarbageRounds(PACE)

    def start(self) -> None:
        """The process speaks now."""
        self._loop(RETENTION_MS, self._retention)
        self._loop(GARBAGE_MS, self._garbage)

    def _loop(self, pause_ms: int, chain: Callable[[], Chain]) -> None:
        def again() -> None:
            self.node.later(pause_ms, lambda: self._go_on(chain(), None, again))

        again()

    def _go_on(self, chain: Chain, result: Any, ended: Callable[[], None]) -> None:
        try:
            if isinstance(result, StorageFault):
                ask = chain.throw(result)
            else:
                ask = chain.send(result)
        except (StopIteration, StorageFault):
            ended()
            return
        node = self.node

        def told(found: Any) -> None:
            if self.performer.is_alive:
                node.world.after_in(node, 0, self._go_on, chain, found, ended)

        ask(told)

    def _ask(self, name: str, *args: Any) -> Ask:
        coordinator = self.performer.remotes.coordinator
        return lambda done: coordinator.ask(self.node.name, name, args, done)

    # Retention.

    def _retention(self) -> Chain:
        broker = self.node.broker
        now_ms = self.node.world.now_ms
        for limits in to_look_over(broker.image, broker.broker_id, broker.config, now_ms):
            yield self._expire(limits)

    def _expire(self, limits: Limits) -> Ask:
        coordinator = self.performer.remotes.coordinator

        def act() -> Any:
            result = coordinator.memory.expire(
                limits.key, older_than_ms=limits.older_than_ms, most_bytes=limits.most_bytes,
                most_runs=MOST_RUNS,
            )  # fmt: skip
            coordinator.tell("expire", (limits.key,), result)
            return result

        return lambda done: coordinator.call(self.node.name, "expire", act, done)

    # Garbage.

    def _garbage(self) -> Chain:
        """A round, if it is this broker's turn."""
        turn, brokers = turn_of(self.node.image, self.node.node_id)
        now_ms = self.node.world.steady_ms
        if self.rounds.due_ms(now_ms, turn, brokers) > now_ms:
            return
        try:
            left = yield from self._performed(garbage_round.collect(self.rounds))
            if self.rounds.lists_now(now_ms, turn, brokers):
                yield from self._performed(garbage_round.sweep(self.rounds))
        except StorageFault:
            self.rounds.failed(self.node.world.steady_ms)
        else:
            self.rounds.ended(self.node.world.steady_ms, brokers, left)

    def _performed(self, steps: Generator[Call, Any, Any]) -> Generator[Ask, Any, Any]:
        """A round's calls, as they are asked here; the store is listed in one page."""
        result: Any = None
        is_listed = False
        while True:
            try:
                call = steps.send(result)
            except StopIteration as ended:
                return ended.value
            if isinstance(call, ReadMark):
                result = MARK
            elif isinstance(call, ListObjects) and is_listed:
                result = None
            else:
                result = yield self._asked(call)
            if isinstance(call, ListObjects) and not is_listed:
                is_listed, result = True, Page(result, self.node.world.now_ms)

    def _asked(self, call: Call) -> Ask:
        objects, name = self.performer.remotes.objects, self.node.name
        match call:
            case DeleteObjects(keys):
                return lambda done: objects.delete(name, keys, done)
            case ListObjects():
                prefix = object_prefix(self.node.broker.cluster_id)
                return lambda done: objects.list(name, prefix, done)
            case _:
                return self._ask(_NAMES[type(call)], *call)


_NAMES: dict[type, str] = {
    MarkExpired: "mark_expired",
    ForgetProducers: "forget_producers",
    FindDeletable: "to_delete",
    ForgetObjects: "deleted",
    FindUnknown: "unknown",
}
"""What the coordinator's calls are called."""
