"""How a simulated node finds the active controller.

What: `ControllerLink` sends a request to whichever controller is active, moving on when one says
that it is not, or says nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from anabranch.core.errors import ErrorCode
from anabranch.sim.dialling import close
from anabranch.sim.rpc import CONTROLLER

if TYPE_CHECKING:
    from anabranch.sim.node import SimNode

REQUEST_MS = 2_000
"""After so long without an answer the next controller is asked."""
PATIENCE_MS = 30_000
FIRST_PAUSE_MS = 10
LONGEST_PAUSE_MS = 500


class ControllerLink:
    """Requests to the active controller. One a life of a node."""

    def __init__(self, node: SimNode) -> None:
        self.node = node
        self.world = node.cluster.world
        self.generation = 0
        """Grows with each move to another controller."""
        self._turn = node.cluster.order.index(node.node_id)

    @property
    def target(self) -> SimNode:
        """Who is asked next."""
        cluster = self.node.cluster
        return cluster.nodes[cluster.order[self._turn % len(cluster.order)]]

    def rotate(self, asked: SimNode) -> None:
        """Move on from one that was no use, unless that has happened already."""
        if asked is self.target:
            self._turn += 1
            self.generation += 1
            if asked.is_up and asked is not self.node:
                close(self.node, asked)

    def call(
        self,
        message: Any,
        on_answer: Callable[[Any, SimNode], None],
        *,
        timeout_ms: int = REQUEST_MS,
        version: int | None = None,
    ) -> None:
        """Ask once."""
        target = self.target

        def answered(answer: Any) -> None:
            on_answer(answer, target)

        self.node.cluster.calls.call(
            self.node, target, CONTROLLER, message, answered,
            timeout_us=timeout_ms * 1000, version=version,
        )  # fmt: skip

    def send(
        self,
        message: Any,
        on_answer: Callable[[Any], None],
        *,
        patience_ms: int = PATIENCE_MS,
        version: int | None = None,
    ) -> None:
        """Ask until an active controller answers; None when none did in time."""
        give_up_ms = self.world.steady_ms + patience_ms
        _Search(self, message, version, on_answer, give_up_ms).ask()


class _Search:
    """One request and its way to an active controller."""

    __slots__ = ("give_up_ms", "link", "message", "on_answer", "pause_ms", "version")

    def __init__(
        self,
        link: ControllerLink,
        message: Any,
        version: int | None,
        on_answer: Callable[[Any], None],
        give_up_ms: int,
    ) -> None:
        self.link = link
        self.message = message
        self.version = version
        self.on_answer = on_answer
        self.give_up_ms = give_up_ms
        self.pause_ms = FIRST_PAUSE_MS

    def ask(self) -> None:
        """Ask whoever is thought to be active."""
        self.link.call(self.message, self.answered, version=self.version)

    def answered(self, answer: Any, asked: SimNode) -> None:
        """Take the answer, or ask the next one after a pause."""
        code = getattr(answer, "error_code", 0)
        if answer is not None and code != ErrorCode.NOT_CONTROLLER:
            self.on_answer(answer)
            return
        link = self.link
        link.rotate(asked)
        if link.world.steady_ms > self.give_up_ms:
            self.on_answer(None)
            return
        link.world.after_in(link.node, self.pause_ms * 1000, self.ask)
        self.pause_ms = min(self.pause_ms * 2, LONGEST_PAUSE_MS)
