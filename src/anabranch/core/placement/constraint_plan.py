"""The plan that brings a topic to its placement constraints.

What: `meet` gives each rack the replicas that the constraints want. Rules kept: a replica that fits
stays, and the list keeps its order, so that the leader stays where it fits; a broker that observes
the partition is taken before others, since it has the records already; of a rack with too many,
whoever is down or carries most goes, the first last; a partition whose constraints cannot be met
does not move at all. Observers are not moved by a plan: the controller sets them when replicas are
as constrained (`core/controller/partitions/observer_placement.py`); what they would lack is an
obstacle here.

Worked example: replicas on 1, 2 (east), observed by 3 (west); with `replicas=east:1,west:1` broker
3 is promoted and 2 gives its replica up: 1, 2 becomes 1, 3, and nothing is copied.

Not here: reading constraints, new partitions (`constraints.py`); other goals (`move_plans.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from anabranch.core.placement.constraints import Constraints, first_unmet
from anabranch.core.placement.layout import Layout, Row
from anabranch.core.placement.move_plans import MoveCause, Obstacle, Plan, PlannedMove
from anabranch.core.placement.placer import UsableBroker
from anabranch.core.sentences import number_of
from anabranch.core.types import TopicPartition


class _Choice(NamedTuple):
    row: Row
    notes: list[str]


def meet(
    layout: Layout, topic: str, constraints: Constraints, observers: Mapping[TopicPartition, Row]
) -> Plan:
    """Move what does not fit; `observers` are those of each partition now."""
    goal = f"meet the placement constraints of {topic}"
    moves: list[PlannedMove] = []
    obstacles: list[Obstacle] = []
    for place in sorted(place for place in layout.rows if place.topic == topic):
        before = layout.rows[place]
        chosen = _chosen(layout, place, constraints, observers.get(place, ()))
        if isinstance(chosen, Obstacle):
            obstacles.append(chosen)
        elif chosen.notes:
            layout.move(place, chosen.row)
            sentence = "; ".join(chosen.notes)
            moves.append(PlannedMove(place, before, chosen.row, MoveCause.CONSTRAINTS, sentence))
    if not obstacles:
        obstacles += _observers_lack(layout, topic, constraints)
    return Plan(goal, tuple(moves), tuple(obstacles))


def _chosen(
    layout: Layout, place: TopicPartition, constraints: Constraints, observers: Row
) -> _Choice | Obstacle:
    row = layout.rows[place]
    stays: set[int] = set()
    comes: list[int] = []
    notes: list[str] = []
    for rack, wanted in constraints.replicas.items():
        has = [each for each in row if layout.rack(each) == rack]
        has.sort(key=lambda each: (_is_down(layout, each), each != row[0], layout.replicas[each]))
        stays.update(has[:wanted])
        new = _new(layout, rack, wanted - len(has), row, observers)
        if isinstance(new, int):
            return _lacking(layout, place, rack, wanted, new)
        comes += new
        notes += [_comes(each, rack, observers) for each in new]
    notes += [_goes(layout, each, constraints) for each in row if each not in stays]
    return _Choice((*(each for each in row if each in stays), *comes), notes)


def _new(layout: Layout, rack: str, count: int, row: Row, observers: Row) -> list[int] | int:
    """Brokers of the rack that get a replica; how many there are when they are too few."""
    if count <= 0:
        return []
    free = [
        site.broker_id
        for site in layout.open_sites()
        if site.rack == rack and site.broker_id not in row
    ]
    if len(free) < count:
        return len(free)
    free.sort(key=lambda each: (each not in observers, layout.replicas[each], each))
    return free[:count]


def _is_down(layout: Layout, broker_id: int) -> bool:
    site = layout.sites.get(broker_id)
    return site is None or not site.active


def _comes(broker_id: int, rack: str, observers: Row) -> str:
    if broker_id in observers:
        return f"broker {broker_id} is promoted from observer: rack {rack} needs more replicas"
    return f"rack {rack} needs more replicas; broker {broker_id} carries least there"


def _goes(layout: Layout, broker_id: int, constraints: Constraints) -> str:
    rack = layout.rack(broker_id)
    wanted = constraints.replicas.get(rack or "", 0)
    where = f"rack {rack}" if rack else "a broker without a rack"
    demoted = "; it may observe then" if constraints.observers.get(rack or "") else ""
    return f"the replica on broker {broker_id} is removed: {where} should have {wanted}{demoted}"


def _lacking(layout: Layout, place: TopicPartition, rack: str, wanted: int, free: int) -> Obstacle:
    has = sum(layout.rack(each) == rack for each in layout.rows[place])
    return Obstacle(
        f"{number_of(wanted, 'replica')} of {place} in rack {rack}",
        f"it has {has}, and {number_of(free, 'other broker')} of it can get one",
        f"{number_of(wanted - has - free, 'more active broker')} in rack {rack} that are not "
        "cordoned",
    )


def _observers_lack(layout: Layout, topic: str, constraints: Constraints) -> list[Obstacle]:
    sites = [UsableBroker(site.broker_id, site.rack, False) for site in layout.open_sites()]
    unmet = first_unmet(sites, Constraints({}, constraints.observers))
    if unmet is None:
        unmet = first_unmet(sites, constraints)
    if unmet is None or unmet.what == "replica":
        return []
    taken = constraints.replicas.get(unmet.rack, 0)
    return [
        Obstacle(
            f"{number_of(unmet.wanted, 'observer')} of each partition of {topic} in rack "
            f"{unmet.rack}",
            f"{number_of(len(unmet.there), 'broker')} there can get one, beside "
            f"{number_of(taken, 'replica')}",
            f"{number_of(unmet.wanted + taken, 'active broker')} in rack {unmet.rack} that are "
            "not cordoned",
        )
    ]
