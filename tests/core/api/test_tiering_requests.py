"""PlanSegments and TierSegment: what a job gets, and what each fault tells it."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from anabranch.core.access.authorize import AllowAll
from anabranch.core.api import p10000_plan_segments, p10001_tier_segment
from anabranch.core.diskless.coordinator import CoordinatorAway, Deposed
from anabranch.core.diskless.rows import LogKey, LogState, Run
from anabranch.core.errors import ErrorCode, StorageFault
from anabranch.core.metadata.image import RESOURCE_TOPIC, Map, MetadataImage, TopicImage
from anabranch.core.outcome import Cold
from anabranch.core.remote.facts import TryEnded
from anabranch.core.remote.segments import SegmentId
from anabranch.core.settings.broker import BrokerConfig
from anabranch.core.tiering.claims import Aged, Claim, ClaimHeld, TieredBefore
from anabranch.core.tiering.plan import AgedRun, TieredEnd
from anabranch.core.types import TopicId
from anabranch.core.wire.messages.plan_segments import PlanSegmentsRequest
from anabranch.core.wire.messages.tier_segment import (
    FINISH,
    STANDS,
    START,
    TierSegmentRequest,
)

ME, OTHER = 1, 2
SEGMENT = SegmentId(b"s" * 16)
RIVER, CLASSIC = TopicId(b"r" * 16), TopicId(b"c" * 16)
TOPIC_SETTINGS = {
    "diskless.enable": "true",
    "diskless.tiering.age.ms": "0",
    "diskless.tiering.min.segment.bytes": "1",
}


def image(partitions=3, **settings):
    leaders = [ME, OTHER, -1, *[ME] * partitions][:partitions]
    parts = {at: SimpleNamespace(leader=each, leader_epoch=7) for at, each in enumerate(leaders)}
    topics = {
        RIVER: TopicImage("river", RIVER, Map(parts)),
        CLASSIC: TopicImage("classic", CLASSIC, Map(parts)),
    }
    configs = {(RESOURCE_TOPIC, "river"): Map({**TOPIC_SETTINGS, **settings})}
    return MetadataImage(
        topics_by_id=Map(topics),
        topic_ids_by_name=Map({each.name: key for key, each in topics.items()}),
        brokers=Map({ME: SimpleNamespace(), OTHER: SimpleNamespace()}),
        configs=Map(configs),
    )


class Asked:
    """A broker that is asked, with what the coordinator answers to each call, in order."""

    def __init__(self, *answers, authorizer=None, of=None):
        self.answers, self.calls = list(answers), []
        config = {"node.id": str(ME), "diskless.storage.system.enable": "true"}
        self.broker = SimpleNamespace(
            authorizer=authorizer or AllowAll(),
            config=BrokerConfig(config, {}, {}),
            image=of or image(),
            broker_id=ME,
            cluster_id="cluster",
            diskless=SimpleNamespace(
                why_off="", claimed={}, reading=SimpleNamespace(count=lambda: len(self.calls))
            ),
        )

    def __call__(self, handler, body):
        outcome = handler.broker(self.broker, SimpleNamespace(body=body, version=0), 0)
        while isinstance(outcome, Cold):
            (read,) = outcome.reads
            self.calls.append((read.ask.call, read.ask.arguments))
            assert self.answers, f"the coordinator is asked: {self.calls}"
            self.broker.diskless.claimed[read.ask.number] = self.answers.pop(0)
            outcome = outcome.again(0)
        return outcome

    def plan(self, **fields):
        return self(p10000_plan_segments.HANDLER, PlanSegmentsRequest(**{"claim_id": 5} | fields))

    def step(self, step, **fields):
        given = {
            "claim_id": 5, "step": step, "topic_id": RIVER, "partition_index": 0,
            "segment_id": SEGMENT, "start_offset": 0, "end_offset": 10, "byte_size": 100,
        }  # fmt: skip
        return self(p10001_tier_segment.HANDLER, TierSegmentRequest(**given | fields))


class Nothing:
    """Allows nothing."""

    allows_all = False

    def authorize(self, *_args):
        return False


STEPS = (START, STANDS, FINISH)


def test_a_job_without_the_right_is_refused_before_the_coordinator_is_asked():
    asked = Asked(authorizer=Nothing())
    answers = [asked.plan(), asked.plan(is_done=True), *map(asked.step, STEPS)]
    assert {each.error_code for each in answers} == {ErrorCode.CLUSTER_AUTHORIZATION_FAILED}
    assert not asked.calls


@pytest.mark.parametrize("claim_id", [0, -1])
def test_a_claim_without_a_number_is_refused(claim_id):
    answer = Asked().plan(claim_id=claim_id)
    assert answer.error_code == ErrorCode.INVALID_REQUEST
    assert "claim_id" in answer.error_message


def run(start, end):
    return AgedRun(Run(LogKey(RIVER, 0), start, end, 1, "object", start * 10, 100, 5), 0)


def test_a_plan_has_partitions_with_a_leader_and_the_runs_of_their_next_segment():
    state = LogState(0, 30, 300, 10)
    aged = Aged(state, [run(10, 20), run(20, 30)], TieredEnd(SEGMENT, 0, 10), 1)
    nothing = Aged(LogState(0, 0), [], None, 1)
    asked = Asked(Claim(5, 77, "store"), [aged, nothing, aged])
    answer = asked.plan(owner="me")
    assert (answer.error_code, answer.commit_number, answer.store_id) == (0, 77, "store")
    assert [name for name, _ in asked.calls] == ["claim", "aged"]
    assert asked.calls[0][1] == (5, "me", (ME, OTHER))
    assert [each.key.partition for each in asked.calls[1][1][1]] == [0, 1, 2]
    (part,) = answer.partitions
    assert (part.topic_name, part.partition_index, part.leader_id) == ("river", 0, ME)
    assert (part.start_offset, part.end_offset) == (10, 30)
    assert (part.before_segment_id, part.before_end_offset) == (SEGMENT, 10)
    assert [(each.base_offset, each.end_offset) for each in part.runs] == [(10, 20), (20, 30)]
    assert answer.object_keys == ["object"]
    assert answer.is_last and answer.last_partition == 2


def test_pages_go_on_behind_the_last_partition():
    of = image(p10000_plan_segments.PARTITIONS_AT_ONCE + 5)
    first = Asked(Claim(5, 1), [None] * p10000_plan_segments.PARTITIONS_AT_ONCE, of=of)
    answer = first.plan()
    assert not answer.is_last and answer.last_partition == 19
    second = Asked(Claim(5, 1), [None] * 5, of=of)
    after = second.plan(after_topic_id=RIVER, after_partition=19)
    assert after.is_last
    assert [each.key.partition for each in second.calls[1][1][1]] == list(range(20, 25))


def test_topics_that_are_not_tiered_are_not_asked_for():
    asked = Asked(Claim(5, 1), of=image(**{"diskless.tiering.age.ms": "-1"}))
    assert asked.plan().is_last
    assert len(asked.calls) == 1


FAULTS = [
    (ClaimHeld("job is at work; wait"), ErrorCode.CONCURRENT_TRANSACTIONS),
    (StorageFault("broker 9 does not know of tiering"), ErrorCode.KAFKA_STORAGE_ERROR),
    (CoordinatorAway("away"), ErrorCode.KAFKA_STORAGE_ERROR),
    (TryEnded("tiered already"), ErrorCode.FENCED_LEADER_EPOCH),
    (TieredBefore("tiered already, by this job"), ErrorCode.DUPLICATE_RESOURCE),
    (Deposed("an older leader"), ErrorCode.NOT_LEADER_OR_FOLLOWER),
]


@pytest.mark.parametrize(("fault", "code"), FAULTS)
def test_each_fault_of_the_coordinator_is_told_with_its_sentence(fault, code):
    told = [
        Asked(fault).plan(),
        Asked(Claim(5, 1), fault).plan(),
        Asked(fault).plan(is_done=True),
        *(Asked(fault).step(each) for each in STEPS),
    ]
    assert {(each.error_code, each.error_message) for each in told} == {(code, str(fault))}


def test_the_end_of_a_job_lets_its_claim_go():
    asked = Asked(None)
    assert asked.plan(is_done=True).error_code == 0
    assert asked.calls == [("release", (5,))]


def test_only_the_leader_takes_a_step_and_fences_it_with_its_epoch():
    asked = Asked(None, True, LogState(0, 30, 300, 20))
    answers = [asked.step(each) for each in STEPS]
    assert [each.error_code for each in answers] == [0, 0, 0]
    assert [(each.broker_id, each.leader_epoch) for each in answers] == [(ME, 7)] * 3
    assert answers[2].tiered_end_offset == 20
    (start, stands, finish) = asked.calls
    claim_id, topic, segment = start[1]
    assert (start[0], claim_id, topic) == ("start", 5, "river")
    assert (segment.segment_id, segment.key) == (SEGMENT, LogKey(RIVER, 0))
    assert (segment.start_offset, segment.end_offset, segment.byte_size) == (0, 10, 100)
    assert (segment.broker_id, segment.leader_epoch) == (ME, 7)
    assert stands == ("stands", (5, SEGMENT))
    assert finish == ("finish", (LogKey(RIVER, 0), 7, SEGMENT))
    for partition in (1, 2):
        refused = Asked().step(FINISH, partition_index=partition)
        assert refused.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_try_that_does_not_stand_is_told_why():
    answer = Asked(False).step(STANDS)
    assert answer.error_code == ErrorCode.FENCED_LEADER_EPOCH
    assert "another job has taken over, or its topic was deleted" in answer.error_message


@pytest.mark.parametrize(
    "place",
    [
        {"topic_id": TopicId(b"x" * 16)},
        {"topic_id": CLASSIC},
        {"partition_index": 3},
        {"partition_index": -1},
    ],
)
@pytest.mark.parametrize("step", STEPS)
def test_a_partition_that_is_not_there_or_not_diskless_is_unknown(step, place):
    answer = Asked().step(step, **place)
    assert answer.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize(
    "wrong",
    [
        {"step": 3},
        {"step": -1},
        {"start_offset": -1},
        {"start_offset": 10},
        {"end_offset": 0},
        {"byte_size": 0},
        {"claim_id": 0},
    ],
)
def test_what_is_no_try_is_refused_with_a_reason(wrong):
    step = wrong.pop("step", START)
    answer = Asked().step(step, **wrong)
    assert answer.error_code == ErrorCode.INVALID_REQUEST
    assert answer.error_message
