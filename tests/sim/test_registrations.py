"""Copied folders, addresses that lead nowhere, failed folders, interrupted shutdowns: one by one."""

from __future__ import annotations

import pytest
from tests.sim.test_cluster import PLACE, Scene

from anabranch.core.broker.registration.registration import State as Registered
from anabranch.core.errors import CorruptLog
from anabranch.sim.machine import Backup
from anabranch.sim.node import SimNode
from anabranch.sim.processes import State


def written(seed: int, **config: str) -> Scene:
    scene = Scene(seed, **config)
    scene.create_topic()
    scene.write(10)
    return scene


def follower_of(scene: Scene) -> SimNode:
    active = scene.cluster.active_controller()
    return next(each for each in scene.cluster.nodes.values() if each not in (scene.leader, active))


def test_a_process_on_a_copied_folder_is_refused_while_the_broker_lives() -> None:
    scene = written(21)
    node = follower_of(scene)
    epoch, twin = node.session.broker_epoch, scene.cluster.start_twin(node)
    scene.wait(20)
    assert (twin.session.broker_epoch, node.session.broker_epoch) == (-1, epoch)
    assert node.is_serving
    assert any("another live broker" in line for line in scene.lines)
    scene.write(5)
    assert len(scene.acknowledged) == 15


def test_a_broker_whose_place_was_taken_while_it_stood_still_stops() -> None:
    scene = written(22)
    node = follower_of(scene)
    node.pause()
    twin = scene.cluster.start_twin(node)
    scene.wait(20)
    assert twin.session.broker_epoch > node.session.broker_epoch
    node.resume()
    scene.wait(5)
    assert "another process registered as broker" in node.stopped_because
    twin.stop()
    node.start()
    scene.wait(20)
    assert node.is_serving
    scene.write(5)
    assert len(scene.acknowledged) == 15
    scene.assert_nothing_lost()


def test_a_broker_on_an_older_copy_leads_nothing_before_it_was_in_sync_again() -> None:
    scene = written(23)
    node = scene.leader
    backup = Backup(node)
    node.crash()
    scene.wait(5)
    scene.write(10)
    node.start()
    scene.wait(20)
    scene.write(5)
    node.crash()
    node.restore(backup)
    node.start()
    scene.wait(20)
    assert any("on folders that are older" in line for line in scene.lines)
    assert len(scene.acknowledged) == 25
    scene.assert_nothing_lost()


def test_a_failed_folder_is_told_and_the_broker_goes_on_with_the_others() -> None:
    scene = Scene(24, folders=2)
    scene.create_topic()
    scene.write(10)
    node = follower_of(scene)
    replica = node.broker.partitions.get(*PLACE)
    assert replica is not None
    node.disk.broken.add(replica.folder)
    scene.write(5)
    scene.wait(3)
    failed = node.directory_ids[replica.folder]
    log_dirs = scene.cluster.image.brokers[node.node_id].log_dirs
    assert (failed in log_dirs, len(log_dirs)) == (False, 1)
    assert node.is_serving, "its other folder works"


def test_a_folder_that_fails_takes_the_leaderships_in_it_and_no_others() -> None:
    """The controller knows by then in which folder each replica lies."""
    scene = Scene(25, folders=2)
    scene.create_topic()
    scene.write(10)
    state, leader = scene.cluster.image.partition(*PLACE), scene.leader
    assert state is not None
    for node_id, told in zip(state.replicas, state.directories, strict=True):
        node = scene.cluster.nodes[node_id]
        replica = node.broker.partitions.get(*PLACE)
        assert replica is not None and told == node.directory_ids[replica.folder]
    replica = leader.broker.partitions.get(*PLACE)
    assert replica is not None
    leader.disk.broken.add(replica.folder)
    scene.write(5)
    scene.wait(3)
    state = scene.cluster.image.partition(*PLACE)
    assert state is not None and leader.node_id not in state.isr
    assert scene.leader is not leader and leader.is_serving


def test_a_log_that_its_broker_cannot_use_is_told_and_another_one_leads() -> None:
    scene = Scene(26)
    scene.create_topic()
    scene.write(10)
    leader = scene.leader
    replica = leader.broker.partitions.get(*PLACE)
    assert replica is not None
    leader.begin()
    rot = CorruptLog("rot", path="", position=0, first_offset=0, last_offset=0)
    leader.broker.faults.append((replica, rot))
    leader.settle()
    scene.wait(10)
    assert scene.leader is not leader and leader.is_serving


def test_a_broker_whose_address_leads_nowhere_comes_back_by_its_heartbeats() -> None:
    scene = written(25)
    node = follower_of(scene)
    node.shut_down()
    scene.wait(1)
    node.advertised_host = "nowhere"
    node.start()
    scene.wait(5)
    active = scene.cluster.active_controller()
    assert active is not None
    node.link.rotate(active)
    scene.wait(1)
    assert any("nothing listens at its address" in line for line in scene.lines)
    scene.wait(20)
    assert not scene.cluster.image.brokers[node.node_id].fenced
    scene.write(5)
    assert len(scene.acknowledged) == 15


@pytest.mark.parametrize("power", [False, True])
def test_a_controlled_shutdown_that_is_interrupted_ends_like_a_crash(power: bool) -> None:
    scene = written(26)
    node = scene.leader
    node.shut_down()
    assert node.session.machine.state is Registered.LEAVING
    node.crash(power=power)
    scene.wait(20)
    assert scene.leader is not node
    node.start()
    scene.wait(20)
    assert node.state is State.RUNNING and node.is_serving
    scene.write(5)
    assert len(scene.acknowledged) == 15
    scene.assert_nothing_lost()
