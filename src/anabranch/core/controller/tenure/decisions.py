"""Decisions become durable: planned on one another, appended together, answered once committed.

Owns what is planned, under way and waited for (`Appends`). Rules kept: no answer leaves before
everything that it stands on is committed; an answer of the store counts from when it was asked for;
only decisions of which more follow wait for these, and only while nobody waits for them; where
nothing is written, the answer waits until the store has confirmed the lease by a renewal that was
asked for afterwards: a controller that was deposed and does not know it acknowledges nothing.
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
        self._unconfirmed: list[WaitingAnswer] = []
        """Answers that wait for a renewal of the lease that is yet to be asked for."""
        self._confirming: list[WaitingAnswer] = []
        """Those that wait for the one under way."""

    def decide(self, event: events.Decide, now_ms: int) -> None:
        """Plan it; the answer leaves when what it stands on is committed or confirmed."""
        controller, result = self._controller, event.result
        before = controller.image.next_offset
        self.plan(result, now_ms)
        needed = controller.image.next_offset
        answer = WaitingAnswer(needed, event.ticket, result.response)
        if needed == before and not result.is_routine:
            self._unconfirmed.append(answer)
            self._state.call_ms = min(self._state.call_ms, now_ms)
        else:
            self._answer(answer, now_ms)

    def _answer(self, answer: WaitingAnswer, now_ms: int) -> None:
        """It leaves now, or when everything that it stands on is committed."""
        if self._controller.log.end_offset >= answer.offset:
            self._state.do(effects.Answer(answer.ticket, answer.response))
        else:
            self._appends.waiting.append(answer)
            self._due_ms = min(self._due_ms, now_ms)

    def renewing(self) -> None:
        """A renewal of the lease is asked for: what was decided before stands on its answer."""
        self._confirming += self._unconfirmed
        self._unconfirmed = []

    def renewed(self, now_ms: int) -> None:
        """The store has confirmed the lease."""
        confirmed, self._confirming = self._confirming, []
        for each in confirmed:
            self._answer(each, now_ms)
        if self._unconfirmed:
            self._state.call_ms = now_ms

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
        for each in self._take_waiting():
            self._state.do(effects.Refuse(each.ticket))

    @property
    def owed(self) -> list[Any]:
        """The tickets of those who wait for an answer."""
        waiting = (*self._appends.waiting, *self._confirming, *self._unconfirmed)
        return [each.ticket for each in waiting]

    def _take_waiting(self) -> list[WaitingAnswer]:
        waiting = [*self._appends.drop(), *self._confirming, *self._unconfirmed]
        self._confirming, self._unconfirmed = [], []
        return waiting

    def statistics(self) -> dict[str, int]:
        """Numbers for the metrics page, of all terms of this process."""
        appends = self._appends
        return {
            "waiting": len(self.owed),
            "elections_total": appends.elections_total,
            "unclean_elections_total": appends.unclean_elections_total,
            "elections_ms_total": appends.elections_ms_total,
        }
