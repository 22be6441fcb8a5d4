"""Folders without room: others with room lead, and nobody is left without a replica in sync."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

import pytest
from tests.core.controller.test_directories import assign
from tests.core.controller.test_in_sync import alter, elect
from tests.core.controller.world import World

from anabranch.core.controller.brokers.full_folders import with_room
from anabranch.core.controller.partitions.elect_leaders import ElectionType
from anabranch.core.controller.partitions.elections import Rules
from anabranch.core.errors import ErrorCode
from anabranch.core.metadata.snapshot import from_snapshot, snapshot_records
from anabranch.core.wire.metadata_records import PartitionChangeRecord
from anabranch.core.wire.own_fields import FullDirectories, tagged

BROKERS = (1, 2, 3)
FULL, ROOM, AWAY, BACK = "full", "room", "away", "back"
ORDERS = ([1, 2, 3], [2, 3, 1], [3, 1, 2])


def folder_of(broker_id: int) -> bytes:
    return bytes([broker_id + 100]) * 16


def tell(world: World, broker_id: int, *full: bytes) -> None:
    """A heartbeat that says which folders are full."""
    world.beat(broker_id, unknown_tagged_fields=tagged(FullDirectories(ids=list(full))))


def said(world: World, broker_id: int, event: str) -> None:
    """One event of a broker's life, as its heartbeat tells it."""
    if event in (FULL, ROOM):
        told = [folder_of(broker_id)] if event == FULL else []
        tell(world, broker_id, *told)
    else:
        world.beat(broker_id, want_fence=event == AWAY)


def has_room(world: World, broker_id: int) -> bool:
    return not world.image.brokers[broker_id].full_log_dirs


def cluster(**configs: str) -> World:
    world = World()
    world.start(*BROKERS)
    world.create("t", *ORDERS, **configs)
    return world


def check(world: World, before: list[Any]) -> None:
    """What holds after each event, whatever came before."""
    for index, old in enumerate(before):
        now = world.partition("t", index)
        assert now.isr or now.elr, "somebody holds every acknowledged record"
        assert set(now.isr) <= {*old.isr, *old.elr}, "nobody joins by having room"
        up = [each for each in now.isr if world.image.brokers[each].active]
        roomy = [each for each in up if has_room(world, each)]
        if roomy:
            assert now.leader in roomy, "who has room leads"
            assert all(has_room(world, each) for each in now.isr), "and waits for no full disk"
        elif up:
            assert now.leader in up, "a full disk is read from"
    assert world.replayed() == world.image


@pytest.mark.parametrize(("minimum", "elr"), [("1", 0), ("2", 1)])
def test_every_history_of_three_brokers_keeps_a_replica_in_sync_and_room_leads(minimum, elr):
    """Every two events after a disk is full; the lists are the same seen from each broker."""
    later = list(product(BROKERS, (FULL, ROOM, AWAY, BACK)))
    for events in product([(1, FULL)], later, later):
        world = cluster(min_insync_replicas=minimum)
        world.level("eligible.leader.replicas.version", elr)
        for broker_id, event in events:
            before = [world.partition("t", each) for each in range(len(ORDERS))]
            said(world, broker_id, event)
            check(world, before)
        assert not world.sentences("LEADER_ELECTED_UNCLEANLY")


def test_what_a_full_broker_led_is_led_by_others_at_once_and_it_waits_for_no_lag():
    world = cluster()
    said(world, 1, FULL)
    for index, replicas in enumerate(ORDERS):
        partition = world.partition("t", index)
        assert sorted(partition.isr) == [2, 3]
        assert partition.leader == next(each for each in replicas if each != 1)
    assert world.sentences("FOLDER_FULL") and "no space" in world.sentences("ISR_CHANGED")[0]
    before = world.image
    tell(world, 1, folder_of(1))
    assert world.image is before, "nothing new, nothing written"
    world.beat(1)
    assert world.image is before, "a broker of another version says nothing of it"


def test_only_what_lies_in_the_full_folder_moves():
    world = World()
    folders = [bytes([50 + each]) * 16 for each in range(2)]
    world.register(1, log_dirs=folders)
    world.beat(1)
    world.start(2, 3)
    world.create("t", [1, 2, 3], [1, 2, 3])
    assert assign(world, 1, {0: folders[0], 1: folders[1]}) == [0, 0]
    tell(world, 1, folders[1])
    assert (world.partition("t", 0).leader, world.partition("t", 1).leader) == (1, 2)
    assert world.partition("t", 0).isr == (1, 2, 3)


def test_the_last_one_in_sync_leads_on_for_readers_and_gives_way_to_who_joins():
    world = cluster()
    for broker_id in (2, 3):
        said(world, broker_id, AWAY)
    said(world, 1, FULL)
    partition = world.partition("t")
    assert (partition.leader, partition.isr) == (1, (1,))
    said(world, 2, BACK)
    answer = alter(world, 1, 2)
    assert answer.error_code == ErrorCode.NEW_LEADER_ELECTED
    partition = world.partition("t")
    assert (partition.leader, partition.isr) == (2, (2,))
    assert "broker 1 left the ISR of t-0: its folder has no space" in world.sentences("ISR_CHANGED")


def test_who_has_no_room_does_not_join():
    world = cluster()
    said(world, 3, FULL)
    assert alter(world, 1, 2, 3).error_code == ErrorCode.INELIGIBLE_REPLICA
    said(world, 3, ROOM)
    assert alter(world, 1, 2, 3).error_code == ErrorCode.NONE
    assert world.partition("t").isr == (1, 2, 3)


def test_where_all_are_full_the_first_with_room_takes_over():
    world = cluster()
    for broker_id in BROKERS:
        said(world, broker_id, FULL)
    last = world.partition("t")
    assert last.isr == (3,), "each gave way to those with room"
    said(world, 3, ROOM)
    assert world.partition("t").leader == 3


def test_of_those_who_may_lead_cleanly_those_with_room_come_first():
    world = cluster(min_insync_replicas="3")
    world.level("eligible.leader.replicas.version", 1)
    for broker_id in (2, 3):
        said(world, broker_id, FULL)
    said(world, 3, ROOM)
    assert (world.partition("t").isr, world.partition("t").elr) == ((1,), (2, 3))
    said(world, 1, AWAY)
    assert world.partition("t").leader == 3


def test_preferred_leaders_wait_for_room():
    """Also one that is still in sync, as the last ones of all that are full."""
    world = cluster()
    for broker_id in (2, 3):
        said(world, broker_id, FULL)
    said(world, 1, FULL)
    world.commit(
        [
            PartitionChangeRecord(
                topic_id=world.image.topic("t").topic_id, partition_id=0, isr=[1, 2], leader=2
            )
        ]
    )
    refused = ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    assert elect(world, ElectionType.PREFERRED, 0) == [("t", 0, refused)]
    said(world, 1, ROOM)
    assert world.partition("t").leader == 1


def test_a_snapshot_and_a_new_life_know_what_is_full():
    world = cluster()
    said(world, 1, FULL)
    image = world.image
    again = from_snapshot(snapshot_records(image), image.next_offset, image.epoch)
    assert again.brokers[1].full_log_dirs == (folder_of(1),)
    world.register(1, incarnation=2)
    assert world.image.brokers[1].full_log_dirs == (), "a new process looks for itself"


def test_nobody_gives_way_to_nobody_or_to_a_replica_that_may_not_lead():
    rules = Rules(lambda _: True, 1, elr_enabled=False, roomless=frozenset({1}))
    assert with_room((1, 2), rules, (1, 2)) == (2,)
    assert with_room((1,), rules, (1,)) == (1,)
    away = replace(rules, acceptable=lambda broker_id: broker_id != 2)
    assert with_room((1, 2), away, (1, 2)) == (1, 2)
    wiped = replace(rules, emptied={2: folder_of(2)})
    assert with_room((1, 2), wiped, (1, 2)) == (1, 2)
    assert with_room((1, 2), wiped, (1,)) == (2,), "it has copied everything"
