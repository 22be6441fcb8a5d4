"""Replica lists for topics that a rehearsal does not place itself.

Goal: replicas in as many racks as there are, leaders spread over all brokers. Algorithm: brokers
are put in an order that goes round the racks; partition p takes the brokers from place p on, those
of racks it has not yet first. Trade-off: it is no placer of the cluster and looks at no load; a
file that asks what a certain placement survives names its `replicas` itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import zip_longest


def spread(
    brokers: Sequence[int], racks: Mapping[int, str], *, partitions: int, replication: int
) -> tuple[tuple[int, ...], ...]:
    """One list of brokers a partition, the preferred leader first."""
    order = _round_the_racks(brokers, racks)
    return tuple(_one(order, racks, first, replication) for first in range(partitions))


def _round_the_racks(brokers: Sequence[int], racks: Mapping[int, str]) -> list[int]:
    rows: dict[str, list[int]] = {}
    for each in sorted(brokers):
        rows.setdefault(racks.get(each, ""), []).append(each)
    turns = zip_longest(*(rows[rack] for rack in sorted(rows)))
    return [each for turn in turns for each in turn if each is not None]


def _one(
    order: Sequence[int], racks: Mapping[int, str], first: int, replication: int
) -> tuple[int, ...]:
    start = first % len(order)
    rest = [*order[start:], *order[:start]]
    chosen: list[int] = []
    while len(chosen) < replication:
        taken = dict.fromkeys(racks.values(), 0)
        for each in chosen:
            taken[racks.get(each, "")] = taken.get(racks.get(each, ""), 0) + 1
        left = [each for each in rest if each not in chosen]
        chosen.append(min(left, key=lambda each: taken.get(racks.get(each, ""), 0)))
    return tuple(chosen)
