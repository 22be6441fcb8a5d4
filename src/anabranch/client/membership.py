"""A member of a consumer group that reads topics: joins, stays, commits, leaves.

What: the classic protocol with the assignor `range`, so that members of other clients may be in the
group; the member that leads hands out every topic that anybody in the group subscribed to. Rules
kept: `stay` says when the assignment is void, and then nothing of it may be committed; a member
that the group does not know any more begins anew. Source: KIP-62, KIP-394, Kafka's RangeAssignor
and ConsumerProtocol (`core/coordination/groups/classic/subscription.py` has the layout). Not here:
reading records.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from struct import pack

from anabranch.client.cluster import Cluster, check
from anabranch.client.groups import CONSUMER, coordinated
from anabranch.core.coordination.groups.classic.subscription import (
    assigned_partitions,
    subscribed_topics,
)
from anabranch.core.errors import ErrorCode
from anabranch.core.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from anabranch.core.wire.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
    JoinGroupResponseMember,
)
from anabranch.core.wire.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
)
from anabranch.core.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from anabranch.core.wire.messages.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)

RANGE = "range"
SESSION_MS = 45_000
"""The default of Kafka's consumers."""
REBALANCE_MS = 20_000
"""How long the group waits for this member to join again: less than a request may take."""
HEARTBEAT_SECONDS = 3.0
GROWTH_SECONDS = 10.0
"""How often the member that leads looks for partitions that were added."""
AGAIN = frozenset(
    {
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.UNKNOWN_MEMBER_ID,
    }
)
"""Answers that make an assignment void: the member joins again."""


class Membership:
    """One member of a group."""

    def __init__(self, cluster: Cluster, group_id: str, topics: Iterable[str]) -> None:
        self._cluster = cluster
        self._group_id = group_id
        self._topics = set(topics)
        self._member_id = ""
        self._generation = -1
        self._heard_s = 0.0
        self._handed_out: dict[str, int] = {}
        self._counted_s = 0.0

    def subscribe(self, topic: str) -> None:
        """Subscribe to one more topic, from the next `join` on."""
        self._topics.add(topic)

    async def join(self) -> dict[str, list[int]]:
        """Join, or join again; the partitions that this member is to read, of each topic that it
        subscribed to. Raises ApiError when the group does not take it."""
        while True:
            joined = await self._join()
            if joined is None:
                continue
            given = await self._sync(joined)
            if given is not None:
                self._heard_s = time.monotonic()
                return {
                    each: [index for topic, index in given if topic == each]
                    for each in sorted(self._topics)
                }

    async def stay(self) -> bool:
        """Send a heartbeat if one is due; False when the member has to join again."""
        if time.monotonic() - self._heard_s < HEARTBEAT_SECONDS:
            return True
        request = HeartbeatRequest(
            group_id=self._group_id, generation_id=self._generation, member_id=self._member_id
        )

        async def ask(broker_id: int) -> bool:
            response: HeartbeatResponse = await self._cluster.send_to(broker_id, request)
            return self._goes_on(response.error_code)

        self._heard_s = time.monotonic()
        return await coordinated(self._cluster, self._group_id, ask) and not await self._has_more()

    async def _has_more(self) -> bool:
        """Whether a topic has more partitions than this member, which leads, handed out: it joins
        again, which makes the others do so, too."""
        if not self._handed_out or time.monotonic() - self._counted_s < GROWTH_SECONDS:
            return False
        counts = await self._counts(self._handed_out)
        return any(counts.get(topic, 0) > count for topic, count in self._handed_out.items())

    async def _counts(self, topics: Iterable[str]) -> dict[str, int]:
        names = sorted(topics)
        found = (await self._cluster.retrying(lambda: self._cluster.metadata(names))).topics
        self._counted_s = time.monotonic()
        return {each.name or "": len(each.partitions) for each in found}

    async def commit(self, offsets: Mapping[str, Mapping[int, int]]) -> bool:
        """Commit the next offset of each partition of topics; False when the assignment is void
        and nothing was committed."""
        request = OffsetCommitRequest(
            group_id=self._group_id,
            generation_id_or_member_epoch=self._generation,
            member_id=self._member_id,
            topics=[
                OffsetCommitRequestTopic(
                    name=topic,
                    partitions=[
                        OffsetCommitRequestPartition(partition_index=index, committed_offset=offset)
                        for index, offset in sorted(each.items())
                    ],
                )
                for topic, each in sorted(offsets.items())
            ],
        )

        async def ask(broker_id: int) -> bool:
            response: OffsetCommitResponse = await self._cluster.send_to(broker_id, request)
            codes = {each.error_code for topic in response.topics for each in topic.partitions}
            return all(self._goes_on(code) for code in sorted(codes))

        return await coordinated(self._cluster, self._group_id, ask)

    async def leave(self) -> None:
        """Let others have the partitions at once."""
        request = LeaveGroupRequest(
            group_id=self._group_id,
            member_id=self._member_id,
            members=[MemberIdentity(member_id=self._member_id, reason="the command ended")],
        )

        async def ask(broker_id: int) -> None:
            response: LeaveGroupResponse = await self._cluster.send_to(broker_id, request)
            self._goes_on(response.error_code)

        if self._member_id:
            await coordinated(self._cluster, self._group_id, ask)

    def _goes_on(self, code: int) -> bool:
        """Whether the assignment holds. Raises ApiError for what a new join would not mend."""
        if code == ErrorCode.UNKNOWN_MEMBER_ID:
            self._member_id = ""
        if code in AGAIN:
            return False
        check(code, of=f"group {self._group_id}")
        return True

    async def _join(self) -> JoinGroupResponse | None:
        """One try to join, None when another must follow."""
        request = JoinGroupRequest(
            group_id=self._group_id,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=REBALANCE_MS,
            member_id=self._member_id,
            protocol_type=CONSUMER,
            protocols=[
                JoinGroupRequestProtocol(name=RANGE, metadata=subscription_of(sorted(self._topics)))
            ],
        )

        async def ask(broker_id: int) -> JoinGroupResponse | None:
            response: JoinGroupResponse = await self._cluster.send_to(broker_id, request)
            if response.error_code == ErrorCode.MEMBER_ID_REQUIRED:
                self._member_id = response.member_id
                return None
            if not self._goes_on(response.error_code):
                return None
            self._member_id, self._generation = response.member_id, response.generation_id
            return response

        return await coordinated(self._cluster, self._group_id, ask)

    async def _sync(self, joined: JoinGroupResponse) -> list[tuple[str, int]] | None:
        """What this member is given, None when the group rebalances again."""
        assignments, self._handed_out = [], {}
        if joined.leader == self._member_id:
            assignments = await self._hand_out(joined.members)
        request = SyncGroupRequest(
            group_id=self._group_id,
            generation_id=self._generation,
            member_id=self._member_id,
            protocol_type=CONSUMER,
            protocol_name=RANGE,
            assignments=assignments,
        )

        async def ask(broker_id: int) -> list[tuple[str, int]] | None:
            response: SyncGroupResponse = await self._cluster.send_to(broker_id, request)
            if not self._goes_on(response.error_code):
                return None
            return assigned_partitions(response.assignment)

        return await coordinated(self._cluster, self._group_id, ask)

    async def _hand_out(
        self, members: Sequence[JoinGroupResponseMember]
    ) -> list[SyncGroupRequestAssignment]:
        readers: dict[str, list[str]] = {}
        for member in members:
            for topic in subscribed_topics([member.metadata]) or ():
                readers.setdefault(topic, []).append(member.member_id)
        counts = self._handed_out = await self._counts(readers)
        given = by_range(readers, counts)
        return [
            SyncGroupRequestAssignment(
                member_id=each.member_id, assignment=assignment_of(given.get(each.member_id, {}))
            )
            for each in members
        ]


def by_range(
    readers: Mapping[str, Sequence[str]], counts: Mapping[str, int]
) -> dict[str, dict[str, list[int]]]:
    """Member -> topic -> partitions: each topic is cut into runs of partitions, one a member, and
    the first members get one more where it does not divide. Kafka's RangeAssignor without racks."""
    given: dict[str, dict[str, list[int]]] = {}
    for topic, members in sorted(readers.items()):
        each, more = divmod(counts.get(topic, 0), len(members))
        start = 0
        for number, member in enumerate(sorted(members)):
            end = start + each + (number < more)
            if end > start:
                given.setdefault(member, {})[topic] = list(range(start, end))
            start = end
    return given


def subscription_of(topics: Sequence[str]) -> bytes:
    """A subscription of version 0, without user data."""
    return pack(">hi", 0, len(topics)) + b"".join(map(_name, topics)) + pack(">i", -1)


def assignment_of(partitions: Mapping[str, Sequence[int]]) -> bytes:
    """An assignment of version 0, without user data."""
    rows = (
        _name(topic) + pack(f">i{len(each)}i", len(each), *each)
        for topic, each in sorted(partitions.items())
    )
    return pack(">hi", 0, len(partitions)) + b"".join(rows) + pack(">i", -1)


def _name(text: str) -> bytes:
    encoded = text.encode()
    return pack(">h", len(encoded)) + encoded
