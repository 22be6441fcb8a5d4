"""The topics of a plan: their operator makes them, and makes them again.

Rule kept: a topic is asked for until it is there, and one that is to be made again is missing from
the moment when its deletion is wanted, whatever comes of that.
Not here: which topics there are and when one is made again (the plans), requests (`admin.py`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from anabranch.core.errors import ErrorCode

if TYPE_CHECKING:
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

        def delete() -> None:
            topic_id = operator.topic_id(name)  # a request that comes late deletes no other topic
            operator.delete_topic(topic_id, lambda _: operator.later(delay_ms, self._make, topic))

        operator.refresh(delete)

    def _make(self, topic: TopicPlan) -> None:
        def done(response: Any) -> None:
            code = response.topics[0].error_code if response and response.topics else -1
            if code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                self._missing.discard(topic.name)
            else:
                self._operator.later(RETRY_MS, self._make, topic)

        self._operator.create_topic(
            topic.name,
            partitions=topic.partitions,
            replication_factor=topic.replication_factor,
            configs=dict(topic.configs),
            done=done,
        )
