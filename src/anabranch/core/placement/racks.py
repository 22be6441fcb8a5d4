"""Whether a replica list spreads over the racks that there are: what a rack violation is.

What: `Spread` is how many replicas of a list stand in racks, and in how many different ones. Rule
kept: a list violates racks when it is in fewer than it could be in, the lesser of its replicas and
the racks of the cluster. So three replicas in two racks are as good as it gets while there are two,
and a violation as soon as a third one is registered. Why two numbers: lists with equal ones are
judged alike, so that a million partitions are counted by the few pairs that occur, and a rack that
comes or goes costs nothing. A topic with placement constraints violates racks when it is not as
they say, and only then. Brokers without a rack, and replicas that no broker has, do not count.

Source: KIP-36 (rack-aware placement); decision 0026. Not here: how a violation is mended
(`move_plans.py`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import NamedTuple


class Spread(NamedTuple):
    """Replicas of a list whose broker has a rack, and the racks they are in."""

    replicas: int
    racks: int

    def violates(self, racks_there: int) -> bool:
        """Whether a cluster with so many racks could spread the list wider."""
        return self.racks < min(self.replicas, racks_there)


AS_CONSTRAINED = Spread(0, 0)
OTHERWISE = Spread(1, 0)
"""Lists of topics with placement constraints: no violation, and one wherever there are racks."""


def spread_of(racks: Iterable[str | None], wanted: Mapping[str, int] | None = None) -> Spread:
    """The spread of a list whose brokers are in these racks; `wanted` are the replicas that the
    placement constraints of its topic want in each."""
    if wanted is not None:
        return AS_CONSTRAINED if dict(Counter(racks)) == wanted else OTHERWISE
    known = [rack for rack in racks if rack]
    return Spread(len(known), len(set(known)))
