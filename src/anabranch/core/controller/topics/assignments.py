"""Replica lists of new partitions, checked if given by hand, placed if not.

Rule kept: the ISR of a new partition is its active replicas in replica order and its leader is the
first of them; at least one must be active. Codes, texts and order are those of Kafka's
ReplicationControlManager.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from anabranch.core.controller.brokers.cordons import CORDON, EVERY_FOLDER, cordoned, is_cordoned
from anabranch.core.controller.brokers.membership import is_active, usable_brokers
from anabranch.core.errors import ApiError, ClientFault, ErrorCode
from anabranch.core.metadata.directories import default_directory
from anabranch.core.metadata.features import may_write
from anabranch.core.metadata.image import MetadataImage
from anabranch.core.placement.placer import UsableBroker
from anabranch.core.settings.broker import BrokerConfig
from anabranch.core.types import TopicId
from anabranch.core.wire.metadata_records import MissingReplicasRecord, PartitionRecord

MOST_MISSING = 100
"""Replicas of a partition that no broker has: every answer about the partition names each of them,
so a factor of 30 000 in place of 3 would make 2 000 partitions a quarter of a gigabyte."""


def invalid_assignment(sentence: str) -> ApiError:
    """INVALID_REPLICA_ASSIGNMENT with a sentence."""
    return ClientFault(ErrorCode.INVALID_REPLICA_ASSIGNMENT, sentence)


def check_manual(
    image: MetadataImage, replicas: Sequence[int], expected_size: int | None
) -> tuple[int, ...]:
    """A replica list from a request; raises INVALID_REPLICA_ASSIGNMENT."""
    if not replicas:
        raise invalid_assignment("The manual partition assignment includes an empty replica list.")
    previous = None
    for broker_id in sorted(replicas):
        if broker_id not in image.brokers:
            raise invalid_assignment(
                f"The manual partition assignment includes broker {broker_id}, but no such broker "
                "is registered."
            )
        if broker_id == previous:
            raise invalid_assignment(
                f"The manual partition assignment includes the broker {broker_id} more than once."
            )
        previous = broker_id
    if expected_size is not None and len(replicas) != expected_size:
        raise invalid_assignment(
            f"The manual partition assignment includes a partition with {len(replicas)} "
            "replica(s), but this is not consistent with previous partitions, which have "
            f"{expected_size} replica(s)."
        )
    return tuple(replicas)


def refuse_cordoned(
    image: MetadataImage, replicas: Sequence[int], having: Sequence[int] = ()
) -> None:
    """Raise INVALID_REPLICA_ASSIGNMENT where a list brings a replica to a cordoned broker; `having`
    are brokers that have one already."""
    for broker_id in replicas:
        if broker_id not in having and is_cordoned(image, broker_id):
            raise invalid_assignment(
                f"Broker {broker_id} gets no new replicas: it is cordoned "
                f"({CORDON}={EVERY_FOLDER})."
            )


class Room(NamedTuple):
    """Who may be given replicas, and how many of each partition nobody can be given yet."""

    brokers: list[UsableBroker]
    missing: int = 0


def room_for(
    image: MetadataImage, config: BrokerConfig, replication_factor: int, min_insync: int
) -> Room:
    """The brokers for partitions with so many replicas.

    With `enable.under.replicated.topic.creation` (KIP-409), where usable brokers do not suffice,
    those that are leaving in order are counted as those that are down, and what is still lacking is
    missing. Raises INVALID_REPLICATION_FACTOR when fewer brokers are active than acks=all needs, or
    more than MOST_MISSING would be missing.
    """
    usable = usable_brokers(image)
    if (
        len(usable) >= replication_factor
        or not config.enable_under_replicated_topic_creation
        or not may_write(image, MissingReplicasRecord)
    ):
        return Room(usable)
    known = [
        UsableBroker(broker_id, image.brokers[broker_id].rack, not image.brokers[broker_id].active)
        for broker_id in sorted(set(image.brokers) - cordoned(image))
    ]
    active = sum(not broker.fenced for broker in known)
    needed = min(min_insync, replication_factor)
    if active < needed:
        raise ClientFault(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"The target replication factor of {replication_factor} cannot be reached because only "
            f"{len(known)} broker(s) are registered, and {active} active broker(s) are too few to "
            f"create it with missing replicas: min.insync.replicas needs {needed}.",
        )
    missing = max(0, replication_factor - len(known))
    if missing > MOST_MISSING:
        raise ClientFault(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"The target replication factor of {replication_factor} cannot be reached because only "
            f"{len(known)} broker(s) are registered, and at most {MOST_MISSING} replicas of a "
            "partition can be missing.",
        )
    return Room(known, missing)


class PartitionMaker:
    """Makes the records of new partitions; brokers are looked up once a request."""

    def __init__(self, image: MetadataImage) -> None:
        self.image = image
        self.active: dict[int, bool] = {}
        self.directories: dict[int, bytes] = {}

    def isr(self, replicas: Sequence[int]) -> list[int]:
        """The replicas that start in sync."""
        for broker_id in replicas:
            if broker_id not in self.active:
                self.active[broker_id] = is_active(self.image, broker_id)
                self.directories[broker_id] = default_directory(self.image.brokers.get(broker_id))
        return [broker_id for broker_id in replicas if self.active[broker_id]]

    def record(
        self, topic_id: TopicId, index: int, replicas: Sequence[int], isr: list[int]
    ) -> PartitionRecord:
        """The record of a new partition."""
        return PartitionRecord(
            partition_id=index,
            topic_id=topic_id,
            replicas=list(replicas),
            isr=isr,
            leader=isr[0],
            leader_epoch=0,
            partition_epoch=0,
            directories=[self.directories[broker_id] for broker_id in replicas],
        )
