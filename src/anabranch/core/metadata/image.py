"""The cluster's state as every node sees it: one immutable image an offset of the metadata log.

What: topics, partitions, brokers, configurations, features and the producer-id counter, held in
persistent maps. Why: a request reads one image from beginning to end while newer ones appear, and a
change copies only the path to what it touches. Rule kept: an image is made by `replay` alone; live
state, replayed log and snapshot plus tail are equal. Names and meanings are those of the KRaft
metadata records (KIP-500, KIP-631, KIP-966). Not here: what only the active controller knows
(heartbeat times, indexes), see `cluster_state.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

import msgspec
from immutables import Map

from anabranch.core.access.acls import NO_ACLS, Acls
from anabranch.core.access.delegation_tokens import DelegationToken
from anabranch.core.access.scram_credential import ScramCredential
from anabranch.core.metadata.plan_state import PlanImage
from anabranch.core.types import Offset, TopicId

UNASSIGNED_DIRECTORY = bytes(16)
"""The directory id of a replica whose broker has not said yet where it lies (KIP-858)."""
RESOURCE_TOPIC = 2
RESOURCE_BROKER = 4
CLUSTER_DEFAULT = ""
"""Resource name of the broker configuration that holds for every broker."""

RECOVERED = 0
RECOVERING = 1

ConfigKey: TypeAlias = tuple[int, str]
NO_CONFIG: Mapping[str, str] = Map()
QuotaEntity: TypeAlias = tuple[tuple[str, str | None], ...]
"""(type, name) pairs in order of the type; the name None is the default of that type."""


class PartitionImage(msgspec.Struct, frozen=True, gc=False):
    """One partition. `replicas` is ordered: its first entry is the preferred leader.

    `leader` is -1 when nobody leads. `directories` runs beside `replicas`. `observers` copy and
    are counted nowhere; none of them is in `replicas`. `missing` replicas have no broker yet, and
    `suspended` ones are waited for again if a move is taken back: neither is ever among the ids.
    `former` is the order of the replicas before a move under way; empty where `replicas` without
    `adding` has it.
    """

    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader: int
    leader_epoch: int
    partition_epoch: int
    directories: tuple[bytes, ...] = ()
    elr: tuple[int, ...] = ()
    last_known_elr: tuple[int, ...] = ()
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()
    recovery_state: int = RECOVERED
    observers: tuple[int, ...] = ()
    missing: int = 0
    suspended: int = 0
    former: tuple[int, ...] = ()

    @property
    def replication_factor(self) -> int:
        """Replicas that the partition should have; while replicas move, those that it had."""
        return len(self.replicas) - len(self.adding) + self.missing + self.suspended


class TopicImage(msgspec.Struct, frozen=True):
    """One topic and its partitions by index."""

    name: str
    topic_id: TopicId
    partitions: Map[int, PartitionImage]


class Endpoint(msgspec.Struct, frozen=True, gc=False):
    """Where a listener is reached. `security_protocol` is Kafka's number (0 plaintext)."""

    host: str
    port: int
    security_protocol: int = 0


class BrokerImage(msgspec.Struct, frozen=True):
    """One registered broker. `epoch` is the offset of its registration record."""

    broker_id: int
    epoch: int
    incarnation_id: bytes
    endpoints: Map[str, Endpoint]
    rack: str | None = None
    fenced: bool = True
    in_controlled_shutdown: bool = False
    log_dirs: tuple[bytes, ...] = ()
    features: Map[str, tuple[int, int]] = Map()
    full_log_dirs: tuple[bytes, ...] = ()
    """Those of its folders that have no room for records."""
    is_noted: bool = False
    """Whether its folders have noted this incarnation."""

    @property
    def active(self) -> bool:
        """Whether it may lead and be in sync: neither fenced nor leaving."""
        return not self.fenced and not self.in_controlled_shutdown

    def endpoint(self, listener: str) -> Endpoint | None:
        """Where that listener is reached, None when the broker has none of that name."""
        return self.endpoints.get(listener)


class Absence(msgspec.Struct, frozen=True, gc=False):
    """How long a broker was unreachable while a controller was active, at least; `is_gone` once
    that was longer than the threshold for diskless replicas. `rack` is where it was."""

    rack: str | None
    elapsed_ms: int
    is_gone: bool


class ControllerImage(msgspec.Struct, frozen=True):
    """One registered controller."""

    controller_id: int
    incarnation_id: bytes
    endpoints: Map[str, Endpoint]
    features: Map[str, tuple[int, int]] = Map()

    def endpoint(self, listener: str) -> Endpoint | None:
        """Where it is reached: that listener, or any when it has none of that name."""
        return self.endpoints.get(listener) or next(iter(self.endpoints.values()), None)


class MetadataImage(msgspec.Struct, frozen=True):
    """Everything, as of `offset`: the offset of the last applied record, -1 when there is none."""

    offset: int = -1
    epoch: int = 0
    topics_by_id: Map[TopicId, TopicImage] = Map()
    topic_ids_by_name: Map[str, TopicId] = Map()
    brokers: Map[int, BrokerImage] = Map()
    configs: Map[ConfigKey, Map[str, str]] = Map()
    features: Map[str, int] = Map()
    next_producer_id: int = 0
    controllers: Map[int, ControllerImage] = Map()
    placement_cursor: int = 0
    """Partitions that computed assignment has placed so far."""
    absences: Map[int, Absence] = Map()
    """Unreachable brokers, where there are diskless topics; also of brokers that were
    unregistered."""
    plan: PlanImage | None = None
    """The newest plan of moves, also when it is over."""
    acls: Acls = NO_ACLS
    scram: Map[tuple[int, str], ScramCredential] = Map()
    """SCRAM credentials by mechanism (Kafka's number) and user."""
    tokens: Map[str, DelegationToken] = Map()
    """Delegation tokens by id."""
    quotas: Map[QuotaEntity, Map[str, float]] = Map()
    """Quotas by entity and key."""

    @classmethod
    def empty(cls) -> MetadataImage:
        """The state before the first record."""
        return EMPTY

    @property
    def next_offset(self) -> Offset:
        """The end offset of the log that this image was made from."""
        return Offset(self.offset + 1)

    def topic(self, name: str) -> TopicImage | None:
        """The topic of that name, or None."""
        topic_id = self.topic_ids_by_name.get(name)
        return None if topic_id is None else self.topics_by_id[topic_id]

    def topic_by_id(self, topic_id: TopicId) -> TopicImage | None:
        """The topic with that id, or None."""
        return self.topics_by_id.get(topic_id)

    def partition(self, name: str, index: int) -> PartitionImage | None:
        """One partition by its topic's name, or None."""
        topic = self.topic(name)
        return None if topic is None else topic.partitions.get(index)

    def config(self, resource_type: int, name: str) -> Mapping[str, str]:
        """What was set for a resource, by configuration name; empty when nothing was."""
        return self.configs.get((resource_type, name), NO_CONFIG)


EMPTY = MetadataImage()


class MetadataDelta(msgspec.Struct, frozen=True):
    """What a batch of records touched, and nothing else.

    `changed_partitions` has an entry for every topic of which partitions were made or changed,
    also for created ones. `deleted_topics` are given as they were before; `passing_topics` were
    created and deleted since.
    """

    created_topics: tuple[TopicId, ...] = ()
    deleted_topics: tuple[TopicImage, ...] = ()
    passing_topics: tuple[TopicImage, ...] = ()
    changed_partitions: Mapping[TopicId, tuple[int, ...]] = Map()
    changed_configs: frozenset[ConfigKey] = frozenset()
    changed_brokers: frozenset[int] = frozenset()
    changed_tokens: frozenset[str] = frozenset()
    features_changed: bool = False
