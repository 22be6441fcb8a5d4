"""The operator makes the topics of a plan, and makes them again, whatever becomes of requests."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from anabranch.core.errors import ErrorCode
from anabranch.core.types import ZERO_TOPIC_ID, TopicId
from anabranch.sim.clients.topics import PlannedTopics
from anabranch.sim.plan_parts import TopicPlan


class Operator:
    """A cluster of one topic, whose deletions come late: after so many other requests."""

    def __init__(self, late: int) -> None:
        self.late = late
        self.made = 0
        self.there: TopicId | None = None
        self.deletions: list[tuple[int, TopicId]] = []

    def _arrive(self) -> None:
        self.deletions = [(left - 1, topic_id) for left, topic_id in self.deletions]
        if any(left <= 0 and topic_id == self.there for left, topic_id in self.deletions):
            self.there = None

    def topic_id(self, _name: str) -> TopicId:
        return self.there or ZERO_TOPIC_ID

    def refresh(self, then: Any) -> None:
        then()

    def later(self, _delay_ms: int, action: Any, *args: Any) -> None:
        action(*args)

    def delete_topic(self, topic_id: TopicId, done: Any) -> None:
        self.deletions.append((self.late, topic_id))
        done(None)

    def create_topic(self, _name: str, *, done: Any, **_settings: Any) -> None:
        self._arrive()
        code = ErrorCode.TOPIC_ALREADY_EXISTS
        if self.there is None:
            code, self.made = ErrorCode.NONE, self.made + 1
            self.there = TopicId(bytes(15) + bytes([self.made]))
        done(SimpleNamespace(topics=[SimpleNamespace(error_code=code)]))


def test_a_topic_is_made_again_also_when_its_deletion_comes_late() -> None:
    """Seed 20001243: the deletion was carried out after the topic was found to be there still, and
    nobody made it again."""
    operator: Any = Operator(late=3)
    topics = PlannedTopics(operator, [TopicPlan("t", 1, 1, ())])
    topics.make()
    topics.make_again("t", 500)
    assert topics.are_made
    assert operator.made == 2
    assert operator.topic_id("t") != bytes(15) + b"\x01"
