"""Partitions that the cluster places: the placer that was chosen, and what comes with its lists.

What: `TopicPlacement` serves one request. A topic with placement constraints goes by them; for
others it asks the placer that the topic names, else the cluster's; diskless topics are placed by
`core/placement/managed.py`. It makes the records: the partitions, their observers, the replicas
that no broker can take yet (KIP-409), and where computed assignment goes on. Rule kept: topics of
one request see what those before them took, and a topic that fails takes nothing.

Not here: the placers (`core/placement`), lists given by hand (`assignments.py`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import chain
from random import Random
from typing import NamedTuple

from anabranch.core.controller.brokers.cordons import said_of
from anabranch.core.controller.brokers.membership import usable_brokers
from anabranch.core.controller.cluster_state import ClusterState
from anabranch.core.controller.topics.assignments import (
    PartitionMaker,
    invalid_assignment,
    room_for,
)
from anabranch.core.errors import ClientFault, ErrorCode
from anabranch.core.metadata.features import check_own_record
from anabranch.core.metadata.image import UNASSIGNED_DIRECTORY
from anabranch.core.placement.constraints import Constraints, first_unmet, place_constrained
from anabranch.core.placement.managed import managed
from anabranch.core.placement.placer import Ask, Loads, Placement, UsableBroker, place
from anabranch.core.placement.placers import CHAINED, PLACERS
from anabranch.core.sentences import number_of
from anabranch.core.settings.broker import BrokerConfig
from anabranch.core.settings.topic import TopicConfig
from anabranch.core.types import TopicId
from anabranch.core.wire.metadata_records import (
    MetadataRecord,
    MissingReplicasRecord,
    PartitionRecord,
    PlacementCursorRecord,
    ReplicaRolesRecord,
)

NO_FACTOR = -1
"""A replication factor that was not asked for."""


class Placed(NamedTuple):
    """New partitions of a topic, the records that go with theirs, and what should be known."""

    partitions: list[PartitionRecord]
    more: list[MetadataRecord]
    remarks: tuple[str, ...] = ()
    missing: int = 0


class TopicPlacement:
    """Places the topics of one request."""

    def __init__(self, state: ClusterState, config: BrokerConfig, rng: Random) -> None:
        self._state = state
        self._config = config
        self._rng = rng
        self._maker = PartitionMaker(state.image)
        self._cursor = state.image.placement_cursor
        self._replicas = Counter(state.replica_count)
        self._leaders = Counter(state.preferred_count)
        self._carried = self._replicas + state.observed_count

    def place(
        self,
        topic_id: TopicId,
        topic: TopicConfig,
        count: int,
        factor: int,
        existing: Sequence[tuple[int, ...]] = (),
    ) -> Placed:
        """That many more partitions of a topic. Raises ClientFault."""
        image = self._state.image
        room = room_for(image, self._config, factor, topic.min_insync_replicas)
        placement = self._ask(topic, room.brokers, count, factor - room.missing, existing)
        partitions = self._partitions(topic_id, placement, len(existing))
        more: list[MetadataRecord] = [
            MissingReplicasRecord(
                partition_id=each.partition_id, topic_id=topic_id, missing=room.missing
            )
            for each in partitions
            if room.missing
        ]
        if placement.cursor != self._cursor:
            check_own_record(image, PlacementCursorRecord)
            more.append(PlacementCursorRecord(cursor=placement.cursor))
            self._cursor = placement.cursor
        self._take(placement)
        return Placed(partitions, more, placement.remarks, room.missing)

    def managed(self, topic_id: TopicId, count: int, first: int = 0) -> Placed:
        """That many more partitions, from index `first`, of a diskless topic. Raises
        ClientFault."""
        brokers = usable_brokers(self._state.image)
        loads = Loads(self._replicas, self._leaders)
        placement = managed(brokers, Ask(count, 0, loads=loads), self._rng)
        made = self._partitions(topic_id, placement, first)
        for each in made:
            each.directories = [UNASSIGNED_DIRECTORY] * len(each.replicas)
        self._take(placement)
        return Placed(made, [], placement.remarks)

    def constrained(
        self,
        topic_id: TopicId,
        constraints: Constraints,
        count: int,
        factor: int = NO_FACTOR,
        first: int = 0,
    ) -> Placed:
        """That many more partitions, from index `first`, of a topic with placement constraints.

        `factor` is what was asked for besides, if it was. Raises ClientFault.
        """
        image = self._state.image
        if factor not in (NO_FACTOR, constraints.replication_factor):
            raise ClientFault(
                ErrorCode.INVALID_REPLICATION_FACTOR,
                "The placement constraints require "
                f"{number_of(constraints.replication_factor, 'replica')}, "
                f"and replication factor {factor} was requested: omit it. Observers do not count.",
            )
        if constraints.observers:
            check_own_record(image, ReplicaRolesRecord)
        brokers = usable_brokers(image)
        unmet = first_unmet(brokers, constraints)
        if unmet is not None:
            raise invalid_assignment(unmet.sentence + said_of(image))
        carried, led = Counter(self._carried), Counter(self._leaders)
        rows = place_constrained(brokers, constraints, count, carried=carried, led=led)
        partitions = self._partitions(topic_id, Placement(rows.replicas, self._cursor), first)
        self._carried, self._leaders = carried, led
        self._replicas.update(chain.from_iterable(rows.replicas))
        more: list[MetadataRecord] = [
            ReplicaRolesRecord(
                partition_id=each.partition_id, topic_id=topic_id, observers=list(observers)
            )
            for each, observers in zip(partitions, rows.observers, strict=True)
            if observers
        ]
        return Placed(partitions, more)

    def _ask(
        self,
        topic: TopicConfig,
        brokers: Sequence[UsableBroker],
        count: int,
        factor: int,
        existing: Sequence[tuple[int, ...]],
    ) -> Placement:
        name = topic.replica_placer_class_name
        if name == CHAINED:
            check_own_record(self._state.image, PlacementCursorRecord)
        ask = Ask(
            count,
            factor,
            existing=existing,
            cursor=self._cursor,
            loads=Loads(self._replicas, self._leaders),
            ignore_racks=topic.ignore_rack_assignment,
        )
        try:
            return place(PLACERS[name], brokers, ask, self._rng)
        except ClientFault as fault:
            sentence = fault.message + said_of(self._state.image)
            raise ClientFault(fault.code, sentence) from None

    def _take(self, placement: Placement) -> None:
        """What was placed counts for what is placed after it."""
        self._replicas.update(chain.from_iterable(placement.rows))
        self._carried.update(chain.from_iterable(placement.rows))
        self._leaders.update(row[0] for row in placement.rows)

    def _partitions(
        self, topic_id: TopicId, placement: Placement, first: int
    ) -> list[PartitionRecord]:
        made: list[PartitionRecord] = []
        for index, replicas in enumerate(placement.rows, first):
            isr = self._maker.isr(replicas)
            if not isr:
                raise ClientFault(
                    ErrorCode.INVALID_REPLICATION_FACTOR,
                    "All brokers are currently fenced or in controlled shutdown.",
                )
            made.append(self._maker.record(topic_id, index, replicas, isr))
        return made
