"""Candidates on one store of the metadata that answers late, or not at all; no shell, no clock."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

from anabranch.core.controller.controller import Controller
from anabranch.core.controller.result import Result
from anabranch.core.controller.tenure import effects, events
from anabranch.core.controller.tenure.committed import Committed as Reading
from anabranch.core.controller.tenure.phases import Phase
from anabranch.core.controller.tenure.snapshots import encoded
from anabranch.core.controller.tenure.tenure import Tenure
from anabranch.core.metadata.store import (
    NOBODY,
    Committed,
    Deposed,
    Lease,
    Snapshot,
    StoredBatch,
    Unknown,
    next_lease,
)
from anabranch.core.metadata.store_check import CopyEnd
from anabranch.core.settings.broker import BrokerConfig
from anabranch.core.types import TopicId
from anabranch.core.wire.metadata_records import TopicRecord

WALL_MS = 1_700_000_000_000
FAILED = "the store was not reached"


class Store:
    """The contract of a metadata store, with nothing wrong."""

    def __init__(self) -> None:
        self.batches: list[StoredBatch] = []
        self.snapshot: Snapshot | None = None
        self.held: Lease | None = None
        self.takings = 0
        self.refuses_snapshots = False
        self.snapshots_asked = 0

    @property
    def end_offset(self) -> int:
        return self.batches[-1].end_offset if self.batches else 0

    def do(self, node: Node, call: effects.StoreCall) -> events.StoreAnswer | None:
        """Carry a call out; the answer, None for one that nobody waits for."""
        found: events.StoreAnswer | None = getattr(self, f"_{type(call).__name__}")(node, call)
        return found

    def _ReadEnd(self, _node: Node, call: effects.ReadEnd) -> events.EndRead:  # noqa: N802
        found = [each for each in self.batches if each.first_offset == call.last_base_offset]
        return events.EndRead(call, self.end_offset, bytes(found[0].payload) if found else None)

    def _ReadLease(self, _node: Node, call: effects.ReadLease) -> events.LeaseRead:  # noqa: N802
        return events.LeaseRead(call, self.held)

    def _TakeLease(self, _node: Node, call: effects.TakeLease) -> events.LeaseTaken:  # noqa: N802
        if self.held != call.seen:
            return events.LeaseTaken(call, None)
        self.takings += 1
        last_epoch = self.batches[-1].epoch if self.batches else 0
        self.held = next_lease(call.seen, last_epoch, *call.me, str(self.takings))
        return events.LeaseTaken(call, self.held)

    def _RenewLease(self, _: Node, call: effects.RenewLease) -> events.LeaseRenewed:  # noqa: N802
        held = self.held
        if held is None or not call.lease.is_still(held):
            return events.LeaseRenewed(call, None)
        self.held = replace(held, beat=held.beat + 1)
        return events.LeaseRenewed(call, self.held)

    def _ReleaseLease(self, _node: Node, call: effects.ReleaseLease) -> None:  # noqa: N802
        if self.held is not None and call.lease.is_still(self.held):
            self.held = replace(self.held, holder=NOBODY, beat=self.held.beat + 1)

    def _ReadLog(self, _node: Node, call: effects.ReadLog) -> events.LogRead:  # noqa: N802
        read = Reading()
        if self.snapshot is not None:
            read.begin(self.snapshot)
        read.go_on([b for b in self.batches if b.first_offset >= read.log.end_offset])
        return events.LogRead(call, read.image, read.log, read.history)

    def _Append(self, _node: Node, call: effects.Append) -> events.AppendEnded:  # noqa: N802
        if not call.lease.is_still(self.held) or self.end_offset != call.first_offset:
            epoch = self.held.epoch if self.held is not None else 0
            return events.AppendEnded(call, Deposed(epoch, self.end_offset))
        self.batches += call.batches
        return events.AppendEnded(call, Committed(self.end_offset))

    def _WriteSnapshot(  # noqa: N802
        self, _node: Node, call: effects.WriteSnapshot
    ) -> events.SnapshotStored | events.StoreFailed:
        self.snapshots_asked += 1
        if self.refuses_snapshots:
            return events.StoreFailed(call, FAILED)
        snapshot = encoded(call, WALL_MS)
        assert snapshot.end_offset <= self.end_offset, "only what is committed is in a snapshot"
        if self.snapshot is None or snapshot.end_offset > self.snapshot.end_offset:
            self.snapshot = snapshot
        return events.SnapshotStored(call, snapshot)


def failed(call: effects.StoreCall) -> events.StoreAnswer:
    """The answer that no answer came."""
    if isinstance(call, effects.Append):
        return events.AppendEnded(call, Unknown(FAILED))
    return events.StoreFailed(call, FAILED)


class Node:
    """One candidate. By itself it performs nothing: `calls` are those of the store to be done."""

    def __init__(
        self, store: Store, node_id: int = 1, life: int = 1, copy: CopyEnd | None = None,
        settings: dict[str, str] | None = None,
    ) -> None:  # fmt: skip
        self.store = store
        self.node_id = node_id
        self.incarnation = f"{node_id}/{life}"
        self.endpoint = f"there:{node_id}"
        self.now_ms = 1_000_000 * node_id
        """Its own steady clock."""
        config = BrokerConfig.of(settings or {})
        self.controller = Controller(node_id, "cluster", config, Random(node_id))
        self.tenure = Tenure(self.controller, self.incarnation, endpoint=self.endpoint, copy=copy)
        self.calls: list[effects.StoreCall] = []
        self.answered: list[Any] = []
        self.refused: list[Any] = []
        self.told: list[effects.Effect] = []

    @property
    def is_active(self) -> bool:
        return self.tenure.state.phase is Phase.ACTIVE

    def step(self, event: events.Event) -> None:
        self.controller.wall_ms = WALL_MS + self.now_ms
        self.tenure.step(event, self.now_ms)
        self._perform()

    def tick(self) -> None:
        self.controller.wall_ms = WALL_MS + self.now_ms
        self.tenure.tick(self.now_ms)
        self._perform()

    def _perform(self) -> None:
        for effect in self.tenure.take_effects():
            if isinstance(effect, effects.StoreCall):
                self.calls.append(effect)
            elif isinstance(effect, effects.Answer):
                self.answered.append(effect.ticket)
            elif isinstance(effect, effects.Refuse):
                self.refused.append(effect.ticket)
            else:
                self.told.append(effect)

    def said(self, kind: type) -> list[Any]:
        return [each for each in self.told if isinstance(each, kind)]

    def go(self, wait_ms: int = 0) -> None:
        """Let that much time go by with a store that answers at once."""
        until_ms = self.now_ms + wait_ms
        while True:
            while self.calls:
                answer = self.store.do(self, self.calls.pop(0))
                if answer is not None:
                    self.step(answer)
            due_ms = self.tenure.next_tick_ms
            if due_ms > until_ms:
                break
            self.now_ms = max(self.now_ms, due_ms)
            self.tick()
        self.now_ms = until_ms

    def started(self) -> Node:
        self.step(events.Start())
        self.go()
        return self

    def decide_named(self, number: int) -> None:
        """A topic whose name is no part of another's; its number is the ticket."""
        self.decide(number, f"t{number}.")

    def decide(self, number: int, name: str = "") -> None:
        """A topic; its number is the ticket."""
        self.step(events.Decide(Result((_topic(number, name),), "done"), number))

    def plan(self, number: int, *, more_follow: bool) -> None:
        """A topic that nobody waits for, as duties decide; `go` or `tick` appends it in time."""
        result = Result((_topic(number, f"t{number}."),), None, more_follow=more_follow)
        self.tenure.term.decisions.plan(result, self.now_ms)

    @property
    def topics(self) -> set[str]:
        return set(self.controller.image.topic_ids_by_name)


def _topic(number: int, name: str = "") -> TopicRecord:
    return TopicRecord(name=name or f"t{number}", topic_id=TopicId(number.to_bytes(16)))


def end_of(store: Store, folder: str = "copy") -> CopyEnd:
    """A node's copy of everything that the store has."""
    last = store.batches[-1]
    return CopyEnd(folder, last.end_offset, last.epoch, last.first_offset, bytes(last.payload))
