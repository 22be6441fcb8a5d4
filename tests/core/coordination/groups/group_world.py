"""A broker with an offsets topic, and members that speak to it one request at a time."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from struct import pack
from typing import Any

from tests.core.api.in_memory_node import InMemoryNode

from anabranch.core.coordination.groups.offsets_topic import OFFSETS_TOPIC
from anabranch.core.errors import ErrorCode
from anabranch.core.outcome import Wait
from anabranch.core.step import Performer, Wish, drain
from anabranch.core.wire.messages.heartbeat import HeartbeatRequest
from anabranch.core.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from anabranch.core.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from anabranch.core.wire.messages.list_groups import ListGroupsRequest
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
from anabranch.core.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment

SESSION_MS = 10_000
REBALANCE_MS = 60_000


def subscription(*topics: str) -> bytes:
    """A consumer's subscription, version 1."""
    names = b"".join(pack(">h", len(topic)) + topic.encode() for topic in topics)
    return pack(">hi", 1, len(topics)) + names + pack(">i", -1) + pack(">i", 0)


class GroupWorld(Performer):
    """One coordinator. `waits` holds who is parked; `wake` answers those whose time has come."""

    def __init__(self, offsets_partitions: int = 3, **config: str) -> None:
        settings = {"group.initial.rebalance.delay.ms": "0"}
        settings.update({name.replace("_", "."): text for name, text in config.items()})
        self.node = InMemoryNode(config=settings)
        self.node.topic(OFFSETS_TOPIC, offsets_partitions, configs={"cleanup.policy": "compact"})
        self.node.topic("t", 8)
        self.broker = self.node.broker
        self.groups = self.broker.groups
        self.broker.steady_ms = 1_000_000
        self.waits: list[tuple[Wait, list[Any]]] = []
        self.wishes: list[Wish] = []
        self.faults: list[Any] = []

    # Time.

    def ask(self, message: Any, version: int, **who: Any) -> Any:
        """The answer, or a list that will hold it."""
        outcome = self.node.send(message, version, **who)
        self.wake()
        if not isinstance(outcome, Wait):
            return outcome
        box: list[Any] = []
        self.waits.append((outcome, box))
        self.wake()
        return box[0] if box else box

    def wake(self) -> None:
        """End a step: ask everybody who waits for what has changed."""
        drain(self.broker.mailbox, self)

    def wake_waiting(self, keys: Iterable[Hashable]) -> None:
        changed = set(keys)
        for wait, box in list(self.waits):
            if not box and not changed.isdisjoint(wait.keys):
                answer = wait.poll(self.node.now_ms, False)
                if answer is not None:
                    box.append(answer)
        self.waits = [(wait, box) for wait, box in self.waits if not box]

    def sync_logs(self) -> None:
        self.broker.unsynced.clear()

    def take_faults(self) -> None:
        self.faults += self.broker.faults
        self.broker.faults.clear()

    def grant(self, wish: Wish) -> None:
        """A test looks at the wishes, so that they stay."""
        self.wishes.append(wish)

    def advance(self, milliseconds: int) -> None:
        """Let time go by."""
        self.node.now_ms += milliseconds
        self.broker.steady_ms += milliseconds
        self.groups.tick(self.node.now_ms)
        self.wake()

    def group(self, group_id: str = "g") -> Any:
        return self.groups.groups.get(group_id)

    def state(self, group_id: str = "g") -> str:
        group = self.group(group_id)
        return "none" if group is None else group.state.value

    def commit_to_replicas(self) -> None:
        """The other replicas have fetched everything, also what is written because of that."""
        while sum(self._replicate(each) for each in self.offsets_partitions):
            self.wake()

    @property
    def offsets_partitions(self) -> list[Any]:
        return list(self.broker.partitions.by_name[OFFSETS_TOPIC].values())

    def _replicate(self, replica: Any) -> bool:
        others = [each for each in replica.in_sync_replicas if each != self.broker.broker_id]
        moved = [replica.follower_fetched(each, replica.log.end_offset) for each in others]
        if any(moved):
            self.broker.changed[replica.topic_partition] = None
        return any(moved)

    def restart(self) -> None:
        """Another coordinator reads what this one has written."""
        self.groups.__init__(self.broker)
        self.follow()

    def follow(self) -> None:
        """Partitions came or went: what is led is read."""
        self.groups.follow_leadership(self.node.now_ms)
        self.groups.load(self.node.now_ms)

    # Members.

    def join(
        self,
        member_id: str = "",
        *,
        group_id: str = "g",
        instance_id: str | None = None,
        protocols: dict[str, bytes] | None = None,
        protocol_type: str = "consumer",
        session_ms: int = SESSION_MS,
        rebalance_ms: int = REBALANCE_MS,
        version: int = 9,
        client_id: str = "c",
    ) -> Any:
        said = {"range": subscription("t")} if protocols is None else protocols
        message = JoinGroupRequest(
            group_id=group_id,
            session_timeout_ms=session_ms,
            rebalance_timeout_ms=rebalance_ms,
            member_id=member_id,
            protocol_type=protocol_type,
            protocols=[JoinGroupRequestProtocol(name=n, metadata=m) for n, m in said.items()],
        )
        if version >= 5:
            message.group_instance_id = instance_id
        return self.ask(message, version, client_id=client_id)

    def enter(self, **how: Any) -> Any:
        """Join as clients do: once for the id, once more with it."""
        first = self.join(**how)
        if isinstance(first, list) or first.error_code != ErrorCode.MEMBER_ID_REQUIRED:
            return first
        return self.join(first.member_id, **how)

    def sync(
        self,
        member_id: str,
        generation_id: int,
        assignments: dict[str, bytes] | None = None,
        *,
        group_id: str = "g",
        instance_id: str | None = None,
        protocol: str = "range",
        version: int = 5,
    ) -> Any:
        message = SyncGroupRequest(
            group_id=group_id,
            generation_id=generation_id,
            member_id=member_id,
            group_instance_id=instance_id,
            protocol_type="consumer",
            protocol_name=protocol,
            assignments=[
                SyncGroupRequestAssignment(member_id=m, assignment=a)
                for m, a in (assignments or {}).items()
            ],
        )
        return self.ask(message, version)

    def heartbeat(self, member_id: str, generation_id: int, instance_id: str | None = None) -> int:
        message = HeartbeatRequest(
            group_id="g",
            generation_id=generation_id,
            member_id=member_id,
            group_instance_id=instance_id,
        )
        return self.ask(message, 4).error_code

    def leave(self, *members: tuple[str, str | None], group_id: str = "g") -> Any:
        identities = [MemberIdentity(member_id=m, group_instance_id=i) for m, i in members]
        return self.ask(LeaveGroupRequest(group_id=group_id, members=identities), 5)

    def one_member(self, **how: Any) -> tuple[str, int]:
        """A stable group of one; (member id, generation)."""
        joined = self.enter(**how)
        group_id = how.get("group_id", "g")
        synced = self.sync(
            joined.member_id,
            joined.generation_id,
            {joined.member_id: b"all"},
            group_id=group_id,
            instance_id=how.get("instance_id"),
        )
        assert synced.assignment == b"all"
        return joined.member_id, joined.generation_id

    # Offsets.

    def commit(
        self,
        offsets: dict[int, int],
        *,
        group_id: str = "g",
        generation_id: int = -1,
        member_id: str = "",
        instance_id: str | None = None,
        topic: str = "t",
        metadata: str = "",
        retention_ms: int = -1,
        version: int = 9,
    ) -> Any:
        message = OffsetCommitRequest(
            group_id=group_id,
            generation_id_or_member_epoch=generation_id,
            member_id=member_id,
            group_instance_id=instance_id if version >= 7 else None,
            retention_time_ms=retention_ms,
            topics=[
                OffsetCommitRequestTopic(
                    name=topic,
                    partitions=[
                        OffsetCommitRequestPartition(
                            partition_index=index,
                            committed_offset=offset,
                            committed_metadata=metadata,
                        )
                        for index, offset in offsets.items()
                    ],
                )
            ],
        )
        return self.ask(message, version)

    def commit_codes(self, offsets: dict[int, int], **how: Any) -> list[int]:
        response = self.commit(offsets, **how)
        return [each.error_code for topic in response.topics for each in topic.partitions]

    def ask_fetch(
        self, group_id: str = "g", topic: str | None = "t", indexes: Any = range(3)
    ) -> Any:
        """The group's part of the answer, or a list that will hold the whole answer."""
        topics = None
        if topic is not None:
            topics = [OffsetFetchRequestTopics(name=topic, partition_indexes=list(indexes))]
        message = OffsetFetchRequest(
            groups=[OffsetFetchRequestGroup(group_id=group_id, topics=topics)]
        )
        answer = self.ask(message, 9)
        return answer if isinstance(answer, list) else answer.groups[0]

    def fetch(self, group_id: str = "g", topic: str | None = "t", indexes: Any = range(3)) -> Any:
        """Partition -> offset; of all topics together when `topic` is None. Where the answer waits
        for other replicas, they get everything."""
        group = self.ask_fetch(group_id, topic, indexes)
        if isinstance(group, list):
            self.commit_to_replicas()
            group = group[0].groups[0]
        assert group.error_code == ErrorCode.NONE
        return {
            each.partition_index: each.committed_offset
            for found in group.topics
            for each in found.partitions
        }

    def listed(self, *states: str) -> list[str]:
        response = self.ask(ListGroupsRequest(states_filter=list(states)), 5)
        return [group.group_id for group in response.groups]
