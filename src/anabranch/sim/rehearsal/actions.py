"""Doing what a rehearsal's events say: to processes, to links, and as an operator would.

The rule it keeps: an operator's request goes to a broker over the network, as every client's does;
processes and links are changed directly. Who is meant by a role is looked up when it happens. An
event that does not fit the state (starting a process that runs) does nothing, as on a machine. Not
here: when, and what is seen.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from anabranch.core.errors import ErrorCode
from anabranch.core.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from anabranch.core.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from anabranch.core.wire.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from anabranch.core.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from anabranch.sim.cluster import Cluster
from anabranch.sim.network import LinkFault
from anabranch.sim.node import SimNode
from anabranch.sim.processes import State
from anabranch.sim.rehearsal.answers import Condition
from anabranch.sim.rehearsal.model import Action, BrokerChoice, Event, TopicPlan
from anabranch.sim.rehearsal.moves import Mover
from anabranch.sim.rehearsal.probe import Probe

OPERATOR = "operator"
OPERATION_US = 10_000_000
RETRY_US = 100_000
LOOK_US = 100_000
TOPIC_RESOURCE = 2
SET = 0
STUCK = LinkFault(clogged=True)
"""A cut link keeps what is sent until it is whole, as TCP does by sending again."""

ELECTIONS = {"preferred": 0, "unclean": 1}

Done = Callable[[Any], None]


class Operator:
    """Sends requests to whatever broker is up, until one answers."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self._turn = 0

    def ask(self, message: Any, done: Done | None = None) -> None:
        """Send a request; `done` hears the answer."""
        nodes = sorted(self.cluster.nodes)
        node_id = nodes[self._turn % len(nodes)]
        self._turn += 1

        def told(response: Any) -> None:
            if response is None or getattr(response, "error_code", 0) == ErrorCode.NOT_CONTROLLER:
                self.cluster.world.after(RETRY_US, self.ask, message, done)
            elif done is not None:
                done(response)

        self.cluster.call(OPERATOR, node_id, message, told, timeout_us=OPERATION_US)

    def create(self, topic: TopicPlan, done: Done | None = None) -> None:
        """Create a topic with the replicas that the plan names; those of a diskless one the
        cluster chooses."""
        if topic.is_diskless:
            self._create(topic.name, len(topic.replicas), -1, topic.settings, [], done)
            return
        assignments = [
            CreatableReplicaAssignment(partition_index=index, broker_ids=list(row))
            for index, row in enumerate(topic.replicas)
        ]
        self._create(topic.name, -1, -1, topic.settings, assignments, done)

    def create_anywhere(
        self, name: str, partitions: int, replication: int, settings: Mapping[str, str], done: Done
    ) -> None:
        """Create a topic where the cluster's placer puts it."""
        self._create(name, partitions, replication, settings, [], done)

    def _create(
        self, name: str, partitions: int, replication: int, settings: Mapping[str, str],
        assignments: list[CreatableReplicaAssignment], done: Done | None,
    ) -> None:  # fmt: skip
        topic = CreatableTopic(
            name=name,
            num_partitions=partitions,
            replication_factor=replication,
            assignments=assignments,
            configs=[CreatableTopicConfig(name=k, value=v) for k, v in sorted(settings.items())],
        )
        self.ask(CreateTopicsRequest(topics=[topic], timeout_ms=OPERATION_US // 1_000), done)

    def grow(self, topic: str, partitions: int) -> None:
        """Let a topic have that many partitions, where the cluster's placer puts them."""
        wanted = CreatePartitionsTopic(name=topic, count=partitions, assignments=None)
        self.ask(CreatePartitionsRequest(topics=[wanted], timeout_ms=OPERATION_US // 1_000))

    def elect(self, election: str, topic: str, partition: int | None) -> None:
        """Elect leaders, of one partition or of all."""
        wanted = None
        if partition is not None:
            wanted = [TopicPartitions(topic=topic, partitions=[partition])]
        kind = ELECTIONS[election]
        self.ask(ElectLeadersRequest(election_type=kind, topic_partitions=wanted))

    def set(self, topic: str, settings: Mapping[str, str]) -> None:
        """Alter settings of a topic."""
        configs = [
            AlterableConfig(name=name, config_operation=SET, value=value)
            for name, value in sorted(settings.items())
        ]
        resource = AlterConfigsResource(
            resource_type=TOPIC_RESOURCE, resource_name=topic, configs=configs
        )
        self.ask(IncrementalAlterConfigsRequest(resources=[resource]))


class Actor:
    """Carries out events on nodes and links, and hands the operator's to the operator."""

    def __init__(self, cluster: Cluster, probe: Probe) -> None:
        self.cluster = cluster
        self.world = cluster.world
        self.probe = probe
        self.operator = Operator(cluster)
        self.told: Callable[[str], None] = _unheard
        """Hears what an operator is told."""
        self.mover = Mover(cluster, self.operator.ask, lambda text: self.told(text))
        self.creations: list[tuple[int, str, str]] = []
        self._on_nodes: Mapping[Action, Callable[[SimNode], None]] = {
            Action.KILL: lambda node: node.crash(),
            Action.POWER_LOSS: lambda node: node.crash(power=True),
            Action.PAUSE: lambda node: node.pause(),
            Action.RESUME: lambda node: node.resume(),
            Action.SHUT_DOWN: lambda node: node.shut_down(),
            Action.START: start,
            Action.WIPE: wipe,
        }

    def who(self, who: BrokerChoice) -> tuple[int, ...]:
        """The brokers that are meant, now."""
        if not who.role:
            return who.brokers
        if who.role == "controller":
            active = self.cluster.active_controller()
            return () if active is None else (active.node_id,)
        state = self.probe.states[who.topic, who.partition]
        if who.role == "leader":
            return () if state.leader < 0 else (state.leader,)
        return tuple(each for each in state.replicas if each != state.leader)

    def do(self, event: Event, brokers: tuple[int, ...]) -> None:
        """Carry out one event, which means these brokers."""
        on_node = self._on_nodes.get(event.action)
        if on_node is not None:
            for each in brokers:
                on_node(self.cluster.nodes[each])
        elif event.action is Action.RESTART:
            for each in brokers:
                self.restart(each, event.down_us)
        elif event.action is Action.ROLL:
            self._roll(list(brokers), event.down_us)
        elif event.action is Action.CUT:
            self._cut(event, brokers)
        elif event.action is Action.HEAL:
            self.cluster.network.heal()
        elif event.action in (Action.OUTAGE, Action.RESTORE):
            self._reach(event.remote, is_away=event.action is Action.OUTAGE)
        elif event.action is Action.DRAIN:
            self.mover.drain(brokers)
        elif event.action is Action.ADD:
            for each in brokers:
                start(self.cluster.nodes[each])
            self.mover.fill(brokers)
        else:
            self._operate(event)

    def _operate(self, event: Event) -> None:
        if event.action is Action.ELECT:
            self.operator.elect(event.election, event.topic, event.partition)
        elif event.action is Action.SET:
            self.operator.set(event.topic, event.settings)
        elif event.action is Action.GROW:
            self.operator.grow(event.topic, event.partitions)
        elif event.action is Action.CREATE:
            asked_us = self.world.now_us

            def created(response: Any) -> None:
                code = ErrorCode(response.topics[0].error_code)
                self.creations.append((asked_us, event.topic, code.name))

            self.operator.create_anywhere(
                event.topic, event.partitions, event.replication, event.settings, created
            )

    def _cut(self, event: Event, brokers: tuple[int, ...]) -> None:
        assert event.to is not None
        for one in brokers:
            for other in self.who(event.to):
                if one != other:
                    self.cluster.spoil(other, one, STUCK, plane=event.plane)
                    if not event.one_way:
                        self.cluster.spoil(one, other, STUCK, plane=event.plane)

    def _reach(self, name: str, *, is_away: bool) -> None:
        """Take the object store or the coordinator away, or bring it back."""
        remotes = self.cluster.remotes
        assert remotes is not None
        remote = remotes.objects if name == remotes.objects.name else remotes.coordinator
        remote.faults.away = is_away
        if is_away and remote is remotes.coordinator:
            remotes.coordinator.break_watches()
        self.probe.look()

    def restart(self, broker: int, down_us: int, then: Callable[[], None] | None = None) -> None:
        """Shut a node down in order, and start it that much later."""
        node = self.cluster.nodes[broker]

        def come_back() -> None:
            start(node)
            if then is not None:
                then()

        if node.state is State.RUNNING:
            node.shut_down(lambda: self._after(down_us, come_back))
        elif not node.is_up:
            come_back()

    def _roll(self, brokers: list[int], down_us: int) -> None:
        if brokers:
            first, rest = brokers[0], brokers[1:]
            self.restart(first, down_us, lambda: self._go_on_when_whole(first, rest, down_us))

    def _go_on_when_whole(self, last: int, rest: list[int], down_us: int) -> None:
        places = self.probe.states
        whole = self.cluster.nodes[last].is_serving and not any(
            Condition.UNDER_REPLICATED in self.probe.conditions(place) for place in places
        )
        if whole:
            self._roll(rest, down_us)
        else:
            self._after(LOOK_US, lambda: self._go_on_when_whole(last, rest, down_us))

    def _after(self, delay_us: int, action: Callable[[], None]) -> None:
        self.world.after(delay_us, action)


def _unheard(_text: str) -> None:
    return None


def start(node: SimNode) -> None:
    """Start a node that is down."""
    if not node.is_up:
        node.start()


def wipe(node: SimNode) -> None:
    """Replace a node's disks by empty ones, and start it."""
    node.crash()
    node.wipe()
    node.start()
