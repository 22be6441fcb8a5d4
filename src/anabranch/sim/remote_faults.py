"""Faults of remote logs: of the object store, of the coordinator, and in the middle of rounds.

What: those of `diskless_faults.py` that are of either of the two; a store that lists objects only
after a while; a broker that dies, or stands still, when a round of it has made so many calls more:
that is each point of a copy and of a removal. Rule kept: a fault draws nothing itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from anabranch.sim.diskless_faults import DisklessFaults, Undo

if TYPE_CHECKING:
    from anabranch.sim.cluster import Cluster
    from anabranch.sim.plan_parts import Fault
    from anabranch.sim.remotes import Remotes

MOST_CALLS = 12
"""About those of a copy: facts, start, seven objects, finish, facts."""
MOST_LATE_MS = 10_000


class RemoteFaults(DisklessFaults):
    """See the module."""

    def __init__(self, cluster: Cluster, remotes: Remotes) -> None:
        super().__init__(cluster, remotes)

    def table(self) -> dict[str, Callable[[Fault], Undo | None]]:
        """Kind -> what begins it."""
        return super().table() | {
            "objects-list-late": self._list_late,
            "crash-in-round": self._crash,
            "pause-in-round": self._pause,
        }

    def heal(self) -> None:
        """Both answer, and no process waits for its end."""
        super().heal()
        self.remotes.after_calls.clear()
        self.remotes.objects.lists_late_ms = 0

    def _list_late(self, fault: Fault) -> Undo:
        objects = self.remotes.objects
        self._note(fault, objects.name)
        objects.lists_late_ms = 1 + int(MOST_LATE_MS * fault.strength)

        def undo() -> None:
            objects.lists_late_ms = 0

        return undo

    def _crash(self, fault: Fault) -> Undo | None:
        node = self._aimed(fault)
        if node is None:
            return None
        self._note(fault, node.name, str(1 + fault.other % MOST_CALLS))

        def die() -> None:
            self.remotes.met.add("crashed-in-round")
            node.crash(power=fault.strength < 0.2)

        self.remotes.after_calls[node.name] = 1 + fault.other % MOST_CALLS, die

        def undo() -> None:
            self.remotes.after_calls.pop(node.name, None)
            node.start()

        return undo

    def _pause(self, fault: Fault) -> Undo | None:
        node = self._aimed(fault)
        if node is None:
            return None
        self._note(fault, node.name, str(1 + fault.other % MOST_CALLS))

        def pause() -> None:
            self.remotes.met.add("paused-in-round")
            node.pause()

        self.remotes.after_calls[node.name] = 1 + fault.other % MOST_CALLS, pause

        def undo() -> None:
            self.remotes.after_calls.pop(node.name, None)
            node.resume()

        return undo
