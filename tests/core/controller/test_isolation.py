"""Who hears none of the others fences nobody and gives its lease back, once."""

from __future__ import annotations

import pytest
from tests.core.controller.world import World

from anabranch.core.controller.tenure.isolation import NOTHING_GIVEN, GivenBack
from anabranch.core.errors import ErrorCode
from anabranch.core.wire.metadata_records import ControllerEndpoint, RegisterControllerRecord

TIMEOUT_MS = 9_000
HALF_MS = TIMEOUT_MS // 2
EXPIRED = "BROKER_SESSION_EXPIRED"
LEASE_MS = 10_000
"""Longer than a session, as it is where sessions are short."""


def world_of(*broker_ids: int, controllers: tuple[int, ...] = (1, 2, 3)) -> World:
    """Controller 1 and brokers that were all heard just now."""
    world = World()
    there = [ControllerEndpoint(name="CONTROLLER", host="h", port=9093)]
    world.commit(
        [RegisterControllerRecord(controller_id=each, end_points=there) for each in controllers]
    )
    world.start(*broker_ids)
    return world


def live(world: World, ms: int, *heard: int) -> list[str]:
    """Time in which these brokers are heard, and the controller decides and does not give way."""
    codes: list[str] = []
    for _ in range(0, ms, 500):
        codes += world.pass_time(500)
        for broker_id in heard:
            world.beat(broker_id)
        assert not gives_way(world)
    return codes


def gives_way(world: World) -> str:
    return world.controller.gives_way(world.now_ms)


def fenced(world: World) -> list[int]:
    return [each.broker_id for each in world.image.brokers.values() if each.fenced]


def test_all_others_fall_silent_together_and_nobody_is_fenced() -> None:
    world = world_of(1, 2, 3)
    ticks = world.ticks
    assert live(world, TIMEOUT_MS, 1) == []
    assert world.ticks - ticks < 20, "it does not look all the time"
    world.now_ms += 1
    assert "no heartbeat from any of 2 other brokers for 9000 ms" in gives_way(world)
    assert world.controller.tick(world.now_ms) is None
    assert fenced(world) == []


def test_whom_it_heard_last_decides_when() -> None:
    world = world_of(1, 2, 3)
    live(world, HALF_MS, 1, 3)
    assert live(world, TIMEOUT_MS, 1) == []
    assert fenced(world) == []
    world.now_ms += 1
    assert gives_way(world)


def test_those_who_fall_silent_one_after_another_are_fenced() -> None:
    world = world_of(1, 2, 3)
    live(world, HALF_MS + 500, 1, 3)
    assert live(world, 2 * TIMEOUT_MS, 1) == [EXPIRED, EXPIRED]
    assert fenced(world) == [2, 3]


def test_one_that_is_heard_again_ends_the_wait() -> None:
    world = world_of(1, 2, 3)
    live(world, HALF_MS, 1, 3)
    assert live(world, TIMEOUT_MS - 500, 1) == []
    assert live(world, 1_000, 1, 3) == [EXPIRED]
    assert fenced(world) == [2]


def test_nobody_is_given_up_as_silent_by_who_hears_nobody() -> None:
    world = world_of(1, 2, 3, 4)
    world.create("t", [4], unclean_leader_election_enable="true")
    world.controller.sessions.suspect(4, world.image.brokers[4].epoch)
    live(world, TIMEOUT_MS, 1)
    assert [broker_id for broker_id, _ in world.controller.sessions.suspected_ms] == [4]


@pytest.mark.parametrize(
    ("brokers", "controllers"),
    [
        pytest.param((1, 2), (1, 2), id="two nodes"),
        pytest.param((1, 2, 3), (1,), id="no other controller"),
        pytest.param((1, 2, 3), (), id="controllers that do not register"),
    ],
)
def test_who_could_not_be_bettered_stays(
    brokers: tuple[int, ...], controllers: tuple[int, ...]
) -> None:
    world = world_of(*brokers, controllers=controllers)
    assert live(world, 2 * TIMEOUT_MS, 1) == [EXPIRED] * (len(brokers) - 1)


def test_where_one_other_is_left_it_is_fenced() -> None:
    world = world_of(1, 2, 3)
    live(world, 2 * TIMEOUT_MS, 1, 3)
    assert fenced(world) == [2]
    assert live(world, 2 * TIMEOUT_MS, 1) == [EXPIRED]


def test_brokers_that_a_hint_has_fenced_were_not_silent() -> None:
    world = world_of(1, 2, 3)
    world.controller.sessions.suspect(2, world.image.brokers[2].epoch)
    assert EXPIRED in live(world, 2 * TIMEOUT_MS, 1)


def test_who_was_never_heard_in_this_term_is_fenced() -> None:
    world = world_of(1, 2, 3)
    world.controller.begin_term(2, world.image, world.controller.log, world.now_ms)
    assert live(world, 2 * TIMEOUT_MS, 1) == [EXPIRED, EXPIRED]


def test_a_process_that_stood_still_does_not_give_way() -> None:
    world = world_of(1, 2, 3)
    world.now_ms += 10 * TIMEOUT_MS
    world.controller.sessions.forgive(10 * TIMEOUT_MS, world.now_ms)
    assert not gives_way(world)
    assert world.controller.tick(world.now_ms) is None


@pytest.mark.parametrize("brokers", [(11,), (11, 12)], ids=["one broker", "two brokers"])
def test_a_controller_that_is_no_broker_gives_way_to_whoever_hears_one(
    brokers: tuple[int, ...],
) -> None:
    world = world_of(*brokers)
    assert live(world, TIMEOUT_MS) == []
    world.now_ms += 1
    assert gives_way(world)


def test_one_that_is_not_active_has_nothing_to_give() -> None:
    world = world_of(1, 2, 3)
    world.now_ms += 2 * TIMEOUT_MS
    world.controller.resign()
    assert not gives_way(world)


def given_back(world: World) -> None:
    """All others are silent; the lease is given back, and nobody takes it in its time."""
    live(world, TIMEOUT_MS, 1)
    world.now_ms += 1
    assert gives_way(world)
    controller = world.controller
    controller.given_back = GivenBack(controller.epoch, world.now_ms + LEASE_MS)
    controller.resign()
    world.now_ms += LEASE_MS


def take_again(world: World, epoch: int) -> None:
    world.controller.begin_term(epoch, world.image, world.controller.log, world.now_ms)


def test_when_nobody_took_the_lease_silence_goes_on() -> None:
    world = world_of(1, 2, 3)
    given_back(world)
    take_again(world, 2)
    assert world.pass_time(100) == [EXPIRED, EXPIRED]
    assert fenced(world) == [2, 3]
    assert not gives_way(world)
    assert live(world, 3 * TIMEOUT_MS, 1) == []


def test_who_was_heard_while_nobody_was_in_office_is_not_silent() -> None:
    world = world_of(1, 2, 3)
    given_back(world)
    assert world.beat(2).error_code == ErrorCode.NOT_CONTROLLER
    take_again(world, 2)
    assert world.pass_time(100) == [EXPIRED]
    assert fenced(world) == [3]


def test_after_another_was_in_office_everybody_has_a_whole_session() -> None:
    world = world_of(1, 2, 3)
    given_back(world)
    take_again(world, 3)
    assert live(world, TIMEOUT_MS - 500, 1) == []


def test_a_heartbeat_at_a_controller_in_waiting_begins_no_session() -> None:
    world = world_of(1)
    world.register(2)
    world.controller.sessions.forget(2, world.image.brokers[2].epoch)
    world.controller.resign()
    world.beat(2)
    assert not world.controller.sessions.valid(2, world.image.brokers[2].epoch, world.now_ms)


@pytest.mark.parametrize(
    ("given", "epoch", "now_ms", "left"),
    [
        pytest.param(GivenBack(7, 100), 7, 99, True, id="nobody took it yet"),
        pytest.param(GivenBack(7, 100), 7, 100, False, id="time is up"),
        pytest.param(GivenBack(7, 100), 8, 99, False, id="another took it meanwhile"),
        pytest.param(NOTHING_GIVEN, 1, 0, False, id="nothing given"),
    ],
)
def test_a_lease_is_left_to_others(given: GivenBack, epoch: int, now_ms: int, left: bool) -> None:
    assert given.is_left_to_others(epoch, now_ms) is left
