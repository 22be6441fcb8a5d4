"""Which machines of a node have something to be done at the end of a step: none is asked in vain.

What: a machine that may have an effect, an earlier deadline or a line for the log marks itself.
The end of a step (`core.step.drain`) performs those that are marked, in the order in which the node
has named them, and again as long as some mark themselves meanwhile. Rules kept: an idle machine is
never called; a mark costs no call of ours; what nobody performs may be marked in vain. Not here:
what a machine wants done (`take_effects`), and the timers that ring at its deadlines.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeAlias

Mark: TypeAlias = Callable[[], object]
"""Called by a machine that may have something to be done."""

REPLICATION, PEERS, DISKLESS = "replication", "peers", "diskless"
WAITS, COORDINATORS = "waits", "coordinators"
"""Deadlines: of requests that wait, and of groups and transactions."""
LATE, REFUSALS = "late transactions", "refusals"
"""Lines for the log."""


def unmarked() -> None:
    """For a machine whose effects are taken without being asked for, as in a test."""


class Due:
    """The machines of one node."""

    __slots__ = ("_performs", "marked")

    def __init__(self) -> None:
        self._performs: dict[str, Callable[[], object]] = {}
        self.marked: set[str] = set()
        """Those that have something to be done."""

    def marker(self, machine: str) -> Mark:
        """What a machine calls to mark itself."""
        return partial(self.marked.add, machine)

    def performs(self, machine: str, perform: Callable[[], object]) -> None:
        """Have `perform` called whenever a machine has marked itself, and a first time at the end
        of the next step. Machines are performed in the order of these calls."""
        self._performs[machine] = perform
        self.marked.add(machine)

    def perform(self) -> None:
        """Perform all that are marked, once. A machine is no longer marked when its turn comes, but
        when that failed it is again: what is left to be done must not wait for another reason."""
        marked = self.marked
        marked.intersection_update(self._performs)
        for machine, perform in self._performs.items():
            if machine in marked:
                marked.discard(machine)
                try:
                    perform()
                except BaseException:
                    marked.add(machine)
                    raise
