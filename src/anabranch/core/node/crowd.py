"""Who is held up while more waits for a store than there is room for.

What: a connection that brings what waits for a store (a diskless batch until it is committed) is
noted. When that is crowded, all that ever brought some are held up: not read, nor what they brought
run, until there is room. Each of them would bring another large frame before it noticed by itself.
Rule kept: who brought something last is read again last, and runs nothing before its turn.
"""

from __future__ import annotations

from anabranch.core.node.slot import Asker


class Crowd:
    """The connections of one role that bring what waits for a store."""

    __slots__ = ("_bringing", "_paused")

    def __init__(self) -> None:
        self._bringing: dict[Asker, None] = {}
        self._paused: dict[Asker, None] = {}

    def brought(self, asker: Asker, *, is_crowded: bool) -> None:
        """A connection has brought what waits for a store."""
        self._bringing.pop(asker, None)
        self._bringing[asker] = None
        if is_crowded:
            for each in self._bringing:
                self._paused[each] = None
                each.hold_up()

    def read_on(self) -> None:
        """There is room again for what was held up."""
        paused, self._paused = self._paused, {}
        for asker in paused:  # none runs a request before its turn, which may hold up others
            asker.read_on()

    def left(self, asker: Asker) -> None:
        """A connection has ended."""
        self._paused.pop(asker, None)
        self._bringing.pop(asker, None)
