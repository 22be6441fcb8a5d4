"""A second process with a node's id, on a copy of its folders.

What: a `Twin` does what an operator does by mistake: it starts on another machine with a copy of a
broker's folders, and registers at an address of its own. It opens no log, so it stays fenced where
it takes the broker's place. Why: the broker that lives must keep its place, and one that lost it
must stop. Source: decision 0042. Not here: what is decided about it
(`core/controller/brokers/succession.py`).
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from anabranch.sim.clocks import SteadyClock
from anabranch.sim.controller_link import ControllerLink
from anabranch.sim.liveness_probe import close
from anabranch.sim.processes import State
from anabranch.sim.registrant import Registrant
from anabranch.sim.rpc import Call
from anabranch.sim.session import Session

if TYPE_CHECKING:
    from anabranch.core.broker.registration.requests import BrokerView
    from anabranch.sim.node_life import NodeLife

FOLDERS_THAT_WORK = SimpleNamespace(offline_folders=set[str](), full_folders=set[str]())


class Twin(Registrant):
    """One such process. `node` is whose folders were copied."""

    def __init__(self, node: NodeLife, name: str) -> None:
        super().__init__(name)
        self.cluster, self.world = node.cluster, node.world
        self.node_id, self.config, self.rack = node.node_id, node.config, node.rack
        self.listener, self.port = node.listener, node.port
        self.advertised_host, self.features = self.name, node.features
        self.folders, self.directory_ids = node.folders, dict(node.directory_ids)
        self.disk = node.disk.copied()
        self._view: Any = SimpleNamespace(image=node.followed, partitions=FOLDERS_THAT_WORK)
        self.clock = SteadyClock(self.world)
        self.listens = False

    def start(self) -> None:
        """Begin to register."""
        self.state = State.RUNNING
        self.life += 1
        self.listens = True
        self.link = ControllerLink(self)
        self.session = Session(self, -1)
        self.session.start()

    def stop(self) -> None:
        """The process ends."""
        if self.state is State.RUNNING:
            self.listens = False
            self.life += 1
            self.state = State.CRASHED
            self.world.release(self)
            for node in self.cluster.nodes.values():
                if node.is_up:
                    close(self, node)

    def receive(self, call: Call) -> None:
        """It answers nothing."""
        call.lose()

    # What a session asks of its node.

    @property
    def view(self) -> BrokerView:
        """The metadata that was copied, and folders that work."""
        return self._view  # type: ignore[no-any-return]

    @property
    def incarnation_id(self) -> bytes:
        return self.session.incarnation_id

    def connection_closed(self, _process: Registrant) -> None:
        """It is no controller."""

    def registered(self, _broker_epoch: int) -> None:
        """It took the broker's place, and does nothing with it."""

    def serve(self) -> None:
        """It never is: it wants to stay fenced."""

    def stop_because(self, sentence: str) -> None:
        """It was refused for good."""
        self.world.note("must stop", self.name, sentence)
        self.stop()
