"""Managed placement: one replica of a diskless partition in each rack.

Goals, in this order: one replica in every rack that has a broker to take it; in each rack the
broker that carries least; leaders even over brokers. Constraints: fenced brokers get nothing, since
a replica of a diskless partition can be given to another broker of its rack at any time.
Guarantees: distinct brokers, at most one replica a rack. Brokers without a rack are of one rack,
`unknown`. The replication factor is not asked for: it follows from the racks.

Trade-off: racks come before brokers, so the lone broker of a small rack is in every partition. That
costs it no disk: such replicas are metadata. Ties go to the lower id, so that equal clusters are
placed alike.

Not in the table of placers by name: a classic topic that named it would get another replication
factor than it asked for. Source: decision 0059.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from random import Random

from anabranch.core.errors import ClientFault, ErrorCode
from anabranch.core.placement.placer import Ask, Placement, UsableBroker

UNKNOWN_RACK = "unknown"


def rack_name(rack: str | None) -> str:
    """The rack of a broker as managed placement sees it."""
    return rack or UNKNOWN_RACK


def by_rack(brokers: Sequence[UsableBroker]) -> dict[str, list[int]]:
    """The brokers that are not fenced, by rack; racks and brokers in order."""
    racks: defaultdict[str, list[int]] = defaultdict(list)
    for broker in sorted(brokers):
        if not broker.fenced:
            racks[rack_name(broker.rack)].append(broker.broker_id)
    return dict(sorted(racks.items()))


def managed(brokers: Sequence[UsableBroker], ask: Ask, _rng: Random) -> Placement:
    """Replica lists; see the module's docstring. Raises ClientFault INVALID_REPLICATION_FACTOR."""
    racks = by_rack(brokers)
    if not racks:
        raise ClientFault(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            "No broker can get replicas: all are fenced, in controlled shutdown or cordoned.",
        )
    carried, led = Counter(ask.loads.replicas), Counter(ask.loads.leaders)
    rows = [_row(racks, carried, led) for _ in range(ask.partition_count)]
    return Placement(rows, ask.cursor, tuple(_remarks(brokers, racks)))


def _row(racks: dict[str, list[int]], carried: Counter[int], led: Counter[int]) -> tuple[int, ...]:
    taken = [min(brokers, key=lambda each: (carried[each], each)) for brokers in racks.values()]
    first = min(taken, key=lambda each: (led[each], each))
    carried.update(taken)
    led[first] += 1
    return (first, *(each for each in taken if each != first))


def _remarks(brokers: Sequence[UsableBroker], racks: dict[str, list[int]]) -> list[str]:
    waiting = sorted({rack_name(broker.rack) for broker in brokers} - racks.keys())
    return [
        f"rack {rack} has no broker that can get a replica now: its replicas are added later"
        for rack in waiting
    ]
