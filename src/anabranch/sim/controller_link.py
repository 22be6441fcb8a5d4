"""How a simulated node reaches the active controller.

What: `ControllerLink` sends a request to the controller that `Search` of
`core/broker/registration/active_controller.py` names, and moves on when that one says that it is
not active or the connection breaks, as `server/controller_channel.py` does on a machine. A
connection here is no more than who is asked; it breaks when the other process ends, and when
nothing came for REQUEST_MS.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from anabranch.core.access.principal import ANONYMOUS, Principal
from anabranch.core.broker.registration.active_controller import PATIENCE_MS, Attempts, Search
from anabranch.sim.liveness_probe import close
from anabranch.sim.rpc import CONTROLLER, ENVELOPE

if TYPE_CHECKING:
    from anabranch.sim.registrant import Registrant

REQUEST_MS = 2_000
"""After so long without an answer a connection counts as broken."""


class ControllerLink:
    """Requests to the active controller. One a life of a node."""

    def __init__(self, node: Registrant) -> None:
        self.node = node
        self.world = node.cluster.world
        order = node.cluster.order
        self._search: Search[int] = Search(first=order.index(node.node_id))
        self._is_connected = False

    @property
    def generation(self) -> int:
        """Grows with each connection to a controller."""
        return self._search.generation

    @property
    def target(self) -> Registrant:
        """Who is asked next."""
        search, cluster = self._search, self.node.cluster
        if not self._is_connected:
            search.next_address(cluster.order)
            search.connected()
            self._is_connected = True
        assert search.address is not None
        return cluster.nodes[search.address]

    def rotate(self, asked: Registrant) -> None:
        """Move on from one that was no use, unless that has happened already."""
        if self._is_connected and asked is self.target:
            self._search.leave()
            self._is_connected = False
            if asked.is_up and asked is not self.node:
                close(self.node, asked)

    def call(
        self,
        message: Any,
        on_answer: Callable[[Any, Registrant], None],
        *,
        timeout_ms: int = REQUEST_MS,
        version: int | None = None,
        principal: Principal | None = None,
    ) -> None:
        """Ask once: in its own name, or pass on what a client has asked."""
        target, to = self.target, CONTROLLER if principal is None else ENVELOPE

        def answered(answer: Any) -> None:
            on_answer(answer, target)

        self.node.cluster.calls.call(
            self.node, target, to, message, answered,
            timeout_us=timeout_ms * 1000, version=version, principal=principal or ANONYMOUS,
        )  # fmt: skip

    def send(
        self,
        message: Any,
        on_answer: Callable[[Any], None],
        *,
        patience_ms: int | None = PATIENCE_MS,
        version: int | None = None,
        principal: Principal | None = None,
    ) -> None:
        """Ask, in its own name or in that of a client, until an active controller answers; None
        when none did in time."""
        attempts = Attempts(self.world.steady_ms, patience_ms)

        def ask() -> None:
            self.call(message, answered, version=version, principal=principal)

        def answered(answer: Any, asked: Registrant) -> None:
            code = getattr(answer, "error_code", 0)
            if answer is not None and self._search.answered(code, asked.node_id):
                on_answer(answer)
                return
            self.rotate(asked)
            pause_ms = attempts.pause_ms(self.world.steady_ms)
            if pause_ms is None:
                on_answer(None)
            else:
                self.world.after_in(self.node, pause_ms * 1000, ask)

        ask()
