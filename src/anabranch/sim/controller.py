"""The controller of one simulated node: performs what its tenure asks for.

What: the simulator's counterpart of `server/controller.py`. Calls of the metadata store, dials and
timers are of the simulated world; times are of the node's own steady clock. Rule kept: effects are
performed in order, and nothing is decided here. Not here: the lease, appends, snapshots
(`core/controller/tenure`), what is decided (`core/controller`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from anabranch.core.broker.authorizer import authorizer_of
from anabranch.core.controller.brokers import hints
from anabranch.core.controller.brokers.connections import HeartbeatConnections
from anabranch.core.controller.controller import METADATA_KEY, Controller
from anabranch.core.controller.tenure import effects, events
from anabranch.core.controller.tenure.performer import Performer, refusal
from anabranch.core.controller.tenure.tenure import Tenure
from anabranch.core.metadata.features import bootstrap_records
from anabranch.core.metadata.store import Lease
from anabranch.core.outcome import Propose
from anabranch.core.types import NEVER_MS
from anabranch.core.wire.metadata_records import MetadataRecord
from anabranch.sim.alarm import Alarm
from anabranch.sim.diskless_rows import RowsPerformer
from anabranch.sim.liveness_probe import Dial, dial
from anabranch.sim.store_calls import carry_out

if TYPE_CHECKING:
    from anabranch.core.metadata.image import MetadataDelta, MetadataImage
    from anabranch.core.metadata.store_check import CopyEnd
    from anabranch.core.tiering.seals import Progress
    from anabranch.core.types import TopicId
    from anabranch.sim.node_life import NodeLife
    from anabranch.sim.processes import Process
    from anabranch.sim.registrant import Registrant

Finish = Callable[[Any], None]


class Ticket:
    """Whom an answer is for, and up to where the log must be committed before it leaves."""

    __slots__ = ("finish", "needed", "shell")

    def __init__(self, finish: Finish, shell: ControllerShell) -> None:
        self.finish = finish
        self.shell = shell
        self.needed = -1

    def answer(self, response: Any) -> None:
        """Let it leave. The checks hear of it first."""
        shell = self.shell
        needed = shell.controller.image.next_offset if self.needed < 0 else self.needed
        shell.node.cluster.tell_answered(shell.node.node_id, needed)
        self.finish(response)


class ControllerShell(Performer):
    """One node's controller, active or waiting for the lease. One a life of the node. `copy` is
    where the node's copy of the log ended when it was opened."""

    def __init__(self, node: NodeLife, copy: CopyEnd | None) -> None:
        cluster = node.cluster
        self.node = node
        self.world = cluster.world
        self.controller = Controller(
            node.node_id,
            cluster.cluster_id,
            node.config,
            self.world.random(f"{node.name}/placing"),
        )
        self.controller.inter_broker_listener = node.listener
        self.controller.authorizer = authorizer_of(node.config, lambda: self.controller.known)
        self.tenure = Tenure(
            self.controller,
            f"{node.node_id}/{node.life}",
            copy=copy,
            first_records=self._first_records,
        )
        self._alarm = Alarm(node.world, node, self._due_ms, self._tick)
        self._watched: Lease | None = None
        self._connections = HeartbeatConnections()
        self.rows: RowsPerformer | None = None
        if (remotes := cluster.remotes) is not None:
            self.rows = RowsPerformer(
                node.world, node, remotes.coordinator, has_remote=remotes.has_remote_logs
            )
            self.rows.machine.heard = self._heard_of_seals

    def _heard_of_seals(self, topic_id: TopicId, migration: int, progress: Progress) -> None:
        self.controller.duties.migrations.heard(topic_id, migration, progress)

    def start(self) -> None:
        """Begin to want the lease, unless the store is older than this node's copy."""
        self._step(events.Start())

    def look_at_lease(self) -> None:
        """To be called before anything is answered: see `Tenure.look`. What is then decided finds
        the time of day."""
        self.controller.wall_ms = self.node.wall_ms
        self._look(self.node.steady_ms)
        if self.controller.active:
            self.node.cluster.tell_controller_acts(self.node.node_id)

    def submit(self, propose: Propose, finish: Finish) -> None:
        """Have `finish` called with the answer once all that it stands on is committed, or with
        the ApiError NOT_CONTROLLER."""
        ticket = Ticket(finish, self)
        self._begin()
        self.tenure.step(events.Decide(propose.result, ticket), self.node.steady_ms)
        ticket.needed = self.controller.image.next_offset
        self._perform()

    def leave(self) -> None:
        """Give the lease back: this node stops in order."""
        self._step(events.Leave())

    def follow(self, image: MetadataImage, delta: MetadataDelta) -> None:
        """Committed metadata: rows of diskless partitions follow it."""
        if self.rows is not None:
            self.rows.follow(image, delta)

    def clock_changed(self) -> None:
        """The machine's clock goes on from elsewhere, or at another rate: look at it anew."""
        self._alarm.set()

    def heard(self, process: Process, broker_id: int, broker_epoch: int) -> None:
        """A process sent a heartbeat with this epoch over its connection."""
        brokers = self.controller.image.brokers
        self._connections.heard(brokers, process.name, broker_id, broker_epoch)

    def connection_closed(self, process: Registrant) -> None:
        """A connection from another process closed."""
        watched = self._watched
        for broker_id, broker_epoch in self._connections.closed(process.name):
            self._step(events.ConnectionClosed(broker_id, broker_epoch))
        if watched is not None and self.node.cluster.nodes.get(watched.holder) is process:
            found = partial(self._holder_found, watched)
            Dial(self.node, process, None, found).start(hints.REDIAL_MS * 1000)

    def _holder_found(self, lease: Lease, answer: hints.Answer) -> None:
        if answer is hints.Answer.REFUSED:
            self._step(events.HolderGone(lease.epoch))

    # Steps.

    def _step(self, event: events.Event) -> None:
        self._begin()
        self.tenure.step(event, self.node.steady_ms)
        self._perform()

    def _tick(self) -> None:
        self._begin()
        self.tenure.tick(self.node.steady_ms)
        self._perform()

    def _begin(self) -> None:
        self.controller.wall_ms = self.node.wall_ms
        self.controller.followed = self.node.followed

    def _due_ms(self) -> float | None:
        due_ms = self.tenure.next_tick_ms
        return None if due_ms == NEVER_MS else self.node.clock.world_ms(due_ms)

    def _performed(self) -> None:
        self._alarm.set()

    # What a tenure asks for.

    def _call(self, call: effects.StoreCall) -> None:
        carry_out(self.node, call, self._step)

    def _dial(self, effect: effects.Dial) -> None:
        dial(self.node, effect.probe, lambda answer: self._step(events.Probed(effect, answer)))

    def _watch(self, effect: effects.Watch) -> None:
        self._watched = effect.lease

    def _answer(self, effect: effects.Answer) -> None:
        effect.ticket.answer(effect.response)

    def _refuse(self, effect: effects.Refuse) -> None:
        effect.ticket.finish(refusal())

    def _moved(self) -> None:
        self.node.wake_controller(METADATA_KEY)

    def _began(self, effect: effects.Began) -> None:
        name, end_offset = self.node.name, effect.end_offset
        self.world.note("controller", name, epoch=effect.epoch, offset=end_offset)
        if self.rows is not None:
            self.rows.began(effect.epoch, end_offset)

    def _resigned(self, effect: effects.Resigned) -> None:
        self.world.note("resigned", self.node.name, effect.why, epoch=effect.epoch)
        if self.rows is not None:
            self.rows.resigned()

    def _tell(self, effect: effects.Told) -> None:
        name, note = self.node.name, self.world.note
        match effect:
            case effects.Decided(reasons):
                for reason in reasons:
                    note("decided", name, reason.sentence, code=reason.code)
            case effects.Troubled(sentence):
                note("troubled", name, sentence)

    def _stop(self, effect: effects.Stop) -> None:
        self.node.stop_because(effect.sentence)

    def _first_records(self, min_isr: int) -> tuple[MetadataRecord, ...]:
        return self.node.cluster.first_records(bootstrap_records(min_isr))
