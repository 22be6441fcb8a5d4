"""What a shell around a tenure does: it performs each effect, in order.

What: the server's and the simulator's shells say how (calls of a store, dials, what people are
told); which effect is whose is said here, once. Rule kept: what an effect makes due meanwhile comes
after it. Not here: when anything is due (`tenure.py`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import assert_never

from anabranch.core.controller.controller import NOT_THE_CONTROLLER
from anabranch.core.controller.tenure import effects
from anabranch.core.controller.tenure.tenure import Tenure
from anabranch.core.errors import ApiError, ErrorCode


def refusal() -> ApiError:
    """What a decision is answered that was not committed, or may not have been."""
    return ApiError(ErrorCode.NOT_CONTROLLER, NOT_THE_CONTROLLER)


class Performer(ABC):
    """See the module."""

    tenure: Tenure
    _is_performing = False

    def _look(self, now_ms: int) -> None:
        """See `Tenure.look`: it seldom leaves anything to be done, and comes with each request."""
        self.tenure.look(now_ms)
        if self.tenure.has_effects:
            self._perform()

    def _perform(self) -> None:
        """Perform what is to be done, in order: also what is asked for meanwhile."""
        if self._is_performing:
            return
        self._is_performing = True
        try:
            while wanted := self.tenure.take_effects():
                for effect in wanted:
                    self._do(effect)
        finally:
            self._is_performing = False
        self._performed()

    def _do(self, effect: effects.Effect) -> None:
        match effect:
            case effects.Answer():
                self._answer(effect)
            case effects.Refuse():
                self._refuse(effect)
            case effects.Moved():
                self._moved()
            case effects.Watch():
                self._watch(effect)
            case effects.Dial():
                self._dial(effect)
            case effects.Stop():
                self._stop(effect)
            case effects.Began():
                self._began(effect)
            case effects.Resigned():
                self._resigned(effect)
            case effects.Decided() | effects.Troubled():
                self._tell(effect)
            case (
                effects.ReadEnd() | effects.ReadLease() | effects.TakeLease()
                | effects.RenewLease() | effects.ReadLog() | effects.Append()
                | effects.WriteSnapshot() | effects.ReleaseLease()
            ):  # fmt: skip
                self._call(effect)
            case _:
                assert_never(effect)

    @abstractmethod
    def _performed(self) -> None:
        """All is performed: look anew at when the next tick is due."""

    @abstractmethod
    def _call(self, call: effects.StoreCall) -> None:
        """Call the metadata store, and bring the tenure its answer."""

    @abstractmethod
    def _dial(self, effect: effects.Dial) -> None:
        """Dial a broker, and tell the tenure what answered."""

    @abstractmethod
    def _watch(self, effect: effects.Watch) -> None:
        """Watch the holder of a lease."""

    @abstractmethod
    def _answer(self, effect: effects.Answer) -> None:
        """Let an answer leave."""

    @abstractmethod
    def _refuse(self, effect: effects.Refuse) -> None:
        """Answer NOT_CONTROLLER."""

    @abstractmethod
    def _moved(self) -> None:
        """Wake who waits for committed metadata."""

    @abstractmethod
    def _began(self, effect: effects.Began) -> None:
        """This node is the active controller."""

    @abstractmethod
    def _resigned(self, effect: effects.Resigned) -> None:
        """It is no longer."""

    @abstractmethod
    def _tell(self, effect: effects.Told) -> None:
        """Tell people why something was decided, or what went wrong."""

    @abstractmethod
    def _stop(self, effect: effects.Stop) -> None:
        """End this node."""
