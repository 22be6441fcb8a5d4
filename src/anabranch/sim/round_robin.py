"""The simulator's placer: one broker after the other, in the order of their ids.

Goal: an even number of replicas and leaders a broker within a topic, and lists that are easy to
read in a transcript. Constraint: fenced brokers come last and never first. Algorithm: partition p
starts at unfenced broker (s + p) mod n, s drawn once a call, and takes the brokers that follow it;
fenced ones fill up only when the unfenced ones do not suffice. Why not one of `core/placement`: the
recorded seeds rest on its single draw a call. Trade-off: racks are not looked at, and nothing is
remembered between calls.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from anabranch.core.placement.placer import Ask, Placement, UsableBroker


def round_robin(brokers: Sequence[UsableBroker], ask: Ask, rng: Random) -> Placement:
    """Replica lists; see the module's docstring."""
    alive = sorted(broker.broker_id for broker in brokers if not broker.fenced)
    fenced = sorted(broker.broker_id for broker in brokers if broker.fenced)
    start = rng.randrange(len(alive)) + len(ask.existing)
    rows: list[tuple[int, ...]] = []
    for turn in range(min(ask.partition_count, len(alive))):
        first = (start + turn) % len(alive)
        row = (*alive[first:], *alive[:first], *fenced)
        rows.append(row[: ask.replication_factor])
    return Placement([rows[each % len(rows)] for each in range(ask.partition_count)], ask.cursor)
