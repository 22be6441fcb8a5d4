"""The active controller's term: one pure machine, which server and simulator perform.

What: takes the lease, reads the committed log, marks its epoch in it, and turns every decision into
an append; keeps the lease, stores snapshots, dials brokers, gives way; resigns and reads again.
The caller hands in events and time (`step`, `tick`), performs what `take_effects` gives, in order,
and calls `tick` at `next_tick_ms`. It sets `controller.wall_ms` to the time of day before each.
Its parts, one a concern, each with its own state: `candidacy` (before the lease), `takeover` (from
the lease to the mark), `term`, and within a term `decisions`, `snapshots`, `probes`.

Rules kept: after an append of unknown outcome it resigns, forgets what it planned, and reads again;
no answer leaves before everything that it stands on is committed; without a lease that was
confirmed in time it answers nothing but NOT_CONTROLLER; a store that is older than what this node
has seen ends the node. An answer of the store counts from when it was asked for.
Source: the architecture's "How a decision is made"; decisions 0004, 0034, 0043, 0051. Not here:
what is decided (`core/controller`), what the lease's rules are (`lease.py`), any I/O.
"""

from __future__ import annotations

from operator import attrgetter
from typing import Any, get_args

from anabranch.core.controller.controller import Controller
from anabranch.core.controller.tenure import effects, events
from anabranch.core.controller.tenure.candidacy import Candidacy
from anabranch.core.controller.tenure.effects import Effect
from anabranch.core.controller.tenure.lease import LeaseTimes
from anabranch.core.controller.tenure.phases import CANDIDATE, TABLE, Phase
from anabranch.core.controller.tenure.state import TenureState
from anabranch.core.controller.tenure.store_age import StoreAge
from anabranch.core.controller.tenure.takeover import Takeover
from anabranch.core.controller.tenure.term import FirstRecords, Term
from anabranch.core.errors import Bug
from anabranch.core.metadata.features import bootstrap_records
from anabranch.core.metadata.store_check import UNKNOWN_URL, CopyEnd
from anabranch.core.types import NEVER_MS

NO_COPY = CopyEnd("")
_ANSWERS = get_args(events.StoreAnswer)
_STEPS = {pair: attrgetter(step) for pair, step in TABLE.items()}


class Tenure:
    """One node's candidacy and terms; see the module. `copy` is where the node's copy of the
    metadata ended at its start; `first_records` begins a new cluster's log."""

    def __init__(
        self,
        controller: Controller,
        incarnation: str,
        *,
        endpoint: str = "",
        copy: CopyEnd | None = None,
        store_url: str = UNKNOWN_URL,
        timing: LeaseTimes | None = None,
        first_records: FirstRecords = bootstrap_records,
    ) -> None:
        self.controller = controller
        self.state = state = TenureState(timing or LeaseTimes())
        store_age = StoreAge(controller, copy or NO_COPY, store_url)
        self.candidacy = Candidacy(state, controller, store_age, incarnation, endpoint)
        self.term = Term(state, controller, self.candidacy, first_records)
        self.takeover = Takeover(state, controller, store_age, self.candidacy, self.term)

    # What the shell calls.

    def step(self, event: events.Event, now_ms: int) -> None:
        """Something happened; `now_ms` is of the steady clock. Raises Bug for what cannot."""
        if isinstance(event, _ANSWERS):
            if not self.state.answered(event.asked):
                return  # it comes too late: that call counts no longer
        else:
            self.look(now_ms)
        step = _STEPS.get((self.state.phase, type(event)))
        if step is None:
            raise Bug(f"{type(event).__name__} while {self.state.phase.value}")
        step(self)(event, now_ms)
        self.look(now_ms)
        self.term.probes.dial()

    def tick(self, now_ms: int) -> None:
        """Do what is due by time."""
        self.look(now_ms)
        if now_ms >= self.state.duties_ms:
            self.term.do_duties(now_ms)
        if now_ms >= self.state.call_ms:
            self._call_again(now_ms)
        self.term.decisions.append_planned(now_ms)
        self.term.probes.dial()

    def look(self, now_ms: int) -> None:
        """Resign when the lease's time is over, or another has taken it: also to be called before
        anything is answered from the controller's state, since a process that was frozen may find
        requests in its sockets before its timers."""
        if self.state.is_overdue(now_ms):
            self.term.resign("the lease was not confirmed in time", now_ms)
        elif self.state.is_active and self.controller.followed.epoch > self.controller.epoch:
            self.term.resign("another controller took the lease", now_ms)  # this node follows it
        self.term.look_at_doubt(now_ms)

    def take_effects(self) -> list[Effect]:
        """What is to be done, in order."""
        return self.state.take_effects()

    @property
    def has_effects(self) -> bool:
        """Whether `take_effects` has something."""
        return self.state.has_effects

    @property
    def next_tick_ms(self) -> int:
        """When `tick` is to be called, by the steady clock. Whatever came later than that for want
        of running is forgiven to brokers that were not heard meanwhile."""
        state = self.state
        due_ms = min(state.call_ms, state.duties_ms, self.term.decisions.append_ms)
        if state.is_active and state.holding is not None:
            due_ms = min(due_ms, state.holding.confirmed_ms + state.timing.lease_timeout_ms + 1)
        return due_ms

    @property
    def is_settled(self) -> bool:
        """Whether it is active, or waits for another: nothing is on its way that a start would wait
        for."""
        if self.state.phase is Phase.WATCHING:
            return not self.state.is_calling(effects.ReadLease)
        return self.state.phase in (Phase.ACTIVE, Phase.STOPPED)

    @property
    def owed(self) -> list[Any]:
        """The tickets of those who wait for an answer."""
        return self.term.decisions.owed

    def statistics(self) -> dict[str, int]:
        """Numbers for the metrics page."""
        return {**self.controller.statistics(), **self.term.decisions.statistics()}

    # What may happen in any phase.

    def _call_again(self, now_ms: int) -> None:
        """The call of the store whose time has come."""
        state = self.state
        state.call_ms = NEVER_MS
        if state.phase in CANDIDATE:
            self.candidacy.call_store()
        elif state.phase is not Phase.STOPPED:
            state.call_ms = now_ms + state.timing.renew_ms
            if not state.is_calling(effects.RenewLease):
                self.term.decisions.renewing()
                state.call(effects.RenewLease(state.held.lease, now_ms))

    def leave(self, _event: events.Leave, _now_ms: int) -> None:
        """The process stops in order."""
        self.term.give_back()
        self.term.end()
        self.candidacy.close()

    def broke(self, event: events.Broke, _now_ms: int) -> None:
        """This node must end."""
        if self.state.is_active:
            self.state.do(effects.Resigned(self.controller.epoch, event.sentence))
        self.term.end()
        self.candidacy.stop(event.sentence)

    def ignore(self, _event: events.Event, _now_ms: int) -> None:
        """Nothing follows from it in this phase."""
