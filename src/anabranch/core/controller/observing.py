"""Observers follow the placement constraints of their topic: what a controller does by the clock.

What: every so often topics with `confluent.placement.constraints` are looked at, and each partition
gets the observers that these want: those that fit stay, those that do not are let go, and brokers
that are active, not cordoned and carry least become new ones. Rules kept: a partition whose
replicas move, or are not as constrained yet, keeps its observers, since a plan may be about to make
replicas of them without a copy; a rack with too few brokers gets as many observers as it has
brokers for; observers are in no ISR, so nothing here touches what is acknowledged. At most
MOST_A_LOOK partitions change a look. Cost: a look at each constrained topic, and at the partitions
of those that changed; at all of theirs when a broker came, left, moved or was cordoned.

A topic whose constraints are taken away keeps the observers that it has. Trade-off: a replica that
becomes an observer leaves first, and copies again.

Source: document row R9. Not here: replicas (a plan moves them, `constraint_plan.py`).
"""

from __future__ import annotations

from collections import Counter

from anabranch.core.controller.cluster_state import ClusterState
from anabranch.core.controller.cordoning import cordoned
from anabranch.core.controller.features import may_write
from anabranch.core.controller.image import MetadataImage, PartitionImage, TopicImage
from anabranch.core.controller.observers import set_observers
from anabranch.core.controller.result import Reason, Result
from anabranch.core.placement.constraints import Constraints, choose, in_racks
from anabranch.core.placement.placer import UsableBroker
from anabranch.core.wire.metadata_records import MetadataRecord, ReplicaRolesRecord

INTERVAL_MS = 500
"""Between two looks."""
MOST_LOOKED = 10_000
"""Partitions after which a look ends with the topic that it is at: some 10 ms."""
MOST_A_LOOK = 100
"""Partitions that get other observers at once: each new one copies from the beginning."""

Places = tuple[tuple[int, str | None, bool, bool], ...]
"""Of each broker: id, rack, whether it is active, whether it is cordoned."""


class Observing:
    """When observers are looked after next, on the steady clock, and what needs no look."""

    def __init__(self, now_ms: int) -> None:
        self.due_ms = now_ms + INTERVAL_MS
        self._places: Places = ()
        self._settled: dict[str, tuple[TopicImage, Constraints]] = {}
        """Topics, as they were when nothing was left to do for them."""

    def due(self, state: ClusterState, now_ms: int) -> Result[None] | None:
        """The changes that are due now, if there are any."""
        if now_ms < self.due_ms:
            return None
        self.due_ms = now_ms + INTERVAL_MS
        image = state.image
        if not state.racks.constrained or not may_write(image, ReplicaRolesRecord):
            return None
        places = _places(image)
        if places != self._places:
            self._places = places
            self._settled = {}
        look = _Look(state, places)
        for name, constraints in sorted(state.racks.constrained.items()):
            topic = image.topics_by_id[image.topic_ids_by_name[name]]
            settled = self._settled.get(name)
            if settled is not None and settled[0] is topic and settled[1] is constraints:
                continue
            if look.leaves_nothing(topic, constraints):
                self._settled[name] = topic, constraints
            if look.is_over:
                break
        records = tuple(look.records)
        return Result(records, None, tuple(look.reasons)) if records else None


class _Look:
    """One look at some topics: what it changes, and what brokers carry after that."""

    def __init__(self, state: ClusterState, places: Places) -> None:
        self.records: list[MetadataRecord] = []
        self.reasons: list[Reason] = []
        self._state = state
        self._looked = 0
        self._racks = {broker_id: rack for broker_id, rack, _, _ in places}
        self._open = [
            UsableBroker(broker_id, rack, fenced=False)
            for broker_id, rack, active, closed in places
            if active and not closed
        ]
        self._carried = Counter(state.replica_count)
        self._carried.update(state.observed_count)

    @property
    def is_over(self) -> bool:
        """Whether enough was looked at, or changed, in one go."""
        return self._looked >= MOST_LOOKED or len(self.records) >= MOST_A_LOOK

    def leaves_nothing(self, topic: TopicImage, constraints: Constraints) -> bool:
        """Look at one topic; whether there was nothing to change."""
        before = len(self.records)
        for index in sorted(topic.partitions):
            partition = topic.partitions[index]
            self._looked += 1
            wanted = self._wanted(partition, constraints)
            if wanted == partition.observers:
                continue
            if len(self.records) >= MOST_A_LOOK:
                return False
            result = set_observers(self._state, topic.name, index, wanted)
            self.records += result.records
            self.reasons += result.reasons
            self._carried.update(each for each in wanted if each not in partition.observers)
        return len(self.records) == before

    def _wanted(self, partition: PartitionImage, constraints: Constraints) -> tuple[int, ...]:
        """Who should observe the partition."""
        racks, observers = self._racks, partition.observers
        moves = partition.adding or partition.removing
        if moves or in_racks(partition.replicas, racks) != constraints.replicas:
            return observers
        if in_racks(observers, racks) == constraints.observers:
            return observers
        wanted: list[int] = []
        for rack, count in constraints.observers.items():
            stays = [each for each in observers if racks.get(each) == rack][:count]
            taken = (*partition.replicas, *observers)
            wanted += stays
            wanted += choose(self._open, rack, count - len(stays), taken, self._carried)
        return tuple(wanted)


def _places(image: MetadataImage) -> Places:
    closed = cordoned(image)
    return tuple(
        (broker_id, broker.rack, broker.active, broker_id in closed)
        for broker_id, broker in sorted(image.brokers.items())
    )
