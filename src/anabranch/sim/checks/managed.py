"""What must hold when diskless partitions' replicas move, after each batch of metadata records.

What: epochs never go back, and a change of leader raises the leader epoch. A replica comes where no
living one of its rack is; a living one goes only where its rack has another, and a dead one when
its broker has been away for the threshold, or no replica lives. The last one never goes. A change
leaves the preferred leader one that leads, of those that live, no more lists than another and one.
What an operator asked for needs no other reason. At rest each rack has one (`unplaced`). Source:
decision 0059. Not here: one state alone (`metadata.py`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping

from anabranch.core.types import TopicPartition
from anabranch.sim.checks.model import Key, Model, Partition
from anabranch.sim.checks.violation import Violation

SLOWEST_COMMIT_MS = 5_000
"""A decision waits for the append before its own, and for its own."""


class ManagedChecks:
    """See the module. Whoever has a cluster says its racks, its clock and the threshold."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.racks: Mapping[int, str] = {}
        self.now_ms: Callable[[], int] = lambda: 0
        self.threshold_ms = 0
        self.asked: set[tuple[TopicPartition, tuple[int, ...]]] = set()
        """Replicas that an operator asked for."""
        self._firsts: Counter[int] = Counter()
        """Lists by the broker that is the first of them, before each change of a batch."""
        self._away_since: dict[int, int] = {}
        self._told_ms: dict[int, int] = {}
        """When a controller last decided that a broker goes away."""

    def goes_away(self, broker_id: int) -> None:
        """A controller decided that a broker is away; its store may be slow to commit that."""
        self._told_ms[broker_id] = self.now_ms()

    def brokers_changed(self) -> None:
        """Note which brokers are away, and since when."""
        for broker_id, broker in self.model.brokers.items():
            if broker.active:
                self._away_since.pop(broker_id, None)
            else:
                now_ms = self.now_ms()
                told_ms = self._told_ms.get(broker_id, now_ms)
                since_ms = told_ms if now_ms - told_ms <= SLOWEST_COMMIT_MS else now_ms
                self._away_since.setdefault(broker_id, since_ms)

    def begins(self, before: Mapping[Key, Partition | None]) -> None:
        """A batch was applied; `before` is what it touched, in the order of its records."""
        self._firsts.clear()
        if not any(map(self.model.is_diskless, before)):
            return
        for key, now in self.model.partitions.items():
            partition = before.get(key, now)
            if partition is not None:
                self._firsts.update(partition.replicas[:1])

    def look(self, key: Key, before: Partition | None, now: Partition) -> None:
        """Raise a Violation where a partition's new state cannot be."""
        if before is None or before is now:
            return
        wrong = _went_wrong(before, now)
        if not wrong and (self.model.place(key), now.replicas) not in self.asked:
            wrong = self._moved(before.replicas, now.replicas)
            wrong = wrong or self._is_uneven(before.replicas, now.replicas)
        self._firsts.subtract(before.replicas[:1])
        self._firsts.update(now.replicas[:1])
        if wrong:
            told = {"partition": self.model.place(key), "before": before, "now": tuple(now)}
            raise Violation("R1", wrong, told)

    # Moves.

    def _moved(self, before: tuple[int, ...], now: tuple[int, ...]) -> str:
        for broker_id in set(now) - set(before):
            beside = self._beside(broker_id, before)
            if not self._lives(broker_id):
                return f"Replica {broker_id} was added, whose broker is away."
            if any(map(self._lives, beside)):
                return f"Replica {broker_id} was added where its rack has a living one."
            if any(map(self._lives, before)) and not all(map(self._is_gone, beside)):
                return f"Replica {broker_id} replaces one that is not away for the threshold."
        for broker_id in set(before) - set(now):
            beside = self._beside(broker_id, now)
            if self._lives(broker_id) and not any(map(self._lives, beside)):
                return f"Replica {broker_id} lives, is its rack's only one, and went."
            if not beside and not self._rack_is_gone(broker_id):
                return f"Replica {broker_id} went before its rack was away for the threshold."
        return ""

    def _is_uneven(self, before: tuple[int, ...], now: tuple[int, ...]) -> str:
        """Whether a change of the replicas leaves a living one behind that leads too few lists."""
        if set(before) == set(now):
            return ""
        leads = self._firsts[now[0]] + 1 - (before[0] == now[0])
        for broker_id in filter(self._lives, now):
            if leads - self._firsts[broker_id] + (broker_id == before[0]) > 1:
                return (
                    f"Broker {now[0]} is the first of {leads} lists, broker {broker_id} of fewer."
                )
        return ""

    def _beside(self, broker_id: int, replicas: Iterable[int]) -> set[int]:
        rack = self.racks.get(broker_id)
        return {each for each in replicas if each != broker_id and self.racks.get(each) == rack}

    def _lives(self, broker_id: int) -> bool:
        broker = self.model.brokers.get(broker_id)
        return broker is not None and broker.active

    def _is_gone(self, broker_id: int) -> bool:
        since_ms = self._away_since.get(broker_id)
        return since_ms is not None and self.now_ms() - since_ms >= self.threshold_ms

    def _rack_is_gone(self, broker_id: int) -> bool:
        return all(map(self._is_gone, {broker_id, *self._beside(broker_id, self.model.brokers)}))

    # At rest.

    def unplaced(self) -> str:
        """A partition that has not one replica in each rack, "" when there is none."""
        wanted = sorted({self.racks.get(each, "") for each in self.model.brokers})
        for key, partition in self.model.partitions.items():
            if self.model.is_diskless(key):
                racks = sorted(self.racks.get(each, "") for each in partition.replicas)
                if racks != wanted:
                    return f"{self.model.place(key)} has replicas in racks {racks} of {wanted}"
                if partition.leader not in partition.replicas:
                    return f"{self.model.place(key)} has no leader"
        return ""


def _went_wrong(before: Partition, now: Partition) -> str:
    if before.replicas and not now.replicas:
        return "The last replica went."
    if now.leader_epoch < before.leader_epoch or now.partition_epoch < before.partition_epoch:
        return "An epoch went back."
    if now.leader != before.leader and now.leader_epoch == before.leader_epoch:
        return "Another leader has the same leader epoch."
    return ""
