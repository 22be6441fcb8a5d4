"""Brokers with diskless topics over one coordinator and one store, all in memory.

`Cluster` has both, and makes brokers that share them. A test performs each broker's effects itself:
`settle` performs all of them in order; `next` gives the next one, so that a test may perform it
late, twice or never, or let it fail. Nothing here waits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from tests.core.api.in_memory_node import START_MS, InMemoryNode

from anabranch.core.diskless import effects as does
from anabranch.core.diskless.objects import ObjectMissing, ObjectTaken
from anabranch.core.diskless.rows import Change, LogKey, NewLogs
from anabranch.core.errors import StorageFault
from anabranch.core.outcome import Cold, Wait
from anabranch.core.partition.bringers import apart
from anabranch.core.wire.codec import decode, encode_bytes
from anabranch.core.wire.messages.fetch import FetchResponse
from anabranch.core.wire.records import Record, build_batch
from anabranch.stores.coordinator.sqlite_memory import SqliteInMemory

CLUSTER_ID = "cluster"
EPOCH = 7
"""Of every broker, as `InMemoryNode` has it, until a test registers it anew."""
FETCH_VERSION = 12
MOST_ASKED = 300
"""Times that one request may lack something."""


class MemoryObjects:
    """Objects by key."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.reads: list[tuple[str, tuple]] = []

    def put(self, key, buffers):
        given = b"".join(bytes(each) for each in buffers)
        if self.objects.setdefault(key, given) != given:
            raise ObjectTaken(f"{key} is there")

    def read(self, key, ranges):
        self.reads.append((key, tuple(ranges)))
        if key not in self.objects:
            raise ObjectMissing(f"there is no object {key}")
        held = self.objects[key]
        if any(position + length > len(held) for position, length in ranges):
            raise ObjectMissing(f"object {key} is cut")
        return [held[position : position + length] for position, length in ranges]


class Cluster:
    """A coordinator, a store, and brokers."""

    def __init__(self) -> None:
        self.now_ms = START_MS
        self.coordinator = SqliteInMemory(CLUSTER_ID, lambda: self.now_ms)
        self.coordinator.take_control(1)
        self.store = MemoryObjects()
        self.nodes: list[Node] = []

    def node(self, *, interval_ms: int = 0, config: Mapping[str, str] | None = None) -> Node:
        node = Node(self, interval_ms, config or {})
        self.nodes.append(node)
        return node

    def topic(self, name="t", partitions=1, *, rows=True, configs: Mapping[str, str] | None = None):
        """A diskless topic that every broker knows, and its rows."""
        for node in self.nodes:
            topic_id = node.topic(
                name, partitions, configs={"diskless.enable": "true", **(configs or {})}
            )
        if rows:
            self.coordinator.create_logs(1, [NewLogs(topic_id, name, 0, partitions)])
        return topic_id

    def settle(self) -> None:
        """Perform every broker's effects until there are none."""
        while sum(node.settle() for node in self.nodes):
            pass


class Node(InMemoryNode):
    """One broker. `answers` collects what parked requests were answered."""

    def __init__(self, cluster: Cluster, interval_ms: int, config: Mapping[str, str]) -> None:
        super().__init__(config={"diskless.storage.system.enable": "true", **config})
        self.cluster = cluster
        self.number = len(cluster.nodes) + 1
        self.diskless = self.broker.diskless
        self.diskless.broker_id = self.number
        self.waiting: list[Any] = []
        self.unperformed: list[does.Effect] = []
        self.fails: dict[type, Callable[[does.Effect], StorageFault | None]] = {}
        cluster.coordinator.register(self.number, EPOCH)
        self.diskless.start(interval_ms=interval_ms)
        self.open_watch()
        self.diskless.registered(CLUSTER_ID, EPOCH, self.broker.steady_ms)

    def heard(self, changes: list[Change]) -> None:
        self.diskless.changed(changes)

    def break_watch(self) -> None:
        self.end_watch()
        self.diskless.watch_broken()

    def open_watch(self) -> None:
        self.end_watch = self.cluster.coordinator.listen(self.heard)
        self.diskless.watch_opened()

    def follow(self) -> None:
        super().follow()
        self.broker.diskless.follow(self.broker.image, None)

    # Effects.

    def take(self) -> list[does.Effect]:
        """All effects that are not performed yet."""
        self.unperformed += self.diskless.take_effects()
        return self.unperformed

    def next(self, kind: type | None = None) -> Any:
        """The next effect (of a kind), which the test performs."""
        for effect in self.take():
            if kind is None or isinstance(effect, kind):
                self.unperformed.remove(effect)
                return effect
        raise AssertionError(f"no {kind} among {self.unperformed}")

    def perform(self, effect: does.Effect, *, answer: bool = True) -> Any:
        """Make the call; tell what came of it unless `answer` is False."""
        if isinstance(effect, does.ReadOn | does.EndPuts):
            return None
        fails = self.fails.get(type(effect))
        result: Any = fails(effect) if fails else None
        if result is None:
            try:
                result = self.call(effect)
            except StorageFault as fault:
                result = fault
        if answer:
            self.diskless.answered(effect, result, self.broker.steady_ms)
        return result

    def call(self, effect: Any) -> Any:
        coordinator, store = self.cluster.coordinator, self.cluster.store
        calls: dict[type, Callable[[], Any]] = {
            does.PrepareObjects: lambda: coordinator.prepare(
                self.number,
                self.diskless.writing.identity.broker_epoch,
                *(effect.count, effect.lease_ms),
            ),
            does.PutObject: lambda: store.put(effect.object_key, effect.buffers),
            does.CommitObject: lambda: coordinator.commit(effect.commit),
            does.AskOutcome: lambda: coordinator.outcome(effect.object_key),
            does.RefuseObjects: lambda: coordinator.refuse(effect.object_ids),
            does.AskStates: lambda: coordinator.states(effect.keys),
            does.FindRuns: lambda: coordinator.find(effect.wanted),
            does.FindByTime: lambda: (
                coordinator.newest(effect.key)
                if effect.timestamp is None
                else coordinator.by_time(effect.key, effect.timestamp, effect.first)
            ),
            does.DeleteBefore: lambda: coordinator.delete_before(effect.wanted),
            does.ReadObject: lambda: store.read(effect.object_key, effect.ranges),
        }
        return calls[type(effect)]()

    def settle(self) -> int:
        """Perform effects, and what they cause, until there are none; how many there were."""
        count = 0
        while self.take():
            effect = self.unperformed.pop(0)
            self.perform(effect)
            count += 1
        return count

    def pass_time(self, ms: int) -> None:
        """Both clocks go on, step by step."""
        end = self.broker.steady_ms + ms
        while self.broker.steady_ms < end:
            due = max(self.diskless.next_tick_ms, self.broker.steady_ms + 1)
            step = min(due, end) - self.broker.steady_ms
            self.broker.steady_ms += step
            self.now_ms += step
            self.settle()

    # Requests.

    def ask(self, message: Any, version: int) -> Any:
        """A request's answer, or the Wait that it is parked in: reads are performed meanwhile."""
        return self.go_on(self.send(message, version))

    def go_on(self, outcome: Any) -> Any:
        for _ in range(MOST_ASKED):
            if not isinstance(outcome, Cold):
                return received(outcome)
            ended: list[int] = []
            _, reads = apart(outcome.reads)
            self.broker.bringers.bring(reads, partial(ended.append, 1))
            for _ in range(10_000):
                if ended:  # it goes on in the step in which the last read has ended
                    break
                self.perform(self.next())
            assert ended, "a read did not end"
            outcome = outcome.poll(self.now_ms, False)
            self.take()
        raise AssertionError("a request asks without an end")

    def polled(self, wait: Wait) -> Any:
        """What a parked request answers now, or None."""
        self.broker.woken_by(tuple(self.broker.changed))
        outcome = wait.poll(self.now_ms, False)
        return None if outcome is None else self.go_on(outcome)


def received(outcome: Any) -> Any:
    """A fetch's answer as its client decodes it: records may be of several buffers."""
    if not isinstance(outcome, FetchResponse):
        return outcome
    frame = bytearray(encode_bytes(outcome, FETCH_VERSION))
    return decode(FetchResponse, frame, FETCH_VERSION)


def batch(*values: bytes, producer_id=-1, epoch=-1, sequence=-1, timestamp=START_MS, **more):
    """A batch of records with these values."""
    records = [
        Record(offset=at, timestamp=timestamp + at, key=None, value=value)
        for at, value in enumerate(values)
    ]
    return build_batch(
        records, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence, **more
    )


def key_of(topic_id, partition=0) -> LogKey:
    return LogKey(topic_id, partition)
