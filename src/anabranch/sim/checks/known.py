"""What is known of all logs: each partition's committed batches, and each node's copies of it.

What: `LogKnowledge` holds the truth of every partition (`truth.py`) and the seat of every node
(`seat.py`), and answers what several checks ask of them. Rule kept: of a copy of which nothing is
certain, nothing is said. Not here: any judgement (`logs.py`, `replicas.py`, `committed.py`).
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING

from anabranch.core.coordination.groups.offsets_topic import OFFSETS_TOPIC
from anabranch.core.coordination.transactions.topic import TRANSACTION_TOPIC
from anabranch.core.types import ZERO_TOPIC_ID, TopicId, TopicPartition
from anabranch.sim.checks.compacted import Compacted
from anabranch.sim.checks.copies import Copy
from anabranch.sim.checks.entries import Entry
from anabranch.sim.checks.marks import Marks
from anabranch.sim.checks.model import (
    COMPACTS,
    DELETES,
    POLICY,
    REMOTE_STORAGE,
    TOMBSTONES_STAY_MS,
    Key,
    Model,
    means_true,
)
from anabranch.sim.checks.seat import Seat
from anabranch.sim.checks.truth import Truth

if TYPE_CHECKING:
    from anabranch.core.replication.replica import Replica

A_DAY_MS = "86400000"
"""delete.retention.ms where nothing else is said."""


class LogKnowledge:
    """See the module."""

    def __init__(self, model: Model, marks: Marks) -> None:
        self.model = model
        self.marks = marks
        self.seats: dict[int, Seat] = {}
        self.truths: dict[Key, Truth] = {}
        self.compacted_logs: dict[Key, Compacted] = {}
        """What the batches had of the partitions whose topics are compacted."""
        self.places: dict[TopicPartition, Truth] = {}
        self.deletes_asked: set[TopicPartition] = set()
        """Partitions of which an operator has deleted records, or has tried to."""
        self.altered: frozenset[str] = frozenset()
        """Topics whose settings change, so that they may be compacted later."""
        self.born_deleting: set[Key] = set()
        """Partitions of topics whose settings change, and which were not compacted at first."""
        self.counts_passes = False
        """Whether it is told of each pass of compaction."""

    def truth(self, key: Key) -> Truth:
        """The truth of a partition, made when it is first asked for."""
        truth = self.truths.get(key)
        if truth is None:
            place = self.model.place(key)
            truth = Truth(key, has_offsets=place.topic == OFFSETS_TOPIC)
            policy = self.model.setting(key, POLICY, DELETES)
            if COMPACTS not in policy and place.topic in self.altered:
                self.born_deleting.add(key)
            if COMPACTS in policy or place.topic in self.altered:
                self.compacted_logs[key] = Compacted(
                    truth, lambda: self._tombstones_stay_ms(key), self._coordinator_lost
                )
                if self.counts_passes:
                    self.compacted_logs[key].installed_upto = 0
            truth.expires = self.model.expires(key)
            truth.has_remote = means_true(self.model.setting(key, REMOTE_STORAGE, ""))
            self.truths[key] = self.places[place] = truth
        return truth

    def key_of(self, replica: Replica) -> Key:
        """The partition that a replica is of."""
        return replica.topic_id, replica.topic_partition.partition

    def truth_of(self, place: TopicPartition, topic_id: TopicId = ZERO_TOPIC_ID) -> Truth | None:
        """The partition of that name that clients meant; the newest when they did not know."""
        if topic_id == ZERO_TOPIC_ID:
            return self.places.get(place)
        return self.truths.get((topic_id, place.partition))

    def was_compacted(self, place: TopicPartition, topic_id: TopicId) -> bool:
        """Whether a pass of compaction may have taken anything of a partition."""
        truth = self.truth_of(place, topic_id)
        compacted = None if truth is None else self.compacted_logs.get(truth.key)
        return compacted is None or compacted.installed_upto != 0

    def belongs_to(self, node_id: int, key: Key) -> bool:
        """Whether the metadata give a node a partition."""
        partition = self.model.partitions.get(key)
        return partition is not None and node_id in (*partition.replicas, *partition.observers)

    def missing(self, node_id: int, key: Key, entries: list[Entry]) -> Entry | None:
        """The first of these that a replica lacks for certain."""
        copy = self.certain(node_id, key)
        if copy is None:
            return None
        begins = copy.local_start if copy.truth.has_remote else copy.known_start
        have, start = copy.entries, copy.truth.needed_from(begins)
        for entry in entries:
            if entry.end <= start:
                continue
            at = bisect_left(have, entry)
            if at == len(have) or have[at] != entry:
                return entry
        return None

    def lacks(self, node_id: int, key: Key, start: int, upto: int) -> Entry | None:
        """The first committed batch of a range that a replica lacks for certain."""
        copy = self.certain(node_id, key)
        return None if copy is None else copy.lacks(start, upto)

    def other_than_deleted(self, node_id: int, key: Key) -> Entry | None:
        """The first batch of a replica, for certain, in whose place another one was committed
        before it was deleted."""
        copy = self.certain(node_id, key)
        if copy is None or copy.replica is None or copy.is_rotten:
            return None
        return copy.truth.other_than_deleted(copy.entries, copy.start)

    def certain(self, node_id: int, key: Key) -> Copy | None:
        """A replica's copy, if it is known what it has and the metadata mean its present life."""
        seat = self.seats.get(node_id)
        copy = seat.copies.get(key) if seat is not None else None
        registered = self.model.brokers.get(node_id)
        if copy is None or not copy.is_sure or registered is None:
            return None
        return copy if copy.node.broker.broker_epoch == registered.epoch else None

    def _coordinator_lost(self) -> bool:
        """Whether a recorded rule took records from the log of a transaction coordinator."""
        return any(
            truth.losses or truth.forks
            for place, truth in self.places.items()
            if place.topic == TRANSACTION_TOPIC
        )

    def _tombstones_stay_ms(self, key: Key) -> int:
        return int(self.model.setting(key, TOMBSTONES_STAY_MS, A_DAY_MS))
