"""The topics of a plan: their operator makes them, and makes them again.

Rule kept: a topic is asked for until it is there, and one that is to be made again is missing from
the moment when its deletion is wanted, whatever comes of that.
Not here: which topics there are and when one is made again (the plans), requests (`admin.py`).
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

from anabranch.core.errors import ErrorCode

if TYPE_CHECKING:
    from anabranch.core.types import TopicId
    from anabranch.sim.clients.admin import Admin
    from anabranch.sim.plan_parts import TopicPlan

RETRY_MS = 200


class PlannedTopics:
    """See the module."""

    def __init__(self, operator: Admin, topics: Iterable[TopicPlan]) -> None:
        self._operator = operator
        self._topics = {topic.name: topic for topic in topics}
        self._missing = set(self._topics)

    @property
    def are_made(self) -> bool:
        """Whether all topics exist, as far as the operator was told."""
        return not self._missing

    def make(self) -> None:
        """Ask for the topics until they are there."""
        for topic in self._topics.values():
            self._make(topic)

    def make_again(self, name: str, delay_ms: int) -> None:
        """Delete a topic, and make it again after a while, come what may of the deletion."""
        topic, operator = self._topics.get(name), self._operator
        if topic is None:
            return  # a plan that was made smaller has operations on topics that it has no more
        self._missing.add(name)
        operator.refresh(lambda: self._delete(topic, operator.topic_id(name), delay_ms))

    def _delete(self, topic: TopicPlan, old_id: TopicId, delay_ms: int) -> None:
        """By its id: a request that comes late deletes no other topic."""
        operator = self._operator
        operator.delete_topic(old_id, lambda _: operator.later(delay_ms, self._make, topic, old_id))

    def _make(self, topic: TopicPlan, old_id: TopicId | None = None) -> None:
        operator = self._operator

        def done(response: Any) -> None:
            code = response.topics[0].error_code if response and response.topics else -1
            if code == ErrorCode.TOPIC_ALREADY_EXISTS and old_id is not None:
                operator.refresh(partial(self._look, topic, old_id))
            elif code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                self._missing.discard(topic.name)
            else:
                operator.later(RETRY_MS, self._make, topic, old_id)

        operator.create_topic(
            topic.name,
            partitions=topic.partitions,
            replication_factor=topic.replication_factor,
            configs=dict(topic.configs),
            done=done,
        )

    def _look(self, topic: TopicPlan, old_id: TopicId) -> None:
        """Whether that is the new topic: a deletion that was lost, or still is under way, is asked
        for again."""
        if self._operator.topic_id(topic.name) == old_id:
            self._delete(topic, old_id, RETRY_MS)
        else:
            self._missing.discard(topic.name)
