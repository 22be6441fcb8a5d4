"""A made-up broker's life with its controller: register, heartbeat, leave.

What: `server/registration.py` in the made-up world: registration with a fresh incarnation id,
heartbeats (every 10 ms until the broker is let in, then every `broker.heartbeat.interval.ms`), and
controlled shutdown. Rule kept: the broker serves only when its own copy of the metadata shows it
unfenced under its epoch; when another incarnation took its place it stops. Not here: the states
themselves (`core/controller/brokers/lifecycle.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from anabranch.core.errors import ErrorCode
from anabranch.core.log.incarnations import FolderNotes
from anabranch.core.wire.messages.broker_heartbeat import BrokerHeartbeatRequest
from anabranch.core.wire.messages.broker_registration import (
    BrokerRegistrationRequest,
    Feature,
    Listener,
)
from anabranch.core.wire.own_fields import FullDirectories, tagged

if TYPE_CHECKING:
    from anabranch.sim.node import SimNode

STARTING_MS = 10
RETRY_MS = 100
EAGER_KNOCKS = 12
"""Heartbeats of a fenced broker at the short interval; a real one goes on so, which costs much."""
FOREVER_MS = 1 << 40
SHUTDOWN_MS = 10_000
"""A controller that is gone must not keep a broker from stopping."""
CLIENTS = "CLIENTS"
"""A listener for clients alone: where it is advertised to be, no node of the cluster listens."""


class Session:
    """One incarnation's session. One a life of a node."""

    def __init__(self, node: SimNode, previous_epoch: int) -> None:
        self.node = node
        self.world = node.cluster.world
        self.incarnation_id = self.world.random(f"{node.name}/incarnations").randbytes(16)
        self.clients_host = f"{node.name}.outside"
        self.broker_epoch = -1
        self.is_let_in = False
        self._previous_epoch = previous_epoch
        self.directories = {
            path: directory
            for path, directory in node.directory_ids.items()
            if not node.disk.is_broken(path)
        }
        """The ids of the folders that worked when this life began; it does without the others."""
        self._notes = FolderNotes(node.disk, self.directories)
        self._leaving: Callable[[], None] | None = None
        self._leave_by_ms = 0
        self._beating = self._knocks = 0

    def start(self) -> None:
        """Register, then heartbeat until the end of this life."""
        self._notes.begin(self.incarnation_id)
        self._register(again=False)

    def leave(self, left: Callable[[], None]) -> None:
        """Controlled shutdown: `left` is called when the controller lets go, or does not answer."""
        self._leaving = left
        self._leave_by_ms = self.world.steady_ms + SHUTDOWN_MS
        self._beating += 1
        self._beat(self._beating)

    @property
    def is_in(self) -> bool:
        """Whether this broker's own copy of the metadata shows it unfenced."""
        node = self.node
        broker = node.image.brokers.get(node.node_id)
        return broker is not None and broker.epoch == self.broker_epoch and not broker.fenced

    def _register(self, *, again: bool) -> None:
        def answered(answer: Any) -> None:
            self._registered(answer, again=again)

        self.node.link.send(self._request(), answered, patience_ms=FOREVER_MS)

    def _registered(self, answer: Any, *, again: bool) -> None:
        code = ErrorCode(answer.error_code)
        if code == ErrorCode.NONE:
            self.broker_epoch = answer.broker_epoch
            self._notes.registered(self.incarnation_id, answer.broker_epoch)
            self.node.registered(answer.broker_epoch)
            self.world.note("registered", self.node.name, epoch=answer.broker_epoch)
            self._beating += 1
            self._beat(self._beating)
        elif code == ErrorCode.DUPLICATE_BROKER_REGISTRATION and not again:
            self.node.later(RETRY_MS, lambda: self._register(again=False))
        else:
            self.node.stop_because(f"the controller refuses {self.node.name}: {code.name}")

    def _request(self) -> BrokerRegistrationRequest:
        node = self.node
        return BrokerRegistrationRequest(
            broker_id=node.node_id,
            cluster_id=node.cluster.cluster_id,
            incarnation_id=self.incarnation_id,
            listeners=[
                Listener(name=CLIENTS, host=self.clients_host, port=node.port),
                Listener(name=node.listener, host=node.name, port=node.port),
            ],
            features=[
                Feature(name=name, min_supported_version=low, max_supported_version=high)
                for name, (low, high) in sorted(node.features.items())
            ],
            rack=node.rack,
            log_dirs=self._working_directories(),
            previous_broker_epoch=self._previous_epoch,
            unknown_tagged_fields=self._notes.told(),
        )

    def _working_directories(self) -> list[bytes]:
        offline = self.node.broker.partitions.offline_folders
        return [known for path, known in self.directories.items() if path not in offline]

    # Heartbeats. `turn` ends a chain of them when another one begins.

    def _beat(self, turn: int) -> None:
        if turn != self._beating:
            return
        self.node.hosting.look_for_room()
        request = BrokerHeartbeatRequest(
            broker_id=self.node.node_id,
            broker_epoch=self.broker_epoch,
            current_metadata_offset=self.node.image.offset,
            want_fence=False,
            want_shut_down=self._leaving is not None,
            unknown_tagged_fields=tagged(FullDirectories(ids=self._full_directories())),
        )

        def answered(answer: Any) -> None:
            self._answered(turn, answer)

        self.node.link.send(request, answered)

    def beat_now(self) -> None:
        """The controller shall hear of this broker at once."""
        if self.is_let_in and self._leaving is None:
            self._beating += 1
            self._beat(self._beating)

    def _full_directories(self) -> list[bytes]:
        node = self.node
        return [node.directory_ids[path] for path in sorted(node.broker.partitions.full_folders)]

    def _answered(self, turn: int, answer: Any) -> None:
        if turn != self._beating:
            return
        if self._leaving is not None:
            self._left(turn, answer)
            return
        if answer is not None and answer.error_code == ErrorCode.STALE_BROKER_EPOCH:
            self._look_again(turn)
            return
        if answer is not None and not answer.error_code and not answer.is_fenced:
            self.is_let_in = True
        self._knocks = 0 if self.is_let_in else self._knocks + 1
        pause_ms = STARTING_MS if self._knocks < EAGER_KNOCKS else RETRY_MS
        if self.is_let_in:
            pause_ms = self.node.config.broker_heartbeat_interval_ms
        self.node.later(pause_ms, lambda: self._beat(turn))

    def _left(self, turn: int, answer: Any) -> None:
        late = self.world.steady_ms > self._leave_by_ms
        if late or answer is None or answer.should_shut_down or answer.error_code:
            self._beating += 1
            assert self._leaving is not None
            self._leaving()
        else:
            self._knocks += 1
            pause_ms = STARTING_MS if self._knocks < EAGER_KNOCKS else RETRY_MS
            self.node.later(pause_ms, lambda: self._beat(turn))

    def _look_again(self, turn: int) -> None:
        """The controller says that this epoch is not the broker's: the metadata says why."""
        self.is_let_in = False
        broker = self.node.image.brokers.get(self.node.node_id)
        if broker is not None and broker.incarnation_id != self.incarnation_id:
            if broker.epoch > self.broker_epoch:
                self.node.stop_because(f"another process registered as {self.node.name}")
                return
        elif broker is None or broker.epoch != self.broker_epoch:
            self._previous_epoch = self.broker_epoch
            self._beating += 1
            self._register(again=True)
            return
        self.node.later(RETRY_MS, lambda: self._beat(turn))
