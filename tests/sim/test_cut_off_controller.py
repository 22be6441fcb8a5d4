"""A controller that hears no other node and reaches the store gives way to those who hear each other."""

from __future__ import annotations

from typing import Any

import pytest
from tests.sim.test_cluster import Scene

from anabranch.core.errors import ErrorCode
from anabranch.core.types import CLUSTER_METADATA_TOPIC, METADATA_TOPIC_ID
from anabranch.core.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from anabranch.sim.node import SimNode

SESSION_S = 9
LEASE_S = 6
LOOK_S = 1.5
"""How late who is silent may be noticed: a check of the sessions, and a look at the lease."""


def controller_of(scene: Scene) -> SimNode:
    """The controller of a cluster in which all are heard."""
    scene.create_topic()
    scene.write(5)
    node = scene.cluster.active_controller()
    assert node is not None
    return node


def cut_off(scene: Scene, node: SimNode) -> None:
    for other in scene.cluster.nodes:
        if other != node.node_id:
            scene.cluster.cut(node.node_id, other)
            scene.cluster.cut(other, node.node_id)


def terms(scene: Scene) -> list[str]:
    """Who became the active controller and who resigned, in their order."""
    kinds = ("controller", "resigned")
    return [" ".join(line.split()[1:3]) for line in scene.lines if line.split()[1] in kinds]


@pytest.mark.parametrize("seed", range(20, 26))
def test_those_who_hear_each_other_elect_while_the_cut_lasts(seed: int) -> None:
    scene = Scene(seed)
    old = controller_of(scene)
    cut_off(scene, old)
    scene.wait(SESSION_S + LOOK_S)
    new = scene.cluster.active_controller()
    assert new is not None
    assert new is not old
    assert not any(line.split()[1] == "decided" and "is fenced" in line for line in scene.lines)
    scene.wait(SESSION_S + LOOK_S)
    assert scene.cluster.image.brokers[old.node_id].fenced
    assert scene.leader is not old
    scene.write(10)
    scene.wait(1)
    assert len(scene.acknowledged) == 15
    scene.cluster.network.heal()
    scene.wait(20)
    assert scene.cluster.active_controller() is new
    assert old.copy.end.end_offset == scene.cluster.store.end_offset
    state = scene.cluster.image.partition("t", 0)
    assert state is not None
    assert sorted(state.isr) == [1, 2, 3]
    assert all(len(scene.stored(node)) == 15 for node in scene.cluster.nodes.values())
    scene.assert_nothing_lost()


def deaths(scene: Scene, node: SimNode) -> None:
    """All others lose power behind a cut, so that nobody says that they are gone."""
    cut_off(scene, node)
    for other in scene.cluster.nodes.values():
        if other is not node:
            other.crash(power=True)


@pytest.mark.parametrize("seed", range(26, 29))
def test_where_all_others_are_dead_it_gives_way_once_and_goes_on(seed: int) -> None:
    scene = Scene(seed)
    old = controller_of(scene)
    deaths(scene, old)
    before = len(terms(scene))
    scene.wait(SESSION_S + LEASE_S + LOOK_S)
    assert scene.cluster.active_controller() is old
    others = [each for each in scene.cluster.nodes if each != old.node_id]
    assert all(old.controller.image.brokers[each].fenced for each in others)
    scene.wait(60)
    assert terms(scene)[before:] == [f"resigned {old.name}", f"controller {old.name}"]


def test_a_second_cut_is_given_way_to_as_the_first_was() -> None:
    scene = Scene(29)
    for _ in range(3):
        old = controller_of(scene) if not scene.acknowledged else scene.cluster.active_controller()
        assert old is not None
        cut_off(scene, old)
        scene.wait(SESSION_S + LOOK_S)
        assert scene.cluster.active_controller() is not old
        scene.wait(SESSION_S + LOOK_S)
        scene.cluster.network.heal()
        scene.wait(20)
    assert [line for line in terms(scene) if line.startswith("resigned")] != []
    scene.assert_nothing_lost()


def test_processes_that_stood_still_give_way_to_nobody() -> None:
    scene = Scene(30)
    old = controller_of(scene)
    nodes = scene.cluster.nodes.values()
    for node in nodes:
        node.pause()
    scene.wait(4 * SESSION_S)
    for node in nodes:
        node.resume()
    scene.wait(20)
    assert not any("no heartbeat from any of" in line for line in scene.lines)
    assert old.is_serving
    scene.write(5)
    assert len(scene.acknowledged) == 10


def test_on_two_nodes_the_one_that_holds_the_lease_goes_on() -> None:
    scene = Scene(31, brokers=2, min_insync_replicas="1")
    old = controller_of(scene)
    cut_off(scene, old)
    scene.wait(SESSION_S + LOOK_S)
    assert scene.cluster.active_controller() is old
    assert [each for each, it in scene.cluster.image.brokers.items() if it.fenced] == [2]
    assert not any(line.startswith("resigned") for line in terms(scene))


def test_who_slept_through_its_lease_serves_no_metadata() -> None:
    """A follower of the next one that asks it would find that the log went back, and end."""
    scene = Scene(32)
    old = controller_of(scene)
    served = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    topic = FetchTopic(
        topic=CLUSTER_METADATA_TOPIC, topic_id=METADATA_TOPIC_ID, partitions=[served]
    )
    asked = FetchRequest(max_wait_ms=0, max_bytes=1 << 20, topics=[topic])
    codes: list[int] = []

    def answered(answer: Any) -> None:
        codes.append(answer.responses[0].partitions[0].error_code)

    for slept_s in (0, LEASE_S + 1):
        holding = old.controller_shell.tenure.state.holding
        assert holding is not None
        holding.confirmed_ms -= slept_s * 1000
        scene.cluster.call("client-1", old.node_id, asked, answered, to_controller=True)
        scene.wait(0.1)
    assert codes == [ErrorCode.NONE, ErrorCode.NOT_LEADER_OR_FOLLOWER]
