"""The clocks of one simulated machine: its steady clock may jump, stand, and run fast or slow.

What: a node measures silence with its own steady clock. While a machine is suspended that clock
stands, or goes on unseen by the process, which is a jump; and no two quartzes are alike. Rule kept:
it never goes back. Not here: which machine is suspended when (`faults.py`).
"""

from __future__ import annotations

from anabranch.sim.world import World


class SteadyClock:
    """Milliseconds that only grow. It is the world's until something happens to it."""

    __slots__ = ("_at_us", "_is_the_worlds", "_rate", "_since_us", "_stands", "world")

    def __init__(self, world: World) -> None:
        self.world = world
        self._since_us = self._at_us = 0
        self._rate = 1.0
        self._stands = False
        self._is_the_worlds = True
        """Whether nothing has happened to it so far."""

    @property
    def now_ms(self) -> int:
        """What it shows."""
        if self._is_the_worlds:
            return self.world.now_us // 1000
        return self._now_us() // 1000

    @property
    def changed_us(self) -> int:
        """When it last stood still, jumped or changed its rate, by the world's clock; or 0."""
        return self._since_us

    def world_ms(self, own_ms: int) -> int:
        """When it will have shown that, by the world's clock, if nothing more happens to it."""
        if self._is_the_worlds:
            return own_ms
        left_us = own_ms * 1000 - self._at_us
        if self._rate == 1.0:
            return -(-(self._since_us + left_us) // 1000)
        return int((self._since_us + left_us / self._rate) / 1000) + 1

    def stand(self) -> None:
        """The machine is suspended, and this clock with it."""
        self._settle()
        self._stands = True

    def go_on(self) -> None:
        """The machine is awake again, if it was suspended."""
        if self._stands:
            self._settle()
            self._stands = False

    def run_at(self, rate: float) -> None:
        """From now on it is fast (above 1) or slow."""
        self._settle()
        self._rate = rate

    def jump(self, ahead_ms: int) -> None:
        """It is ahead by so much more."""
        self._settle()
        self._at_us += ahead_ms * 1000

    def _now_us(self) -> int:
        if self._stands:
            return self._at_us
        gone_us = self.world.now_us - self._since_us
        return self._at_us + (gone_us if self._rate == 1.0 else int(gone_us * self._rate))

    def _settle(self) -> None:
        self._at_us, self._since_us = self._now_us(), self.world.now_us
        self._is_the_worlds = False
