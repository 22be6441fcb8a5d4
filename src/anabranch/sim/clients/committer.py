"""A simulated client that commits offsets under a name without members, as a simple consumer does.

What: it finds the coordinator, commits rising numbers with a retention of its own, and asks what is
committed. What fails is not tried again: the next commit is another one. Rule kept: each number is
sent once by it, whatever the network makes of that. Source: OffsetCommit versions 2 to 4. Not here:
what the answers must be (`checks/offset_expiry.py`), when it does what (`offset_plan.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import TYPE_CHECKING, Any

from anabranch.core.wire.messages.offset_commit import OffsetCommitRequest
from anabranch.sim.clients.client import NOBODY, Client, Patience
from anabranch.sim.clients.group_requests import (
    committed_offsets,
    coordinator_in,
    find_coordinator,
    group_in,
    offsets_to_commit,
    partitions_in,
)
from anabranch.sim.history import History

if TYPE_CHECKING:
    from anabranch.core.types import TopicPartition
    from anabranch.sim.checks.offset_expiry import OffsetExpiryChecks
    from anabranch.sim.cluster import Cluster
    from anabranch.sim.plan_parts import NamePlan

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
            self.coordinator = coordinator_in(response)
            if self.coordinator != NOBODY:
                then()

        self.ask(self.anybody(), find_coordinator(self.plan.name), told)

    def _commit(self, places: tuple[TopicPartition, ...]) -> None:
        now_us, number = self.world.now_us, next(self._numbers)
        sent = [self.checks.sent(self.plan, place, number, now_us) for place in places]
        message = OffsetCommitRequest(
            group_id=self.plan.name,
            generation_id_or_member_epoch=NO_GENERATION,
            member_id="",
            retention_time_ms=self.plan.retention_ms,
            topics=offsets_to_commit(dict.fromkeys(places, number)),
        )

        def told(response: Any) -> None:
            parts = partitions_in(response) if response is not None else ()
            taken = {place for place, part in parts if not part.error_code}
            for each in sent:
                if each.place in taken:
                    each.acknowledged_us = self.world.now_us
            if len(taken) < len(sent):
                self.coordinator = NOBODY

        self.ask(self.coordinator, message, told)

    def _look(self, places: list[TopicPartition]) -> None:
        asked_us = self.world.now_us

        def told(response: Any) -> None:
            answer = group_in(response)
            if answer is None:
                self.coordinator = NOBODY
                return
            for place, part in partitions_in(answer):
                if not part.error_code:
                    self.checks.told(self.plan, place, asked_us, part.committed_offset)

        self.ask(self.coordinator, committed_offsets(self.plan.name, places), told)
