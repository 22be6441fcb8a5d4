"""What a tiering job is told by a broker that cannot make its calls."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from anabranch.core.access.authorize import AllowAll
from anabranch.core.api import (
    p10000_plan_segments,
    p10001_tier_segment,
    p10002_plan_compaction,
    p10003_compact_segment,
)
from anabranch.core.diskless.broker import STARTING
from anabranch.core.errors import ErrorCode
from anabranch.core.wire.messages.compact_segment import (
    START,
    SWAP,
    CompactSegmentRequest,
    SegmentSwap,
)
from anabranch.core.wire.messages.plan_compaction import EpochOf, PlanCompactionRequest
from anabranch.core.wire.messages.plan_segments import PlanSegmentsRequest
from anabranch.core.wire.messages.tier_segment import TierSegmentRequest

REQUESTS = [
    (p10000_plan_segments.HANDLER, PlanSegmentsRequest()),
    (p10001_tier_segment.HANDLER, TierSegmentRequest()),
    (p10002_plan_compaction.HANDLER, PlanCompactionRequest()),
    (p10003_compact_segment.HANDLER, CompactSegmentRequest()),
]


def ask(handler, body, *, enabled, why_off="", authorizer=None, **more):
    broker = SimpleNamespace(
        authorizer=authorizer or AllowAll(),
        **more,
        config=SimpleNamespace(diskless_storage_system_enable=enabled),
        diskless=SimpleNamespace(why_off=why_off),
    )
    return handler.broker(broker, SimpleNamespace(body=body, version=0), 0)


@pytest.mark.parametrize(("handler", "body"), REQUESTS)
def test_a_broker_without_stores_says_so_and_is_not_asked_again(handler, body):
    answer = ask(handler, body, enabled=False, why_off="off")
    assert answer.error_code == ErrorCode.INVALID_REQUEST
    assert "diskless.storage.system.enable=false" in answer.error_message


@pytest.mark.parametrize(("handler", "body"), REQUESTS)
def test_a_broker_whose_stores_are_away_may_be_asked_again(handler, body):
    answer = ask(handler, body, enabled=True, why_off=STARTING)
    assert (answer.error_code, answer.error_message) == (ErrorCode.KAFKA_STORAGE_ERROR, STARTING)


class AllowNothing:
    """Denies all."""

    allows_all = False

    def authorize(self, *_: object) -> bool:
        return False


@pytest.mark.parametrize(("handler", "body"), REQUESTS)
def test_a_job_without_the_right_to_alter_the_cluster_is_refused(handler, body):
    answer = ask(handler, body, enabled=True, authorizer=AllowNothing())
    assert answer.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED


A, B, C = (bytes([each]) * 16 for each in range(3))
ONE = SegmentSwap(segment_id=B, replaced=[C])
WHOLE = {
    "claim_id": 1, "step": START, "start_offset": 5, "end_offset": 9, "byte_size": 61,
    "leader_epochs": [EpochOf(epoch=0, start_offset=5)],
}  # fmt: skip


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"step": 7}, "step 7 is unknown"),
        ({"claim_id": 0}, "needs a claim"),
        ({"end_offset": 5}, "offsets in order"),
        ({"byte_size": 0}, "a size"),
        ({"leader_epochs": []}, "leader epochs"),
        ({"leader_epochs": [EpochOf(epoch=0, start_offset=4)]}, "leader epochs"),
        ({"metadata": bytes(129)}, "at most 128 bytes"),
        ({"step": SWAP}, "A swap needs segments"),
        ({"step": SWAP, "swaps": [SegmentSwap(segment_id=bytes(16))]}, "that it was made of"),
        ({"step": SWAP, "swaps": [ONE, ONE]}, "each segment once"),
        ({"step": SWAP, "swaps": [ONE, SegmentSwap(segment_id=A, replaced=[C])]}, "each segment"),
        ({"step": SWAP, "swaps": [SegmentSwap(segment_id=A, replaced=[C, C])]}, "each segment"),
        ({"step": SWAP, "swaps": [SegmentSwap(segment_id=A, replaced=[A])]}, "each segment once"),
    ],
)
def test_a_step_of_compaction_that_cannot_be_is_refused(wrong, said):
    assert p10003_compact_segment._wrong(CompactSegmentRequest(**WHOLE)) == ""
    assert said in p10003_compact_segment._wrong(CompactSegmentRequest(**{**WHOLE, **wrong}))


def test_a_plan_needs_a_claim_that_was_drawn():
    answer = ask(p10002_plan_compaction.HANDLER, PlanCompactionRequest(claim_id=0), enabled=True)
    assert answer.error_code == ErrorCode.INVALID_REQUEST
    assert "random number" in answer.error_message
