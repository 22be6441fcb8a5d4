"""What the active controller knows beside the image: indexes that make a decision cost what it
touches.

What: the newest planned image, and for each broker the partitions in whose ISR or ELR it is, the
number it leads, the number it should lead and those of them that it does not; the partitions
without a leader, those whose replicas move, how wide replica lists spread over racks, and topic
names that could collide. Why: fencing a broker among a million partitions must not look at a
million partitions. Rule kept: everything here follows from the image: `ClusterState.of(image)`
equals the state advanced record by record. What racks cost is said in
`core/controller/partitions/rack_counts.py`.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import TypeAlias

from anabranch.core.controller.diskless.index import DisklessIndex
from anabranch.core.controller.partitions.rack_counts import RackCounts
from anabranch.core.diskless.migration import migrating, phase_in
from anabranch.core.diskless.topics import is_diskless
from anabranch.core.metadata.image import (
    RESOURCE_TOPIC,
    MetadataDelta,
    MetadataImage,
    PartitionImage,
)
from anabranch.core.metadata.replay import replay_batch
from anabranch.core.types import TopicId
from anabranch.core.wire.metadata_records import (
    MetadataRecord,
    RegisterBrokerRecord,
    UnregisterBrokerRecord,
)

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
        self.racks = RackCounts()
        self.migrating: dict[str, None] = {}
        """Names of classic topics that become diskless."""
        self.diskless = DisklessIndex()
        """Diskless partitions, which are in neither `in_isr` nor `in_elr`."""
        self.colliding: dict[str, set[str]] = {}
        self.registration_offsets: dict[int, int] = {}
        self.steps = 0
        """Partitions looked at so far: what the cost test counts."""

    @classmethod
    def of(cls, image: MetadataImage) -> ClusterState:
        """The state that belongs to an image: one pass over everything, when a term begins."""
        state = cls()
        state.image = image
        state.racks = RackCounts.of(image)
        for topic_id in sorted(image.topics_by_id):  # the order in which records are made from it
            topic = image.topics_by_id[topic_id]
            state._name_appears(topic.name)
            diskless = is_diskless(image, topic.name)
            for index, partition in topic.partitions.items():
                state._appears((topic.topic_id, index), partition, diskless=diskless)
                state.racks.appears(topic.name, partition)
        state.migrating = {name: None for name, _ in migrating(image)}
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
            elif type(record) is UnregisterBrokerRecord:
                self.registration_offsets.pop(record.broker_id, None)
        self._follow(before, delta)
        return delta

    def partition(self, key: PartitionKey) -> PartitionImage:
        """The partition an index entry names."""
        self.steps += 1
        return self.image.topics_by_id[key[0]].partitions[key[1]]

    def topic_name(self, key: PartitionKey) -> str:
        """The topic's name of an index entry."""
        return self.image.topics_by_id[key[0]].name

    def _follow(self, before: MetadataImage, delta: MetadataDelta) -> None:
        racks = self.racks
        racks_moved = racks.follow_brokers(self.image, delta.changed_brokers, self.replica_count)
        for topic in delta.deleted_topics:
            old = before.topics_by_id[topic.topic_id]
            self._name_disappears(old.name)
            for index, partition in old.partitions.items():
                self._disappears((old.topic_id, index), partition)
                racks.disappears(old.name, partition)
            racks.forget(old.name)
        racks.follow_configs(before, self.image, delta.changed_configs)
        self._follow_migrations(delta)
        for topic_id in delta.created_topics:
            self._name_appears(self.image.topics_by_id[topic_id].name)
        for topic_id, indexes in delta.changed_partitions.items():
            old_topic = before.topics_by_id.get(topic_id)
            topic = self.image.topics_by_id[topic_id]
            diskless = is_diskless(self.image, topic.name)
            for index in indexes:
                was = None if old_topic is None else old_topic.partitions.get(index)
                key, partition = (topic_id, index), topic.partitions[index]
                if was is None:
                    self._appears(key, partition, diskless=diskless)
                else:
                    racks.disappears(topic.name, was)
                    self._changes(key, was, partition, diskless=diskless)
                racks.appears(topic.name, partition)
        if racks_moved:
            self.racks.count_anew(self.image)

    def _appears(self, key: PartitionKey, partition: PartitionImage, *, diskless: bool) -> None:
        if diskless:
            self.diskless.appears(key, partition)
        else:
            for broker_id in partition.isr:
                self.in_isr[broker_id][key] = None
            for broker_id in partition.elr:
                self.in_elr[broker_id][key] = None
        self._count(key, partition)

    def _follow_migrations(self, delta: MetadataDelta) -> None:
        for kind, name in delta.changed_configs:
            if kind == RESOURCE_TOPIC:
                self.migrating.pop(name, None)
                if phase_in(self.image.config(kind, name)) is not None:
                    self.migrating[name] = None

    def _changes(
        self, key: PartitionKey, was: PartitionImage, partition: PartitionImage, *, diskless: bool
    ) -> None:
        if key in self.diskless.keys:
            self._uncount(key, was)
            self.diskless.changes(key, was, partition)
            self._count(key, partition)
        else:
            self._disappears(key, was)
            self._appears(key, partition, diskless=diskless)

    def _count(self, key: PartitionKey, partition: PartitionImage) -> None:
        self.steps += 1
        for broker_id in partition.replicas:
            self.replica_count[broker_id] += 1
        for broker_id in partition.observers:
            self.observed_count[broker_id] += 1
        preferred = partition.replicas[0]
        self.preferred_count[preferred] += 1
        if partition.leader != preferred:
            self.away[preferred][key] = None
        if partition.adding or partition.removing:
            self.moving[key] = None
        if partition.missing:
            self.short[key] = None
            self.missing_count += partition.missing
        if partition.leader < 0:
            self.leaderless[key] = None
        else:
            self.led_count[partition.leader] += 1

    def _disappears(self, key: PartitionKey, partition: PartitionImage) -> None:
        if key in self.diskless.keys:
            self.diskless.disappears(key, partition)
        else:
            for broker_id in partition.isr:
                self.in_isr[broker_id].pop(key, None)
            for broker_id in partition.elr:
                self.in_elr[broker_id].pop(key, None)
        self._uncount(key, partition)

    def _uncount(self, key: PartitionKey, partition: PartitionImage) -> None:
        self.steps += 1
        for broker_id in partition.replicas:
            self.replica_count[broker_id] -= 1
        for broker_id in partition.observers:
            self.observed_count[broker_id] -= 1
        preferred = partition.replicas[0]
        self.preferred_count[preferred] -= 1
        self.away[preferred].pop(key, None)
        self.moving.pop(key, None)
        self.short.pop(key, None)
        self.missing_count -= partition.missing
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
