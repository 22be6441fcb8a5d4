"""Puts that hang, as on a connection that is dead and does not say so.

What: the first put of each of a broker's next objects is not answered for as long as a broker waits
for a call; it is done at the end of that, or never. Rule checked (D8): as long as the broker runs
and the store is well, it has the object in the store by another put long before, so that one
connection does not hold up what waits behind it. Not here: when a put is late
(`core/diskless/writer.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from anabranch.core.diskless.writer import Stage
from anabranch.sim.checks.violation import Violation
from anabranch.sim.processes import State
from anabranch.sim.remote import RemoteFaults

if TYPE_CHECKING:
    from anabranch.sim.node import SimNode
    from anabranch.sim.objects import SimObjects

MOST_WAIT_US = 15_000_000
"""Longer than the longest time after which a put is late, and half of what a call may take."""
LOOK_US = 250_000


class HangingPuts:
    """Of one broker's next `count` objects; each is watched until it is stored."""

    def __init__(self, objects: SimObjects, node: SimNode, count: int, *, is_done: bool) -> None:
        self._objects, self._node = objects, node
        self._left, self._is_done = count, is_done
        self._seen: set[str] = set()
        objects.hangs[node.name] = self.hangs

    def end(self) -> None:
        """No further put hangs."""
        self._left = 0

    def hangs(self, key: str) -> bool | None:
        """Whether a put that hangs is done in the end; None where it does not hang."""
        if not self._left or key in self._seen:
            return None
        self._left -= 1
        self._seen.add(key)
        world = self._objects.world
        world.after(LOOK_US, self._look, key, self._node.life, world.now_us)
        return self._is_done

    def _look(self, key: str, life: int, since_us: int) -> None:
        """Whether an object is still not stored, while nothing else is wrong."""
        world, node = self._objects.world, self._node
        is_well = (node.state, node.life) == (State.RUNNING, life)
        if not is_well or self._objects.faults != RemoteFaults() or not self._is_put(key):
            return
        if world.now_us - since_us > MOST_WAIT_US:
            sentence = "A put that hangs holds up what waits behind it."
            raise Violation("D8", sentence, {"broker": node.name, "object": key})
        world.after(LOOK_US, self._look, key, life, since_us)

    def _is_put(self, key: str) -> bool:
        return any(
            upload.prepared.object_key == key and upload.stage is Stage.PUTTING
            for upload in self._node.broker.diskless.writing.uploads
        )
