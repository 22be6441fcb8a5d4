"""The simulator's checks, on while a rehearsal runs.

What: the suite of `sim/checks` watches the cluster and hears what producers were told. Why: the
answers of a rehearsal are worth nothing if the core that gave them broke a promise on the way.

The rule it keeps: a rehearsal that breaks an invariant ends there and says which; nothing that was
seen before is thrown away. An exception out of core is as bad as a broken invariant, and told as
one. Not here: the invariants (`sim/checks`), what is lost (`losses.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from anabranch.core.diskless.rows import LogKey
from anabranch.core.placement.move_plans import PlannedMove
from anabranch.core.types import TopicPartition
from anabranch.sim.checks.diskless import DisklessChecks
from anabranch.sim.checks.suite import Suite
from anabranch.sim.checks.violation import Violation
from anabranch.sim.cluster import Cluster
from anabranch.sim.diskless_upkeep import PACE
from anabranch.sim.history import FAILED, OK, UNKNOWN, History, Send, UncleanAsked
from anabranch.sim.rehearsal.answers import Place
from anabranch.sim.rehearsal.producer import Sent

NOT_WRITTEN = frozenset({"NOT_ENOUGH_REPLICAS", "LEADER_NOT_AVAILABLE"})


class NotReady(Exception):
    """The cluster did not come to rest before anything happened."""


class CheckedRun:
    """Runs something under the checks; `violation` is empty while all held. `diskless` are the
    topics whose records lie in object storage: these have checks of their own."""

    def __init__(
        self, cluster: Cluster, diskless: Collection[str] = (), *, threshold_ms: int = 0
    ) -> None:
        self.cluster = cluster
        self.history = History()
        self.suite = Suite(cluster, self.history)
        self.diskless = diskless
        self.truth: DisklessChecks | None = None
        if cluster.remotes is not None:
            self.truth = DisklessChecks(
                cluster.remotes, self.suite.marks, PACE.grace_ms, lambda _topic_id: False
            )
            self.truth.living = lambda topic_id: cluster.image.topic_by_id(topic_id) is not None
            managed = self.suite.metadata.managed
            managed.racks = {node.node_id: node.rack or "" for node in cluster.nodes.values()}
            managed.now_ms = lambda: cluster.world.steady_ms
            managed.threshold_ms = threshold_ms
        self.violation = ""
        self.details = ""
        self._open: dict[Sent, list[Send]] = {}

    def run(self, work: Callable[[], None]) -> None:
        """Do the work until it is done or something is violated."""
        try:
            work()
        except NotReady:
            raise
        except Violation as violation:
            self.violation = f"{violation.id}: {violation.sentence}".rstrip(".")
            self.details = str(violation)
        except Exception as fault:
            self.violation = f"{type(fault).__name__} out of a node: {fault}"

    def sent(self, client: str, batch: Sent) -> None:
        """A producer sends records."""
        topic, index = batch.place
        if topic in self.diskless:
            assert self.truth is not None
            self.truth.sent.update(batch.values)
            return
        sends = self._open[batch] = [
            Send(
                id=value.decode(),
                client=client,
                place=TopicPartition(topic, index),
                value=value,
                acks=batch.acks,
                idempotent=False,
                invoked_us=batch.sent_us,
            )
            for value in batch.values
        ]
        for send in sends:
            self.history.add(send)

    def told(self, batch: Sent) -> None:
        """It hears what became of them."""
        outcome = OK if batch.is_acknowledged else UNKNOWN
        if batch.told in NOT_WRITTEN:
            outcome = FAILED
        for index, send in enumerate(self._open.pop(batch, ())):
            send.completed_us, send.outcome = batch.told_us, outcome
            if outcome == OK:
                send.offset = batch.base_offset + index

    def moves_asked(self, moves: Sequence[PlannedMove]) -> None:
        """An operator asks for moves: the reason for them is his."""
        asked = self.suite.metadata.managed.asked
        asked.update((each.place, each.after) for each in moves)

    def stored(self, place: Place) -> dict[int, bytes]:
        """Offset -> value of what is committed to a diskless partition."""
        topic = self.cluster.image.topic(place[0])
        assert self.truth is not None
        log = None if topic is None else self.truth.logs.get(LogKey(topic.topic_id, place[1]))
        return {} if log is None else dict(enumerate(log.values))

    def unclean_asked(self, topic: str, partition: int) -> None:
        """An operator asks for an unclean election: what it loses is allowed."""
        asked = UncleanAsked(TopicPartition(topic, partition), self.cluster.world.now_us)
        self.history.unclean_asked.append(asked)
