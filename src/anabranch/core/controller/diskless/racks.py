"""Racks as managed placement sees them: HEALTHY, DEGRADED or UNAVAILABLE.

What: `Racks` reads the state of every rack off an image. A rack is HEALTHY while one of its brokers
is eligible: registered, unfenced, not shutting down, not cordoned. Without one it is DEGRADED: what
it has stays, and nothing new goes there. It is UNAVAILABLE once every broker of it is gone, which
is to say that each was unreachable for longer than
`diskless.managed.rf.rack.unavailable.threshold.ms` (`absence.py` counts that): then its replicas
are removed. A broker that is only cordoned is there, so its rack is never UNAVAILABLE.

Why from the image alone: every node sees the same states, whatever its clock and its settings, and
a new controller goes on where the last one was. Rule kept: a broker without a rack is of rack
`unknown`; one that was unregistered is remembered with its rack while diskless partitions name it.
Source: decision 0059.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from enum import Enum, IntEnum
from typing import NamedTuple

from anabranch.core.controller.brokers.cordons import cordoned
from anabranch.core.metadata.image import MetadataImage
from anabranch.core.placement.managed import rack_name


class RackState(IntEnum):
    """The states, numbered as the metric tells them."""

    HEALTHY = 0
    DEGRADED = 1
    UNAVAILABLE = 2


class Seen(Enum):
    """What the brokers of a rack look like together."""

    CAPACITY = "one of its brokers can get replicas"
    NO_CAPACITY = "none of its brokers can get replicas"
    GONE = "every broker of it was unreachable for longer than the threshold"


HEALTHY, DEGRADED, UNAVAILABLE = RackState
STATES: Mapping[Seen, RackState] = {
    Seen.CAPACITY: HEALTHY,
    Seen.NO_CAPACITY: DEGRADED,
    Seen.GONE: UNAVAILABLE,
}
"""A rack's state follows from what is seen of it, and never from the state before."""


class Rack(NamedTuple):
    """One rack. `degraded_ms` is how long it has been without capacity for lack of living brokers,
    as far as that is written down."""

    name: str
    state: RackState
    brokers: tuple[int, ...]
    eligible: tuple[int, ...]
    degraded_ms: int = 0


class Racks:
    """The racks of an image; see the module's docstring."""

    def __init__(self, image: MetadataImage) -> None:
        closed, absences = cordoned(image), image.absences
        self.rack_of: dict[int, str] = {
            broker_id: rack_name(absence.rack) for broker_id, absence in absences.items()
        }
        self.rack_of |= {each.broker_id: rack_name(each.rack) for each in image.brokers.values()}
        self.living = frozenset(each for each, broker in image.brokers.items() if broker.active)
        self.eligible = self.living - closed
        self.gone = frozenset(
            broker_id
            for broker_id, absence in absences.items()
            if absence.is_gone and broker_id not in self.living
        )
        members: defaultdict[str, list[int]] = defaultdict(list)
        for broker_id, name in sorted(self.rack_of.items()):
            members[name].append(broker_id)
        self.by_name = {
            name: self._rack(name, brokers, image) for name, brokers in sorted(members.items())
        }
        self.target = tuple(
            name for name, rack in self.by_name.items() if rack.state is not UNAVAILABLE
        )
        """The racks that should have a replica of each partition; their number is the effective
        replication factor."""

    def _rack(self, name: str, brokers: list[int], image: MetadataImage) -> Rack:
        eligible = tuple(each for each in brokers if each in self.eligible)
        if eligible:
            seen = Seen.CAPACITY
        else:
            seen = Seen.GONE if self.gone.issuperset(brokers) else Seen.NO_CAPACITY
        absences = image.absences
        times = [absences[each].elapsed_ms if each in absences else 0 for each in brokers]
        degraded_ms = 0 if eligible else min(times)
        return Rack(name, STATES[seen], tuple(brokers), eligible, degraded_ms)

    def state(self, broker_id: int) -> RackState:
        """The state of a broker's rack; UNAVAILABLE for a broker that no record tells of."""
        name = self.rack_of.get(broker_id)
        return UNAVAILABLE if name is None else self.by_name[name].state

    def is_as(self, other: Racks) -> bool:
        """Whether every broker is where and what it is in `other`."""
        return (self.rack_of, self.living, self.eligible, self.gone) == (
            other.rack_of, other.living, other.eligible, other.gone,
        )  # fmt: skip
