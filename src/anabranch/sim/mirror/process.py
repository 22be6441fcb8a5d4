"""Processes of a mirror that the schedule lets go on, sleep and end: driver and attempts."""

from __future__ import annotations

from collections.abc import Generator

from anabranch.sim.mirror.cluster import Trouble


class Process:
    """A generator, one request after another."""

    def __init__(self, name: str, steps: Generator[None, None, None]) -> None:
        self.name = name
        self.is_over = False
        self.asleep = 0
        """Turns that it stands still."""
        self._steps = steps
        self._is_begun = False

    def go_on(self) -> None:
        """Its next request is done, if it is not asleep."""
        if self.asleep:
            self.asleep -= 1
            return
        self._is_begun = True
        try:
            next(self._steps)
        except (StopIteration, Trouble):
            self.is_over = True

    def fail(self) -> None:
        """Its request fails, or the answer is lost."""
        if not self._is_begun:
            return
        try:
            self._steps.throw(Trouble())
        except (StopIteration, Trouble):
            self.is_over = True

    def end(self) -> None:
        """It ends where it stands."""
        self._steps.close()
        self.is_over = True
