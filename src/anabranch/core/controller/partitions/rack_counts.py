"""How many partitions are in fewer racks than they could be: counted as they change.

What: `RackCounts` keeps a number for each `Spread` that occurs, and the placement constraints of
topics that have some: what these ask for is no violation, and anything else is one. Rules kept: it
follows from the image; a change costs the partitions that it touches, and a rack that comes or goes
nothing. Two things cost more, and are rare: constraints of a topic change (its partitions), and a
broker that has replicas shows another rack than before, or is forgotten (all partitions).

Source: decisions 0026, 0029. Not here: what a violation is (`core/placement/racks.py`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from anabranch.core.controller.moves.reassignment import Move
from anabranch.core.metadata.image import (
    RESOURCE_TOPIC,
    ConfigKey,
    MetadataImage,
    PartitionImage,
    TopicImage,
)
from anabranch.core.placement.constraints import (
    SETTING,
    Constraints,
    ConstraintsFault,
    read_constraints,
)
from anabranch.core.placement.racks import Spread, spread_of


class RackCounts:
    """Partitions by spread, and topics with constraints."""

    def __init__(self) -> None:
        self.spreads: Counter[tuple[int, int]] = Counter()
        self.constrained: dict[str, Constraints] = {}
        """Placement constraints by topic name."""
        self._racks: dict[int, str | None] = {}

    @classmethod
    def of(cls, image: MetadataImage) -> RackCounts:
        """The counts of an image, before its partitions have appeared."""
        made = cls()
        made._racks = {each.broker_id: each.rack or None for each in image.brokers.values()}
        for kind, name in image.configs:
            made._take(image, kind, name)
        return made

    @property
    def violations(self) -> int:
        """Partitions in fewer racks than they could be in, or not as constrained."""
        there = len(set(self._racks.values()) - {None})
        return sum(n for spread, n in self.spreads.items() if Spread(*spread).violates(there))

    def appears(self, name: str, partition: PartitionImage) -> None:
        """A partition of that topic is counted."""
        self.spreads[self._spread(name, partition)] += 1

    def disappears(self, name: str, partition: PartitionImage) -> None:
        """A partition of that topic is counted no more."""
        spread = self._spread(name, partition)
        self.spreads[spread] -= 1
        if not self.spreads[spread]:
            del self.spreads[spread]

    def forget(self, name: str) -> None:
        """The topic is gone, its partitions before it."""
        self.constrained.pop(name, None)

    def follow_configs(
        self, before: MetadataImage, image: MetadataImage, changed: Iterable[ConfigKey]
    ) -> None:
        """Constraints came, changed or went; partitions are those of `before` still."""
        for kind, name in changed:
            old = self.constrained.get(name)
            topic = before.topic(name)
            stays = topic is not None and topic.topic_id in image.topics_by_id
            if kind == RESOURCE_TOPIC and self._take(image, kind, name) and topic and stays:
                self._recount(topic, old)

    def _take(self, image: MetadataImage, kind: int, name: str) -> bool:
        """Take a topic's constraints over; whether they are others than before."""
        if kind != RESOURCE_TOPIC or name not in image.topic_ids_by_name:
            return False
        old = self.constrained.pop(name, None)
        try:
            new = read_constraints(image.config(kind, name).get(SETTING, ""))
        except ConstraintsFault:
            new = None
        if new is not None:
            self.constrained[name] = new
        return new != old

    def _recount(self, topic: TopicImage, old: Constraints | None) -> None:
        new = self.constrained.pop(topic.name, None)
        for constraints, count in ((old, self.disappears), (new, self.appears)):
            self.forget(topic.name)
            if constraints is not None:
                self.constrained[topic.name] = constraints
            for partition in topic.partitions.values():
                count(topic.name, partition)

    def follow_brokers(
        self, image: MetadataImage, changed: Iterable[int], carried: Mapping[int, int]
    ) -> bool:
        """Take racks over; whether partitions must be counted anew, since `carried` says that a
        broker in another rack than before has replicas."""
        moved = False
        for broker_id in changed:
            broker = image.brokers.get(broker_id)
            rack = None if broker is None else broker.rack or None
            if self._racks.get(broker_id) != rack:
                moved = moved or carried.get(broker_id, 0) > 0
            self._racks.pop(broker_id, None)
            if broker is not None:
                self._racks[broker_id] = rack
        return moved

    def count_anew(self, image: MetadataImage) -> None:
        """Count every partition."""
        self.spreads.clear()
        for topic in image.topics_by_id.values():
            for partition in topic.partitions.values():
                self.appears(topic.name, partition)

    def _spread(self, name: str, partition: PartitionImage) -> tuple[int, int]:
        """A `Spread`, as a bare tuple: whoever takes over makes one for each partition."""
        target = Move.of(partition).target if partition.removing else partition.replicas
        if self.constrained and name in self.constrained:
            return spread_of(map(self._racks.get, target), self.constrained[name].replicas)
        racks = set(map(self._racks.get, target))
        if None in racks:
            return spread_of(map(self._racks.get, target))
        return len(target), len(racks)
