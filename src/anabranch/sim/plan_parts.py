"""What a schedule's plan is made of: topics, clients, operations, faults, and what some seeds add.

Rule kept: parts are plain values, so that a plan can be compared, printed and shrunk. Not here: a
whole plan and how one is drawn (`plan.py`, `diskless_plan.py`, `offset_plan.py`,
`transaction_plan.py`).
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

from anabranch.core.types import TopicPartition
from anabranch.sim.clients import transactions
from anabranch.sim.clients.client import Patience
from anabranch.sim.clients.fetcher import ReadOptions
from anabranch.sim.clients.member import Membership
from anabranch.sim.clients.producer import Manner

SECOND_US = 1_000_000
SETTLED_US = 4 * SECOND_US
"""When clients begin; brokers have registered and topics are made by then."""
SAFETY_US = 64 * SECOND_US
"""When faults end: 60 virtual seconds of them and of operations."""
TRANSFERS, RESULTS, PASSING = "transfers", "results", "passing"
"""What producers write to, what loops write to, and what is deleted meanwhile."""


@dataclass(frozen=True, slots=True)
class TopicPlan:
    """A topic that is made before the faults begin."""

    name: str
    partitions: int
    replication_factor: int
    configs: tuple[tuple[str, str], ...]
    added: int = 0
    """Partitions that it gets later."""
    is_made_again: bool = False
    """Whether it is deleted and made again under its name."""
    becomes_compacted: bool = False
    """Whether its settings change, so that it may be compacted at times."""

    @property
    def is_compacted(self) -> bool:
        """Whether its records need keys."""
        starts_so = "compact" in dict(self.configs).get("cleanup.policy", "")
        return starts_so or self.becomes_compacted


@dataclass(frozen=True, slots=True)
class ClientPlan:
    """One client: exactly one of `manner` and `reading` is set, `membership` beside the latter."""

    name: str
    patience: Patience
    manner: Manner | None = None
    reading: ReadOptions | None = None
    membership: Membership | None = None
    versions: tuple[tuple[int, int], ...] = ()
    begins_us: int = SETTLED_US


@dataclass(frozen=True, slots=True)
class Operation:
    """Something a client is told to do: `kind` is "send" for producers, else the operator's."""

    at_us: int
    kind: str
    client: str
    place: TopicPartition
    number: int = 0
    """Records of a batch, kind of an election, value of a setting, percent of the records."""


@dataclass(frozen=True, slots=True)
class Alteration:
    """A change of one setting while the cluster works."""

    at_us: int
    topic: str
    """"" for the default of all brokers."""
    name: str
    operation: int
    """SET 0, DELETE 1, APPEND 2, SUBTRACT 3."""
    value: str | None = None
    must_be_refused: bool = False


@dataclass(frozen=True, slots=True)
class RightsChange:
    """A change of an access rule, a credential or a quota while the cluster works.

    `what` is an Acl, (mechanism, user), or (entity, key); `value` is what it is then: True for a
    rule, the salt of a credential, the number of a quota, None for something that is removed.
    """

    at_us: int
    what: Hashable
    value: bytes | float | None


@dataclass(frozen=True, slots=True)
class TokenChange:
    """What is asked about a delegation token: it is made, renewed, or let end.

    `period_ms` is for how long. Where it is not positive it is the longest one, but 0 ends a token
    at once, and a negative period removes it.
    """

    at_us: int
    kind: str
    """"make", "renew" or "end"."""
    number: int
    """Of the token, in its plan."""
    who: str
    """The user who asks."""
    period_ms: int
    owner: str = ""
    """Of a new token, "" for who asks."""
    renewers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Fault:
    """Something that goes wrong. `aim` and `other` choose whom, as far as that is open."""

    at_us: int
    kind: str
    lasts_us: int
    aim: int
    other: int
    strength: float
    """Between 0 and 1: how bad it is."""


@dataclass(frozen=True, slots=True)
class DisklessPlan:
    """What a schedule has of diskless topics. Skews are of clocks, in milliseconds."""

    topics: tuple[TopicPlan, ...]
    clients: tuple[ClientPlan, ...]
    operations: tuple[Operation, ...]
    interval_ms: int
    """Between two objects of a broker that are not full."""
    coordinator_skew_ms: int
    objects_skew_ms: int
    tiering_jobs: int = 0
    """Jobs that tier its topics, at once."""
    compaction_jobs: int = 0
    """Jobs that compact what is tiered."""

    @property
    def compacted(self) -> frozenset[str]:
        """The topics whose records need keys."""
        return frozenset(topic.name for topic in self.topics if topic.is_compacted)

    @property
    def places(self) -> list[TopicPartition]:
        """Every partition of them."""
        return [
            TopicPartition(topic.name, index)
            for topic in self.topics
            for index in range(topic.partitions)
        ]


@dataclass(frozen=True, slots=True)
class RemotePlan:
    """What a schedule has of remote logs, beside settings and faults."""

    coordinator_skew_ms: int


@dataclass(frozen=True, slots=True)
class NamePlan:
    """One name, and what is committed under it: always with the same retention."""

    name: str
    retention_ms: int
    version: int
    """Of OffsetCommit: one that has a retention."""
    commits: tuple[tuple[int, tuple[TopicPartition, ...]], ...]
    """When, and of which partitions."""


@dataclass(frozen=True, slots=True)
class OffsetPlan:
    """What a schedule has of offsets that expire."""

    names: tuple[NamePlan, ...]
    looks_us: tuple[int, ...]
    """When all that is committed is asked for."""


@dataclass(frozen=True, slots=True)
class IdPlan:
    """A transactional id that one process after another uses."""

    name: str
    patience: Patience
    manner: transactions.ProducerOptions
    begins_us: int


@dataclass(frozen=True, slots=True)
class LoopPlan:
    """A member of the group that reads, writes and commits offsets in transactions."""

    name: str
    patience: Patience
    manner: transactions.ProducerOptions
    membership: Membership
    reading: ReadOptions
    begins_us: int


@dataclass(frozen=True, slots=True)
class ReaderPlan:
    """A reader of all topics of transactions."""

    name: str
    patience: Patience
    reading: ReadOptions
    begins_us: int


@dataclass(frozen=True, slots=True)
class PlannedTransaction:
    """One transaction of a producer: how many batches where, and how it ends."""

    at_us: int
    id_name: str
    writes: tuple[tuple[TopicPartition, int], ...]
    ending: str
    pause_ms: int
    """Between the last write and the end."""


@dataclass(frozen=True, slots=True)
class TransactionPlan:
    """What a schedule has of transactions."""

    topics: tuple[TopicPlan, ...]
    ids: tuple[IdPlan, ...]
    loops: tuple[LoopPlan, ...]
    readers: tuple[ReaderPlan, ...]
    deals: tuple[PlannedTransaction, ...]
    version: int
    """transaction.version of the cluster."""
    deleted_us: int = 0
    """When the passing topic is deleted."""
    keys: int = 1
    """How many keys the records of compacted topics have."""

    @property
    def compacted(self) -> frozenset[str]:
        """The topics whose records need keys."""
        return frozenset(topic.name for topic in self.topics if topic.is_compacted)

    @property
    def places(self) -> list[TopicPartition]:
        """Every partition that stays."""
        return [place for place in self.all_places if place.topic != PASSING]

    @property
    def all_places(self) -> list[TopicPartition]:
        """Every partition."""
        return [
            TopicPartition(topic.name, index)
            for topic in self.topics
            for index in range(topic.partitions)
        ]
