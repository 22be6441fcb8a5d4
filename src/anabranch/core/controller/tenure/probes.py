"""The active controller dials brokers: each probe out, its answer in, and again where it said
nothing.

Owns the probes that are to be sent again. Rule kept: an answer to a probe of another epoch changes
nothing. Not here: whom to dial and what an answer means (`brokers/hints`).
"""

from __future__ import annotations

from anabranch.core.controller.brokers.hints import Probe, asks_again_in_ms
from anabranch.core.controller.controller import Controller
from anabranch.core.controller.tenure import effects, events
from anabranch.core.controller.tenure.decisions import Decisions
from anabranch.core.controller.tenure.state import TenureState
from anabranch.core.types import NEVER_MS


class Probes:
    """See the module."""

    def __init__(self, state: TenureState, controller: Controller, decisions: Decisions) -> None:
        self._state = state
        self._controller = controller
        self._decisions = decisions
        self._again: list[tuple[int, Probe]] = []

    def dial(self) -> None:
        """Send what the controller wants sent."""
        for probe in self._controller.take_probes():
            self._state.do(effects.Dial(self._controller.epoch, probe))

    def probed(self, event: events.Probed, now_ms: int) -> None:
        """Take what follows from it; ask again later where the answer said nothing."""
        controller, probe = self._controller, event.asked.probe
        if event.asked.epoch != controller.epoch:
            return
        result = controller.probed(probe, event.answer, now_ms)
        if result is not None:
            self._decisions.plan(result, now_ms)
            return
        again_ms = asks_again_in_ms(probe, event.answer, now_ms)
        if again_ms is not None:
            self._again.append((now_ms + again_ms, probe))
            self._state.duties_ms = min(self._state.duties_ms, now_ms + again_ms)

    def ask_again(self, now_ms: int) -> int:
        """Have those asked again whose time has come; when the next one's comes."""
        for due_ms, probe in self._again:
            if due_ms <= now_ms:
                self._controller.ask_again(probe, now_ms)
        self._again = [each for each in self._again if each[0] > now_ms]
        return min((due_ms for due_ms, _ in self._again), default=NEVER_MS)

    def drop(self) -> None:
        """The term is over."""
        self._again.clear()
