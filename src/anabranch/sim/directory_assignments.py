"""In which folder each replica of one simulated broker lies: told to the controller over its link.

What: performs `core/broker/directory_assignments.py`, as `server/directory_assignments.py` does on
a machine. Nothing is decided here. One a life of a node.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from anabranch.core.broker.directory_assignments import DirectoryAssignments, Tell
from anabranch.core.broker.hosting.effects import TellHosted, TellUnusable
from anabranch.core.types import NEVER_MS
from anabranch.sim.alarm import Alarm

if TYPE_CHECKING:
    from anabranch.core.metadata.image import MetadataDelta, MetadataImage
    from anabranch.sim.node_life import NodeLife


class AssignmentPerformer:
    """What one broker has to tell, and the request that is under way."""

    def __init__(self, node: NodeLife) -> None:
        self.node = node
        self.world = node.cluster.world
        self.machine = DirectoryAssignments(node.broker, node.session.directories)
        self._alarm = Alarm(self.world, node, self._due_ms, self._perform)

    def tell(self, effect: TellHosted | TellUnusable) -> None:
        """A replica was opened or made, or some may not be able to serve."""
        self.machine.tell(effect)
        self._alarm.set()

    def follow(self, image: MetadataImage, delta: MetadataDelta | None) -> None:
        """A new image, which is not acted on yet."""
        self.machine.follow(image, delta)
        self._alarm.set()

    def _due_ms(self) -> float | None:
        due_ms = self.machine.next_tick_ms
        return None if due_ms == NEVER_MS else due_ms

    def _perform(self) -> None:
        for tell in self.machine.take_effects(self.world.steady_ms):
            self.node.link.send(tell.request, partial(self._answered, tell))
        self._alarm.set()

    def _answered(self, tell: Tell, answer: Any) -> None:
        for place, code in self.machine.answered(tell, answer, self.world.steady_ms):
            self.world.note("says", self.node.name, f"the folder of {place} is not noted: {code}")
        self._alarm.set()
