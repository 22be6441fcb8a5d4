"""What a placer is, and the checks that hold for all of them.

What: `place` asks a placer for the replica lists of some partitions, after Kafka's generic checks.
Why outside the placer: every placer then refuses with the same code and the same text (KIP-660).
Usable brokers are all registered ones but those in controlled shutdown; fenced ones are offered,
marked as such, and never lead a new partition.

Not here: which placer is used (`placers.py`), replicas that no broker can take yet (controller).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import NamedTuple, Protocol

from anabranch.core.errors import ClientFault, ErrorCode


class UsableBroker(NamedTuple):
    """A broker that may be given replicas."""

    broker_id: int
    rack: str | None
    fenced: bool


class Loads(NamedTuple):
    """What brokers carry already, over all topics, by broker id."""

    replicas: Mapping[int, int] = {}
    leaders: Mapping[int, int] = {}
    """Partitions whose first replica it is."""


NO_LOADS = Loads()


@dataclass(frozen=True, slots=True)
class Ask:
    """What is to be placed: `partition_count` lists of `replication_factor` brokers.

    `existing` are the topic's lists so far, when it grows. `cursor` is where the last placement of
    the cluster ended, counted in partitions.
    """

    partition_count: int
    replication_factor: int
    existing: Sequence[tuple[int, ...]] = ()
    cursor: int = 0
    loads: Loads = NO_LOADS
    ignore_racks: bool = False


class Placement(NamedTuple):
    """Replica lists, one a partition; where the next placement goes on; what a person should know
    about them, in sentences."""

    rows: list[tuple[int, ...]]
    cursor: int
    remarks: tuple[str, ...] = ()


class Placer(Protocol):
    """Chooses replicas. The first of each list is the preferred leader."""

    def __call__(self, brokers: Sequence[UsableBroker], ask: Ask, rng: Random) -> Placement: ...


def place(placer: Placer, brokers: Sequence[UsableBroker], ask: Ask, rng: Random) -> Placement:
    """Replica lists, one a partition. Raises ClientFault INVALID_REPLICATION_FACTOR."""
    factor = ask.replication_factor
    if factor <= 0:
        raise ClientFault(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"Invalid replication factor {factor}: the replication factor must be positive.",
        )
    if all(broker.fenced for broker in brokers):
        raise ClientFault(ErrorCode.INVALID_REPLICATION_FACTOR, "All brokers are currently fenced.")
    if factor > len(brokers):
        raise ClientFault(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"The target replication factor of {factor} cannot be reached because only "
            f"{len(brokers)} broker(s) are registered.",
        )
    return placer(brokers, ask, rng)
