"""Which replica of a diskless partition is preferred to lead, when its replicas change.

Goal: leaders even over brokers, as when a topic is created (`core/placement/managed.py`). Without
this a rack that was away for longer than the threshold would never lead again: its replicas come
back behind those that stayed.

Algorithm: a step that changes a partition's replicas lets the living broker that is preferred by
the fewest partitions be the first of the list, where the one that would be first is preferred by at
least two more: each such change makes the counts more even, so that they end. Trade-off: a
partition whose replicas do not change keeps its list, so that the order that an operator chose
stays. The leadership itself follows with Kafka's balance of preferred leaders
(`core/controller/duties.py`). Source: decision 0059.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

UNEVEN = 2
"""Partitions that a broker is preferred by, more than another: with one less a change would only
turn the two around."""


def evened(
    row: tuple[int, ...],
    before: tuple[int, ...],
    living: Collection[int],
    preferred: Mapping[int, int],
) -> tuple[int, ...]:
    """The replicas `row` that follow those `before`, with the preferred leader in front;
    `preferred` is how many partitions each broker is preferred by, over all topics."""
    candidates = [each for each in row if each in living]
    if not candidates:
        return row
    best = min(candidates, key=lambda each: preferred.get(each, 0))
    would_be = preferred.get(row[0], 0) + (row[0] != before[0])
    if would_be - preferred.get(best, 0) < UNEVEN:
        return row
    return (best, *(each for each in row if each != best))
