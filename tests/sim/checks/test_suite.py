"""All checks on a simulated cluster: clean when it is, and not when it is not."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.sim.test_cluster import PLACE, Scene

from anabranch.core.api.context import Broker
from anabranch.core.log import truncation
from anabranch.core.replication.replica import Replica
from anabranch.core.wire.metadata_records import PartitionChangeRecord, RegisterBrokerRecord
from anabranch.sim.checks.model import LOST_FOLDER
from anabranch.sim.checks.suite import Suite
from anabranch.sim.checks.violation import Violation
from anabranch.sim.history import History, Poll, Send, UncleanAsked


class Watched(Scene):
    """A scene with all checks on; every acknowledged write is in the history."""

    def __init__(self, seed: int = 1, **config: str) -> None:
        super().__init__(seed, **config)
        self.history = History()
        self.suite = Suite(self.cluster, self.history)
        self.create_topic()

    def tell(self) -> None:
        """Write down what the scene's client was told, and have it looked at."""
        for offset, value in sorted(self.acknowledged.items()):
            name = value.decode()
            self.history.add(Send(name, "p", PLACE, value, -1, False, 0, 1, "ok", offset))
        self.suite.event_ended(None)


def test_a_healthy_cluster_is_clean_and_comes_to_rest():
    scene = Watched()
    scene.write(20)
    scene.wait(5)
    scene.tell()
    assert scene.suite.unrest() == ""
    truth = scene.suite.logs.places[PLACE]
    assert truth.high == 20 and not scene.suite.losses
    scene.suite.end()


def test_a_leader_that_crashes_and_one_that_loses_power():
    scene = Watched()
    scene.write(10)
    first = scene.leader
    first.crash(power=False)
    assert "is not ready" in scene.suite.unrest()
    scene.wait(15)
    scene.write(5)
    second = scene.leader
    second.crash(power=True)
    first.start()
    scene.wait(15)
    second.start()
    scene.wait(30)
    scene.tell()
    assert scene.suite.unrest() == ""
    assert scene.suite.marks["clean-failover"] >= 1
    assert not scene.suite.losses


def test_an_unclean_election_is_counted_and_named():
    scene = Watched(unclean_leader_election_enable="true", min_insync_replicas="1")
    scene.write(5)
    leader = scene.leader
    others = [node for node in scene.cluster.nodes.values() if node is not leader]
    for node in others:
        node.crash(power=False)
    scene.wait(15)
    scene.write(5)
    leader.crash(power=False)
    leader.wipe()
    for node in others:
        node.start()
    scene.wait(60)
    leader.start()
    scene.wait(60)
    scene.tell()
    if scene.suite.marks["unclean-election"]:
        assert set(scene.suite.losses) == {"unclean election"}
    assert scene.suite.unrest() == ""
    assert scene.suite.marks["wiped"] == 1


def test_checks_change_nothing_in_what_they_watch():
    digests = []
    for watched in (True, False):
        scene = Scene(7)
        if watched:
            Suite(scene.cluster, History())
        scene.create_topic()
        scene.write(10)
        scene.leader.crash(power=True)
        scene.wait(20)
        digests.append(scene.digest)
    assert digests[0] == digests[1]


# Changed decisions of production, and who finds them out.


def break_high_watermark(monkeypatch):
    """The leader does not wait for its followers."""

    def advance(self: Replica) -> bool:
        moved = self.is_leader and self.high_watermark < self.log.end_offset
        self.high_watermark = self.log.end_offset if self.is_leader else self.high_watermark
        return moved

    monkeypatch.setattr(Replica, "advance", advance)


def break_truncation(monkeypatch):
    """A follower that begins to follow cuts to the high watermark that it knows."""
    take_state = Replica.take_state

    def taken(self: Replica, state) -> bool:
        changed = take_state(self, state)
        if changed and not self.is_leader and self.log.end_offset > self.high_watermark:
            truncation.truncate_to(self.log, self.high_watermark)
        return changed

    monkeypatch.setattr(Replica, "take_state", taken)


@pytest.mark.parametrize("broken", [break_high_watermark, break_truncation])
def test_a_broken_rule_is_found_out(monkeypatch, broken):
    broken(monkeypatch)
    found = ""
    for seed in range(5):
        scene = Watched(seed)
        try:
            for _ in range(3):
                scene.write(5)
                leader = scene.leader
                leader.crash(power=False)
                scene.wait(12)
                scene.write(3)
                leader.start()
                scene.wait(8)
        except Violation as violation:
            found = violation.id
            break
    assert found.startswith("L")


def test_what_is_shown_and_was_never_committed():
    scene = Watched()
    scene.write(1)
    scene.history.add(Poll("r", PLACE, 0, 3, [(3, b"v")], 0))
    with pytest.raises(Violation, match="L5"):
        scene.suite.event_ended(None)


def test_an_operator_s_wish_is_known_by_partition():
    scene = Watched()
    key = next(iter(scene.suite.model.partitions))
    assert not scene.suite._unclean_was_asked(key)
    scene.history.add(UncleanAsked(PLACE, 0))
    assert scene.suite._unclean_was_asked(key)


def at_rest():
    """A cluster at rest with five records, and one of the followers."""
    scene = Watched()
    scene.write(5)
    scene.wait(5)
    assert scene.suite.unrest() == ""
    return scene, next(each for each in scene.cluster.nodes.values() if each is not scene.leader)


def test_rest_needs_equal_copies():
    scene, node = at_rest()
    copy = scene.suite.logs.seats[node.node_id].copies[next(iter(scene.suite.model.partitions))]
    copy.entries[2] = copy.entries[2]._replace(crc=1)
    assert "has other batches" in scene.suite.unrest()
    broker: Broker = node.broker
    replica = broker.partitions.get(*PLACE)
    assert replica is not None
    replica.log.end_offset += 1
    assert "has it up to" in scene.suite.unrest()


def test_rest_needs_followers_that_know_all_of_it_to_be_committed():
    scene, node = at_rest()
    replica = node.broker.partitions.get(*PLACE)
    assert replica is not None
    replica.high_watermark = 4
    assert scene.suite.unrest().endswith(f"{node.name} takes it for committed up to 4 of 5")


@pytest.mark.parametrize("is_copy", [True, False])
def test_replicas_of_a_process_on_a_copy_may_be_lost_with_its_registration(is_copy):
    """Seed 20010191: the batch that registers it says so."""
    scene = Watched()
    scene.write(1)
    scene.wait(5)
    model = scene.suite.model
    key, partition = next(iter(model.partitions.items()))
    broker_id = next(each for each in partition.replicas if each != partition.leader)
    scene.cluster.nodes[broker_id].crash(power=False)
    if is_copy:
        scene.cluster.twins.append(cast("Any", SimpleNamespace(incarnation_id=b"t" * 16)))
    at = partition.replicas.index(broker_id)
    folders = [*partition.folders[:at], LOST_FOLDER, *partition.folders[at + 1 :]]
    batch = (
        RegisterBrokerRecord(
            broker_id=broker_id, incarnation_id=b"t" * 16, broker_epoch=model.end_offset
        ),
        PartitionChangeRecord(
            partition_id=key[1],
            topic_id=cast("Any", key[0]),
            isr=[each for each in partition.isr if each != broker_id],
            directories=folders,
        ),
    )
    first = model.end_offset

    def commit() -> None:
        scene.suite.committed(batch, first, first + len(batch), model.epoch)

    if is_copy:
        commit()
    else:
        with pytest.raises(Violation, match="L4"):
            commit()
