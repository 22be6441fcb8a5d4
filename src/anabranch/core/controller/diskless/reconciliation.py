"""Which replicas a diskless partition should have, and the next step on the way there.

What: `wish` sorts a partition's replicas by rack into those that stay, those that a dead one's rack
should replace, and racks that should have one; `next_step` makes one change of it. Rules kept:

- one replica in each HEALTHY rack, on the living and uncordoned before others, then the leader,
  then by the order of the list; more than one are evicted;
- in a DEGRADED rack everything stays, and nothing comes;
- from an UNAVAILABLE rack everything goes, but the last replica of a partition never does;
- a dead replica in a HEALTHY rack is replaced there once its broker is gone, and at once if no
  replica of the partition lives;
- first what comes is added, then what goes is removed, and the leader last;
- a replica that moves inside its rack takes the place of the one before in the list, so that the
  preferred leader stays in its rack;
- where a step leaves the brokers preferred by uneven numbers of partitions, another replica is
  preferred (`preferred.py`): so a rack that returns leads again.

Every step comes nearer to the end and a partition that is as it should be has none, so that
reconciliation goes quiet. No bytes move. Source: decision 0059. Not here: when and how many
(`reconciler.py`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple

from anabranch.core.controller.diskless.preferred import evened
from anabranch.core.controller.diskless.racks import DEGRADED, HEALTHY, UNAVAILABLE, Racks

Row = tuple[int, ...]


class Wish(NamedTuple):
    """What should become of a partition's replicas."""

    keep: Row
    replace: Row
    """Those of them that are to go as soon as another broker of their rack has been added."""
    add: tuple[str, ...]
    """HEALTHY racks that have none."""
    wait: tuple[str, ...]
    """DEGRADED racks that have none."""
    is_last: bool
    """Whether a replica is kept only because it is the last one."""
    is_held: bool
    """Whether a DEGRADED rack keeps what it gives up or replaces once it has capacity."""


def wish(row: Row, leader: int, racks: Racks) -> Wish:
    """What should become of the replicas `row`."""
    members: defaultdict[str, list[int]] = defaultdict(list)
    for broker_id in row:
        if racks.state(broker_id) is not UNAVAILABLE:
            members[racks.rack_of[broker_id]].append(broker_id)
    nobody_lives = racks.living.isdisjoint(row)
    keep: set[int] = set()
    replace: list[int] = []
    is_held = False
    for name, brokers in members.items():
        if racks.by_name[name].state is DEGRADED:
            keep.update(brokers)
            is_held = is_held or len(brokers) > 1 or not racks.gone.isdisjoint(brokers)
            continue
        best = min(brokers, key=lambda each: _rank(each, leader, racks))
        keep.add(best)
        if best not in racks.living and (nobody_lives or best in racks.gone):
            replace.append(best)
    is_last = not keep
    if is_last:
        keep.add(leader if leader in row else row[0])
    lacking = [name for name in racks.target if name not in members]
    return Wish(
        tuple(each for each in row if each in keep),
        tuple(replace),
        tuple(name for name in lacking if racks.by_name[name].state is HEALTHY),
        tuple(name for name in lacking if racks.by_name[name].state is DEGRADED),
        is_last,
        is_held,
    )


def _rank(broker_id: int, leader: int, racks: Racks) -> tuple[bool, bool, bool, bool]:
    """Who of a rack stays: the lowest; of equals the first in the list."""
    living, gone = broker_id in racks.living, broker_id in racks.gone
    return not living, gone, broker_id not in racks.eligible, broker_id != leader


class Step(NamedTuple):
    """One change of a partition's replicas."""

    row: Row
    came: Row
    went: Row


def next_step(
    row: Row,
    leader: int,
    wanted: Wish,
    racks: Racks,
    carried: Mapping[int, int],
    preferred: Mapping[int, int],
) -> Step | None:
    """The next change, None when there is none to make; `carried` are the replicas that each broker
    has, `preferred` the partitions that it is the preferred leader of, over all topics."""
    step = _change(row, leader, wanted, racks, carried)
    if step is None:
        return None
    return step._replace(row=evened(step.row, row, racks.living, preferred))


def _change(
    row: Row, leader: int, wanted: Wish, racks: Racks, carried: Mapping[int, int]
) -> Step | None:
    if wanted.add or wanted.replace:
        return _add(row, wanted, racks, carried)
    if wanted.keep == row:
        return None
    extras = [each for each in row if each not in wanted.keep]
    going = tuple(each for each in extras if each != leader) or tuple(extras)
    return Step(tuple(each for each in row if each not in going), (), going)


def rescue(row: Row, wanted: Wish, racks: Racks, carried: Mapping[int, int]) -> Step | None:
    """The change that is made although nothing is reconciled: where no replica lives, a living
    broker of its rack takes the place of the first that can be replaced. None elsewhere."""
    if not wanted.replace or not racks.living.isdisjoint(row):
        return None
    dead = wanted.replace[0]
    broker_id = least_loaded(racks.rack_of[dead], racks, carried)
    return Step(tuple(broker_id if each == dead else each for each in row), (broker_id,), (dead,))


def _add(row: Row, wanted: Wish, racks: Racks, carried: Mapping[int, int]) -> Step:
    made, came = list(row), []
    for dead in wanted.replace:
        broker_id = least_loaded(racks.rack_of[dead], racks, carried)
        made.insert(made.index(dead) + 1, broker_id)
        came.append(broker_id)
    for name in wanted.add:
        broker_id = least_loaded(name, racks, carried)
        made.append(broker_id)
        came.append(broker_id)
    return Step(tuple(made), tuple(came), ())


def least_loaded(rack: str, racks: Racks, carried: Mapping[int, int]) -> int:
    """The eligible broker of a HEALTHY rack that carries least; the lower id of equals."""
    eligible = racks.by_name[rack].eligible
    if len(eligible) == 1:
        return eligible[0]
    return min(eligible, key=lambda each: (carried.get(each, 0), each))


class PlacementState(StrEnum):
    """Where a partition is on its way, in the words of `anabranch placement`."""

    RECONCILING = "reconciling"
    STEADY = "steady"
    FROZEN = "frozen"


MISSING_RACK_CAPACITY = "missingRackCapacity"


class Placement(NamedTuple):
    """A partition as `anabranch placement` tells of it."""

    target_racks: tuple[str, ...]
    assigned_racks: tuple[str, ...]
    state: PlacementState
    exceptions: tuple[str, ...]
    has_drifted: bool
    sentences: tuple[str, ...]
    """Why what is not as it should be stays, or what is about to change."""

    @property
    def rack_coverage(self) -> int:
        """Percent of the target racks that have a replica."""
        if not self.target_racks:
            return 0
        have = set(self.assigned_racks).intersection(self.target_racks)
        return len(have) * 100 // len(self.target_racks)


def placement(row: Row, leader: int, racks: Racks, *, reconciles: bool) -> Placement:
    """The placement view of a partition; `reconciles` is
    `diskless.managed.rf.auto.reconcile`."""
    wanted = wish(row, leader, racks)
    has_drifted = bool(wanted.add) or len(wanted.keep) < len(row) or _is_crowded(wanted, racks)
    is_pending = has_drifted or bool(wanted.replace)
    state = PlacementState.STEADY
    if is_pending or wanted.wait:
        state = PlacementState.RECONCILING
    if is_pending and not reconciles:
        state = PlacementState.FROZEN
    target = racks.target
    lacks = any(racks.by_name[name].state is DEGRADED for name in target)
    assigned = {racks.rack_of[each] for each in row if each in racks.rack_of}
    return Placement(
        target,
        tuple(sorted(assigned)),
        state,
        (MISSING_RACK_CAPACITY,) if lacks else (),
        has_drifted,
        tuple(_sentences(row, wanted, racks, reconciles=reconciles)),
    )


def _is_crowded(wanted: Wish, racks: Racks) -> bool:
    """Whether a DEGRADED rack has several, which stay until it has capacity again."""
    names = [racks.rack_of[each] for each in wanted.keep if each in racks.rack_of]
    return len(set(names)) < len(names)


UNLED = (
    "it has no leader: none of its replicas is on a living broker, and no broker of their racks "
    "can get one; start one of them, or remove its cordon"
)


def _sentences(row: Row, wanted: Wish, racks: Racks, *, reconciles: bool) -> list[str]:
    said = [UNLED] if racks.living.isdisjoint(row) and not wanted.replace else []
    off = "" if reconciles else ", but diskless.managed.rf.auto.reconcile is false"
    for name in wanted.add:
        said.append(f"rack {name} has no replica and gets one{off}")
    for name in wanted.wait:
        said.append(f"rack {name} has no replica, and no broker that can get one: it waits")
    for broker_id in row:
        rack = racks.rack_of.get(broker_id, "none that is known")
        if broker_id in wanted.replace:
            said.append(
                f"broker {broker_id} is unavailable: another broker of rack {rack} replaces it{off}"
            )
        elif broker_id not in wanted.keep:
            said.append(f"the replica on broker {broker_id} (rack {rack}) is removed{off}")
        elif broker_id not in racks.living and wanted.is_last:
            said.append(f"broker {broker_id} is unavailable, but has the last replica, which stays")
        elif broker_id not in racks.living:
            said.append(
                f"broker {broker_id} (rack {rack}) is unreachable, and its replica stays until the "
                "threshold has passed"
            )
    return said
