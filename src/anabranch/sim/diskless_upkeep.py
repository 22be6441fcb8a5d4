"""What brokers do for diskless topics as time passes: rows of partitions, retention, garbage.

What: three loops in each life of a node, each a chain of calls of the simulated coordinator and
store. The active controller keeps the coordinator's rows as the committed metadata has them; each
broker drops what is too old or too much of the partitions that it leads by metadata; brokers take
turns with garbage rounds, whose pace is quick enough for a schedule. Rule kept: a chain stops at
the first call that fails, and begins anew later. Not here: when a round is due, and which objects
may go (`core/diskless/garbage.py`).
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
from anabranch.core.diskless.rows import NewLogs
from anabranch.core.diskless.topics import is_diskless
from anabranch.core.errors import StorageFault
from anabranch.core.types import ZERO_TOPIC_ID
from anabranch.sim.coordinator import MARK

if TYPE_CHECKING:
    from anabranch.core.diskless.topic import DisklessTopic
    from anabranch.sim.diskless import DisklessHands

ROWS_MS, RETENTION_MS, GARBAGE_MS = 150, 2_000, 500
"""How often each loop looks."""
MOST_TOPICS = 1_000
PACE = Pace(
    round_ms=2_000, grace_ms=4_000, retry_ms=1_000, list_ms=9_000, orphan_ms=20_000,
    idle_producer_ms=86_400_000,
)  # fmt: skip

Ask = Callable[[Callable[[Any], None]], None]
"""Makes one call; takes who is told what it gave."""
Chain = Generator[Ask, Any, None]


class Upkeep:
    """The loops of one life of a node."""

    def __init__(self, hands: DisklessHands) -> None:
        self.hands = hands
        self.node = hands.node
        self.rounds = GarbageRounds(PACE)
        self._control = -1

    def start(self) -> None:
        """The process speaks now."""
        self._loop(ROWS_MS, self._rows)
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
            if self.hands.is_alive:
                node.world.after_in(node, 0, self._go_on, chain, found, ended)

        ask(told)

    def _ask(self, name: str, *args: Any) -> Ask:
        coordinator = self.hands.remotes.coordinator
        return lambda done: coordinator.ask(self.node.name, name, args, done)

    # Rows.

    def _rows(self) -> Chain:
        """Compare, and make and delete what differs."""
        controller = self.node.controller
        if not controller.active or controller.image.offset != self.node.copy.image.offset:
            self._control = -1
            return
        epoch = controller.epoch
        if self._control != epoch:
            yield self._ask("take_control", epoch)
            self._control = epoch
        found = dict((yield self._ask("topics", ZERO_TOPIC_ID, MOST_TOPICS)))
        image = self.node.copy.image
        if controller.epoch != epoch or controller.image.offset != image.offset:
            return
        there = {
            topic.topic_id: topic
            for topic in map(image.topic, image.topic_ids_by_name)
            if topic is not None and is_diskless(image, topic.name)
        }
        new = [
            NewLogs(each.topic_id, each.name, found.get(each.topic_id, 0), len(each.partitions))
            for each in there.values()
            if found.get(each.topic_id, 0) < len(each.partitions)
        ]
        gone = [topic_id for topic_id in found if topic_id not in there]
        if new:
            yield self._ask("create_logs", epoch, new)
        if gone:
            yield self._ask("delete_topics", epoch, gone)

    # Retention.

    def _retention(self) -> Chain:
        image = self.node.image
        for name in list(image.topic_ids_by_name):
            topic = self.node.broker.diskless.topic(name)
            for index in () if topic is None else list(image.topic(name).partitions):
                if image.partition(name, index).leader == self.node.node_id:
                    yield from self._expire(topic, index)

    def _expire(self, topic: DisklessTopic, index: int) -> Chain:
        partition, config = topic.get(index), topic.config
        if partition is None or "delete" not in config.cleanup_policy:
            return
        age_ms = config.retention_ms
        older_than_ms = -1 if age_ms < 0 else self.node.world.now_ms - age_ms
        coordinator = self.hands.remotes.coordinator

        def ask(done: Callable[[Any], None]) -> None:
            def act() -> Any:
                result = coordinator.memory.expire(
                    partition.key, older_than_ms=older_than_ms,
                    most_bytes=config.retention_bytes, most_runs=1_000,
                )  # fmt: skip
                coordinator.tell("expire", (partition.key,), result)
                return result

            coordinator.call(self.node.name, act, done)

        yield ask

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
        objects, pace = self.hands.remotes.objects, self.rounds.pace
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
        objects, name = self.hands.remotes.objects, self.node.name
        prefix = object_prefix(self.node.broker.cluster_id)
        page = yield lambda done: objects.list(name, prefix, done)
        old = [each.key for each in page if self.rounds.is_old(each, self.node.world.now_ms)]
        unknown = (yield self._ask("unknown", old)) if old else []
        orphans = [key for key in unknown if is_ours(key, MARK)]
        if orphans:
            yield lambda done: objects.delete(name, orphans, done)
