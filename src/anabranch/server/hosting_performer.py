"""Performing what `core.broker.hosting` wants done: who performs which effect, and in which order.

What: the machine, and a table from kinds of effects to the part of the broker that performs them.
Rule kept: effects are performed in their order, and what an answer makes due comes after them. Not
here: the performers (`partitions.py`, `flush.py`, `upkeep.py`, `room.py`, `roles.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from anabranch.core.api.context import Broker
from anabranch.core.broker.hosting import effects as does
from anabranch.core.broker.hosting import events
from anabranch.core.broker.hosting.hosting import Hosting
from anabranch.core.broker.hosting.outcomes import refusal
from anabranch.core.errors import StorageFault
from anabranch.core.log.files import DiskFull
from anabranch.core.log.logs import LogFolder
from anabranch.core.step import InOrder
from anabranch.server.clocks import steady_ms
from anabranch.server.logs import logger

LOG = logger("partitions")

_E = TypeVar("_E")


class Performer:
    """The machine of one broker's hosting, and what performs its effects."""

    def __init__(self, broker: Broker) -> None:
        self.hosting = Hosting(broker)
        self.folders = self.hosting.folders.by_path
        self._broker = broker
        self._do_all = InOrder(
            self.hosting.take_effects, lambda effect: self._performers[type(effect)](effect)
        )
        self._performers: dict[type, Callable[[Any], None]] = dict.fromkeys(
            (does.TellHosted, does.TellController, does.TellUnusable, does.Ready),
            _unheard,  # until the part that acts on it registers
        )

    def performs(self, effect: type[_E], performer: Callable[[_E], None]) -> None:
        """Have effects of a kind performed by another part of the broker."""
        self._performers[effect] = performer

    def perform(self) -> None:
        """Do what the machine wants done by now. Answers may want more."""
        if not self._do_all():
            return
        touched = self.hosting.take_touched()
        if touched:
            self._broker.replication.follow_states(touched, steady_ms())

    def run(self) -> None:
        """Perform what is to be done, to its end."""
        self.perform()
        while self.hosting.advance():
            self.perform()

    def answer(self, event: events.Event) -> None:
        """Tell the machine what came of an effect, and do what follows from that."""
        self.hosting.step(event, steady_ms())
        self.perform()

    def attempt(
        self, path: str, act: Callable[[], object], refused: str = "a checkpoint was not written"
    ) -> None:
        """Do something in a folder; what its disk refuses is told to the machine. `refused` says
        what a full disk prevented."""
        try:
            act()
        except StorageFault as fault:
            self.refuse(path, fault, refused)

    def refuse(self, path: str, fault: StorageFault, refused: str = "") -> None:
        """A folder's disk refused something."""
        if refused and isinstance(fault, DiskFull):
            LOG.error(refused, path=path, why=str(fault))
        self.answer(refusal(path, fault))

    def take_faults(self) -> None:
        """Act on the storage faults that requests ran into."""
        self.hosting.take_faults(steady_ms())
        self.perform()

    def working(self) -> list[LogFolder]:
        """The folders that have not failed."""
        return self.hosting.folders.working()


def _unheard(_effect: object) -> None:
    """A test of the shell alone has nothing that tells a controller."""
