"""What the active controller knows beside the image: indexes that make a decision cost what it
touches.

What: the newest planned image, and for each broker the partitions in whose ISR or ELR it is, the
number it leads, the number it should lead and those of them that it does not; the partitions
without a leader, those whose replicas move, how wide replica lists spread over racks, and topic
names that could collide. Why: fencing a broker among a million partitions must not look at a
million partitions. Rule kept: everything here follows from the image: `ClusterState.of(image)`
equals the state advanced record by record. One thing looks at every partition: a broker with
replicas that shows another rack than before, or is forgotten.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Set
from typing import TypeAlias

from anabranch.core.controller.image import (
    RESOURCE_TOPIC,
    ConfigKey,
    MetadataDelta,
    MetadataImage,
    PartitionImage,
)
from anabranch.core.controller.reassignment import Move
from anabranch.core.controller.replay import replay_batch
from anabranch.core.placement.constraints import SETTING as CONSTRAINTS
from anabranch.core.placement.racks import Spread, spread_of
from anabranch.core.types import TopicId
from anabranch.core.wire.metadata_records import MetadataRecord, RegisterBrokerRecord

PartitionKey: TypeAlias = tuple[TopicId, int]
Index: TypeAlias = dict[int, dict[PartitionKey, None]]


def collision_form(name: str) -> str:
    """Two names with equal forms would have equal metric names: '.' and '_' are one there."""
    return name.replace(".", "_")


class ClusterState:
    """One image and its indexes; advanced by records, never otherwise changed."""

    def __init__(self) -> None:
        self.image = MetadataImage.empty()
        self.in_isr: Index = defaultdict(dict)
        self.in_elr: Index = defaultdict(dict)
        self.led_count: dict[int, int] = defaultdict(int)
        self.replica_count: dict[int, int] = defaultdict(int)
        self.preferred_count: dict[int, int] = defaultdict(int)
        """Partitions by the first broker of their replica lists."""
        self.observed_count: Counter[int] = Counter()
        """Partitions that a broker observes."""
        self.away: Index = defaultdict(dict)
        """Those of them that another broker leads, or nobody."""
        self.leaderless: dict[PartitionKey, None] = {}
        self.moving: dict[PartitionKey, None] = {}
        """Partitions of which replicas come or go."""
        self.short: dict[PartitionKey, None] = {}
        """Partitions that wait for brokers for some of their replicas."""
        self.missing_count = 0
        """Replicas of them that no broker has."""
        self.spreads: Counter[Spread] = Counter()
        """Partitions by how wide they spread over racks."""
        self.constrained: dict[str, None] = {}
        """Names of topics with placement constraints."""
        self.colliding: dict[str, set[str]] = {}
        self.registration_offsets: dict[int, int] = {}
        self.steps = 0
        """Partitions looked at so far: what the cost test counts."""

    @classmethod
    def of(cls, image: MetadataImage) -> ClusterState:
        """The state that belongs to an image: one pass over everything, on taking office."""
        state = cls()
        state.image = image
        for topic_id in sorted(image.topics_by_id):  # the order in which records are made from it
            topic = image.topics_by_id[topic_id]
            state._name_appears(topic.name)
            for index, partition in topic.partitions.items():
                state._appears((topic.topic_id, index), partition)
        state._constrained(image.configs)
        state.registration_offsets = {b.broker_id: b.epoch for b in image.brokers.values()}
        return state

    def advance(self, batch: Iterable[MetadataRecord], offset: int, epoch: int) -> MetadataDelta:
        """Apply a batch whose last record has `offset`."""
        records = tuple(batch)
        before = self.image
        self.image, delta = replay_batch(before, records, offset, epoch)
        for record in records:
            if type(record) is RegisterBrokerRecord:
                self.registration_offsets[record.broker_id] = offset
        self._follow(before, delta)
        return delta

    def partition(self, key: PartitionKey) -> PartitionImage:
        """The partition an index entry names."""
        self.steps += 1
        return self.image.topics_by_id[key[0]].partitions[key[1]]

    @property
    def rack_violations(self) -> int:
        """Partitions in fewer racks than they could be in."""
        there = len({broker.rack for broker in self.image.brokers.values() if broker.rack})
        return sum(count for spread, count in self.spreads.items() if spread.violates(there))

    def topic_name(self, key: PartitionKey) -> str:
        """The topic's name of an index entry."""
        return self.image.topics_by_id[key[0]].name

    def _follow(self, before: MetadataImage, delta: MetadataDelta) -> None:
        racks_moved = self._racks_moved(before, delta.changed_brokers)
        for topic in delta.deleted_topics:
            old = before.topics_by_id[topic.topic_id]
            self._name_disappears(old.name)
            self.constrained.pop(old.name, None)
            for index, partition in old.partitions.items():
                self._disappears((old.topic_id, index), partition)
        for topic_id in delta.created_topics:
            self._name_appears(self.image.topics_by_id[topic_id].name)
        for topic_id, indexes in delta.changed_partitions.items():
            old_topic = before.topics_by_id.get(topic_id)
            partitions = self.image.topics_by_id[topic_id].partitions
            for index in indexes:
                was = None if old_topic is None else old_topic.partitions.get(index)
                if was is not None:
                    self._disappears((topic_id, index), was)
                self._appears((topic_id, index), partitions[index])
        self._constrained(delta.changed_configs)
        if racks_moved:
            topics = self.image.topics_by_id.values()
            every = (partition for topic in topics for partition in topic.partitions.values())
            self.spreads = Counter(map(self._spread, every))

    def _constrained(self, changed: Iterable[ConfigKey]) -> None:
        for kind, name in changed:
            if kind == RESOURCE_TOPIC and name in self.image.topic_ids_by_name:
                if self.image.config(kind, name).get(CONSTRAINTS):
                    self.constrained[name] = None
                else:
                    self.constrained.pop(name, None)

    def _racks_moved(self, before: MetadataImage, changed: Set[int]) -> bool:
        """Whether replicas stand in other racks although they have not moved."""
        for broker_id in changed:
            was, now = before.brokers.get(broker_id), self.image.brokers.get(broker_id)
            old, new = was and was.rack, now and now.rack
            if (old or None) != (new or None) and self.replica_count[broker_id]:
                return True
        return False

    def _spread(self, partition: PartitionImage) -> Spread:
        brokers = self.image.brokers
        target = Move.of(partition).target if partition.removing else partition.replicas
        return spread_of(brokers[each].rack if each in brokers else None for each in target)

    def _appears(self, key: PartitionKey, partition: PartitionImage) -> None:
        self.steps += 1
        for broker_id in partition.isr:
            self.in_isr[broker_id][key] = None
        for broker_id in partition.elr:
            self.in_elr[broker_id][key] = None
        for broker_id in partition.replicas:
            self.replica_count[broker_id] += 1
        self.observed_count.update(partition.observers)
        preferred = partition.replicas[0]
        self.preferred_count[preferred] += 1
        if partition.leader != preferred:
            self.away[preferred][key] = None
        if partition.adding or partition.removing:
            self.moving[key] = None
        self.spreads[self._spread(partition)] += 1
        if partition.missing:
            self.short[key] = None
            self.missing_count += partition.missing
        if partition.leader < 0:
            self.leaderless[key] = None
        else:
            self.led_count[partition.leader] += 1

    def _disappears(self, key: PartitionKey, partition: PartitionImage) -> None:
        self.steps += 1
        for broker_id in partition.isr:
            self.in_isr[broker_id].pop(key, None)
        for broker_id in partition.elr:
            self.in_elr[broker_id].pop(key, None)
        for broker_id in partition.replicas:
            self.replica_count[broker_id] -= 1
        self.observed_count.subtract(partition.observers)
        preferred = partition.replicas[0]
        self.preferred_count[preferred] -= 1
        self.away[preferred].pop(key, None)
        self.moving.pop(key, None)
        self.short.pop(key, None)
        self.missing_count -= partition.missing
        spread = self._spread(partition)
        self.spreads[spread] -= 1
        if not self.spreads[spread]:
            del self.spreads[spread]
        if partition.leader < 0:
            self.leaderless.pop(key, None)
        else:
            self.led_count[partition.leader] -= 1

    def _name_appears(self, name: str) -> None:
        if "." in name or "_" in name:
            self.colliding.setdefault(collision_form(name), set()).add(name)

    def _name_disappears(self, name: str) -> None:
        form = collision_form(name)
        names = self.colliding.get(form)
        if names is not None:
            names.discard(name)
            if not names:
                del self.colliding[form]
