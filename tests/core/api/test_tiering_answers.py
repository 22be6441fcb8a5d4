"""What a tiering job is told by a broker that cannot make its calls."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from anabranch.core.access.authorize import AllowAll
from anabranch.core.api import p10000_plan_segments, p10001_tier_segment
from anabranch.core.diskless.broker import STARTING
from anabranch.core.errors import ErrorCode
from anabranch.core.wire.messages.plan_segments import PlanSegmentsRequest
from anabranch.core.wire.messages.tier_segment import TierSegmentRequest

REQUESTS = [
    (p10000_plan_segments.HANDLER, PlanSegmentsRequest()),
    (p10001_tier_segment.HANDLER, TierSegmentRequest()),
]


def ask(handler, body, *, enabled, why_off=""):
    broker = SimpleNamespace(
        authorizer=AllowAll(),
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
