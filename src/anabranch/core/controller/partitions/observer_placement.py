"""Observers follow the placement constraints of their topic: what a controller does by the clock.

What: every so often topics with `confluent.placement.constraints` are looked at, and each partition
gets the observers that these want: those that fit stay, those that do not are let go, and brokers
that are active, not cordoned and carry least become new ones. Rules kept: a partition whose
replicas move, or are not as constrained yet, keeps its observers, since a plan may be about to make
replicas of them without a copy; a rack with too few brokers gets as many observers as it has
brokers for; observers are in no ISR, so nothing here touches what is acknowledged. At most
MOST_LOOKED partitions are looked at and MOST_A_LOOK change a look; the next one goes on behind
them, so that no topic, however large and restless, keeps the others waiting. Cost: a look at each
constrained topic, and at the partitions of those that changed; at all of theirs when a broker came,
left, moved or was cordoned.

A topic whose constraints are taken away keeps the observers that it has. Trade-off: a replica that
becomes an observer leaves first, and copies again.

Source: decision 0029. Not here: replicas (a plan moves them, `constraint_plan.py`).
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter

from anabranch.core.controller.brokers.cordons import cordoned
from anabranch.core.controller.cluster_state import ClusterState
from anabranch.core.controller.partitions.observers import set_observers
from anabranch.core.controller.result import Reason, Result
from anabranch.core.metadata.features import may_write
from anabranch.core.metadata.image import MetadataImage, PartitionImage, TopicImage
from anabranch.core.placement.constraints import Constraints, choose, in_racks
from anabranch.core.placement.placer import UsableBroker
from anabranch.core.wire.metadata_records import MetadataRecord, ReplicaRolesRecord

INTERVAL_MS = 500
"""Between two looks."""
MOST_LOOKED = 10_000
"""Partitions after which a look ends: some 10 ms."""
MOST_A_LOOK = 100
"""Partitions that get other observers at once: each new one copies from the beginning."""

Places = tuple[tuple[int, str | None, bool, bool], ...]
"""Of each broker: id, rack, whether it is active, whether it is cordoned."""
Seen = tuple[TopicImage, Constraints]
"""A topic as it was looked at; it is another one whenever anything of it has changed."""


class ObserverDuty:
    """When observers are looked after next, on the steady clock, and what needs no look."""

    def __init__(self, now_ms: int) -> None:
        self.due_ms = now_ms + INTERVAL_MS
        self._places: Places = ()
        self._settled: dict[str, Seen] = {}
        """Topics, as they were when nothing was left to do for them."""
        self._next: tuple[str, int] = "", 0
        """The topic and partition that the next look begins with."""
        self._passing: Seen | None = None
        """That topic when its first partition was looked at; None once one had to change."""

    def due(self, state: ClusterState, now_ms: int) -> Result[None] | None:
        """The changes that are due now, if there are any."""
        if now_ms < self.due_ms:
            return None
        self.due_ms = now_ms + INTERVAL_MS
        for name in self._settled.keys() - state.racks.constrained.keys():
            del self._settled[name]
        image = state.image
        if not state.racks.constrained or not may_write(image, ReplicaRolesRecord):
            return None
        places = _places(image)
        if places != self._places:
            self._places = places
            self._settled = {}
            self._passing = None
        look = _Look(state, places)
        self._next = self._go_round(look, state)
        records = tuple(look.records)
        return Result(records, None, tuple(look.reasons)) if records else None

    def _go_round(self, look: _Look, state: ClusterState) -> tuple[str, int]:
        """Look at each topic that is not settled, from where the last look ended; where this one
        did."""
        image = state.image
        begin, first = self._next
        names = sorted(state.racks.constrained)
        cut = bisect_left(names, begin)
        for name in names[cut:] + names[:cut]:
            topic = image.topics_by_id[image.topic_ids_by_name[name]]
            seen = topic, state.racks.constrained[name]
            if _is(self._settled.get(name), seen):
                continue
            index = first if name == begin else 0
            if index == 0:
                self._passing = seen
            before = len(look.records)
            beyond = look.pass_over(*seen, index)
            if len(look.records) > before:
                self._passing = None
            if beyond is not None:
                return name, beyond
            if _is(self._passing, seen):
                self._settled[name] = seen
        return "", 0


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

    def pass_over(self, topic: TopicImage, constraints: Constraints, first: int) -> int | None:
        """Look at a topic's partitions from `first` on; the one to go on with, None at the end."""
        indexes = sorted(topic.partitions)
        for index in indexes[bisect_left(indexes, first) :]:
            if self.is_over:
                return index
            partition = topic.partitions[index]
            self._looked += 1
            wanted = self._wanted(partition, constraints)
            if wanted == partition.observers:
                continue
            result = set_observers(self._state, topic.name, index, wanted)
            self.records += result.records
            self.reasons += result.reasons
            self._carried.update(each for each in wanted if each not in partition.observers)
        return None

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


def _is(known: Seen | None, seen: Seen) -> bool:
    return known is not None and known[0] is seen[0] and known[1] is seen[1]


def _places(image: MetadataImage) -> Places:
    closed = cordoned(image)
    return tuple(
        (broker_id, broker.rack, broker.active, broker_id in closed)
        for broker_id, broker in sorted(image.brokers.items())
    )
