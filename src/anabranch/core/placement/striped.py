"""Kafka's own placement: stripes over racks, then over the brokers of each rack.

Goals: one replica a rack while racks suffice; leaders and replicas even within one call.
Constraints: the first replica is never on a fenced broker; in a rack a fenced broker is taken only
when the unfenced ones of that rack are used up in this partition. Guarantees: distinct brokers in a
partition; with RF <= racks no rack twice.

Worked example: racks A, B, C with brokers A0 A1 A2, B0 B1 B2, C0 C1 C2, every start at 0:
[A0, B0, C0], [B1, C1, A1], [C2, A2, B2]. The first rack moves on by one a partition, and so does
every rack's list; after as many partitions as there are unfenced brokers all lists are shuffled.

Trade-off: racks come before brokers, so the lone broker of a small rack carries as much as a whole
large rack; and nothing is remembered between calls. When a topic grows, several stripes are drawn
and the one that leaves the topic most even is taken (KAFKA-14437 is what happens otherwise).

Brokers without a rack form one rack of their own, which comes first. Source: the behaviour of
Kafka's StripedReplicaPlacer (KIP-36, KIP-631); the same draws from the same source of chance give
the same lists, which `make compat` compares with Kafka's own class.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import chain, count, islice
from random import Random

from anabranch.core.placement.placer import Ask, Placement, UsableBroker

Turns = tuple[int, list[tuple[int, slice, slice]]]
"""How many brokers a rack gives in a round; and columns, each with its places and who fill them."""
STRIPES_TRIED = 32
"""How many stripes are drawn at most when a topic grows."""
EVEN = 1
"""Nobody leads or carries more than this above another: no better stripe is looked for."""


def striped(brokers: Sequence[UsableBroker], ask: Ask, rng: Random) -> Placement:
    """Replica lists by stripes; see the module's docstring."""
    best = _stripes(brokers, ask, rng)
    if ask.existing:
        grown = GrowingTopic(brokers, ask.existing)
        least = grown.unevenness(best)
        for _ in range(STRIPES_TRIED - 1):
            if max(least[:2]) <= EVEN:
                break
            rows = _stripes(brokers, ask, rng)
            uneven = grown.unevenness(rows)
            if uneven < least:
                best, least = rows, uneven
    return Placement(best, ask.cursor)


def _stripes(brokers: Sequence[UsableBroker], ask: Ask, rng: Random) -> list[tuple[int, ...]]:
    rounds = Stripes(brokers, rng).rounds(ask.replication_factor)
    return list(islice(chain.from_iterable(rounds), ask.partition_count))


class GrowingTopic:
    """A topic that grows: its lists are counted once, however many stripes are tried."""

    def __init__(self, brokers: Sequence[UsableBroker], rows: Sequence[tuple[int, ...]]) -> None:
        self._ids = [broker.broker_id for broker in brokers]
        self._leaders = Counter(row[0] for row in rows)
        self._replicas = Counter(chain.from_iterable(rows))
        self._rows = set(rows)
        self._repeated = len(rows) - len(self._rows)

    def unevenness(self, more: Sequence[tuple[int, ...]]) -> tuple[int, int, int]:
        """How far the busiest broker is from the idlest with more lists: by leaders, by replicas;
        repeated lists."""
        leaders = self._leaders + Counter(row[0] for row in more)
        replicas = self._replicas + Counter(chain.from_iterable(more))
        return (
            max(leaders[each] for each in self._ids) - min(leaders[each] for each in self._ids),
            max(replicas[each] for each in self._ids) - min(replicas[each] for each in self._ids),
            self._repeated + len(more) - len(set(more) - self._rows),
        )


class BrokerRing:
    """Brokers of one rack that are all fenced, or all not: each is given once an epoch, and every
    epoch in which the ring is asked begins one broker later."""

    def __init__(self, brokers: Sequence[int], rng: Random) -> None:
        self.brokers = sorted(brokers)
        self.offset = rng.randrange(len(self.brokers)) if self.brokers else 0
        self.index = 0
        self.epoch = 0

    def next(self, epoch: int) -> int:
        """The next broker, -1 when all were given in this epoch."""
        brokers = self.brokers
        if not brokers:
            return -1
        if epoch != self.epoch:
            self.epoch = epoch
            self.index = 0
            self.offset = (self.offset + 1) % len(brokers)
        if self.index >= len(brokers):
            return -1
        found = brokers[(self.index + self.offset) % len(brokers)]
        self.index += 1
        return found

    def give(self, count: int) -> list[int]:
        """The brokers after the one that was given last; for a ring that is asked once an epoch."""
        brokers, first = self.brokers, self.offset + 1
        self.offset = (self.offset + count) % len(brokers)
        around = brokers * (2 + count // len(brokers))
        return around[first : first + count]


class Rack:
    """One rack's brokers, those that are unfenced apart from those that are not."""

    def __init__(self, fenced: Sequence[int], unfenced: Sequence[int], rng: Random) -> None:
        self.fenced = BrokerRing(fenced, rng)
        self.unfenced = BrokerRing(unfenced, rng)

    def next(self, epoch: int) -> int:
        """An unfenced broker if there is one left, else a fenced one, else -1."""
        found = self.unfenced.next(epoch)
        return found if found >= 0 else self.fenced.next(epoch)


class Stripes:
    """The racks of a cluster in the order in which a call goes round them."""

    def __init__(self, brokers: Sequence[UsableBroker], rng: Random) -> None:
        self.rng = rng
        self.unfenced_count = sum(not broker.fenced for broker in brokers)
        self.names = sorted({broker.rack for broker in brokers}, key=_none_first)
        self.by_name = {name: _rack(brokers, name, rng) for name in self.names}
        self.offset = rng.randrange(len(self.names))

    def rounds(self, replication_factor: int) -> Iterator[Iterator[tuple[int, ...]]]:
        """The lists of one round after the other, for ever; each is to be read before the next."""
        yield self._round(replication_factor)
        if not self._asks_once(replication_factor):
            while True:
                self._shuffle()
                yield self._round(replication_factor)
        turns = self._turns(replication_factor)
        while True:
            self._shuffle()
            yield self._even_round(replication_factor, turns)

    def _racks(self) -> list[Rack]:
        return [self.by_name[name] for name in self.names]

    def _round(self, replication_factor: int) -> Iterator[tuple[int, ...]]:
        """As many lists as there are unfenced brokers; where there is but one, all lists."""
        racks = self._racks()
        for epoch in range(self.unfenced_count) if self.unfenced_count > 1 else count():
            yield self._row(racks, replication_factor, epoch)
            self.offset = (self.offset + 1) % len(racks)

    def _row(self, racks: Sequence[Rack], replication_factor: int, epoch: int) -> tuple[int, ...]:
        first = self.offset
        while (leader := racks[first].unfenced.next(epoch)) < 0:
            first = (first + 1) % len(racks)
        found, index, is_skipped = [leader], self.offset, False
        while len(found) < replication_factor:
            if index == first and not is_skipped:
                is_skipped = True
            elif (broker_id := racks[index].next(epoch)) >= 0:
                found.append(broker_id)
            index = (index + 1) % len(racks)
        return tuple(found)

    def _asks_once(self, replication_factor: int) -> bool:
        """Whether a partition asks each rack at most once and never in vain, and a rack is asked
        last in one round later than first in the next: then it just gives its next broker."""
        racks = self.by_name.values()
        return (
            all(rack.unfenced.brokers for rack in racks)
            and replication_factor <= len(racks)
            and self.unfenced_count >= 2 * len(racks)
        )

    def _turns(self, replication_factor: int) -> list[Turns]:
        """For a rack that leads list `first` of a round: how many brokers it gives, and which of
        them go where in the columns that it fills, in the order in which it is asked."""
        size, count_of_racks = self.unfenced_count, len(self.names)
        columns = range(replication_factor)
        made = []
        for first in range(count_of_racks):
            asked = sorted(((first - column) % count_of_racks, column) for column in columns)
            given = sum((size - start - 1) // count_of_racks + 1 for start, _ in asked)
            filled = [
                (column, slice(start, None, count_of_racks), slice(turn, None, replication_factor))
                for turn, (start, column) in enumerate(asked)
            ]
            made.append((given, filled))
        return made

    def _even_round(
        self, replication_factor: int, turns: Sequence[Turns]
    ) -> Iterator[tuple[int, ...]]:
        """What `_round` gives where `_asks_once` holds, in a fraction of the time: a rack comes
        again in a column after as many lists as there are racks, so all its places are filled at
        once."""
        size, count_of_racks = self.unfenced_count, len(self.names)
        columns = [[0] * size for _ in range(replication_factor)]
        for place, rack in enumerate(self._racks()):
            how_many, filled = turns[(place - self.offset) % count_of_racks]
            given = rack.unfenced.give(how_many)
            for column, places, taken in filled:
                columns[column][places] = given[taken]
        self.offset = (self.offset + size) % count_of_racks
        return zip(*columns, strict=True)

    def _shuffle(self) -> None:
        """From the end, each with one before it or itself: as Java's shuffle draws."""
        self.rng.shuffle(self.names)
        for rack in self.by_name.values():
            if rack.fenced.brokers:
                self.rng.shuffle(rack.fenced.brokers)
            self.rng.shuffle(rack.unfenced.brokers)


def _rack(brokers: Sequence[UsableBroker], name: str | None, rng: Random) -> Rack:
    members = [broker for broker in brokers if broker.rack == name]
    fenced = [broker.broker_id for broker in members if broker.fenced]
    unfenced = [broker.broker_id for broker in members if not broker.fenced]
    return Rack(fenced, unfenced, rng)


def _none_first(rack: str | None) -> tuple[bool, str]:
    return rack is not None, rack or ""
