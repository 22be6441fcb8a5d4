"""Decisions become durable: planned on one another, appended together, answered once committed.

Owns what is planned, under way and waited for (`Appends`). Rules kept: no answer leaves before
everything that it stands on is committed; an answer of the store counts from when it was asked for;
only decisions of which more follow wait for these, and only while nobody waits for them.
Not here: what an append of unknown outcome leads to (`term.py`), what is decided (`controller`).
"""

from __future__ import annotations

from typing import Any

from anabranch.core.controller.controller import Controller
from anabranch.core.controller.result import Result
from anabranch.core.controller.tenure import effects, events
from anabranch.core.controller.tenure.appends import Appends, WaitingAnswer
from anabranch.core.controller.tenure.snapshots import Snapshots
from anabranch.core.controller.tenure.state import TenureState
from anabranch.core.metadata.batches import encode_batch
from anabranch.core.metadata.committed_log import CommittedBatch
from anabranch.core.metadata.levels import level_of, to_write
from anabranch.core.metadata.store import StoredBatch
from anabranch.core.types import NEVER_MS

SHARED_MS = 12
"""How long decisions of which more follow wait for those. An append on SQLite is five syncs of a
disk, each node that follows asks, answers and writes once more, and clients wait meanwhile. With 30
all nodes had three times as much to follow at the same time, and clients waited for that."""


class Decisions:
    """See the module."""

    def __init__(self, state: TenureState, controller: Controller, snapshots: Snapshots) -> None:
        self._state = state
        self._controller = controller
        self._snapshots = snapshots
        self._appends = Appends()
        self._due_ms = NEVER_MS

    def decide(self, event: events.Decide, now_ms: int) -> None:
        """Plan it; the answer leaves at once where nothing is to be committed before it."""
        controller, result = self._controller, event.result
        self.plan(result, now_ms)
        needed = controller.image.next_offset
        if controller.log.end_offset >= needed:
            self._state.do(effects.Answer(event.ticket, result.response))
        else:
            self._appends.waiting.append(WaitingAnswer(needed, event.ticket, result.response))
            self._due_ms = min(self._due_ms, now_ms)

    def refuse(self, event: events.Decide, _now_ms: int) -> None:
        """This node does not decide."""
        self._state.do(effects.Refuse(event.ticket))

    def plan(self, result: Result[Any], now_ms: int) -> None:
        """What was decided counts from now on; it is appended soon."""
        controller = self._controller
        first, level = controller.image.next_offset, level_of(controller.image)
        records = to_write(controller.image, result.records)
        if not records:
            return  # it changed what is remembered, not what is written
        wall_ms = controller.wall_ms
        told = controller.history.plan(records, result.reasons, wall_ms, first)
        payload = encode_batch(
            told, base_offset=first, epoch=controller.epoch, now_ms=wall_ms, level=level
        )
        end = first + len(records)
        controller.advance(records, end - 1)
        batch = StoredBatch(first, end, controller.epoch, payload)
        self._appends.plan(batch, controller.image, records, now_ms)
        if result.reasons:
            self._state.do(effects.Decided(tuple(result.reasons)))
        self._due_ms = min(self._due_ms, now_ms + SHARED_MS) if result.more_follow else now_ms

    @property
    def append_ms(self) -> int:
        """When the next append may go out, NEVER_MS while none may: nothing is planned, or one is
        under way. It goes out with a tick, so that decisions that are made in one go share it."""
        if not self._appends.planned or self._state.is_calling(effects.Append):
            return NEVER_MS
        return self._due_ms

    def append_planned(self, now_ms: int) -> None:
        """Append what is planned, when that is due and no append is under way."""
        if now_ms < self.append_ms:
            return
        self._due_ms = NEVER_MS
        batches = self._appends.take()
        lease, first_offset = self._state.held.lease, batches[0].first_offset
        self._state.call(effects.Append(lease, first_offset, batches, now_ms))

    def committed(self, append: effects.Append, now_ms: int) -> None:
        """The append under way is committed: answers leave, and the next goes out."""
        state, controller = self._state, self._controller
        state.held.confirm(append.asked_ms)
        log = controller.log
        committed = self._appends.commit(now_ms)
        for batch, *_ in committed:
            log.extend(CommittedBatch(*batch))
            controller.history.commit(batch.first_offset)
        for each in self._appends.ready(log.end_offset):
            state.do(effects.Answer(each.ticket, each.response))
        self._snapshots.committed(committed[-1].image, now_ms)
        state.do(effects.Moved())
        self.append_planned(now_ms)

    def drop(self) -> None:
        """Forget what is not committed; those who wait are refused."""
        self._due_ms = NEVER_MS
        for each in self._appends.drop():
            self._state.do(effects.Refuse(each.ticket))

    @property
    def owed(self) -> list[Any]:
        """The tickets of those who wait for an answer."""
        return [each.ticket for each in self._appends.waiting]

    def statistics(self) -> dict[str, int]:
        """Numbers for the metrics page, of all terms of this process."""
        appends = self._appends
        return {
            "waiting": len(appends.waiting),
            "elections_total": appends.elections_total,
            "unclean_elections_total": appends.unclean_elections_total,
            "elections_ms_total": appends.elections_ms_total,
        }
