"""Why a partition's replicas are where they are, why not elsewhere, and what would change that.

What: `explain` looks at one partition of a layout: each replica with what speaks for it, each other
broker with why the next replica would not go there and what it would take, and whether anything
asks for a move. "The next replica" is the one that `move_plans.py` would add, by the same order:
open brokers only, as the topic's placement constraints want, then the rack with fewest of it, then
who carries least, then the lower id. Rule kept: what it would take is true: with these changes
made, and nothing else, that broker is chosen.

Not here: reasons that the controller gave (`core/controller/reasons.py`), who is in sync.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple

from anabranch.core.placement.layout import BrokerSite, Layout, Row
from anabranch.core.placement.managed import rack_name
from anabranch.core.placement.move_plans import closed, mend_racks
from anabranch.core.sentences import number_of
from anabranch.core.types import TopicPartition


class Kind(StrEnum):
    """What can be changed."""

    START = "START"
    UNCORDON = "UNCORDON"
    UNCONSTRAIN = "UNCONSTRAIN"
    """The topic has no placement constraints."""
    GIVE_UP = "GIVE_UP"
    """That broker, in the same rack, gives its replica up."""
    CARRY_AT_MOST = "CARRY_AT_MOST"
    CARRY_AT_LEAST = "CARRY_AT_LEAST"


class Change(NamedTuple):
    """One change of a broker; `replicas` are those that it shall carry."""

    kind: Kind
    broker_id: int
    replicas: int = 0

    @property
    def sentence(self) -> str:
        """The change for people."""
        return SENTENCES[self.kind].format(
            broker=self.broker_id, replicas=number_of(self.replicas, "replica")
        )


SENTENCES = {
    Kind.START: "broker {broker} is started",
    Kind.UNCORDON: "broker {broker} is not cordoned any more",
    Kind.UNCONSTRAIN: "the topic has no placement constraints",
    Kind.GIVE_UP: "the replica on broker {broker} is removed",
    Kind.CARRY_AT_MOST: "broker {broker} carries at most {replicas}",
    Kind.CARRY_AT_LEAST: "broker {broker} carries at least {replicas}",
}


class ExplainedReplica(NamedTuple):
    """A replica, and what is to be said of its place."""

    broker_id: int
    rack: str | None
    sentence: str


class NotThere(NamedTuple):
    """A broker without a replica: why it would not get the next, and what it would take; where
    `changes` is empty it would."""

    broker_id: int
    rack: str | None
    sentence: str
    changes: tuple[Change, ...]


class Explanation(NamedTuple):
    """Everything about one partition's place."""

    here: tuple[ExplainedReplica, ...]
    not_there: tuple[NotThere, ...]
    moves: tuple[str, ...]
    """What would move it, or why nothing does."""


def explain(layout: Layout, place: TopicPartition) -> Explanation:
    """Explain a partition that the layout has."""
    row = layout.rows[place]
    return Explanation(
        tuple(_here(layout, row, broker_id) for broker_id in row),
        tuple(
            _not_there(layout, place, site)
            for broker_id, site in sorted(layout.sites.items())
            if broker_id not in row
        ),
        tuple(_moves(layout, place)),
    )


def _here(layout: Layout, row: Row, broker_id: int) -> ExplainedReplica:
    site = layout.sites.get(broker_id)
    if site is None:
        return ExplainedReplica(broker_id, None, "the broker is not registered any more")
    said = ["the preferred leader"] if broker_id == row[0] else []
    others = [each for each in row if each != broker_id and layout.rack(each) == site.rack]
    if site.rack is None:
        said.append("the broker has no rack")
    elif others:
        said.append(f"rack {site.rack} has another, on {_ids(others)}")
    else:
        said.append(f"the only one in rack {site.rack}")
    if not site.active:
        said.append("the broker is down")
    if site.cordoned:
        said.append("the broker is cordoned, and existing replicas stay")
    said.append(f"the broker carries {layout.replicas[broker_id]}")
    return ExplainedReplica(broker_id, site.rack, ", ".join(said))


def _not_there(layout: Layout, place: TopicPartition, site: BrokerSite) -> NotThere:
    row = layout.rows[place]
    changes = what_it_takes(layout, place, site.broker_id)
    if not changes:
        sentence = "it would get the next replica"
    elif not site.active:
        sentence = "it is down"
    elif site.cordoned:
        sentence = "it is cordoned"
    elif changes[0].kind is Kind.UNCONSTRAIN:
        sentence = (
            f"the placement constraints of {place.topic} require other racks, or no more replicas"
        )
    elif changes[0].kind is Kind.GIVE_UP and place.topic in layout.diskless:
        sentence = (
            f"rack {rack_name(site.rack)} has one already, and a diskless topic has one in each "
            "rack"
        )
    elif changes[0].kind is Kind.GIVE_UP:
        sharing = [each for each in row if layout.rack(each) == site.rack]
        sentence = f"rack {site.rack} has one on {_ids(sharing)}, and other racks have fewer"
    else:
        best = layout.choose(row, layout.open_sites())
        assert best is not None  # the site itself is open
        carries = layout.replicas[site.broker_id]
        other = layout.replicas[best.broker_id]
        more = f"where it carries {carries}, broker {best.broker_id} carries {other}"
        sentence = f"{more}, and the lower id comes first" if carries == other else more
    return NotThere(site.broker_id, site.rack, sentence, changes)


def what_it_takes(layout: Layout, place: TopicPartition, broker_id: int) -> tuple[Change, ...]:
    """The changes with which that broker, which has no replica, would get the next one."""
    row = layout.rows[place]
    site = layout.sites[broker_id]
    if layout.choose(row, layout.fitting(place, row, layout.open_sites())) == site:
        return ()
    changes: list[Change] = []
    if not site.active:
        changes.append(Change(Kind.START, broker_id))
    if site.cordoned:
        changes.append(Change(Kind.UNCORDON, broker_id))
    if place.topic in layout.diskless:
        return (*changes, *_in_its_rack(layout, place, site))
    if place.topic in layout.rules:
        changes.append(Change(Kind.UNCONSTRAIN, broker_id))
    rivals = [each for each in layout.open_sites(row) if each.broker_id != broker_id]
    held = layout.in_racks(row)
    if rivals and site.rack is not None:
        fewest = min(_held(held, each) for each in rivals)
        sharing = [each for each in reversed(row) if layout.rack(each) == site.rack]
        gone = sharing[: max(0, len(sharing) - fewest)]
        changes += [Change(Kind.GIVE_UP, each) for each in gone]
        held[site.rack] -= len(gone)
    level = [each for each in rivals if _held(held, each) <= _held(held, site)]
    return (*changes, *_lighter(layout, site, level))


def _in_its_rack(layout: Layout, place: TopicPartition, site: BrokerSite) -> list[Change]:
    """What makes a broker come first for a diskless partition, once it may be given replicas."""
    row, rack = layout.rows[place], rack_name(site.rack)
    gone = [each for each in row if rack_name(layout.rack(each)) == rack]
    stays = [each for each in row if each not in gone]
    open_sites = [each for each in layout.open_sites(stays) if each not in (site, *gone)]
    rivals = [each for each in layout.fitting(place, stays, open_sites)
              if each.broker_id not in gone]  # fmt: skip
    return [*(Change(Kind.GIVE_UP, each) for each in gone), *_lighter(layout, site, rivals)]


def _lighter(layout: Layout, site: BrokerSite, rivals: list[BrokerSite]) -> list[Change]:
    """What makes a broker come first among those in racks as free."""
    carries = layout.replicas[site.broker_id]
    ahead = [
        each
        for each in rivals
        if (layout.replicas[each.broker_id], each.broker_id) < (carries, site.broker_id)
    ]
    if not ahead:
        return []
    least = min(layout.replicas[each.broker_id] - (each.broker_id < site.broker_id)
                for each in ahead)  # fmt: skip
    if least >= 0:
        return [Change(Kind.CARRY_AT_MOST, site.broker_id, least)]
    return [
        Change(Kind.CARRY_AT_LEAST, each.broker_id, carries + (each.broker_id < site.broker_id))
        for each in ahead
    ]


def _held(held: Counter[str], site: BrokerSite) -> int:
    return 0 if site.rack is None else held[site.rack]


def _moves(layout: Layout, place: TopicPartition) -> list[str]:
    """Whether racks, or brokers that are closed, ask for a move."""
    row = layout.rows[place]
    if place.topic in layout.diskless:
        racks = ", ".join(sorted(layout.rules.get(place.topic, ()))) or "none"
        return [
            f"{place.topic} is diskless: the controller keeps one replica in each of its racks, "
            f"{racks}; a move copies no records"
        ]
    found = []
    for broker_id in row:
        site = layout.sites.get(broker_id)
        if site is None or not site.is_open:
            state = "is not registered any more" if site is None else closed(site)
            found.append(
                f"broker {broker_id} {state}: replicas do not move automatically; `anabranch plan "
                f"drain --broker {broker_id}` would move them"
            )
    rule = layout.rules.get(place.topic)
    if rule is not None:
        return [*found, _as_constrained(layout, place, rule)]
    alone = Layout(layout.sites.values(), {place: row})
    alone.replicas = Counter(layout.replicas)
    mended = mend_racks(alone)
    for move in mended.moves:
        was, will = (", ".join(map(str, each)) for each in (move.before, move.after))
        found.append(f"`anabranch plan racks` would move it from {was} to {will}: {move.sentence}")
    found += [f"{each.what}: {each.why}; it would take {each.needs}" for each in mended.obstacles]
    return found or [f"no move is needed: {_apart(layout, row)}, and its brokers are active"]


def _apart(layout: Layout, row: Row) -> str:
    """How far the racks of replicas differ that no plan would move."""
    if all(site.rack is None for site in layout.sites.values()):
        return "no broker has a rack"
    racks = [layout.sites[broker_id].rack for broker_id in row]
    if None not in racks and len(set(racks)) == len(racks):
        return "its replicas are in different racks"
    return "its replicas are in as many racks as possible"


def _as_constrained(layout: Layout, place: TopicPartition, rule: Mapping[str, int]) -> str:
    """Whether placement constraints ask for a move."""
    row = layout.rows[place]
    wanted = ", ".join(f"{count} in rack {rack}" for rack, count in sorted(rule.items()))
    if len(row) == sum(rule.values()) and not layout.racks_with_room(rule, row):
        return f"it satisfies the placement constraints of {place.topic}: {wanted}"
    return (
        f"the placement constraints of {place.topic} require {wanted}: "
        f"`anabranch plan observers --topic {place.topic}` would move it"
    )


def _ids(broker_ids: list[int]) -> str:
    return "broker " + " and ".join(map(str, broker_ids))
