"""A simulated controller's keeping of the coordinator's rows: makes the calls of `LogRows`.

What: tells the machine of the begin and the end of its node's terms and of committed metadata, and
carries out its calls one at a time in the simulated coordinator. Nothing here decides.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from anabranch.core.controller.diskless import rows as does
from anabranch.core.controller.diskless.rows import LogRows
from anabranch.core.types import NEVER_MS
from anabranch.sim.coordinator import REMOTE, SEALS, SimCoordinator

if TYPE_CHECKING:
    from anabranch.core.metadata.image import MetadataDelta, MetadataImage
    from anabranch.sim.processes import Process, Timer
    from anabranch.sim.world import World


class RowsPerformer:
    """One life of a node's keeping of rows."""

    def __init__(
        self, world: World, node: Process, coordinator: SimCoordinator, *, has_remote: bool = False
    ) -> None:
        self.world = world
        self.node = node
        self.machine = LogRows(has_remote=has_remote)
        self._coordinator = coordinator
        self._timer: Timer | None = None

    def began(self, epoch: int, end_offset: int) -> None:
        """The node is the active controller."""
        self.machine.began(epoch, end_offset)
        self._go_on()

    def resigned(self) -> None:
        """It is not any more."""
        self.machine.resigned()

    def follow(self, image: MetadataImage, delta: MetadataDelta) -> None:
        """Committed metadata."""
        self.machine.follow(image, delta)
        self._go_on()

    def _go_on(self) -> None:
        world = self.world
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for effect in self.machine.take_effects(world.steady_ms):
            self._make(effect)
        due_ms = self.machine.next_tick_ms
        if due_ms != NEVER_MS:
            delay_us = max(0, due_ms * 1000 - world.now_us)
            self._timer = world.after_in(self.node, delay_us, self._go_on)

    def _make(self, effect: does.Effect) -> None:
        node, life = self.node, self.node.life

        def told(result: Any) -> None:
            self.machine.answered(effect, result, self.world.steady_ms)
            self._go_on()

        def done(result: Any) -> None:
            if node.life == life:
                self.world.after_in(node, 0, told, result)

        self._coordinator.ask(node.name, *_call(effect), done)


def _call(effect: does.Effect) -> tuple[str, tuple[Any, ...]]:
    match effect:
        case does.TakeControl(epoch):
            return "take_control", (epoch,)
        case does.ListTopics(after, limit):
            return "topics", (after, limit)
        case does.ListRemoteTopics(after, limit):
            return f"{REMOTE}topics", (after, limit)
        case does.CreateRows(epoch, new):
            return "create_logs", (epoch, new)
        case does.DeleteRows(epoch, topic_ids):
            return "delete_topics", (epoch, topic_ids)
        case does.LookAtSeals(topic_id, migration, broker_ids):
            return f"{SEALS}progress", (topic_id, migration, broker_ids)
