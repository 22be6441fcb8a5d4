"""Spread placement: racks first, then whoever has least, remembering what there is.

Goals, in this order: no rack holds more of a partition than it must; in a topic every broker leads
and carries as much as the others; over all topics too. Constraints: fenced brokers are used only
where their rack has no other left, and never lead. Guarantees: distinct brokers in a partition; at
most ceil(RF / racks) replicas of it in one rack where the racks are large enough, else as few as
their sizes allow; with equal racks no broker of a new topic carries two replicas more than another.
Where racks are fewer than RF it does not fail: it says how many replicas share a rack. A topic that
grows evens out what it has.

Worked example, racks a: 1 2, b: 3 4, c: 5 6, RF 2, three partitions of a new topic on an empty
cluster: every broker gets one replica, no partition has two in a rack, three brokers lead one
partition each. With three partitions more every broker leads one.

Trade-off: where racks differ in size, rack safety costs evenness: with as many racks as replicas, a
lone broker in its rack is in every partition. Ties are broken by chance (that of the controller),
so that a broker shares its partitions with many others; a fixed pattern would fail over to few.

How: each partition takes the racks that carry least for their size, from each the broker that
carries least, and of these the one that leads least leads. "Least" is counted in the topic first,
then in the cluster. Cost: a few heap operations a replica, whatever the size of the cluster.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from heapq import heapify, heappop, heappush, heapreplace
from itertools import chain, cycle
from math import lcm
from random import Random

from anabranch.core.placement.placer import Ask, Placement, UsableBroker
from anabranch.core.sentences import number_of

Row = tuple[int, ...]

PLACE_BITS = 16
PLACE = (1 << PLACE_BITS) - 1
CHANCE = (1 << 32) - 1 ^ PLACE
CLUSTER = 1 << 32
TOPIC = 1 << 72
FENCED = 1 << 160
STEP = TOPIC + CLUSTER
"""A key is one integer, which a heap compares fast: fenced, count in the topic, count in the
cluster, chance, place in the list of brokers (or racks)."""
DRAWS = 4093
"""Chances drawn a call; they go round."""


def spread(brokers: Sequence[UsableBroker], ask: Ask, rng: Random) -> Placement:
    """Replica lists; see the module's docstring."""
    floor = CarriedLoads(brokers, ask, rng)
    rows = list(floor.rows(ask.partition_count))
    return Placement(rows, ask.cursor, tuple(floor.remarks()))


class CarriedLoads:
    """What every rack and broker carries while a call hands out replicas."""

    def __init__(self, brokers: Sequence[UsableBroker], ask: Ask, rng: Random) -> None:
        self.brokers = sorted(brokers, key=lambda broker: broker.broker_id)
        self.ids = [broker.broker_id for broker in self.brokers]
        self.replication_factor = ask.replication_factor
        draws = [rng.getrandbits(PLACE_BITS) << PLACE_BITS for _ in range(DRAWS)]
        self.chance = cycle(draws).__next__
        topic = Counter(chain.from_iterable(ask.existing))
        carried = self._keys(topic, ask.loads.replicas)
        self.led = self._keys(Counter(row[0] for row in ask.existing), ask.loads.leaders)
        self.names = sorted({broker.rack for broker in brokers}, key=_none_first)
        self.heaps = [
            [
                carried[place] + self.chance() + place
                for place, broker in enumerate(self.brokers)
                if broker.rack == name
            ]
            for name in self.names
        ]
        for heap in self.heaps:
            heapify(heap)
        self.always, self.partly, self.needed = _rounds(self.heaps, ask.replication_factor)
        keys, self.rack_steps = self._rack_keys(topic, ask.loads.replicas)
        self.rack_order = sorted(keys.values())
        self.lit = {rack for rack, heap in enumerate(self.heaps) if heap[0] < FENCED}

    def _keys(self, topic: Mapping[int, int], cluster: Mapping[int, int]) -> list[int]:
        return [
            topic.get(each.broker_id, 0) * TOPIC
            + cluster.get(each.broker_id, 0) * CLUSTER
            + each.fenced * FENCED
            for each in self.brokers
        ]

    def _rack_keys(
        self, topic: Mapping[int, int], cluster: Mapping[int, int]
    ) -> tuple[dict[int, int], dict[int, int]]:
        """What the racks carry for their size, and how that grows by a replica."""
        whole = lcm(*map(len, self.heaps))
        keys: dict[int, int] = {}
        steps: dict[int, int] = {}
        for rack in self.partly:
            members = [self.ids[key & PLACE] for key in self.heaps[rack]]
            weight = whole // len(members)
            carried = sum(topic.get(each, 0) for each in members) * TOPIC
            carried += sum(cluster.get(each, 0) for each in members) * CLUSTER
            keys[rack] = carried * weight + self.chance() + rack
            steps[rack] = weight * STEP
        return keys, steps

    def rows(self, count: int) -> Iterator[Row]:
        """The brokers of the next partitions, of each the leader first."""
        led, carried, broker_id = self.led, self.led.__getitem__, self.ids.__getitem__
        take = self._take_several if self.always else self._take_ones
        for _ in range(count):
            places = take(self._chosen())
            leader = min(places, key=carried)
            led[leader] += STEP
            places.remove(leader)
            places.insert(0, leader)
            yield tuple(map(broker_id, places))

    def _chosen(self) -> list[int]:
        """The racks that give one replica more than every rack gives."""
        order, steps, chance = self.rack_order, self.rack_steps, self.chance
        needed = self.needed
        if len(self.lit) < len(self.heaps) and needed:
            self._let_somebody_lead(order)
        chosen = []
        for index in range(needed):
            key = order[index]
            rack = key & PLACE
            chosen.append(rack)
            order[index] = (key | CHANCE) + steps[rack] - chance()
        order.sort()
        return chosen

    def _let_somebody_lead(self, order: list[int]) -> None:
        """Where all racks that are due have fenced brokers alone, the next other one is due."""
        due = [key & PLACE for key in order[: self.needed]]
        if self.lit.isdisjoint(due) and self.lit.isdisjoint(self.always):
            index = next(index for index, key in enumerate(order) if key & PLACE in self.lit)
            order.insert(self.needed - 1, order.pop(index))

    def _take_ones(self, racks: Sequence[int]) -> list[int]:
        """A broker of each rack."""
        heaps, chance = self.heaps, self.chance
        places = []
        for rack in racks:
            heap = heaps[rack]
            key = heap[0]
            heapreplace(heap, (key | CHANCE) + STEP - chance())
            places.append(key & PLACE)
        return places

    def _take_several(self, racks: Sequence[int]) -> list[int]:
        """What every rack gives, and a broker more of each of these racks."""
        times = self.always.copy()
        for rack in racks:
            times[rack] = times.get(rack, 0) + 1
        return [place for rack, count in times.items() for place in self._take(rack, count)]

    def _take(self, rack: int, count: int) -> Iterator[int]:
        """That many brokers of a rack, distinct ones."""
        heap = self.heaps[rack]
        taken = [heappop(heap) for _ in range(count)]
        for key in taken:
            heappush(heap, (key | CHANCE) - self.chance() + STEP)
            yield key & PLACE

    def remarks(self) -> Iterator[str]:
        """Why replicas of one partition share a rack, and which racks have nobody to lead."""
        most = max(self.always.values(), default=0) + bool(self.partly and self.always)
        named = [name for name in self.names if name is not None]
        if most > 1 and named:
            yield (
                f"Up to {most} of the {number_of(self.replication_factor, 'replica')} of a "
                "partition share a rack: the usable brokers stand in "
                f"{number_of(len(self.heaps), 'rack')}."
            )
        dark = [self.names[rack] for rack in range(len(self.heaps)) if rack not in self.lit]
        if dark:
            said = ", ".join("(no rack)" if name is None else name for name in dark)
            yield f"Replicas in rack {said} are out of sync at first: all its brokers are fenced."


def _none_first(rack: str | None) -> tuple[bool, str]:
    return rack is not None, rack or ""


def _rounds(
    heaps: Sequence[Sequence[int]], replication_factor: int
) -> tuple[dict[int, int], list[int], int]:
    """How many replicas every partition has in each rack, where that is any; the racks of which
    some get one more; how many of these do."""
    always: Counter[int] = Counter()
    needed = replication_factor
    while True:
        larger = [rack for rack, heap in enumerate(heaps) if len(heap) > always[rack]]
        if not needed or len(larger) > needed:
            return dict(always), larger if needed else [], needed
        always.update(larger)
        needed -= len(larger)
