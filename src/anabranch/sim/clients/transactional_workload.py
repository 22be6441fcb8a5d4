"""The clients of a schedule that use transactions, and what goes wrong with them.

What: for each transactional id one process after the other, and sometimes two at once; members of a
group that read, write and commit offsets in transactions; readers; an operator; and at the end
auditors of both isolations, and one who asks what the group has committed. Rule kept: which process
a fault hits was drawn with the plan. Not here: what clients do (`transactional.py` and neighbours).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from anabranch.core.types import EARLIEST, TopicPartition
from anabranch.sim.clients.admin import Admin
from anabranch.sim.clients.client import NOBODY, Patience
from anabranch.sim.clients.fetcher import Fetcher, ReadOptions
from anabranch.sim.clients.group_requests import (
    committed_offsets,
    coordinator_in,
    find_coordinator,
    offsets_in,
)
from anabranch.sim.clients.replica_reader import ReplicaReader
from anabranch.sim.clients.topics import PlannedTopics
from anabranch.sim.clients.transactional import TransactionalProducer
from anabranch.sim.clients.transactional_loop import TransactionalMember
from anabranch.sim.clients.transactional_reader import TransactionalReader
from anabranch.sim.clients.transactional_records import Keying
from anabranch.sim.clients.transactions import Scripted, Steps, Wish
from anabranch.sim.history import History
from anabranch.sim.plan_parts import (
    PASSING,
    RESULTS,
    TRANSFERS,
    IdPlan,
    LoopPlan,
    PlannedTransaction,
    ReaderPlan,
    TransactionPlan,
)
from anabranch.sim.processes import State
from anabranch.sim.transaction_plan import COMMIT

if TYPE_CHECKING:
    from anabranch.sim.cluster import Cluster
    from anabranch.sim.plan_parts import Fault
    from anabranch.sim.transaction_history import TransactionHistory

RETRY_MS = 200
OPERATOR = "transactions-operator"
AUDITORS = ("audits-committed", "audits-all")
AUDITS_REPLICA = "audits-replica"
AUDITING = ReadOptions(isolation=1, max_wait_ms=200, pause_ms=10, start=EARLIEST)
STOPS_BEHIND_US = 1_000_000
"""How long the group has to read nothing more before it counts as done."""

Undo = Callable[[], None]


class TransactionalWorkload:
    """See the module."""

    def __init__(
        self, cluster: Cluster, plan: TransactionPlan, history: TransactionHistory
    ) -> None:
        self.cluster = cluster
        self.world = cluster.world
        self.plan = plan
        self.history = history
        self.quiet = History()
        """What the parts of these clients that others use too write down; nobody reads it."""
        self.names = tuple(topic.name for topic in plan.topics)
        self.keying = Keying(plan.compacted, plan.keys)
        self.ids = {each.name: each for each in plan.ids}
        self.newest: dict[str, TransactionalProducer] = {}
        self.producers: list[TransactionalProducer] = []
        self.loops: list[TransactionalMember] = []
        self.readers: list[TransactionalReader] = []
        self.operator = Admin(cluster, OPERATOR, self.quiet, self.names, Patience())
        self.final_offsets: dict[TopicPartition, int] | None = None
        self.stable_ends: Callable[[], dict[TopicPartition, int]] = dict
        """Where partitions end now for readers of committed records."""
        self.topics = PlannedTopics(self.operator, plan.topics)

    # The beginning.

    def start(self) -> None:
        """Plan the beginnings of all clients, and all transactions."""
        self.operator.refresh(_nothing)
        for each in self.plan.ids:
            self.world.at(each.begins_us, self._first, each)
        for loop in self.plan.loops:
            self.world.at(loop.begins_us, self._begin_loop, loop)
        for reader in self.plan.readers:
            self.world.at(reader.begins_us, self._begin_reader, reader)
        for deal in self.plan.deals:
            self.world.at(deal.at_us, self._give, deal)
        if self.plan.deleted_us:
            self.world.at(self.plan.deleted_us, self._delete_passing)

    def _first(self, plan: IdPlan) -> None:
        self._begin(plan)

    def _begin(self, plan: IdPlan) -> TransactionalProducer:
        """The next process of an id."""
        name = f"{plan.name}.{len(self.producers)}"
        producer = TransactionalProducer(
            self.cluster, name, self.quiet, self.names, plan.patience, plan.name, plan.manner,
            self.history, self.keying,
        )  # fmt: skip
        self.newest[plan.name] = producer
        self.producers.append(producer)
        producer.start()
        return producer

    def _begin_loop(self, plan: LoopPlan) -> None:
        member = TransactionalMember(
            self.cluster, plan.name, self.quiet, (TRANSFERS, RESULTS), plan.patience,
            plan.membership, plan.reading,
        )  # fmt: skip
        member.set_up(plan.manner, self.history, self._places(RESULTS), self.keying)
        self.loops.append(member)
        member.start()

    def _begin_reader(self, plan: ReaderPlan) -> None:
        self._read(plan.name, plan.patience, plan.reading, self.plan.all_places)

    def _read(
        self, name: str, patience: Patience, reading: ReadOptions, places: list[TopicPartition]
    ) -> None:
        reader = TransactionalReader(self.cluster, name, self.quiet, self.names, patience)
        self.readers.append(reader)
        reader.begin(reading, places, self.history)

    def _places(self, topic: str) -> list[TopicPartition]:
        return [place for place in self.plan.places if place.topic == topic]

    # Transactions.

    def _give(self, deal: PlannedTransaction) -> None:
        producer = self.newest.get(deal.id_name)
        if producer is None or producer.stopped:
            producer = self._begin(self.ids[deal.id_name])
        producer.give(deal)

    def _delete_passing(self) -> None:
        self.world.note("operate", OPERATOR, f"deletes {PASSING}")
        operator = self.operator
        operator.refresh(lambda: operator.delete_topic(operator.topic_id(PASSING)))

    # The end.

    def unrest(self) -> str:
        """Why these clients are not at rest, "" when they are."""
        if not self.topics.are_made:
            return "a topic of transactions is not made"
        if not all(producer.is_idle for producer in self.producers):
            return "a producer is in a transaction"
        if not all(loop.is_stable for loop in self.loops):
            return "a member that transacts is in no generation"
        return ""

    def audit(self, replicas: dict[int, list[TopicPartition]]) -> None:
        """Read everything from the beginning, both what is committed and all that there is, and
        what is committed of each broker's replicas; the group, too, goes on to the end."""
        for isolation, name in zip((1, 0), AUDITORS, strict=True):
            reading = replace(AUDITING, isolation=isolation)
            self._read(name, Patience(), reading, self.plan.places)
        for node_id, places in replicas.items():
            name = f"{AUDITS_REPLICA}-{node_id}"
            reader = ReplicaReader(self.cluster, name, self.quiet, self.names, Patience())
            self.readers.append(reader)
            reader.begin_at(node_id, AUDITING, places, self.history)
        self.asker = Asker(self.cluster, "asks-the-group", self.quiet, self.names, Patience())
        self.asker.perform(self.asker.asks(self))

    def behind(self, ends: dict[TopicPartition, int], *, with_group: bool) -> str:
        """An auditor that has not read a partition to its end, "" when there is none."""
        for reader in self.readers:
            audits = reader.name in AUDITORS or reader.name.startswith(AUDITS_REPLICA)
            late = _late(reader.fetcher, ends) if audits else None
            if late is not None:
                return f"{reader.name} is not at the end of {late}"
        if with_group and self.plan.loops and self.final_offsets is None:
            return "the group's offsets are not known"
        return ""

    def loops_are_done(self) -> bool:
        """Whether the group has read all there is, and committed it."""
        ends = self.stable_ends()
        return all(
            loop.fetcher is not None and not loop.has_read_on and _late(loop.fetcher, ends) is None
            for loop in self.loops
            if not loop.stopped
        )

    # Faults.

    def faults(self) -> dict[str, Callable[[Fault], Undo | None]]:
        """Kind -> what it does."""
        return {"id-dies": self._die, "id-twin": self._twin, "id-stalls": self._stall}

    def _aimed(self, fault: Fault) -> tuple[IdPlan, TransactionalProducer] | None:
        living = [
            (plan, self.newest[plan.name])
            for plan in self.plan.ids
            if plan.name in self.newest and not self.newest[plan.name].stopped
        ]
        found = living[fault.aim % len(living)] if living else None
        if found is not None:
            self.world.note("fault", found[1].name, fault.kind)
        return found

    def _die(self, fault: Fault) -> Undo | None:
        """A process ends in the middle of whatever it does."""
        found = self._aimed(fault)
        if found is None:
            return None
        found[1].stop()
        return _nothing

    def _twin(self, fault: Fault) -> Undo | None:
        """Another process begins to use the id, and the one before goes on as if it had not."""
        found = self._aimed(fault)
        if found is None:
            return None
        plan, before = found
        self._begin(plan)
        writes = tuple((place, 1) for place in self.plan.places)
        pause_ms = int(500 * fault.strength)
        before.give(PlannedTransaction(self.world.now_us, plan.name, writes, COMMIT, pause_ms))
        return _nothing

    def _stall(self, fault: Fault) -> Undo | None:
        """A process stands still; another one takes its place, and it wakes up later."""
        found = self._aimed(fault)
        if found is None or found[1].process.state is not State.RUNNING:
            return None
        plan, before = found
        before.pause()
        if fault.other % 3:
            self._begin(plan)
        return before.resume


class Asker(Scripted):
    """Asks what the group has committed, until what it says stays the same."""

    def asks(self, workload: TransactionalWorkload) -> Steps:
        """The script."""
        places = [place for place in workload.plan.places if place.topic == TRANSFERS]
        group = workload.plan.loops[0].membership.group if workload.plan.loops else ""
        said: dict[TopicPartition, int] | None = None
        since_us = self.world.now_us
        while group:
            (answer,) = yield [Wish(self.anybody(), find_coordinator(group))]
            coordinator = coordinator_in(answer)
            if coordinator != NOBODY:
                message = committed_offsets(group, places, stable=True)
                (answer,) = yield [Wish(coordinator, message)]
                offsets = offsets_in(answer)
                if offsets is None or offsets != said or not workload.loops_are_done():
                    said, since_us = offsets, self.world.now_us
                elif self.world.now_us - since_us >= STOPS_BEHIND_US:
                    workload.final_offsets = workload.history.final_offsets = offsets
                    return
            yield RETRY_MS


def _late(fetcher: Fetcher, ends: dict[TopicPartition, int]) -> TopicPartition | None:
    """A partition that a fetcher reads and has not read to its end."""
    for place, position in fetcher.positions.items():
        if position.offset < ends.get(place, -1):
            return place
    return None


def _nothing() -> None:
    return None
