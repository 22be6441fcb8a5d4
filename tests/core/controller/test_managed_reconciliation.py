"""Racks and steps, as an exhaustive model of four brokers in three racks."""

from __future__ import annotations

from collections import Counter
from itertools import permutations, product

import pytest
from immutables import Map

from anabranch.core.controller.brokers.cordons import CORDON, EVERY_FOLDER
from anabranch.core.controller.diskless.leaders import change_diskless
from anabranch.core.controller.diskless.racks import DEGRADED, HEALTHY, UNAVAILABLE, Racks
from anabranch.core.controller.diskless.reconciliation import (
    MISSING_RACK_CAPACITY,
    PlacementState,
    next_step,
    placement,
    wish,
)
from anabranch.core.metadata.concerns.topics import changed_partition
from anabranch.core.metadata.image import (
    RESOURCE_BROKER,
    Absence,
    BrokerImage,
    MetadataImage,
    PartitionImage,
)
from anabranch.core.types import TopicId

HOME = {1: "a", 2: "a", 3: "b", 4: None}
"""Broker 4 has no rack; no record tells of broker 9."""
LIVES, CORDONED, AWAY, GONE, UNREGISTERED = range(5)
LONGEST = 12


def image_of(states, home=HOME):
    """An image in which the brokers of `home` are in these states."""
    brokers, absences, configs = {}, {}, {}
    for (broker_id, rack), state in zip(home.items(), states, strict=True):
        if state != UNREGISTERED:
            fenced = state in (AWAY, GONE)
            brokers[broker_id] = BrokerImage(broker_id, 1, bytes(16), Map(), rack, fenced=fenced)
        if state in (AWAY, GONE, UNREGISTERED):
            absences[broker_id] = Absence(rack, 7, state == GONE)
        if state == CORDONED:
            configs[RESOURCE_BROKER, str(broker_id)] = Map({CORDON: EVERY_FOLDER})
    return MetadataImage(brokers=Map(brokers), absences=Map(absences), configs=Map(configs))


def expected_state(racks, states, name):
    of_rack = [s for (_, rack), s in zip(HOME.items(), states, strict=True)
               if (rack or "unknown") == name]  # fmt: skip
    if LIVES in of_rack:
        return HEALTHY
    return UNAVAILABLE if set(of_rack) == {GONE} else DEGRADED


IMAGES = [
    (states, Racks(image_of(states))) for states in product(range(5), range(4), range(5), (0, 2, 3))
]
ROWS = [
    *permutations((1, 2, 3, 4), 3),
    *permutations((1, 2, 3, 9), 2),
    (1, 2, 3, 9),
    (9, 1, 3),
    (1,),
    (3,),
    (9,),
]


@pytest.mark.parametrize("row", [(1, 5, 4), (5, 1, 4)])
def test_of_two_dead_replicas_of_a_rack_the_one_that_is_awaited_stays(row):
    home = {1: "a", 5: "a", 3: "a", 4: "b"}
    racks = Racks(image_of((GONE, AWAY, LIVES, LIVES), home))
    wanted = wish(row, 4, racks)
    assert (wanted.keep, wanted.replace) == ((5, 4), ())


def test_a_rack_is_healthy_degraded_or_unavailable_as_its_brokers_are():
    for states, racks in IMAGES:
        for name in ("a", "b", "unknown"):
            rack = racks.by_name[name]
            assert rack.state is expected_state(racks, states, name), (states, name)
            assert (name in racks.target) == (rack.state is not UNAVAILABLE)
            assert bool(rack.eligible) == (rack.state is HEALTHY)


def partition_on(row, racks):
    partition = PartitionImage(row, row, -1, 0, 0, (bytes(16),) * len(row))
    return moved(partition, row, racks)


def moved(partition, row, racks):
    record = change_diskless(TopicId(bytes(16)), 0, partition, row, racks.living.__contains__)
    return partition if record is None else changed_partition(partition, record)


def check_step(before, step, racks, carried):
    row, living = before.replicas, racks.living
    assert step.row, "the last replica is never removed"
    assert bool(step.came) != bool(step.went), "add, then remove"
    assert set(step.row) == (set(row) | set(step.came)) - set(step.went)
    assert len(set(step.row)) == len(step.row)
    for each in step.came:
        rack = racks.by_name[racks.rack_of[each]]
        assert rack.state is HEALTHY
        assert each == min(rack.eligible, key=lambda other: (carried[other], other))
        assert not [b for b in row if racks.rack_of.get(b) == rack.name and b in living]
    for each in step.went:
        if racks.state(each) is not UNAVAILABLE:
            assert racks.state(each) is HEALTHY, "what a degraded rack has stays"
            others = [b for b in step.row if racks.rack_of.get(b) == racks.rack_of[each]]
            assert others, "a rack loses its replica only to another broker of it"
    if before.leader in step.went:
        assert step.went == (before.leader,), "the leader goes last, alone"
    if not living.isdisjoint(row):
        assert not living.isdisjoint(step.row), "who lived lives on"


def check_end(begin, end, racks):
    by_rack = {}
    for each in end:
        by_rack.setdefault(racks.rack_of.get(each), []).append(each)
    for name, rack in racks.by_name.items():
        have = by_rack.pop(name, [])
        if rack.state is HEALTHY:
            assert len(have) == 1, "one replica in each healthy rack"
            if have[0] not in racks.living:
                assert have[0] not in racks.gone
                assert not racks.living.isdisjoint(end)
        elif rack.state is DEGRADED:
            assert have == [b for b in begin if racks.rack_of.get(b) == name]
        elif have:
            assert end == tuple(have)
            assert len(have) == 1
    assert not by_rack or len(end) == 1
    for each in begin:  # nobody gives up a replica without a reason
        alone = [b for b in begin if racks.rack_of.get(b) == racks.rack_of.get(each)] == [each]
        if alone and each in racks.living:
            assert each in end


def test_every_partition_comes_to_one_replica_a_rack_step_by_step_and_stays():
    carried = {1: 5, 2: 1, 3: 0, 4: 9}
    for states, racks in IMAGES:
        for row in ROWS:
            partition = partition_on(row, racks)
            for steps in range(LONGEST):  # noqa: B007
                wanted = wish(partition.replicas, partition.leader, racks)
                step = next_step(partition.replicas, partition.leader, wanted, racks, carried, {})
                seen = placement(partition.replicas, partition.leader, racks, reconciles=True)
                if step is None:
                    break
                assert seen.state is PlacementState.RECONCILING
                assert seen.sentences
                frozen = placement(partition.replicas, partition.leader, racks, reconciles=False)
                assert frozen.state is PlacementState.FROZEN
                check_step(partition, step, racks, carried)
                partition = moved(partition, step.row, racks)
                assert partition.isr == step.row
            else:
                raise AssertionError(f"{states} {row} is never done")
            check_end(row, partition.replicas, racks)
            lacks = any(racks.by_name[name].state is DEGRADED for name in racks.target)
            assert seen.exceptions == ((MISSING_RACK_CAPACITY,) if lacks else ())
            full = set(seen.target_racks) <= set(seen.assigned_racks)
            assert (seen.rack_coverage == 100) == (full and bool(racks.target))


PREFERRED = [{1: 9, 2: 1, 3: 4, 4: 4}, {1: 0, 2: 3, 3: 7, 4: 1}]


def test_no_step_leaves_a_living_replica_preferred_by_two_fewer_partitions():
    for (states, racks), preferred, row in product(IMAGES, PREFERRED, ROWS):
        leader = partition_on(row, racks).leader
        step = next_step(row, leader, wish(row, leader, racks), racks, {}, preferred)
        if step is None:
            continue
        after = Counter(preferred)
        after[row[0]] -= 1
        after[step.row[0]] += 1
        living = [after[each] for each in step.row if each in racks.living]
        assert not living or after[step.row[0]] - min(living) <= 1, (states, row, step)


def test_one_replica_in_each_living_rack_never_moves_whoever_carries_more():
    racks = Racks(image_of((LIVES, LIVES, LIVES, LIVES)))
    for row in permutations((2, 3, 4)):
        for leader in row:
            wanted = wish(row, leader, racks)
            assert next_step(row, leader, wanted, racks, {2: 100}, {}) is None


def test_a_replacement_takes_the_place_in_the_list():
    racks = Racks(image_of((GONE, LIVES, LIVES, LIVES)))
    partition = partition_on((1, 3, 4), racks)
    found = []
    while True:
        wanted = wish(partition.replicas, partition.leader, racks)
        step = next_step(partition.replicas, partition.leader, wanted, racks, {}, {})
        if step is None:
            break
        found.append(step.row)
        partition = moved(partition, step.row, racks)
    assert found == [(1, 2, 3, 4), (2, 3, 4)]


def test_the_leader_stays_where_it_can():
    racks = Racks(image_of((LIVES, LIVES, LIVES, LIVES)))
    wanted = wish((1, 2, 3, 4), 2, racks)
    assert next_step((1, 2, 3, 4), 2, wanted, racks, {}, {}).row == (2, 3, 4)


def test_a_cordoned_leader_goes_after_the_others():
    racks = Racks(image_of((CORDONED, LIVES, LIVES, LIVES)))
    rows, row, leader = [], (1, 2, 9, 3, 4), 1
    for _ in range(2):
        step = next_step(row, leader, wish(row, leader, racks), racks, {}, {})
        row = step.row
        rows.append(row)
    assert rows == [(1, 2, 3, 4), (2, 3, 4)]


def test_drift_is_of_racks_and_not_of_brokers():
    racks = Racks(image_of((LIVES, LIVES, LIVES, LIVES)))

    def drifts(*row):
        return placement(row, row[0], racks, reconciles=True).has_drifted

    assert not drifts(1, 3, 4)
    assert not drifts(2, 3, 4)
    assert drifts(1, 2, 3, 4)
    assert drifts(1, 3)
    waits = Racks(image_of((AWAY, LIVES, LIVES, AWAY)))
    assert not placement((1, 3), 3, waits, reconciles=True).has_drifted
    assert placement((1, 3), 3, waits, reconciles=True).state is PlacementState.RECONCILING
