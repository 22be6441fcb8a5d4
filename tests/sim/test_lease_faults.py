"""What the active controller's term rests on goes wrong: clocks, suspended machines, the store."""

from __future__ import annotations

import pytest
from tests.sim.test_cluster import Scene

from anabranch.sim.checks.suite import Suite
from anabranch.sim.clocks import SteadyClock
from anabranch.sim.history import History
from anabranch.sim.node import SimNode
from anabranch.sim.world import World

LEASE_S = 6


def watched(seed: int) -> tuple[Scene, SimNode]:
    """A cluster that works, with all checks on, and its active controller."""
    scene = Scene(seed)
    scene.suite = Suite(scene.cluster, History())  # type: ignore[attr-defined]
    scene.create_topic()
    scene.write(3)
    node = scene.cluster.active_controller()
    assert node is not None
    return scene, node


def after(scene: Scene, seconds: float) -> SimNode:
    """The active controller a while later, of a cluster that still works."""
    scene.wait(seconds)
    scene.write(3)
    scene.wait(2)
    assert len(scene.acknowledged) == 6
    node = scene.cluster.active_controller()
    assert node is not None
    return node


def test_a_suspended_controller_goes_on_with_an_old_lease_and_commits_nothing() -> None:
    scene, old = watched(40)
    epoch = old.controller.epoch
    old.clock.stand()
    old.pause()
    scene.wait(2 * LEASE_S)
    old.clock.go_on()
    old.resume()
    new = after(scene, 2 * LEASE_S)
    assert new.controller.epoch > epoch
    assert [n for n in scene.cluster.nodes.values() if n.controller.active] == [new]


@pytest.mark.parametrize("seed", [41, 42])
def test_a_clock_that_jumps_costs_the_holder_its_term_and_nothing_else(seed: int) -> None:
    scene, old = watched(seed)
    epoch = old.controller.epoch
    old.clock.jump(1_000 * (LEASE_S + 1))
    old.controller_shell.clock_changed()
    assert after(scene, 5).controller.epoch > epoch


def test_a_clock_that_drifts_changes_nothing() -> None:
    scene, old = watched(43)
    epoch = old.controller.epoch
    for rate, node in zip((0.8, 1.2, 1.0), scene.cluster.nodes.values(), strict=True):
        node.clock.run_at(rate)
        node.controller_shell.clock_changed()
    assert after(scene, 60).controller.epoch == epoch


def test_nodes_stop_for_an_older_copy_of_the_store_and_write_nothing_to_it() -> None:
    scene, old = watched(44)
    store = scene.cluster.store
    end_offset = store.end_offset
    assert store.restore_backup(end_offset - 5)
    back_to = store.end_offset
    assert back_to < end_offset
    old.crash()
    scene.wait(LEASE_S + 10)
    assert store.end_offset == back_to
    stopped = [node.stopped_because for node in scene.cluster.nodes.values() if not node.is_up]
    assert sum("went back" in sentence for sentence in stopped) == 2
    store.come_back()
    for node in scene.cluster.nodes.values():
        node.start()
    after(scene, 30)
    assert store.end_offset > end_offset


@pytest.mark.parametrize("is_suspended", [False, True])
def test_who_lost_its_lease_and_does_not_know_yet_stops_no_node(is_suspended: bool) -> None:
    """Seed 20020548: a node that followed the next controller asked the one before again."""
    scene, old = watched(48)
    new, third = (each for each in scene.cluster.nodes.values() if each is not old)
    third.crash()
    scene.wait(5)
    holding = old.controller_shell.tenure.state.holding
    assert holding is not None
    confirmed_ms = holding.confirmed_ms
    while holding.confirmed_ms == confirmed_ms:
        scene.wait(0.01)
    if is_suspended:
        old.clock.stand()
        old.pause()
    else:
        scene.cluster.store.steal_lease()
    while not new.controller.active:
        scene.wait(0.01)
    third.start()
    ask(third, new)
    while third.followed.epoch < new.controller.epoch:
        scene.wait(0.01)
    if is_suspended:
        old.clock.go_on()
        old.resume()
    ask(third, old)
    assert old.controller.active, "it does not know"
    after(scene, 20)
    assert not old.controller.active
    assert [each.stopped_because for each in scene.cluster.nodes.values()] == [""] * 3


def ask(node: SimNode, controller: SimNode) -> None:
    """From now on the node asks that one."""
    while node.link.target is not controller:
        node.link.rotate(node.link.target)


def test_late_answers_of_the_store_are_waited_for() -> None:
    scene, old = watched(45)
    epoch = old.controller.epoch
    scene.cluster.store.faults.late_us = 1_500_000
    assert after(scene, 30).controller.epoch == epoch


def test_what_a_clock_shows() -> None:
    world = World(1)
    clock = SteadyClock(world)
    world.run(5_000_000)
    assert clock.now_ms == 5_000 and clock.world_ms(7_000) == 7_000
    clock.stand()
    world.run(6_000_000)
    assert clock.now_ms == 5_000
    clock.go_on()
    world.run(7_000_000)
    assert clock.now_ms == 6_000 and clock.world_ms(8_000) == 9_000
    clock.jump(10_000)
    assert clock.now_ms == 16_000
    clock.run_at(2.0)
    world.run(8_000_000)
    assert clock.now_ms == 18_000
    assert 9_000 <= clock.world_ms(20_000) <= 9_001


def test_who_was_suspended_and_ended_starts_on_a_machine_that_is_awake() -> None:
    scene, old = watched(47)
    old.clock.stand()
    old.pause()
    scene.wait(1)
    old.crash()
    old.start()
    after(scene, 2 * LEASE_S)
    assert old.is_serving


def test_whoever_lets_a_suspended_process_go_on_wakes_its_machine() -> None:
    """Seed 20030499: another fault that ended had the process go on beside a clock that stood; a
    timer that was due rang for ever."""
    scene, old = watched(40)
    old.clock.stand()
    old.pause()
    scene.wait(1)
    old.resume()
    before_ms = old.steady_ms
    scene.wait(1)
    assert old.steady_ms > before_ms
