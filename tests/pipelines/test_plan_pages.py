"""Pages of the plans of jobs: what is asked for again, and what is told at once."""

from __future__ import annotations

import asyncio
import time

import pytest

from anabranch.client.cluster import Cluster
from anabranch.core.errors import ApiError, ErrorCode
from anabranch.core.types import TopicId
from anabranch.core.wire.messages.plan_compaction import PLAN, PlanCompactionResponse
from anabranch.core.wire.messages.plan_segments import PlanSegmentsResponse
from anabranch.pipelines import compaction, tiering

JOBS = [
    (lambda *at: tiering._page(at[0], 5, *at[1:]), PlanSegmentsResponse),
    (lambda *at: compaction._page(at[0], 5, PLAN, *at[1:]), PlanCompactionResponse),
]
SECOND_PAGE = TopicId(b"t" * 16), 3


class Answering(Cluster):
    """Gives answers in order, the last one again and again."""

    def __init__(self, *answers: object) -> None:
        super().__init__("localhost:9092", deadline_seconds=30.0)
        self.answers, self.asked = list(answers), 0

    async def send(self, _request, **_more):
        self.asked += 1
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


@pytest.mark.parametrize(("page", "response"), JOBS)
def test_a_claim_that_is_lost_between_two_pages_is_told_at_once(page, response):
    why = "another job is at work"
    lost = response(error_code=ErrorCode.CONCURRENT_TRANSACTIONS, error_message=why)
    cluster, begin = Answering(lost), time.monotonic()
    with pytest.raises(ApiError, match=why) as told:
        asyncio.run(page(cluster, *SECOND_PAGE))
    assert told.value.code is ErrorCode.CONCURRENT_TRANSACTIONS
    assert cluster.asked == 1 and time.monotonic() - begin < 10


@pytest.mark.parametrize(("page", "response"), JOBS)
def test_a_store_that_is_away_between_two_pages_is_waited_for(page, response):
    away = response(error_code=ErrorCode.KAFKA_STORAGE_ERROR, error_message="away")
    cluster = Answering(away, away, response(is_last=True))
    assert asyncio.run(page(cluster, *SECOND_PAGE)).is_last
    assert cluster.asked == 3
    with pytest.raises(ApiError, match="away"):
        asyncio.run(page(Answering(away), TopicId(bytes(16)), -1))
