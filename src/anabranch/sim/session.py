"""A simulated broker's registration: what the machine asks for is sent over the simulated network.

What: performs the effects of `core/broker/registration`, as `server/registration.py` does on a
machine, and gives it the answers. Nothing is decided here. One a life of a node.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from anabranch.core.broker.registration.events import (
    Answered,
    Ask,
    ControllerFound,
    Effect,
    Event,
    FoldersChanged,
    GiveUp,
    Left,
    LogsOpen,
    MetadataMoved,
    Registered,
    Serve,
    ShutDown,
    Start,
    Unanswered,
)
from anabranch.core.broker.registration.registration import Registration, State, Times
from anabranch.core.broker.registration.requests import Identity
from anabranch.core.log.incarnations import FolderNotes
from anabranch.core.step import InOrder
from anabranch.core.types import NEVER_MS
from anabranch.sim.alarm import Alarm

if TYPE_CHECKING:
    from anabranch.sim.registrant import Registrant

CLIENTS = "CLIENTS"
"""A listener for clients alone: where it is advertised to be, no node of the cluster listens."""


class Session:
    """One incarnation's session."""

    def __init__(self, node: Registrant, previous_epoch: int) -> None:
        self.node = node
        self.world = node.cluster.world
        self.clients_host = f"{node.name}.outside"
        directories = {
            path: node.directory_ids[path] for path in node.folders if not node.disk.is_broken(path)
        }  # a life does without the folders that failed before it
        self.machine = Registration(
            Identity(
                node_id=node.node_id,
                cluster_id=node.cluster.cluster_id,
                incarnation_id=self.world.random(f"{node.name}/incarnations").randbytes(16),
                directories=directories,
                endpoints=[
                    (CLIENTS, self.clients_host, node.port),
                    (node.listener, node.advertised_host, node.port),
                ],
                rack=node.rack,
                features=node.features,
            ),
            node.view,
            Times.of(node.config),
            notes=FolderNotes(node.disk, directories),
            previous_broker_epoch=previous_epoch,
        )
        self.logs_are_open = False
        self._left: Callable[[], None] | None = None
        self._do_all = InOrder(self.machine.take_effects, self._do)
        self._alarm = Alarm(node.world, node, self._due_ms, self._tick)

    @property
    def incarnation_id(self) -> bytes:
        """Who this life is, to the controller."""
        return self.machine.identity.incarnation_id

    @property
    def directories(self) -> Mapping[str, bytes]:
        """The ids of the folders that worked when this life began."""
        return self.machine.identity.directories

    @property
    def broker_epoch(self) -> int:
        """The epoch of this registration, -1 before there is one."""
        return self.machine.broker_epoch

    @property
    def is_leaving(self) -> bool:
        """Whether a controlled shutdown is under way."""
        return self.machine.state is State.LEAVING

    # What the node calls.

    def start(self) -> None:
        """Register, then heartbeat until the end of this life."""
        self._step(Start())

    def leave(self, left: Callable[[], None]) -> None:
        """Controlled shutdown: `left` is called when the controller lets go, or does not answer."""
        self._left = left
        self._step(ShutDown())

    def logs_open(self) -> None:
        """Everything hosted here is open."""
        self.logs_are_open = True
        self._step(LogsOpen())

    def metadata_moved(self) -> None:
        """The broker acts on newer metadata."""
        self._step(MetadataMoved())

    def beat_now(self) -> None:
        """The controller shall hear of this broker at once: of its folders there is news."""
        self._step(FoldersChanged())

    def controller_found(self) -> None:
        """Another controller answers as the active one."""
        self._step(ControllerFound())

    # The machine.

    def _step(self, event: Event) -> None:
        self.machine.step(event, self.node.steady_ms)
        self._perform()

    def _tick(self) -> None:
        self.machine.tick(self.node.steady_ms)
        self._perform()

    def _due_ms(self) -> float | None:
        due_ms = self.machine.next_tick_ms
        return None if due_ms == NEVER_MS else self.node.clock.world_ms(due_ms)

    def _perform(self) -> None:
        if self._do_all():
            self._alarm.set()

    def _do(self, effect: Effect) -> None:
        node = self.node
        if isinstance(effect, Ask):
            self._send(effect)
        elif isinstance(effect, Registered):
            self.world.note("registered", node.name, epoch=effect.broker_epoch)
            node.registered(effect.broker_epoch)
        elif isinstance(effect, Serve):
            node.serve()
        elif isinstance(effect, GiveUp):
            node.stop_because(effect.sentence)
        elif isinstance(effect, Left):
            self.world.note("left", node.name, effect.why)
            if self._left is not None:
                self._left()
        else:
            self.world.note("says", node.name, f"{effect.sentence}: {effect.why}")

    def _send(self, ask: Ask) -> None:
        def answered(answer: Any) -> None:
            if answer is None:
                self._step(Unanswered(ask, "no controller answered"))
            else:
                self._step(Answered(ask, answer))

        self.node.link.send(ask.request, answered, patience_ms=ask.patience_ms)
