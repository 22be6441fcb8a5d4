"""The simplest placer: one broker after the other, in the order of their ids.

Goal: an even number of replicas and leaders a broker within a topic. Constraint: fenced brokers
come last and never first. Algorithm: partition p starts at unfenced broker (s + p) mod n, s drawn
once a call, and takes the brokers that follow it; fenced ones fill up only when the unfenced ones
do not suffice. Trade-off: racks are not looked at, and nothing is remembered between calls.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from anabranch.core.placement.placer import UsableBroker


def round_robin(
    brokers: Sequence[UsableBroker],
    *,
    start_partition: int,
    partition_count: int,
    replication_factor: int,
    rng: Random,
) -> list[tuple[int, ...]]:
    """Replica lists for `partition_count` partitions; see `core/placement/placer.py`."""
    alive = sorted(broker.broker_id for broker in brokers if not broker.fenced)
    fenced = sorted(broker.broker_id for broker in brokers if broker.fenced)
    start = rng.randrange(len(alive)) + start_partition
    rows: list[tuple[int, ...]] = []
    for turn in range(min(partition_count, len(alive))):
        first = (start + turn) % len(alive)
        rows.append((*alive[first:], *alive[:first], *fenced)[:replication_factor])
    return [rows[partition % len(rows)] for partition in range(partition_count)]
