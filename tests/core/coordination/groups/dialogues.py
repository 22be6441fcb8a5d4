"""What members, strangers and administrators say to a coordinator, and how answers are written down.

A dialogue is a function of a `Talk`; what it is answered is compared with what Apache Kafka 4.1
answered to the same requests (`kafka_answers.json`). Rule kept: an answer is written down whole but
for times and addresses; member ids that a coordinator chose are written as M1, M2 … in the order in
which they first appear.

Not here: how requests travel. `test_kafka_answers.py` asks handlers in memory, and
`tests/clients/groups/test_dialogues.py` a node or Kafka over the wire, and records.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any, Protocol

from anabranch.core.errors import ErrorCode
from anabranch.core.wire.messages.delete_groups import DeleteGroupsRequest
from anabranch.core.wire.messages.describe_groups import DescribeGroupsRequest
from anabranch.core.wire.messages.find_coordinator import FindCoordinatorRequest
from anabranch.core.wire.messages.heartbeat import HeartbeatRequest
from anabranch.core.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from anabranch.core.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from anabranch.core.wire.messages.list_groups import ListGroupsRequest
from anabranch.core.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from anabranch.core.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from anabranch.core.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from anabranch.core.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment

TOPIC = "dialogue"
PARTITIONS = 2
SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "100",
    "group.max.session.timeout.ms": "60000",
    "group.max.size": "3",
}
SUBSCRIPTION = b"\0\1\0\0\0\1\0\x08dialogue" + b"\xff\xff\xff\xff" + b"\0\0\0\0"
NEVER_SAID = {"throttle_time_ms", "host", "port", "client_host", "unknown_tagged_fields"}
CHOSEN = re.compile(r"[\w.]*-[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")

Dialogue = Callable[["Talk"], None]
DIALOGUES: dict[str, Dialogue] = {}


def dialogue(function: Dialogue) -> Dialogue:
    """Enter a dialogue under its name."""
    DIALOGUES[function.__name__] = function
    return function


class Sender(Protocol):
    """Carries requests. Each `who` is a client id with a connection of its own."""

    def send(self, message: Any, version: int, who: str) -> Callable[[], Any]:
        """Send; the callable waits for the answer."""

    def advance(self, milliseconds: int) -> None:
        """Let time go by."""

    def rebalancing(self, group: str) -> None:
        """Wait until the group prepares a rebalance, so that what was sent has arrived."""


class Talk:
    """One dialogue with one coordinator: `said` is what was answered, in order."""

    def __init__(self, sender: Sender, group: str) -> None:
        self.group = group
        self.said: list[Any] = []
        self._sender = sender
        self._names: dict[str, str] = {}

    def begin(self, message: Any, version: int, who: str = "a") -> Callable[[], Any]:
        """Send without waiting; the callable waits, writes the answer down and returns it."""
        answer = self._sender.send(message, version, who)

        def wait() -> Any:
            response = answer()
            self.said.append(self.plain(response))
            return response

        return wait

    def ask(self, message: Any, version: int, who: str = "a") -> Any:
        return self.begin(message, version, who)()

    def advance(self, milliseconds: int) -> None:
        self._sender.advance(milliseconds)

    def plain(self, value: Any) -> Any:
        """As JSON has it."""
        if isinstance(value, str):
            text = CHOSEN.sub(lambda found: self._name(found[0]), value)
            return text.replace(self.group, "GROUP")
        if isinstance(value, bytes | bytearray | memoryview):
            return bytes(value).decode("latin-1")
        if isinstance(value, list | tuple):
            plain = [self.plain(each) for each in value]
            return sorted(plain, key=json.dumps)
        if hasattr(value, "__struct_fields__"):
            return {
                name: self.plain(getattr(value, name))
                for name in value.__struct_fields__
                if name not in NEVER_SAID and not self._is_own_sentence(value, name)
            }
        return value

    @staticmethod
    def _is_own_sentence(value: Any, name: str) -> bool:
        """Where Kafka says that something is malformed, we say what."""
        return name == "error_message" and value.error_code == ErrorCode.INVALID_REQUEST

    def _name(self, member_id: str) -> str:
        return self._names.setdefault(member_id, f"M{len(self._names) + 1}")

    # Requests, with what most dialogues say.

    def join(self, member_id: str = "", who: str = "a", version: int = 9, **fields: Any) -> Any:
        return self.begin_join(member_id, who, version, **fields)()

    def begin_join(
        self, member_id: str = "", who: str = "a", version: int = 9, **fields: Any
    ) -> Callable[[], Any]:
        protocols = fields.pop("protocols", ("range",))
        said = {
            "group_id": self.group, "session_timeout_ms": 10_000, "rebalance_timeout_ms": 10_000,
            "member_id": member_id, "protocol_type": "consumer", **fields,
        }  # fmt: skip
        metadata = fields.pop("metadata", SUBSCRIPTION)
        said.pop("metadata", None)
        said["protocols"] = [
            JoinGroupRequestProtocol(name=name, metadata=metadata) for name in protocols
        ]
        return self.begin(JoinGroupRequest(**said), version, who)

    def wait_to_join(self, member_id: str, who: str, **fields: Any) -> Callable[[], Any]:
        """Join a group of others, who have to join again before the answer comes."""
        answer = self.begin_join(member_id, who, **fields)
        self._sender.rebalancing(self.group)
        return answer

    def enter(self, who: str = "a", **fields: Any) -> Any:
        """Join as clients do: once for the id, once more with it."""
        first = self.join("", who, **fields)
        return self.join(first.member_id, who, **fields)

    def begin_sync(
        self, member_id: str, generation: int, who: str = "a", version: int = 5, **fields: Any
    ) -> Callable[[], Any]:
        assigned = fields.pop("assigned", {})
        said = {
            "group_id": self.group, "generation_id": generation, "member_id": member_id,
            "protocol_type": "consumer", "protocol_name": "range", **fields,
        }  # fmt: skip
        said["assignments"] = [
            SyncGroupRequestAssignment(member_id=name, assignment=assignment)
            for name, assignment in assigned.items()
        ]
        return self.begin(SyncGroupRequest(**said), version, who)

    def sync(self, *words: Any, **fields: Any) -> Any:
        return self.begin_sync(*words, **fields)()

    def alone(self, who: str = "a", **fields: Any) -> tuple[str, int]:
        """A stable group of one; member id and generation."""
        joined = self.enter(who, **fields)
        self.sync(joined.member_id, joined.generation_id, who, assigned={joined.member_id: b"all"})
        return joined.member_id, joined.generation_id

    def beat(self, member_id: str, generation: int, who: str = "a", **fields: Any) -> Any:
        message = HeartbeatRequest(
            **{"group_id": self.group, "generation_id": generation, "member_id": member_id} | fields
        )
        return self.ask(message, 4, who)

    def leave(self, *members: tuple[str, str | None], **fields: Any) -> Any:
        identities = [MemberIdentity(member_id=m, group_instance_id=i) for m, i in members]
        return self.ask(
            LeaveGroupRequest(**{"group_id": self.group, "members": identities} | fields), 5
        )

    def commit(self, offsets: dict[tuple[str, int], Any], version: int = 9, **fields: Any) -> Any:
        """Commit {(topic, partition): offset or (offset, metadata)}."""
        topics: dict[str, list[OffsetCommitRequestPartition]] = {}
        for (topic, index), value in offsets.items():
            offset, metadata = value if isinstance(value, tuple) else (value, "")
            topics.setdefault(topic, []).append(
                OffsetCommitRequestPartition(
                    partition_index=index, committed_offset=offset, committed_metadata=metadata
                )
            )
        said = [OffsetCommitRequestTopic(name=name, partitions=p) for name, p in topics.items()]
        return self.ask(
            OffsetCommitRequest(**{"group_id": self.group, "topics": said} | fields), version
        )

    def fetch(
        self, topics: Any = None, version: int = 9, stable: bool = False, **fields: Any
    ) -> Any:
        """Fetch {topic: partitions} of the group; None is everything."""
        kind = OffsetFetchRequestTopics if version >= 8 else OffsetFetchRequestTopic
        asked = topics and [kind(name=n, partition_indexes=list(p)) for n, p in topics.items()]
        said = {"group_id": self.group, "topics": asked, **fields}
        if version >= 8:
            said = {"groups": [OffsetFetchRequestGroup(**said)]}
        return self.ask(OffsetFetchRequest(**said, require_stable=stable), version)

    def delete_offsets(self, *places: tuple[str, int], group: str | None = None) -> Any:
        topics = [
            OffsetDeleteRequestTopic(
                name=topic,
                partitions=[
                    OffsetDeleteRequestPartition(partition_index=index)
                    for name, index in places
                    if name == topic
                ],
            )
            for topic in dict.fromkeys(name for name, _ in places)
        ]
        name = self.group if group is None else group
        return self.ask(OffsetDeleteRequest(group_id=name, topics=topics), 0)

    def describe(self, *groups: str, version: int = 6, **fields: Any) -> Any:
        names = list(groups or (self.group,))
        return self.ask(DescribeGroupsRequest(groups=names, **fields), version)

    def delete(self, *groups: str, version: int = 2) -> Any:
        return self.ask(DeleteGroupsRequest(groups_names=list(groups or (self.group,))), version)

    def listed(self, version: int = 5, **filters: Any) -> Any:
        """What a list says of the dialogue's group alone."""
        answer = self._sender.send(ListGroupsRequest(**filters), version, "a")()
        answer.groups = [each for each in answer.groups if each.group_id == self.group]
        self.said.append(self.plain(answer))
        return answer

    def coordinator(self, version: int, **fields: Any) -> Any:
        return self.ask(FindCoordinatorRequest(**fields), version)
