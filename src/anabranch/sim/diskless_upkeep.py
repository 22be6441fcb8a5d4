"""What brokers do for diskless topics as time passes: retention and garbage.

What: two loops in each life of a node, each a chain of calls of the simulated coordinator and
store. Each broker drops what is too old or too much of its share of the partitions; brokers take
turns with garbage rounds, whose pace is quick enough for a schedule. Rule kept: nothing is decided
here. Not here: rounds of retention (`core/diskless/retention_rounds.py`) and of garbage collection
(`core/diskless/garbage_rounds.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from anabranch.core.diskless import garbage_rounds
from anabranch.core.diskless.garbage import GarbageRounds, Pace, turn_of
from anabranch.core.diskless.garbage_rounds import (
    AskTurn,
    Call,
    CountDeletable,
    DeleteObjects,
    FindDeletable,
    FindUnknown,
    ForgetObjects,
    ForgetProducers,
    ListObjects,
    MarkExpired,
    Page,
    ReadMark,
    RoundEnded,
    Turn,
)
from anabranch.core.diskless.keys import object_prefix
from anabranch.core.diskless.pause import Pause
from anabranch.core.diskless.retention_rounds import Expire, Shortened, Step, rounds
from anabranch.core.errors import StorageFault
from anabranch.sim.chains import Chain, Told
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


class Upkeep:
    """The loops of one life of a node."""

    def __init__(self, performer: DisklessPerformer) -> None:
        self.performer = performer
        self.node = performer.node
        self.rounds = GarbageRounds(PACE)
        self._is_listed = False

    def start(self) -> None:
        """The process speaks now."""
        steps = rounds(self.node.broker, pause_ms=RETENTION_MS, states_at_once=0)
        Chain(steps, self._retain).go_on()
        Chain(garbage_rounds.rounds(self.rounds, GARBAGE_MS), self._collect).go_on()

    def _pause(self, pause_ms: int, told: Told) -> None:
        self.node.later(pause_ms, lambda: told(self.node.world.now_ms))

    def _make(self, ask: Ask, told: Told) -> None:
        node = self.node

        def answered(found: Any) -> None:
            if self.performer.is_alive:
                node.world.after_in(node, 0, told, found)

        ask(answered)

    def _ask(self, name: str, *args: Any) -> Ask:
        coordinator = self.performer.remotes.coordinator
        return lambda done: coordinator.ask(self.node.name, name, args, done)

    # Retention.

    def _retain(self, step: Step, told: Told) -> None:
        match step:
            case Pause(pause_ms):
                self._pause(pause_ms, told)
            case Expire():
                self._make(self._expire(step), told)
            case Shortened(change):
                self.performer.told([change])
                told(None)
            case _:
                told(None)

    def _expire(self, step: Expire) -> Ask:
        coordinator, limits = self.performer.remotes.coordinator, step.limits

        def act() -> Any:
            result = coordinator.tables.expire(
                limits.key, older_than_ms=limits.older_than_ms, most_bytes=limits.most_bytes,
                most_runs=step.most_runs,
            )  # fmt: skip
            coordinator.tell("expire", (limits.key,), result)
            return result

        return lambda done: coordinator.call(self.node.name, "expire", act, done)

    # Garbage.

    def _collect(self, step: garbage_rounds.Step, told: Told) -> None:
        """A step of a round; the store is listed in one page."""
        match step:
            case Pause(pause_ms):
                self._pause(pause_ms, told)
            case AskTurn():
                number, brokers = turn_of(self.node.image, self.node.node_id)
                told(Turn(self.node.world.steady_ms, number, brokers))
            case RoundEnded():
                told(None)
            case ReadMark():
                self._is_listed = False
                told(MARK)
            case ListObjects() if self._is_listed:
                told(None)
            case ListObjects():
                self._is_listed = True
                self._make(self._asked(step), lambda found: told(self._page(found)))
            case _:
                self._make(self._asked(step), told)

    def _page(self, found: Any) -> Any:
        is_fault = isinstance(found, StorageFault)
        return found if is_fault else Page(found, self.node.world.now_ms)

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
    CountDeletable: "count_to_delete",
    ForgetObjects: "deleted",
    FindUnknown: "unknown",
}
"""What the coordinator's calls are called."""
