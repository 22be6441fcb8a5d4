"""What a shell around `Following` does: it performs each effect, in order.

What: the server's and the simulator's shells say how (questions over a connection, snapshots in a
thread or after a while, who hears of an image); which effect is whose is said here, once. Not here:
when anything is due (`following.py`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import assert_never

from anabranch.core.log.files import DiskFull
from anabranch.core.metadata.following import effects
from anabranch.core.metadata.following.following import Following
from anabranch.core.metadata.image import MetadataImage


class Performer(ABC):
    """See the module."""

    _following: Following

    def _perform(self) -> None:
        """Perform what is to be done, in order."""
        for effect in self._following.take_effects():
            self._do(effect)

    def _do(self, effect: effects.Effect) -> None:
        match effect:
            case effects.Fetch() | effects.FetchSnapshot():
                self._ask(effect)
            case effects.Leave():
                self._leave()
            case effects.Publish():
                self._publish(effect)
            case effects.Act():
                self._act(effect)
            case effects.ControllerMet():
                self._met()
            case effects.WriteSnapshot(image):
                self._write_snapshot(image)
            case effects.MakeRoom(fault):
                self._step(effects.RoomMade(self._make_room(fault)))
            case effects.Complain(what, why):
                self._complain(what, why)
            case effects.Stop(sentence):
                self._stop(sentence)
            case _:
                assert_never(effect)

    @abstractmethod
    def _step(self, event: effects.Event) -> None:
        """Something happened: tell the machine, and perform what follows."""

    @abstractmethod
    def _ask(self, question: effects.Question) -> None:
        """Ask the active controller, and bring the machine its answer."""

    @abstractmethod
    def _leave(self) -> None:
        """Have the next question go to another controller."""

    @abstractmethod
    def _publish(self, effect: effects.Publish) -> None:
        """Tell the controller of this node."""

    @abstractmethod
    def _act(self, effect: effects.Act) -> None:
        """Tell the broker of this node."""

    @abstractmethod
    def _met(self) -> None:
        """An active controller answered over a new connection."""

    @abstractmethod
    def _write_snapshot(self, image: MetadataImage) -> None:
        """Begin to write a snapshot; what becomes of it is an event."""

    @abstractmethod
    def _make_room(self, fault: DiskFull) -> bool:
        """Give back what is reserved on the copy's disk; whether there is room now."""

    @abstractmethod
    def _complain(self, what: str, why: str) -> None:
        """Tell people what does not work."""

    @abstractmethod
    def _stop(self, sentence: str) -> None:
        """End this node."""
