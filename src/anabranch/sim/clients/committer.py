"""A made-up client that commits offsets under a name without members, as a simple consumer does.

What: it finds the coordinator, commits rising numbers with a retention of its own, and asks what is
committed. What fails is not tried again: the next commit is another one. Rule kept: each number is
sent once by it, whatever the network makes of that. Source: OffsetCommit versions 2 to 4. Not here:
what the answers must be (`checks/offset_expiry.py`), when it does what (`offset_plan.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import TYPE_CHECKING, Any

from anabranch.core.types import TopicPartition
from anabranch.core.wire.messages.find_coordinator import FindCoordinatorRequest
from anabranch.core.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from anabranch.core.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from anabranch.sim.clients.client import NOBODY, Client, Patience
from anabranch.sim.history import History

if TYPE_CHECKING:
    from anabranch.sim.checks.offset_expiry import OffsetExpiryChecks
    from anabranch.sim.cluster import Cluster
    from anabranch.sim.offset_plan import NamePlan

OFFSET_COMMIT = 8
NO_GENERATION = -1


class Committer(Client):
    """See the module."""

    def __init__(self, cluster: Cluster, plan: NamePlan, checks: OffsetExpiryChecks) -> None:
        versions = {OFFSET_COMMIT: plan.version}
        super().__init__(cluster, plan.name, History(), (), Patience(), versions)
        self.plan = plan
        self.checks = checks
        self.coordinator = NOBODY
        self._numbers = count(1)

    def commit(self, places: tuple[TopicPartition, ...]) -> None:
        """Commit the next number of each of these partitions."""
        self._find(lambda: self._commit(places))

    def look(self, places: list[TopicPartition]) -> None:
        """Ask what is committed of these partitions."""
        self._find(lambda: self._look(places))

    def _find(self, then: Callable[[], None]) -> None:
        if self.coordinator != NOBODY:
            then()
            return

        def told(response: Any) -> None:
            found = response.coordinators[0] if response and response.coordinators else response
            if found is not None and not found.error_code and found.node_id >= 0:
                self.coordinator = found.node_id
                then()

        node_id = self.nodes[self.random.randrange(len(self.nodes))]
        name = self.plan.name
        message = FindCoordinatorRequest(key=name, key_type=0, coordinator_keys=[name])
        self.ask(node_id, message, told)

    def _commit(self, places: tuple[TopicPartition, ...]) -> None:
        now_us, number = self.world.now_us, next(self._numbers)
        sent = [self.checks.sent(self.plan, place, number, now_us) for place in places]
        topics: dict[str, OffsetCommitRequestTopic] = {}
        for place in places:
            topic = topics.setdefault(
                place.topic, OffsetCommitRequestTopic(name=place.topic, partitions=[])
            )
            topic.partitions.append(
                OffsetCommitRequestPartition(
                    partition_index=place.partition, committed_offset=number
                )
            )
        message = OffsetCommitRequest(
            group_id=self.plan.name,
            generation_id_or_member_epoch=NO_GENERATION,
            member_id="",
            retention_time_ms=self.plan.retention_ms,
            topics=list(topics.values()),
        )

        def told(response: Any) -> None:
            taken = {
                TopicPartition(topic.name, part.partition_index)
                for topic in (response.topics if response is not None else ())
                for part in topic.partitions
                if not part.error_code
            }
            for each in sent:
                if each.place in taken:
                    each.acknowledged_us = self.world.now_us
            if len(taken) < len(sent):
                self.coordinator = NOBODY

        self.ask(self.coordinator, message, told)

    def _look(self, places: list[TopicPartition]) -> None:
        asked_us, name = self.world.now_us, self.plan.name
        topics = [
            OffsetFetchRequestTopics(
                name=topic,
                partition_indexes=[index for name, index in places if name == topic],
            )
            for topic in sorted({place.topic for place in places})
        ]
        wanted = OffsetFetchRequestGroup(group_id=name, topics=topics)

        def told(response: Any) -> None:
            answer = response.groups[0] if response is not None and response.groups else None
            if answer is None or answer.error_code:
                self.coordinator = NOBODY
                return
            for topic in answer.topics:
                for part in topic.partitions:
                    if not part.error_code:
                        place = TopicPartition(topic.name, part.partition_index)
                        self.checks.told(self.plan, place, asked_us, part.committed_offset)

        self.ask(self.coordinator, OffsetFetchRequest(groups=[wanted]), told)
