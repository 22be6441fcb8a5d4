"""What simulated clients do that real ones do: retry, renumber, come back, start over."""

from __future__ import annotations

import pytest

from anabranch.core.types import TopicPartition
from anabranch.sim.clients.client import Patience
from anabranch.sim.clients.fetcher import ReadOptions
from anabranch.sim.clients.member import Member, Membership
from anabranch.sim.clients.producer import Manner, Producer
from anabranch.sim.clients.workload import Reader, Workload
from anabranch.sim.cluster import Cluster
from anabranch.sim.history import FAILED, OK, UNKNOWN, History
from anabranch.sim.network import LinkFault
from anabranch.sim.plan import plain_plan
from anabranch.sim.plan_parts import SECOND_US, TopicPlan
from anabranch.sim.trace import Trace, line_of
from anabranch.sim.world import World

PLACE = TopicPartition("topic", 0)
MINIMUM = (("min.insync.replicas", "2"),)


class Stage:
    """Three brokers, one topic of one partition, and nothing that goes wrong by itself."""

    def __init__(self) -> None:
        from dataclasses import replace

        self.world = World(5)
        config = {"offsets.topic.num.partitions": "1", "group.initial.rebalance.delay.ms": "0"}
        self.cluster = Cluster(self.world, 3, config)
        self.history = History()
        plan = replace(plain_plan(0), topics=(TopicPlan("topic", 1, 3, MINIMUM),))
        workload = Workload(self.cluster, plan, self.history)
        self.cluster.start()
        self.world.run(SECOND_US)
        workload.topics.make()
        self.run(1)

    def run(self, seconds: float) -> None:
        """Let time go by."""
        self.world.run(self.world.now_us + int(seconds * SECOND_US))

    def asked(self, name: str):
        """What every client is made with."""
        return self.cluster, name, self.history, ("topic",), Patience()

    @property
    def leader(self) -> int:
        """Who leads the partition."""
        return self.cluster.image.partition(*PLACE).leader


@pytest.fixture
def stage() -> Stage:
    return Stage()


def values(history: History) -> list[bytes]:
    """What readers saw, in order."""
    return [value for poll in history.polls for _, value in poll.records]


def outcomes(history: History) -> set[str]:
    return {send.outcome for send in history.sends}


def test_a_producer_is_acknowledged_and_a_reader_sees_it(stage):
    producer = Producer(*stage.asked("producer"), Manner())
    reader = Reader(*stage.asked("reader"))
    reader.begin(ReadOptions(), [PLACE])
    for _ in range(5):
        producer.send(PLACE, 2)
    stage.run(3)
    assert producer.is_idle
    assert outcomes(stage.history) == {OK}
    assert [send.offset for send in stage.history.sends] == list(range(10))
    assert values(stage.history) == [send.value for send in stage.history.sends]


def test_lost_answers_make_no_duplicates_of_an_idempotent_producer(stage):
    producer = Producer(*stage.asked("producer"), Manner())
    producer.send(PLACE, 1)
    stage.run(2)
    node = stage.cluster.nodes[stage.leader]
    stage.cluster.network.set(node.name, "producer", LinkFault(loss=0.6))
    for _ in range(20):
        producer.send(PLACE, 1)
        stage.run(0.1)
    stage.cluster.network.heal()
    stage.run(30)
    assert outcomes(stage.history) == {OK}
    reader = Reader(*stage.asked("reader"))
    reader.begin(ReadOptions(), [PLACE])
    stage.run(3)
    assert values(stage.history) == [send.value for send in stage.history.sends]
    assert stage.history.marks["retried-and-acknowledged"]


def test_a_producer_without_an_answer_claims_nothing(stage):
    producer = Producer(*stage.asked("producer"), Manner(acks=1, idempotent=False, retries=False))
    stage.cluster.network.cut(f"node-{stage.leader}", "producer")
    producer.send(PLACE, 1)
    stage.run(30)
    assert outcomes(stage.history) <= {UNKNOWN, FAILED}


def test_what_was_never_sent_has_failed(stage):
    for node in stage.cluster.nodes.values():
        node.crash()
    producer = Producer(*stage.asked("producer"), Manner())
    producer.send(PLACE, 1)
    stage.run(30)
    assert outcomes(stage.history) == {FAILED}


def test_a_stopped_client_does_nothing_more(stage):
    producer = Producer(*stage.asked("producer"), Manner())
    producer.stop()
    producer.send(PLACE, 1)
    stage.run(2)
    assert not stage.history.sends


def test_a_paused_client_goes_on_where_it_stood(stage):
    producer = Producer(*stage.asked("producer"), Manner())
    producer.send(PLACE, 1)
    producer.pause()
    stage.run(5)
    assert outcomes(stage.history) == {"open"}
    producer.resume()
    stage.run(5)
    assert outcomes(stage.history) == {OK}


def member_of(stage, name: str, instance_id: str | None = None) -> Member:
    member = Member(*stage.asked(name), Membership("group", instance_id), ReadOptions())
    member.start()
    return member


def test_members_share_what_there_is_and_commit(stage):
    one, other = member_of(stage, "one"), member_of(stage, "other")
    producer = Producer(*stage.asked("producer"), Manner())
    producer.send(PLACE, 3)
    stage.run(20)
    assert one.is_stable
    assert other.is_stable
    owners = [each for each in stage.history.assigned if each.generation == one.generation]
    assert sorted(place for each in owners for place in each.places) == [PLACE]
    assert [commit.offset for commit in stage.history.commits if commit.ok] == [3]


def test_a_static_member_that_is_back_is_let_in_at_once(stage):
    """Its record is replicated first: the answer must not wait for anything else to happen."""
    first = member_of(stage, "member", "static")
    stage.run(5)
    assert first.is_stable
    first.stop()
    again = member_of(stage, "member.1", "static")
    stage.run(2)
    assert again.is_stable
    assert again.generation == first.generation


def test_a_member_that_leaves_gives_its_partitions_to_the_other(stage):
    one, other = member_of(stage, "one"), member_of(stage, "other")
    stage.run(15)
    one.leave()
    stage.run(15)
    assert other.is_stable
    assert stage.history.assigned[-1].client == "other"
    assert stage.history.assigned[-1].places == (PLACE,)


def test_a_line_of_the_trace_has_fixed_columns():
    line = line_of(12_345_678, "decided", "node-1", "broker 2 leads", {"code": "X", "isr": {2, 1}})
    assert line == "  12.345678  decided        node-1         broker 2 leads  code=X isr=1,2"


def test_the_digest_is_over_every_line():
    one, other = Trace(), Trace()
    one(1, "start", "node-1", "", {})
    other(2, "start", "node-1", "", {})
    assert one.digest != other.digest
