"""All clients of a schedule, made from its plan, and what goes wrong with clients.

What: producers that are given batches, readers, members of one group, an operator, and at the end
an auditor who reads everything there is. A client that dies is replaced by another process that
takes over its part of the plan, as a service's next process would. Rule kept: each client draws
from its own stream; which client a fault hits was drawn with the plan. Not here: the operations
themselves (plan.py), what clients do (producer.py, fetcher.py, member.py, admin.py).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from anabranch.core.controller.partitions.observers import set_observers
from anabranch.core.errors import ApiError
from anabranch.core.outcome import Propose
from anabranch.sim.clients.admin import PREFERRED, UNCLEAN, Admin
from anabranch.sim.clients.client import Client, Patience
from anabranch.sim.clients.fetcher import Fetcher, ReadOptions
from anabranch.sim.clients.member import Member
from anabranch.sim.clients.producer import Producer
from anabranch.sim.clients.topics import PlannedTopics
from anabranch.sim.plan import Plan
from anabranch.sim.plan_parts import SETTLED_US, Alteration, ClientPlan, Fault, Operation

if TYPE_CHECKING:
    from anabranch.core.types import TopicPartition
    from anabranch.sim.checks.settings import SettingsChecks
    from anabranch.sim.cluster import Cluster
    from anabranch.sim.history import History

SMALL_SEGMENTS = {
    "internal.segment.bytes": "4000",
    "segment.ms": "3000",
    "min.cleanable.dirty.ratio": "0.0",
}
"""What an operator sets where small segments are wanted; what a group writes at once must fit."""
OPERATOR = "operator"
AUDITOR = "auditor"
ENOUGH_OPERATIONS = 205
AHEAD = 12
"""Operations by which clients may be ahead of an even pace."""
_STORM = Patience(
    request_timeout_ms=80, retry_backoff_ms=5, most_backoff_ms=20, delivery_timeout_ms=5_000
)

Undo = Callable[[], None]


class Reader(Client):
    """A client that reads all partitions, in no group."""

    def begin(self, reading: ReadOptions, places: list[TopicPartition]) -> None:
        """Start to read."""
        self.fetcher = Fetcher(self, reading)
        for place in places:
            self.fetcher.read(place)
        self.fetcher.turn()

    def topic_changed(self, name: str) -> None:
        self.fetcher.topic_changed(name)


class Workload:
    """See the module."""

    def __init__(self, cluster: Cluster, plan: Plan, history: History) -> None:
        self.cluster = cluster
        self.world = cluster.world
        self.plan = plan
        self.history = history
        self.names = tuple(topic.name for topic in plan.topics)
        self.producers: dict[str, Producer] = {}
        self.past_producers: list[Producer] = []
        self.readers: dict[str, Reader] = {}
        self.members: dict[str, Member] = {}
        self.operator = Admin(cluster, OPERATOR, history, self.names, Patience())
        self.auditor: Reader | None = None
        self.operations = 0
        self.topics = PlannedTopics(self.operator, plan.topics)
        self.settings: SettingsChecks | None = None
        """Who hears of settings that are altered."""
        self._lives = 0

    # The beginning.

    def start(self) -> None:
        """Plan the beginnings of all clients and all operations."""
        self.operator.refresh(_nothing)
        for client in self.plan.clients:
            self.world.at(client.begins_us, self._begin, client)
        for operation in self.plan.operations:
            self.world.at(operation.at_us, self._operate, operation)
        for alteration in self.plan.alterations:
            self.world.at(alteration.at_us, self._alter, alteration)

    def _begin(self, plan: ClientPlan, name: str = "") -> None:
        name = name or plan.name
        versions = dict(plan.versions)
        asked = (self.cluster, name, self.history, self.names, plan.patience)
        if plan.manner is not None:
            producer = Producer(*asked, plan.manner, versions, self.plan.compacted)
            self.producers[plan.name] = producer
            producer.refresh(_nothing)
        elif plan.membership is not None and plan.reading is not None:
            member = Member(
                *asked[:3],
                self._names_that_stay(),
                plan.patience,
                plan.membership,
                plan.reading,
                versions,
            )
            self.members[plan.name] = member
            member.start()
        elif plan.reading is not None:
            reader = Reader(*asked, versions)
            self.readers[plan.name] = reader
            reader.begin(plan.reading, self.plan.places)

    def _names_that_stay(self) -> tuple[str, ...]:
        """The topics of groups: what a group committed of a topic that is made again says nothing
        of the next one."""
        return tuple(topic.name for topic in self.plan.topics if not topic.is_made_again)

    # Operations.

    def _operate(self, operation: Operation) -> None:
        if operation.kind == "send":
            producer = self.producers.get(operation.client)
            if producer is not None and not self._is_ahead():
                self.operations += 1
                producer.send(operation.place, operation.number)
            return
        self.operations += 1
        operator, place, number = self.operator, operation.place, operation.number
        self.world.note("operate", OPERATOR, f"{operation.kind} {place}", number=number)
        if operation.kind == "elect-preferred":
            operator.elect(place, PREFERRED)
        elif operation.kind == "elect-unclean":
            operator.elect(place, UNCLEAN)
        elif operation.kind == "min-isr":
            self.history.mark("min-isr-changed")
            operator.alter(place.topic, "min.insync.replicas", str(1 + number % 2))
        elif operation.kind == "unclean":
            value = "true" if number % 3 == 0 else "false"
            operator.alter(place.topic, "unclean.leader.election.enable", value)
        elif operation.kind == "delete":
            operator.delete_records(place, number / 100)
        elif operation.kind == "observe":
            self._observe(place, number)
        elif operation.kind == "move":
            self._move(place, number)
        elif operation.kind == "cancel-move":
            operator.move(place, None)
        elif operation.kind == "add-partitions":
            operator.add_partitions(place.topic, number)
        elif operation.kind == "make-again":
            self.topics.make_again(place.topic, number)
        elif operation.kind == "shrink-segments":
            for name, value in SMALL_SEGMENTS.items():
                operator.alter(place.topic, name, value)
        elif operation.kind == "create":
            operator.create_topic(f"other-{number}", partitions=1, replication_factor=3, configs={})
        else:
            operator.describe()

    def _alter(self, wanted: Alteration) -> None:
        """Alter a setting, and have the answer judged."""
        self.operations += 1
        text = f"alter {wanted.topic or 'all brokers'} {wanted.name}"
        self.world.note("operate", OPERATOR, text, how=wanted.operation, value=wanted.value)
        hears = _silence if self.settings is None else self.settings.asked(wanted)
        self.operator.change(wanted, hears)

    def _move(self, place: TopicPartition, number: int) -> None:
        """Add a replica, drop one, replace one, or change their order."""
        partition = self.cluster.image.partition(*place)
        if partition is None:
            return
        replicas = [each for each in partition.replicas if each not in partition.removing]
        others = sorted(set(self.cluster.nodes) - set(replicas))
        kind, chosen = number % 5, number // 5
        one = chosen % len(replicas)
        if kind == 0:
            replicas.reverse()
        elif kind == 1 and len(replicas) > 1:
            del replicas[one]
        elif kind == 2 and others:
            replicas.append(others[chosen % len(others)])
        elif others:
            replicas[one] = others[chosen % len(others)]
        self.operator.move(place, replicas)

    @property
    def done(self) -> int:
        """How many operations clients have begun or, as readers, have seen something come of."""
        return self.operations + len(self.history.polls) + len(self.history.commits)

    def _is_ahead(self) -> bool:
        """Whether readers do so much that a batch can be left out: enough is enough."""
        gone_us = self.world.now_us - SETTLED_US
        share = gone_us / max(1, self.plan.safety_us - SETTLED_US)
        return self.done > AHEAD + share * ENOUGH_OPERATIONS

    def _observe(self, place: TopicPartition, number: int) -> None:
        """Have a broker observe a partition, or nobody; no request asks for that yet."""
        node, partition = self.cluster.active_controller(), self.cluster.image.partition(*place)
        if node is None or partition is None:
            return
        others = sorted(set(self.cluster.nodes) - set(partition.replicas))
        chosen = [others[number % len(others)]] if others and number % 5 else []
        try:
            result = set_observers(node.controller_shell.controller.state, *place, chosen)
        except ApiError:
            return  # the controller does not know the broker or the partition yet
        node.controller_shell.submit(Propose(result), _silence)

    @property
    def is_idle(self) -> bool:
        """Whether every producer that lives knows what became of its records."""
        return all(producer.is_idle for producer in self.producers.values())

    @property
    def is_stable(self) -> bool:
        """Whether every member that lives is one."""
        return all(member.is_stable for member in self.members.values() if not member.stopped)

    def audit(self) -> None:
        """Read everything from the beginning, as a reader who comes after it all."""
        self.auditor = Reader(self.cluster, AUDITOR, self.history, self.names, Patience())
        reading = ReadOptions(max_wait_ms=200, pause_ms=10)
        self.auditor.begin(reading, self.plan.places)

    def audited(self, place: TopicPartition) -> int:
        """Up to where the auditor has read; -1 before he began."""
        fetcher = self.auditor.fetcher if self.auditor is not None else None
        return fetcher.positions[place].offset if fetcher is not None else -1

    # Faults.

    def faults(self) -> dict[str, Callable[[Fault], Undo | None]]:
        """Kind -> what it does; returns what undoes it, or None when there was nobody."""
        return {
            "client-dies": self._die,
            "member-leaves": self._leave,
            "member-joins": self._join,
            "storm": self._storm,
            "client-pause": self._pause,
        }

    def _note(self, fault: Fault, who: str) -> None:
        self.world.note("fault", who, fault.kind)

    def _die(self, fault: Fault) -> Undo | None:
        plans = [plan for plan in self.plan.clients if self._living(plan.name) is not None]
        if not plans:
            return None
        plan = plans[fault.aim % len(plans)]
        client = self._living(plan.name)
        assert client is not None
        self._note(fault, client.name)
        client.stop()
        self._replace(plan)
        return _nothing

    def _living(self, name: str) -> Client | None:
        client = self.producers.get(name) or self.readers.get(name) or self.members.get(name)
        return client if client is not None and not client.stopped else None

    def _replace(self, plan: ClientPlan) -> None:
        """The next process of the same service; a static member keeps its instance id."""
        self._lives += 1
        producer = self.producers.get(plan.name)
        if producer is not None:
            self.past_producers.append(producer)
        self._begin(plan, f"{plan.name}.{self._lives}")

    def _member_plan(self, fault: Fault) -> ClientPlan | None:
        plans = [plan for plan in self.plan.clients if plan.name in self.members]
        return plans[fault.aim % len(plans)] if plans else None

    def _leave(self, fault: Fault) -> Undo | None:
        """A member says goodbye, and comes back when the fault ends."""
        plan = self._member_plan(fault)
        if plan is None or self.members[plan.name].stopped:
            return None
        self._note(fault, self.members[plan.name].name)
        self.members[plan.name].leave()
        return lambda: self._replace(plan)

    def _join(self, fault: Fault) -> Undo | None:
        """One member more, who leaves when the fault ends."""
        plan = self._member_plan(fault)
        if plan is None or plan.membership is None:
            return None
        self._lives += 1
        name = f"guest-{self._lives}"
        self._note(fault, name)
        membership = replace(plan.membership, instance_id=None)
        self._begin(replace(plan, name=name, membership=membership))
        return self.members[name].leave

    def _pause(self, fault: Fault) -> Undo | None:
        """A client stands still: its sessions end, its timeouts all come at once."""
        plans = [plan for plan in self.plan.clients if self._living(plan.name) is not None]
        if not plans:
            return None
        client = self._living(plans[fault.aim % len(plans)].name)
        assert client is not None
        self._note(fault, client.name)
        client.pause()
        return client.resume

    def _storm(self, fault: Fault) -> Undo | None:
        """A producer gives every answer a moment only, and asks again at once."""
        names = sorted(self.producers)
        if not names:
            return None
        producer = self.producers[names[fault.aim % len(names)]]
        self._note(fault, producer.name)
        before, producer.patience = producer.patience, _STORM

        def undo() -> None:
            producer.patience = before

        return undo


def _silence(_answer: Any) -> None:
    return None


def _nothing() -> None:
    return None
