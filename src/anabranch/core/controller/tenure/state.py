"""What all parts of a tenure stand on: phase, lease, what is due when, what the shell is asked for.

What: the parts (`candidacy`, `takeover`, `term` and theirs) change the phase and the timers here
and leave their effects here; everything else has one part as its only writer.
Rule kept: one call of a kind is under way at a time, and an answer to an older one changes nothing.
Not here: what is done in which phase (the parts), in which order (`tenure.py`).
"""

from __future__ import annotations

from anabranch.core.controller.tenure.effects import Effect, StoreCall
from anabranch.core.controller.tenure.lease import HeldLease, LeaseTimes
from anabranch.core.controller.tenure.phases import Phase
from anabranch.core.types import NEVER_MS


class TenureState:
    """See the module. All times are of the steady clock."""

    def __init__(self, timing: LeaseTimes) -> None:
        self.timing = timing
        self.phase = Phase.STARTING
        self.holding: HeldLease | None = None
        """The lease, from its taking to the end of the term."""
        self.call_ms = NEVER_MS
        """When the store is to be called again for the phase's sake."""
        self.duties_ms = NEVER_MS
        """When the active controller has to look at what is due."""
        self.doubted_ms = NEVER_MS
        """When it was found that the controller is doubted."""
        self._calls: dict[type, StoreCall] = {}
        self._effects: list[Effect] = []

    @property
    def held(self) -> HeldLease:
        """The lease where there must be one."""
        assert self.holding is not None
        return self.holding

    @property
    def is_active(self) -> bool:
        """Whether this node may decide."""
        return self.phase is Phase.ACTIVE

    def is_overdue(self, now_ms: int) -> bool:
        """Whether the active controller's lease was not confirmed in time."""
        if not self.is_active or self.holding is None:
            return False
        return self.holding.is_over(now_ms, self.timing)

    def do(self, effect: Effect) -> None:
        """Ask the shell for this, after all before it."""
        self._effects.append(effect)

    def call(self, call: StoreCall) -> None:
        """Call the store; an earlier call of the kind counts no longer."""
        self._calls[type(call)] = call
        self.do(call)

    def is_calling(self, kind: type[StoreCall]) -> bool:
        """Whether such a call is under way."""
        return kind in self._calls

    def answered(self, call: StoreCall) -> bool:
        """An answer to a call has come: whether the call still counts. It then is over."""
        if self._calls.get(type(call)) is not call:
            return False
        del self._calls[type(call)]
        return True

    def forget_call(self, kind: type[StoreCall]) -> None:
        """Its answer will not matter."""
        self._calls.pop(kind, None)

    def forget_calls(self) -> None:
        """No answer to what was asked so far will matter."""
        self._calls.clear()

    @property
    def has_effects(self) -> bool:
        """Whether `take_effects` has something."""
        return bool(self._effects)

    def take_effects(self) -> list[Effect]:
        """What is to be done, in order."""
        taken, self._effects = self._effects, []
        return taken
