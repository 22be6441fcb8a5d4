"""From the taken lease to the term: read everything that is committed, mark the epoch in it.

Owns what was read until the term begins with it. Rule kept: the term begins when the mark is
committed. Only that shows that all of the log was read: a store's copy that is behind would
otherwise be served, and make every follower stop. Source: decisions 0004, 0034.
Not here: when the lease is taken (`candidacy.py`), what the term does (`term.py`).
"""

from __future__ import annotations

from anabranch.core.controller.controller import Controller
from anabranch.core.controller.tenure import effects, events
from anabranch.core.controller.tenure.candidacy import Candidacy
from anabranch.core.controller.tenure.lease import HeldLease
from anabranch.core.controller.tenure.phases import Phase
from anabranch.core.controller.tenure.state import TenureState
from anabranch.core.controller.tenure.store_age import StoreAge
from anabranch.core.controller.tenure.term import Term
from anabranch.core.metadata.batches import leader_change_batch
from anabranch.core.metadata.store import Committed, StoredBatch
from anabranch.core.types import NEVER_MS


class Takeover:
    """See the module."""

    def __init__(
        self,
        state: TenureState,
        controller: Controller,
        store_age: StoreAge,
        candidacy: Candidacy,
        term: Term,
    ) -> None:
        self._state = state
        self._controller = controller
        self._store_age = store_age
        self._candidacy = candidacy
        self._term = term
        self._read: events.LogRead | None = None

    def read_log(self, event: events.LeaseTaken, now_ms: int) -> None:
        """The lease is this node's, or another was quicker."""
        state = self._state
        if event.lease is None:
            self._candidacy.watch(now_ms, state.timing.watch_ms)
            return
        self._candidacy.won(event.lease, now_ms)
        state.holding = HeldLease(event.lease, now_ms)
        state.phase = Phase.READING
        state.call_ms = now_ms + state.timing.renew_ms  # reading may take long
        state.call(effects.ReadLog())

    def renewed(self, event: events.LeaseRenewed, now_ms: int) -> None:
        """The lease is still this node's while it reads, or it is not."""
        if event.lease is None:
            self._candidacy.watch(now_ms, self._state.timing.watch_ms)
            return
        self._state.holding = HeldLease(event.lease, now_ms)

    def reading_failed(self, event: events.StoreFailed, now_ms: int) -> None:
        """The log could not be read: later, or never by this version."""
        if isinstance(event.asked, effects.RenewLease):
            return  # what is appended next shows whether it is held
        if event.for_good:
            self._stop(event.why)
            return
        self._candidacy.watch_later(event, now_ms)

    def mark(self, event: events.LogRead, now_ms: int) -> None:
        """Mark the new epoch in the log.

        Where less was read than this node has seen, nothing is written: the store is asked whether
        its log ends there.
        """
        state = self._state
        state.phase = Phase.MARKING
        state.call_ms = NEVER_MS
        state.forget_call(effects.RenewLease)  # the append shows the same
        self._read = event
        lease, first = state.held.lease, event.log.end_offset
        batches: tuple[StoredBatch, ...] = ()
        if first >= self._store_age.seen_end:
            payload = leader_change_batch(
                base_offset=first,
                epoch=lease.epoch,
                leader_id=self._controller.node_id,
                now_ms=self._controller.wall_ms,
            )
            batches = (StoredBatch(first, first + 1, lease.epoch, payload),)
        state.call(effects.Append(lease, first, batches, now_ms))

    def marking_failed(self, event: events.StoreFailed, now_ms: int) -> None:
        """Nothing is known of the mark: begin again."""
        self._read = None
        self._candidacy.watch_later(event, now_ms)

    def marked(self, event: events.AppendEnded, now_ms: int) -> None:
        """The term begins; or the mark was refused; or the store really ends before what was
        seen."""
        assert self._read is not None
        read, self._read = self._read, None
        append, state = event.asked, self._state
        if not isinstance(event.outcome, Committed):
            epoch = state.held.lease.epoch
            why = f"did not become controller in epoch {epoch}: {event.outcome}"
            state.do(effects.Troubled(why))
            self._candidacy.watch(now_ms, state.timing.watch_ms)
        elif not append.batches:
            self._stop(self._store_age.fault_of_log(append.first_offset))
        else:
            self._term.begin(read, append, now_ms)

    def _stop(self, sentence: str) -> None:
        self._term.give_back()
        self._candidacy.stop(sentence)
