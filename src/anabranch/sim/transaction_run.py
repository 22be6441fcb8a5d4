"""The part of a schedule that has transactions: its clients, faults and checks, and its end.

What: `TransactionRun` is what `schedule.py` calls where a plan has transactions. After the faults
no partition may hold readers of committed records back for longer than the longest timeout, a round
of the search for late transactions, and what a healed cluster needs. Not here: what must hold
(`checks/transactions.py`, `checks/stable_offsets.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from anabranch.core.coordination.groups.offsets_topic import OFFSETS_TOPIC
from anabranch.core.types import TopicPartition
from anabranch.sim.checks.stable_offsets import StableOffsets
from anabranch.sim.checks.transactions import TransactionChecks
from anabranch.sim.checks.violation import Violation
from anabranch.sim.clients.transactional_workload import TransactionalWorkload
from anabranch.sim.plan_parts import SECOND_US
from anabranch.sim.transaction_faults import TransactionFaults
from anabranch.sim.transaction_history import COMMITTED, UNKNOWN, TransactionHistory

if TYPE_CHECKING:
    from anabranch.core.replication.replica import Replica
    from anabranch.sim.checks.suite import Suite
    from anabranch.sim.cluster import Cluster
    from anabranch.sim.plan import Plan
    from anabranch.sim.plan_parts import Fault

INTERVAL = "transaction.abort.timed.out.transaction.cleanup.interval.ms"
HEALED_US = 60 * SECOND_US
"""What a healed cluster may need until it writes markers: elections, full logs, restarts."""


class TransactionRun:
    """See the module."""

    def __init__(self, cluster: Cluster, plan: Plan, suite: Suite) -> None:
        assert plan.transactions is not None
        self.cluster = cluster
        self.world = cluster.world
        self.plan = plan.transactions
        self.suite = suite
        doubles = any(fault.kind in ("duplicate", "peers-flaky") for fault in plan.faults)
        self.history = TransactionHistory(cluster.world, doubles=doubles)
        self.checks = TransactionChecks(self.history, suite.logs)
        self.workload = TransactionalWorkload(cluster, self.plan, self.history)
        self.workload.stable_ends = self._ends
        cluster.checks.append(StableOffsets((*self.workload.names, OFFSETS_TOPIC)))
        manners = [each.manner for each in self.plan.ids]
        manners += [each.manner for each in self.plan.loops]
        longest_ms = max(each.timeout_ms for each in manners)
        self._longest_us = HEALED_US + 1_000 * (longest_ms + int(dict(plan.config)[INTERVAL]))
        self._healed_us = 0

    @property
    def kinds(self) -> dict[str, Callable[[Fault], Callable[[], None] | None]]:
        """Faults by kind."""
        return self.workload.faults() | TransactionFaults(self.cluster, self.plan.compacted).table()

    def start(self) -> None:
        """Plan what its clients do."""
        self.workload.start()

    def heal(self) -> None:
        """No fault is left; what is undecided now may stay so for a while."""
        self._healed_us = self.world.now_us

    def unrest(self) -> str:
        """Why its clients and partitions are not at rest, "" when they are."""
        held = next(self._held(), None)
        if held is not None and self.world.now_us - self._healed_us > self._longest_us:
            raise Violation(
                "stable-held", "Healed, and a partition holds readers back for too long.",
                {"partition": held.topic_partition, "stable": held.last_stable_offset,
                 "high": held.high_watermark,
                 "open": tuple(held.log.producers.open_transactions.items())},
            )  # fmt: skip
        if held is not None:
            return f"{held.topic_partition} holds readers of committed records back"
        unrest = self.workload.unrest()
        if not unrest and not self.checks.is_void_group and not self.workload.loops_are_done():
            return "the group has not read and committed everything"
        return unrest

    def _replicas(self, places: list[TopicPartition]) -> Iterator[tuple[int, Replica]]:
        """Those in sync that know all that is committed, with their brokers. A partition may be
        without a leader for good; a follower of an older release is told with records alone, where
        an idle fetch takes as long as its timeout."""
        for place in places:
            state = self.cluster.image.partition(*place)
            leader = None if state is None else self._replica(state.leader, place)
            if state is None or leader is None:
                continue
            for node_id in state.isr:
                replica = self._replica(node_id, place)
                if replica is not None and replica.high_watermark == leader.high_watermark:
                    yield node_id, replica

    def _replica(self, node_id: int, place: TopicPartition) -> Replica | None:
        node = self.cluster.nodes.get(node_id)
        return None if node is None else node.broker.partitions.get(*place)

    def _leaders(self, places: list[TopicPartition]) -> list[Replica]:
        return [replica for _, replica in self._replicas(places) if replica.is_leader]

    def _held(self) -> Iterator[Replica]:
        """Replicas that hold readers back; a follower's would when it leads."""
        offsets = self.cluster.image.topic(OFFSETS_TOPIC)
        indexes = sorted(offsets.partitions) if offsets is not None else ()
        places = [*self.plan.all_places, *(TopicPartition(OFFSETS_TOPIC, n) for n in indexes)]
        for _, replica in self._replicas(places):
            is_held = replica.last_stable_offset < replica.high_watermark
            if is_held and not self.checks.is_void(replica.topic_partition):
                yield replica  # others may have lost the markers, or who would write them

    def audit(self) -> None:
        """Read everything once more."""
        replicas: dict[int, list[TopicPartition]] = {}
        for node_id, replica in self._replicas(self.plan.places):
            if not self.checks.is_void(replica.topic_partition):
                replicas.setdefault(node_id, []).append(replica.topic_partition)
        self.workload.audit(replicas)

    def behind(self) -> str:
        """Who has not read all there is, "" when there is none."""
        return self.workload.behind(self._ends(), with_group=not self.checks.is_void_group)

    def _ends(self) -> dict[TopicPartition, int]:
        """Where readers come to. Where a rule allowed a marker to be lost, no batch may be left
        that ends there: compaction went on to where the transaction had ended."""
        return {
            replica.topic_partition: replica.last_stable_offset
            for replica in self._leaders(self.plan.places)
            if not (replica.log.config.compacted and self.checks.is_void(replica.topic_partition))
        }

    def finish(self) -> None:
        """Judge everything that can be read."""
        places = self.plan.places
        readable = {each.topic_partition for each in self._leaders(places)}
        self.checks.unreadable = {each for each in places if each not in readable}
        self.checks.end()
        self._mark()

    def _mark(self) -> None:
        """What a campaign must have seen."""
        brokers = [node.broker for node in self.cluster.nodes.values()]
        transactions = self.history.transactions
        seen = {
            "transaction-unknown": any(each.outcome == UNKNOWN for each in transactions),
            "transaction-timed-out": any(b.transactions.upkeep.timed_out_total for b in brokers),
            "zombie-fenced": bool(self.history.fenced),
            "group-committed-in-transaction": any(
                each.offsets and each.outcome == COMMITTED for each in transactions
            ),
        }
        for name, was_seen in seen.items():
            if was_seen:
                self.suite.marks.hit(name)
