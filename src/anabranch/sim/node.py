"""One simulated node: broker and controller in one process, around the same core as a real one.

What: `SimNode` does what `core/node` and `server` do on a machine: it has handlers look at
requests, parks those that wait, follows the metadata, performs what replication wants done, and
wakes who waits for what has changed. Its disk, its copy of the metadata log and its directory ids
outlive its process; each start makes everything else again.

Rule kept: one event is one step: begin, do, settle. Nothing here decides. Not here: its logs
(`hosting.py`), its controller (`controller.py`), its session (`session.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from anabranch.core.api.context import Broker
from anabranch.core.api.error_answers import error_answer
from anabranch.core.api.fetch_sessions import FetchSessions
from anabranch.core.api.purgatory import Purgatory
from anabranch.core.api.registry import handlers
from anabranch.core.broker.authorizer import authorizer_of
from anabranch.core.controller.controller import Controller
from anabranch.core.coordination.groups import offsets
from anabranch.core.due import COORDINATORS, DISKLESS, PEERS, REPLICATION, WAITS
from anabranch.core.errors import ErrorCode, error_code_of
from anabranch.core.log.incarnations import previous_broker_epoch
from anabranch.core.metadata.features import SUPPORTED_FEATURES
from anabranch.core.metadata.image import MetadataDelta, MetadataImage
from anabranch.core.outcome import Cold, Forward, Hangup, NoAnswer, Propose, Wait
from anabranch.core.replication.partitions import Partitions
from anabranch.core.request import NO_LISTENER, Request
from anabranch.core.step import Performer, Wish, drain
from anabranch.core.types import TopicPartition
from anabranch.core.wire.messages import API_KEYS
from anabranch.core.wire.messages.broker_heartbeat import BrokerHeartbeatRequest
from anabranch.sim.alarm import Alarm
from anabranch.sim.controller import ControllerShell
from anabranch.sim.controller_link import ControllerLink
from anabranch.sim.directory_assignments import AssignmentPerformer
from anabranch.sim.diskless import DisklessPerformer
from anabranch.sim.diskless_upkeep import Upkeep
from anabranch.sim.hosting import HostingPerformer
from anabranch.sim.machine import Machine
from anabranch.sim.metadata_log import MetadataFollower
from anabranch.sim.peers import PeerPerformer
from anabranch.sim.processes import State
from anabranch.sim.producer_ids import ProducerIdPerformer
from anabranch.sim.remote_logs import RemoteLogs
from anabranch.sim.replication import ReplicationPerformer
from anabranch.sim.rpc import BROKER, ENVELOPE, Call
from anabranch.sim.session import Session
from anabranch.sim.world import WALL_START_MS

if TYPE_CHECKING:
    from anabranch.core.broker.hosting.effects import TellHosted, TellUnusable
    from anabranch.core.metadata.following.effects import Act
    from anabranch.core.settings.broker import BrokerConfig
    from anabranch.sim.registrant import Registrant, Surroundings

HEARTBEAT = BrokerHeartbeatRequest.api_key
"""It does more to a node than its handler does."""
LISTENER = "PLAINTEXT"
BOOT_US = (20_000, 60_000)
"""From the start of a process until it speaks."""
SLOW_BOOT_US = (2_000_000, 8_000_000)
UPKEEP_MS = 1_000
IDLE_UPKEEP_MS = 5_000
"""How often a broker looks after its logs: in vain, most of the time, where no log has flush.ms."""


class SimNode(Machine, Performer):
    """One node. `node_id` and `rack` are for ever, `broker` and what is around it for a life."""

    broker: Broker
    purgatory: Purgatory
    hosting: HostingPerformer
    controller_shell: ControllerShell
    controller: Controller
    """This node's controller, active or not."""
    link: ControllerLink
    follower: MetadataFollower
    session: Session
    diskless: DisklessPerformer | None
    remote_logs: RemoteLogs | None
    now_ms: int

    def __init__(
        self,
        cluster: Surroundings,
        node_id: int,
        rack: str | None,
        config: BrokerConfig,
        folders: int,
    ) -> None:
        super().__init__(cluster, f"node-{node_id}", folders)
        self.node_id = node_id
        self.rack = rack
        self.config = config
        self.listener = LISTENER
        self.port = 9092
        self.advertised_host = self.name
        self.features: dict[str, tuple[int, int]] = dict(SUPPORTED_FEATURES)
        self.handlers = handlers()
        self._responses = {key: API_KEYS[key].response for key in self.handlers}
        self.stopped_because = ""
        self._make_life()

    # The life of the process.

    def start(self, *, slow: bool = False) -> None:
        """Start the process; it does nothing yet for as long as a start takes."""
        if self.is_up:
            return
        self.state = State.RUNNING
        self.life += 1
        self.starts += 1
        self.stopped_because = ""
        self.clock.go_on()  # who was suspended and ended starts on a machine that is awake
        if self.disk.started():
            self.changed("evicted")
        self._make_life()
        low, high = SLOW_BOOT_US if slow else BOOT_US
        delay_us = self.world.random(f"{self.name}/starts").randint(low, high)
        self.world.after_in(self, delay_us, self._boot)
        self.changed("start")

    def shut_down(self, stopped: Callable[[], None] | None = None) -> None:
        """Controlled shutdown: tell the controller, close the logs, end the process."""
        if self.state is not State.RUNNING:
            return
        self.changed("stopping")

        def left() -> None:
            self._end_in_order()
            if stopped is not None:
                stopped()

        self.session.leave(left)

    def _end_in_order(self) -> None:
        self.begin()
        self.purgatory.finish_all(self.now_ms)
        self.settle()
        self.is_serving = False
        self.hosting.close()
        if self.listens:
            self.follower.close()
        self.controller_shell.leave()
        self.end("stop", State.CRASHED)

    def stop_because(self, sentence: str) -> None:
        """Something happened after which this node must not go on."""
        if not self.stopped_because and self.is_up:
            self.stopped_because = sentence
            self.world.note("must stop", self.name, sentence)
            self.world.after_in(self, 0, self.end, "crash", State.CRASHED)

    # The start.

    def _make_life(self) -> None:
        name = self.name
        self.is_serving = self.listens = False
        ids = ProducerIdPerformer(self).machine
        self.now_ms = self.world.now_ms
        self.broker = Broker(
            broker_id=self.node_id,
            broker_epoch=-1,
            cluster_id=self.cluster.cluster_id,
            config=self.config,
            image=MetadataImage.empty(),
            partitions=Partitions(self.node_id),
            fetch_sessions=FetchSessions(
                self.config.max_incremental_fetch_session_cache_slots,
                self.world.random(f"{name}/sessions"),
            ),
            authorizer=authorizer_of(self.config, lambda: self.broker.image),
            allocate_producer_id=ids.take,
            random=self.world.random(f"{name}/ids"),
        )
        due = self.broker.mailbox.due
        self.purgatory = Purgatory(due.marker(WAITS))
        self.controller_purgatory = Purgatory()
        self.hosting = HostingPerformer(self)
        self.follower = MetadataFollower(self)
        if self.is_up:
            self.follower.open()
        self.controller_shell = ControllerShell(self, self.follower.first_end)
        self.controller = self.controller_shell.controller
        self.link = ControllerLink(self)
        previous_epoch = previous_broker_epoch(self.disk, self.folders)
        self.hosting.machine.previous_epoch = previous_epoch
        self.session = Session(self, previous_epoch)
        self.telling = AssignmentPerformer(self)
        self.replicating = ReplicationPerformer(self)
        self.asking = PeerPerformer(self)
        remotes = self.cluster.remotes
        self.diskless = None if remotes is None else DisklessPerformer(self, remotes)
        self.remote_logs = None
        if remotes is not None and (remotes.has_remote_logs or remotes.has_tiering):
            self.remote_logs = RemoteLogs(self, remotes)
        due.performs(REPLICATION, self.replicating.perform)
        due.performs(PEERS, self.asking.perform)
        if self.diskless is not None:
            due.performs(DISKLESS, self.diskless.perform)
        deadline = self.purgatory.next_deadline
        self._waits_alarm = Alarm(self.world, self, deadline, self._waits_are_over)
        deadline = self.controller_purgatory.next_deadline
        self._controller_alarm = Alarm(self.world, self, deadline, self._controller_waits_are_over)
        deadline = self.broker.groups.timers.next_due_ms
        self._groups_alarm = Alarm(self.world, self, deadline, self._groups_are_due)
        due.performs(WAITS, self._waits_alarm.set)
        due.performs(COORDINATORS, self._groups_alarm.set)

    def _boot(self) -> None:
        if not self.follower.is_open:
            return
        self.listens = True
        self.controller_shell.start()
        self.follower.start()
        self.session.start()
        if self.diskless is not None:
            self.diskless.start()
            Upkeep(self.diskless).start()
        if self.remote_logs is not None:
            self.remote_logs.start()
        self.later(UPKEEP_MS, self._upkeep)
        self.later(self.config.offsets_retention_check_interval_ms, self._expire_offsets)

    def registered(self, broker_epoch: int) -> None:
        self.broker.registered(broker_epoch)
        if self.diskless is not None:
            self.diskless.registered()
        self.follower.registered(broker_epoch)

    def serve(self) -> None:
        self.is_serving = True
        self.world.note("serving", self.name, epoch=self.broker.broker_epoch)
        self.changed("serving")

    # What others of this node use.

    @property
    def view(self) -> Broker:
        return self.broker

    @property
    def incarnation_id(self) -> bytes:
        return self.session.incarnation_id

    def connection_closed(self, process: Registrant) -> None:
        self.controller_shell.connection_closed(process)

    def tell_of_folders(self, effect: TellHosted | TellUnusable) -> None:
        self.telling.tell(effect)

    def on_committed(self, image: MetadataImage, delta: MetadataDelta) -> None:
        self.controller_shell.follow(image, delta)

    @property
    def image(self) -> MetadataImage:
        """The newest metadata that this node knows."""
        return self.broker.image

    def later(self, delay_ms: int, action: Callable[[], None]) -> None:
        self.world.after_in(self, delay_ms * 1000, action)

    def ask_broker(
        self,
        broker_id: int,
        message: Any,
        on_answer: Callable[[Any], None],
        *,
        timeout_ms: int,
        most_version: int | None = None,
    ) -> None:
        broker = self.cluster.nodes.get(broker_id)
        if broker is None:
            self.later(0, lambda: on_answer(None))
            return
        self.cluster.calls.call(
            self, broker, BROKER, message, on_answer,
            timeout_us=timeout_ms * 1000, most_version=most_version,
        )  # fmt: skip

    def lost(self, places: Sequence[TopicPartition]) -> None:
        self.replicating.follow_states(places)
        self.broker.follow_leadership(self.now_ms)

    def wake_controller(self, key: Hashable) -> None:
        self.controller_purgatory.wake((key,), self.world.steady_ms)
        self._controller_alarm.set()

    def on_image(self, moved: Act) -> None:
        """The metadata moved: follow it."""
        broker = self.broker
        image, delta, published = moved.image, moved.delta, moved.published
        self.begin()
        broker.take_config(image, delta, self.cluster.dynamic_config)
        self.telling.follow(image, published)
        touched = self.hosting.publish(moved)
        broker.take_image(delta, published, self.now_ms)
        self.replicating.follow_states(None if delta.changed_brokers else touched)
        self.settle()
        self.session.metadata_moved()

    # Requests.

    def receive(self, call: Call) -> None:
        """Have the handler look at it, and do what it asks for."""
        to_broker = call.listener == BROKER
        handler = self.handlers.get(call.api_key)
        run = None
        if handler is not None and call.version in handler.versions:
            run = handler.broker if to_broker else handler.controller
        if run is None or not (self.is_serving if to_broker else self.listens):
            call.lose()
            return
        self.begin()
        request = Request(
            call.api_key, call.version, 0, call.client_id, call.body, call.principal,
            NO_LISTENER if call.listener == ENVELOPE else self.listener, call.source.name, 0,
        )  # fmt: skip
        now_ms = self.now_ms if to_broker else self.steady_ms
        if not to_broker:
            self.controller_shell.look_at_lease()
        if call.api_key == HEARTBEAT:
            self.controller_shell.heard(call.source, call.body.broker_id, call.body.broker_epoch)
        outcome: Any
        try:
            outcome = run(
                self.broker if to_broker else self.controller_shell.controller, request, now_ms
            )
        except Exception as fault:
            outcome = fault
        self._resolve(call, request, outcome)
        if to_broker:
            self.settle()
        else:
            self._controller_alarm.set()

    def _resolve(self, call: Call, request: Request, outcome: Any) -> None:
        kind = outcome.__class__
        if kind is self._responses.get(call.api_key):
            call.answer(outcome)
            return
        if isinstance(outcome, Wait):
            self._park(call, request, outcome)
        elif isinstance(outcome, Cold):
            self.purgatory.park_cold(outcome, lambda later: self._resolve(call, request, later))
            if self.diskless is not None:
                self.diskless.bring(outcome)
                return
            for read in outcome.reads:
                read.warm()
            self.broker.changed[outcome] = None
        elif isinstance(outcome, Propose):
            self.controller_shell.submit(outcome, lambda later: self._resolve(call, request, later))
        elif isinstance(outcome, Forward):
            self.link.send(call.body, call.answer, version=call.version, principal=call.principal)
        elif isinstance(outcome, NoAnswer):
            self.open_calls.pop(call, None)
        elif isinstance(outcome, Hangup):
            call.lose()
        elif isinstance(outcome, BaseException):
            self._refuse(call, outcome)
        else:
            call.answer(outcome)

    def _park(self, call: Call, request: Request, wait: Wait) -> None:
        to_broker = call.listener == BROKER
        purgatory = self.purgatory if to_broker else self.controller_purgatory
        now_ms = self.now_ms if to_broker else self.steady_ms
        purgatory.park(
            wait,
            lambda outcome: self._resolve(call, request, outcome),
            self.world.steady_ms,
            now_ms,
        )

    def _refuse(self, call: Call, fault: BaseException) -> None:
        code = error_code_of(fault)
        if code is ErrorCode.UNKNOWN_SERVER_ERROR:
            raise fault
        answer = error_answer(self._responses[call.api_key], call.version, code, str(fault))
        if answer is None:
            call.lose()
        else:
            call.answer(answer)

    # Steps.

    def begin(self) -> None:
        """Read both clocks, once for everything that this step does."""
        broker, steady_ms = self.broker, self.world.now_us // 1000
        broker.steady_ms = steady_ms
        broker.wall_ms = self.now_ms = WALL_START_MS + steady_ms

    def settle(self) -> None:
        drain(self.broker.mailbox, self)

    def wake_waiting(self, keys: Iterable[Hashable]) -> None:
        self.purgatory.wake(keys, self.now_ms)

    def take_faults(self) -> None:
        self.hosting.take_faults()

    def sync_logs(self) -> None:
        self.hosting.start_rounds()

    def load_groups(self) -> None:
        self.broker.groups.load(self.now_ms)

    def grant(self, wish: Wish) -> None:
        self.link.send(wish.message, partial(_granted, wish))

    def _waits_are_over(self) -> None:
        self.begin()
        self.purgatory.expire(self.world.steady_ms, self.now_ms)
        self.settle()

    def _controller_waits_are_over(self) -> None:
        steady_ms = self.world.steady_ms
        self.controller_shell.look_at_lease()
        self.controller_purgatory.expire(steady_ms, steady_ms)
        self._controller_alarm.set()

    # Groups.

    def _groups_are_due(self) -> None:
        self.begin()
        self.broker.groups.tick(self.now_ms)
        self.settle()

    def _expire_offsets(self) -> None:
        self.begin()
        offsets.expire(self.broker.groups, self.now_ms)
        self.settle()
        self.later(self.config.offsets_retention_check_interval_ms, self._expire_offsets)

    # What a broker does for its logs as time passes.

    def _upkeep(self) -> None:
        self.begin()
        self.hosting.tick()
        self.settle()
        self.later(UPKEEP_MS if self.hosting.flushes_late else IDLE_UPKEEP_MS, self._upkeep)


def _granted(wish: Wish, _answer: Any) -> None:
    wish.done()
