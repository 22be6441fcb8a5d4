"""A cluster as planning sees it: who holds what, and changes to that which are only thought.

What: `Layout` has the brokers, every partition's replicas and the counts that follow; `move` gives
a partition other replicas and keeps the counts. Why counts: a plan asks a million partitions' worth
of questions. Rule kept: a layout changes nothing outside itself; plans are read off as differences.

Not here: what should change (`move_plans.py`).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from anabranch.core.placement.managed import rack_name
from anabranch.core.types import TopicPartition

Row = tuple[int, ...]


class BrokerSite(NamedTuple):
    """A broker as a place for replicas."""

    broker_id: int
    rack: str | None = None
    active: bool = True
    """Neither fenced nor leaving."""
    cordoned: bool = False
    """To be given nothing new."""

    @property
    def is_open(self) -> bool:
        """Whether it may be given replicas."""
        return self.active and not self.cordoned


class Layout:
    """Who holds what; see the module's docstring."""

    def __init__(
        self,
        sites: Iterable[BrokerSite],
        partitions: Mapping[TopicPartition, Row],
        rules: Mapping[str, Mapping[str, int]] | None = None,
        diskless: Collection[str] = (),
        accepting_shared_racks: Collection[str] = (),
        missing: Mapping[TopicPartition, int] | None = None,
    ) -> None:
        self.sites = {site.broker_id: site for site in sites}
        self.rules = rules or {}
        """By topic: how many replicas its placement constraints want in each rack; of a diskless
        topic one in each."""
        self.diskless = diskless
        """Topics of which no bytes move with a replica."""
        self.accepting_shared_racks = accepting_shared_racks
        """Topics with `ignore.rack.assignment=true`: replicas in one rack are no violation."""
        self.missing = missing or {}
        """Partitions that wait for replicas that no broker has, and how many."""
        self.before = partitions
        self.rows: dict[TopicPartition, Row] = dict(partitions)
        self.replicas: Counter[int] = Counter()
        self.leaders: Counter[int] = Counter()
        for row in self.rows.values():
            self.replicas.update(row)
            self.leaders[row[0]] += 1

    def rack(self, broker_id: int) -> str | None:
        """A broker's rack; None when it has none, or is not known any more."""
        site = self.sites.get(broker_id)
        return None if site is None else site.rack

    def move(self, place: TopicPartition, row: Row) -> None:
        """Give a partition these replicas."""
        old = self.rows[place]
        self.replicas.subtract(old)
        self.leaders[old[0]] -= 1
        self.rows[place] = row
        self.replicas.update(row)
        self.leaders[row[0]] += 1

    def moved(self) -> Iterator[TopicPartition]:
        """The partitions that have other replicas than before, in order."""
        return iter(sorted(place for place, row in self.rows.items() if row != self.before[place]))

    def places_of(self, broker_ids: Iterable[int]) -> list[TopicPartition]:
        """The partitions with a replica on any of these brokers, in order."""
        wanted = set(broker_ids)
        return sorted(place for place, row in self.rows.items() if not wanted.isdisjoint(row))

    def by_broker(self) -> dict[int, list[TopicPartition]]:
        """The partitions of each broker, in order."""
        found: defaultdict[int, list[TopicPartition]] = defaultdict(list)
        for place in sorted(self.rows):
            for broker_id in self.rows[place]:
                found[broker_id].append(place)
        return found

    def open_sites(self, without: Iterable[int] = ()) -> list[BrokerSite]:
        """The brokers that may be given replicas, by id."""
        closed = set(without)
        return [
            site
            for broker_id, site in sorted(self.sites.items())
            if site.is_open and broker_id not in closed
        ]

    def in_racks(self, row: Sequence[int]) -> Counter[str]:
        """Replicas of a list in each rack; those without one are not counted."""
        racks = (self.rack(broker_id) for broker_id in row)
        return Counter(rack for rack in racks if rack is not None)

    def fitting(
        self, place: TopicPartition, row: Sequence[int], sites: Sequence[BrokerSite]
    ) -> Sequence[BrokerSite]:
        """Those of the brokers that may be given a replica of a partition that is on `row`, as its
        topic's constraints say; all where it has none."""
        rule = self.rules.get(place.topic)
        if rule is None:
            return sites
        room = set(self.racks_with_room(rule, row))
        return [site for site in sites if rack_name(site.rack) in room]

    def racks_with_room(self, rule: Mapping[str, int], row: Sequence[int]) -> list[str]:
        """The racks in which constraints want more than `row` has."""
        held = Counter(rack_name(self.rack(broker_id)) for broker_id in row)
        return sorted(rack for rack, wanted in rule.items() if held[rack] < wanted)

    def choose(self, row: Sequence[int], sites: Sequence[BrokerSite]) -> BrokerSite | None:
        """The best of these brokers to get a replica of a partition that is on `row`: in the rack
        with fewest of it, then with least on it, then by id; None when all have one."""
        held = self.in_racks(row)
        free = [site for site in sites if site.broker_id not in row]
        return min(
            free,
            key=lambda site: (
                0 if site.rack is None else held[site.rack],
                self.replicas[site.broker_id],
                site.broker_id,
            ),
            default=None,
        )
