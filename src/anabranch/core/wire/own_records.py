"""Metadata records that Kafka does not have: their ids, and from which feature level on they exist.

What: Anabranch's own records lie in the same log as Kafka's, in the same frame (see
metadata_records.py), with type ids from 10,000 up, which Kafka does not give. Upgrade rule: a
record is written when the cluster's level of `anabranch.records.version` is at least the record's
`since`, or goes up to it with that very record, which takes the support of every registered node;
so no node meets a record that it cannot read. A version of a record that adds to it gets a level of
its own in the same way. Every id that was ever meant for something stands in `OWN_RECORD_IDS`; none
is given twice.

Not here: what the records do to the image (`core/metadata/concerns/`).
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, NamedTuple

from anabranch.core.types import ZERO_TOPIC_ID
from anabranch.core.wire.schema import Bool, Int8, Int32, Int64, Message, String, Struct, TopicUuid

FIRST_OWN_ID = 10_000
RECORDS_FEATURE = "anabranch.records.version"
"""The feature whose level says which of these records may be written."""


class ReplicaRolesRecord(Message, type_id=10_000, versions="0", flexible="0+"):
    """Which brokers copy a partition without counting for it: the whole list, replacing any before.

    Observers are not in the partition's `replicas`; no epoch changes.
    """

    partition_id: Int32 = -1
    topic_id: TopicUuid = ZERO_TOPIC_ID
    observers: list[Int32] = []


class MissingReplicasRecord(Message, type_id=10_001, versions="0", flexible="0+"):
    """How many replicas a partition should have besides those that it names.

    `missing` are waited for. `suspended` were given up for a move under way, and are waited for
    again when it is taken back; when it is done they are forgotten. No epoch changes.
    """

    partition_id: Int32 = -1
    topic_id: TopicUuid = ZERO_TOPIC_ID
    missing: Int32 = 0
    suspended: Int32 = 0


class PlacementCursorRecord(Message, type_id=10_002, versions="0", flexible="0+"):
    """Where computed assignment goes on: partitions that it has placed so far."""

    cursor: Int64 = 0


class PlanMove(Struct):
    """One move of a plan, and why it was planned."""

    topic_id: TopicUuid = ZERO_TOPIC_ID
    partition_id: Int32 = -1
    before: list[Int32] = []
    after: list[Int32] = []
    why: String = ""
    because: String = ""


class PlanRecord(Message, type_id=10_003, versions="0", flexible="0+"):
    """A plan of moves, and its progress (`core/metadata/plan_state.py`, State).

    Another `plan_id` than before forgets the plan before; `NO_PLAN` forgets the only one.
    """

    plan_id: Int64 = 0
    goal: String = ""
    made_at_ms: Int64 = 0
    state: Int8 = 0
    backwards: Bool = False
    most_at_once: Int32 = 0
    throttle: Int64 = -1
    sentence: String = ""
    cordons: Annotated[list[Int32], "tag 0"] = []
    """Brokers that this plan has cordoned."""


class PlanMovesRecord(Message, type_id=10_004, versions="0", flexible="0+"):
    """More moves of the plan, behind those that it has."""

    plan_id: Int64 = 0
    moves: list[PlanMove] = []


class PlanProgressRecord(Message, type_id=10_005, versions="0", flexible="0+"):
    """These moves of the plan, by number, are now that far (Status)."""

    plan_id: Int64 = 0
    status: Int8 = 0
    moves: list[Int32] = []


NO_PLAN = 0
ROLES_SINCE, MISSING_SINCE, PLANS_SINCE = 1, 2, 3
"""The levels from which on observers, missing replicas (with the placement cursor), and plans are
kept."""


class OwnRecord(NamedTuple):
    """One id: meaning, and the lowest feature level that allows it (None: none does)."""

    meaning: str
    since: int | None


OWN_RECORD_IDS: Mapping[int, OwnRecord] = MappingProxyType(
    {
        10_000: OwnRecord("observers of a partition", ROLES_SINCE),
        10_001: OwnRecord("missing replicas of a partition", MISSING_SINCE),
        10_002: OwnRecord("the position of computed assignment", MISSING_SINCE),
        10_003: OwnRecord("a plan of moves, and its state", PLANS_SINCE),
        10_004: OwnRecord("the moves of a plan", PLANS_SINCE),
        10_005: OwnRecord("the progress of the moves of a plan", PLANS_SINCE),
    }
)
"""Every id that is taken."""

OWN_RECORDS: Mapping[int, type[Message]] = MappingProxyType(
    {
        each.type_id: each
        for each in (
            ReplicaRolesRecord,
            MissingReplicasRecord,
            PlacementCursorRecord,
            PlanRecord,
            PlanMovesRecord,
            PlanProgressRecord,
        )
    }
)
"""The records that exist, by type id."""
