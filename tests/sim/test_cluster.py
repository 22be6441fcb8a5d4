"""Three simulated brokers elect, replicate, and lose their leader but no record; a second run is the same."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import Any

from anabranch.core.access.principal import ANONYMOUS, Principal
from anabranch.core.api.handler import Handler
from anabranch.core.log.checkpoints import CLEAN_SHUTDOWN
from anabranch.core.request import NO_LISTENER, Request
from anabranch.core.types import TopicPartition
from anabranch.core.wire.messages.broker_heartbeat import BrokerHeartbeatRequest
from anabranch.core.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from anabranch.core.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from anabranch.core.wire.records import Record, build_batch, decode_records
from anabranch.sim.cluster import Cluster, Watcher
from anabranch.sim.node import SimNode
from anabranch.sim.processes import State
from anabranch.sim.world import World

SECOND = 1_000_000
PLACE = TopicPartition("t", 0)


class Scene:
    """A cluster with one topic of three replicas, and a client that writes to it."""

    def __init__(
        self, seed: int, *, wire: bool = False, brokers: int = 3, folders: int = 1, **config: str
    ) -> None:
        self.world = World(seed, wire=wire)
        self.lines: list[str] = []
        self.world.listeners.append(self._hear)
        texts = {name.replace("_", "."): text for name, text in config.items()}
        settings = {"min.insync.replicas": "2", **texts}
        self.cluster = Cluster(self.world, brokers, settings, folders=folders)
        self.cluster.start()
        self.acknowledged: dict[int, bytes] = {}
        self.written = 0

    def _hear(self, now_us: int, kind: str, who: str, text: str, details: dict[str, Any]) -> None:
        self.lines.append(f"{now_us} {kind} {who} {text} {details}")

    @property
    def digest(self) -> str:
        return hashlib.sha256("\n".join(self.lines).encode()).hexdigest()

    def wait(self, seconds: float) -> None:
        self.world.run(self.world.now_us + int(seconds * SECOND))

    def ask(self, node_id: int, message: Any) -> Any:
        answers: list[Any] = []
        self.cluster.call("client-1", node_id, message, answers.append)
        self.wait(6)
        return answers[0]

    def create_topic(self) -> None:
        self.wait(1)
        brokers = len(self.cluster.nodes)
        topic = CreatableTopic(name="t", num_partitions=1, replication_factor=brokers)
        answer = self.ask(1, CreateTopicsRequest(topics=[topic], timeout_ms=5_000))
        assert answer.topics[0].error_code == 0

    @property
    def leader(self) -> SimNode:
        state = self.cluster.image.partition(*PLACE)
        assert state is not None
        return self.cluster.nodes[state.leader]

    def write(self, count: int, acks: int = -1) -> None:
        for _ in range(count):
            self.write_one(acks)
            self.wait(0.05)

    def write_one(self, acks: int = -1) -> None:
        topic = self.cluster.image.topic("t")
        assert topic is not None
        self.written += 1
        value = b"%d" % self.written
        records = bytes(build_batch([Record(0, self.world.now_ms, None, value, ())]))
        partition = PartitionProduceData(index=0, records=records)
        data = TopicProduceData(name="t", topic_id=topic.topic_id, partition_data=[partition])

        def answered(answer: Any) -> None:
            if answer is not None:
                told = answer.responses[0].partition_responses[0]
                if told.error_code == 0:
                    self.acknowledged[told.base_offset] = value

        request = ProduceRequest(acks=acks, timeout_ms=2_000, topic_data=[data])
        self.cluster.call("client-1", self.leader.node_id, request, answered)

    def stored(self, node: SimNode) -> dict[int, bytes]:
        replica = node.broker.partitions.get(*PLACE)
        assert replica is not None
        found: dict[int, bytes] = {}
        log, offset = replica.log, 0
        while offset < log.end_offset:
            batch = log.read(offset, max_bytes=1, upto=log.end_offset, at_least_one=True)
            for record in decode_records(batch):
                found[record.offset] = record.value
                offset = record.offset + 1
        return found

    def assert_nothing_lost(self) -> None:
        for node in self.cluster.nodes.values():
            if node.is_serving:
                stored = self.stored(node)
                for offset, value in self.acknowledged.items():
                    assert stored.get(offset) == value


def lose_the_leader(seed: int, *, wire: bool = False) -> Scene:
    scene = Scene(seed, wire=wire)
    scene.create_topic()
    scene.write(10)
    assert len(scene.acknowledged) == 10
    old = scene.leader
    old.crash()
    scene.wait(20)
    assert scene.leader is not old
    scene.write(10)
    assert len(scene.acknowledged) == 20
    old.start()
    scene.wait(10)
    return scene


def test_a_crashed_leader_is_replaced_and_nothing_is_lost() -> None:
    scene = lose_the_leader(1)
    assert all(node.is_serving for node in scene.cluster.nodes.values())
    assert all(len(scene.stored(node)) == 20 for node in scene.cluster.nodes.values())
    scene.assert_nothing_lost()
    state = scene.cluster.image.partition(*PLACE)
    assert state is not None
    assert sorted(state.isr) == [1, 2, 3]


def test_the_same_seed_gives_the_same_run() -> None:
    assert lose_the_leader(2).digest == lose_the_leader(2).digest
    assert lose_the_leader(2).digest != lose_the_leader(3).digest


def test_messages_that_are_encoded_give_the_same_outcome() -> None:
    scene = lose_the_leader(4, wire=True)
    assert all(len(scene.stored(node)) == 20 for node in scene.cluster.nodes.values())
    scene.assert_nothing_lost()


def test_a_power_cut_of_one_machine_loses_nothing_that_others_have() -> None:
    scene = Scene(5)
    scene.create_topic()
    scene.write(20)
    for _ in range(3):
        node = scene.leader
        node.crash(power=True)
        scene.wait(20)  # its lease, then its session
        scene.write(5)
        node.start()
        scene.wait(15)
    assert len(scene.acknowledged) == 35
    assert all(node.is_serving for node in scene.cluster.nodes.values())
    scene.assert_nothing_lost()


def test_records_that_every_machine_flushed_survive_a_power_cut_of_all() -> None:
    scene = Scene(6, log_flush_interval_messages="1")
    scene.create_topic()
    scene.write(20)
    for node in scene.cluster.nodes.values():
        node.crash(power=True)
    scene.wait(1)
    for node in scene.cluster.nodes.values():
        node.start()
    scene.wait(30)
    scene.write(5)
    assert len(scene.acknowledged) == 25
    scene.assert_nothing_lost()


def test_a_node_with_an_empty_disk_copies_everything_again() -> None:
    scene = Scene(7)
    scene.create_topic()
    scene.write(10)
    node = next(each for each in scene.cluster.nodes.values() if each is not scene.leader)
    node.crash()
    node.wipe()
    scene.wait(1)
    node.start()
    scene.wait(30)
    assert len(scene.stored(node)) == 10


def test_a_controlled_shutdown_moves_the_leader_first_and_leaves_the_clean_mark() -> None:
    scene = Scene(8)
    scene.create_topic()
    scene.write(5)
    node, stopped = scene.leader, []
    node.shut_down(lambda: stopped.append(scene.leader))
    scene.wait(5)
    assert node.state is State.CRASHED
    assert stopped[0] is not node
    assert node.disk.exists(f"{node.folders[0]}/{CLEAN_SHUTDOWN}")
    scene.write(5)
    node.start()
    scene.wait(5)
    assert len(scene.acknowledged) == 10
    scene.assert_nothing_lost()


def test_what_a_paused_leader_did_not_hear_of_does_not_count() -> None:
    scene = Scene(9)
    scene.create_topic()
    scene.write(5)
    node = scene.leader
    node.pause()
    scene.write_one()  # waits in the paused process
    scene.wait(30)
    assert scene.leader is not node
    scene.write(5)
    node.resume()
    scene.wait(30)
    assert len(scene.acknowledged) == 10
    assert len(set(map(str, (scene.stored(each) for each in scene.cluster.nodes.values())))) == 1
    scene.assert_nothing_lost()


def test_an_append_whose_outcome_is_unknown_makes_the_controller_read_again() -> None:
    scene = Scene(10)
    scene.create_topic()
    before = scene.cluster.active_controller()
    assert before is not None
    epoch = before.controller.epoch
    scene.cluster.store.faults.unknown = 1
    answer = CreateTopicsRequest(
        topics=[CreatableTopic(name="u", num_partitions=1, replication_factor=3)], timeout_ms=5_000
    )
    scene.cluster.call("client-1", 1, answer, lambda _answer: None)
    scene.wait(20)
    after = scene.cluster.active_controller()
    assert after is not None
    assert after.controller.epoch > epoch
    ends = {node.copy.end.end_offset for node in scene.cluster.nodes.values()}
    assert ends == {scene.cluster.store.end_offset}


def test_a_store_that_went_back_stops_nodes_instead_of_unlearning() -> None:
    scene = Scene(11)
    scene.create_topic()
    del scene.cluster.store.batches[-1]
    scene.cluster.nodes[1].crash()
    scene.wait(1)
    scene.cluster.nodes[1].start()
    scene.wait(20)
    assert any("went back" in node.stopped_because for node in scene.cluster.nodes.values())


def test_watchers_see_commits_truncations_and_lives() -> None:
    class Seen(Watcher):
        def __init__(self) -> None:
            self.events = self.commits = 0
            self.lives: list[str] = []
            self.cuts: list[tuple[int, int]] = []

        def event_ended(self, node: SimNode | None) -> None:
            self.events += 1

        def committed(self, records: Any, first_offset: int, end_offset: int, epoch: int) -> None:
            self.commits += len(records)

        def truncated(self, node: SimNode, place: Any, before: int, after: int) -> None:
            self.cuts.append((before, after))

        def node_changed(self, node: SimNode, what: str) -> None:
            self.lives.append(what)

    scene, seen = Scene(12), Seen()
    scene.cluster.checks.append(seen)
    scene.create_topic()
    node = scene.leader
    for other in scene.cluster.nodes:
        if other != node.node_id:
            scene.cluster.cut(node.node_id, other, plane="data")
    scene.write(3, acks=1)  # reaches nobody else
    node.crash()
    scene.cluster.network.heal()
    scene.wait(20)
    scene.write(3)
    node.start()
    scene.wait(20)
    assert seen.events > 100
    assert seen.commits > 10
    assert seen.lives[-3:] == ["crash", "start", "serving"]
    assert seen.cuts == [(3, 0)]


def test_a_process_that_is_gone_is_fenced_within_a_second() -> None:
    scene = Scene(13)
    scene.create_topic()
    scene.write(5)
    controller = scene.cluster.active_controller()
    assert controller is not None
    node = next(each for each in scene.cluster.nodes.values() if each is not controller)
    node.crash()
    scene.wait(0.5)
    assert scene.cluster.image.brokers[node.node_id].fenced


def test_a_controller_that_is_gone_is_replaced_within_a_second() -> None:
    scene = Scene(14)
    scene.create_topic()
    node = scene.cluster.active_controller()
    assert node is not None
    node.crash()
    scene.wait(1)
    after = scene.cluster.active_controller()
    assert after is not None
    assert after is not node
    assert scene.cluster.image.brokers[node.node_id].fenced


def test_a_cluster_of_older_feature_levels_keeps_no_eligible_leaders() -> None:
    world = World(15)
    cluster = Cluster(world, 3, levels={"eligible.leader.replicas.version": 0})
    cluster.start()
    world.run(SECOND)
    assert "eligible.leader.replicas.version" not in cluster.image.features


def test_a_request_that_a_broker_passes_on_comes_over_no_listener_of_the_controllers():
    """As in an envelope: else a controller would look again at what the broker alone can know."""
    scene, seen = Scene(3), {}
    for node in scene.cluster.nodes.values():
        node.handlers = {
            key: replace(each, controller=told_of(each, seen))
            for key, each in node.handlers.items()
        }
    scene.create_topic()
    alice = Principal("User", "alice")
    topic = CreatableTopic(name="u", num_partitions=1, replication_factor=1)
    for node_id in scene.cluster.nodes:
        for directly in (False, True):
            message = CreateTopicsRequest(topics=[topic], timeout_ms=5_000)
            scene.cluster.call(
                "client-1", node_id, message, lambda _: None,
                to_controller=directly, principal=alice,
            )  # fmt: skip
            scene.wait(1)
    passed_on = {(listener, str(who)) for listener, who in seen[CreateTopicsRequest.api_key]}
    assert passed_on >= {(NO_LISTENER, str(ANONYMOUS)), (NO_LISTENER, str(alice))}
    assert passed_on >= {(scene.cluster.nodes[1].listener, str(alice))}
    own = {listener for listener, _ in seen[BrokerHeartbeatRequest.api_key]}
    assert own == {scene.cluster.nodes[1].listener}


def told_of(handler: Handler, seen: dict[int, list[tuple[str, Principal]]]) -> Any:
    """A handler's controller half, which notes over which listener it was asked, and by whom."""

    def run(controller: Any, request: Request, now_ms: int) -> Any:
        seen.setdefault(request.api_key, []).append((request.listener, request.principal))
        assert handler.controller is not None
        return handler.controller(controller, request, now_ms)

    return handler.controller and run
