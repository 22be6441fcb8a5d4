"""What brokers do for diskless topics as time passes: retention and garbage.

What: two loops in each life of a node, each a chain of calls of the simulated coordinator and
store. Each broker drops what is too old or too much of its share of the partitions; brokers take
turns with garbage rounds, whose pace is quick enough for a schedule. Rule kept: a chain stops at
the first call that fails, and begins anew later. Not here: whose share is what
(`core/diskless/retention.py`), when a round is due, and which objects may go
(`core/diskless/garbage.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any

from anabranch.core.diskless.garbage import (
    DELETE_AT_ONCE,
    MARK_AT_ONCE,
    STEPS_A_ROUND,
    GarbageRounds,
    Pace,
    is_ours,
)
from anabranch.core.diskless.keys import object_prefix
from anabranch.core.diskless.retention import Limits, to_look_over
from anabranch.core.errors import StorageFault
from anabranch.sim.coordinator import MARK

if TYPE_CHECKING:
    from anabranch.sim.diskless import DisklessPerformer

RETENTION_MS, GARBAGE_MS = 2_000, 500
"""How often each loop looks."""
MOST_RUNS = 1_000
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
        living = sorted(n for n, broker in self.node.image.brokers.items() if not broker.fenced)
        turn = living.index(self.node.node_id) if self.node.node_id in living else 0
        now_ms, brokers = self.node.world.steady_ms, max(1, len(living))
        if self.rounds.due_ms(now_ms, turn, brokers) > now_ms:
            return
        try:
            left = yield from self._collect()
            if self.rounds.lists_now(now_ms, turn, brokers):
                yield from self._sweep()
        except StorageFault:
            self.rounds.failed(self.node.world.steady_ms)
        else:
            self.rounds.ended(self.node.world.steady_ms, brokers, left)

    def _collect(self) -> Generator[Ask, Any, int]:
        objects, pace = self.performer.remotes.objects, self.rounds.pace
        for _ in range(STEPS_A_ROUND):
            if not (yield self._ask("mark_expired", MARK_AT_ONCE)):
                break
        yield self._ask("forget_producers", pace.idle_producer_ms, MARK_AT_ONCE)
        waiting: list[tuple[int, str]]
        waiting = yield self._ask("to_delete", pace.grace_ms, DELETE_AT_ONCE)
        if waiting:
            keys = [key for _, key in waiting]
            gone = set((yield lambda done: objects.delete(self.node.name, keys, done)))
            yield self._ask("deleted", [number for number, key in waiting if key in gone])
        return len(waiting) if len(waiting) >= DELETE_AT_ONCE else 0

    def _sweep(self) -> Chain:
        objects, name = self.performer.remotes.objects, self.node.name
        prefix = object_prefix(self.node.broker.cluster_id)
        page = yield lambda done: objects.list(name, prefix, done)
        old = [each.key for each in page if self.rounds.is_old(each, self.node.world.now_ms)]
        unknown = (yield self._ask("unknown", old)) if old else []
        orphans = [key for key in unknown if is_ours(key, MARK)]
        if orphans:
            yield lambda done: objects.delete(name, orphans, done)
