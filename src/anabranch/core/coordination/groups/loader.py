"""Reading a partition of `__consumer_offsets` back into groups.

What: what each record means; the log is read by `core.coordination.log_reader`. Rule kept: the last
record of a key counts; offsets committed in a transaction count when its commit marker comes
(Kafka writes those; a folder of Kafka's is read too). An offset whose record has no topic id is of
the topic that had its name when this broker began to lead. Keys of KIP-848 groups are passed over;
such a group is one whose members left when it was read, for they cannot come here, and its offsets
stay while they learn the classic protocol.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from anabranch.core.coordination.groups.classic.group import CONSUMER, Group, Member
from anabranch.core.coordination.groups.classic.states import EMPTY, STABLE
from anabranch.core.coordination.groups.committed_offset import CommittedOffset
from anabranch.core.coordination.groups.in_flight import Place
from anabranch.core.coordination.groups.offset_records import committed_offset
from anabranch.core.coordination.groups.offsets import current_topic_id
from anabranch.core.coordination.groups.undecided import Undecided
from anabranch.core.coordination.log_reader import READ_BYTES, LogReader
from anabranch.core.errors import ProtocolError
from anabranch.core.log.files import ColdRead
from anabranch.core.types import ZERO_TOPIC_ID
from anabranch.core.wire.batch import BatchHeader
from anabranch.core.wire.control import end_marker
from anabranch.core.wire.offsets_records import (
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadata,
    OffsetCommitValue,
    decode_key,
    decode_value,
    newer_group,
)
from anabranch.core.wire.records import Record

if TYPE_CHECKING:
    from anabranch.core.coordination.groups.shard import Shard
    from anabranch.core.types import Buffer


class Loader(LogReader):
    """The groups of one shard, as far as they have been read."""

    kind = "committed offsets"

    def __init__(self, shard: Shard, read_bytes: int = READ_BYTES) -> None:
        super().__init__(shard, read_bytes)
        self.groups: dict[str, Group] = {}
        self.undecided = Undecided()
        self._newer: set[str] = set()
        """Groups of a protocol that is not served."""

    def steps(self, now_ms: int) -> Iterator[ColdRead | None]:
        """Read everything; see LogReader."""
        yield from self.read(now_ms)
        for group_id in self._newer & self.groups.keys():
            newer = self.groups[group_id]
            newer.protocol_type = newer.protocol_type or CONSUMER
        for group in self.groups.values():
            group.note_subscriptions()

    def take(self, record: Record, header: BatchHeader, now_ms: int) -> None:
        try:
            key = decode_key(record.key or b"")
        except ProtocolError:
            self.unknown_keys += 1
            self._note_newer(newer_group(record.key or b""), is_there=record.value is not None)
            return
        if isinstance(key, GroupMetadataKey):
            self._take_group(key.group, record.value, now_ms)
            return
        committed = None
        if record.value is not None:
            committed = self._of_its_topic(key.topic, decode_value(OffsetCommitValue, record.value))
        place = key.topic, key.partition
        if header.is_transactional:
            self.undecided.add(header.producer_id, (key.group, place), committed)
        else:
            self.undecided.replace(key.group, (place,))
            self._take_offset(key.group, place, committed, now_ms)

    def _note_newer(self, group_id: str | None, *, is_there: bool) -> None:
        if group_id is not None:
            (self._newer.add if is_there else self._newer.discard)(group_id)

    def decide(self, batches: Buffer, position: int, header: BatchHeader, now_ms: int) -> None:
        marker = end_marker(batches, position)
        if marker is None:
            return
        decided = self.undecided.take(header.producer_id)
        for (group_id, place), committed in self.undecided.end(decided, committed=marker.committed):
            self._take_offset(group_id, place, committed, now_ms)

    def _of_its_topic(self, topic: str, said: OffsetCommitValue) -> CommittedOffset:
        committed = committed_offset(said)
        if committed.topic_id != ZERO_TOPIC_ID:
            return committed
        return committed._replace(topic_id=current_topic_id(self.shard.image_at_start, topic))

    def _take_offset(
        self, group_id: str, place: Place, committed: CommittedOffset | None, now_ms: int
    ) -> None:
        group = self._group(group_id, now_ms)
        topic, partition = place
        if committed is not None:
            group.offsets.setdefault(topic, {})[partition] = committed
            return
        partitions = group.offsets.get(topic, {})
        partitions.pop(partition, None)
        if not partitions:
            group.offsets.pop(topic, None)
        if not group.offsets and not group.members and group.protocol_type is None:
            del self.groups[group_id]

    def _take_group(self, group_id: str, value: bytes | None, now_ms: int) -> None:
        if value is None:
            group = self.groups.pop(group_id, None)
            if group is not None and group.offsets:
                self._group(group_id, now_ms).offsets = group.offsets
            return
        said = decode_value(GroupMetadataValue, value)
        group = self._group(group_id, now_ms)
        offsets = group.offsets
        group = self.groups[group_id] = Group(group_id, self.shard, now_ms)
        group.offsets = offsets
        group.protocol_type = said.protocol_type
        group.protocol = said.protocol
        group.generation_id = said.generation
        if said.current_state_timestamp >= 0:
            group.state_since_ms = said.current_state_timestamp
        for member in said.members:
            group.add(_member(member, said))
        if said.leader is not None and said.leader in group.members:
            group.leader_id = said.leader
        group.state = STABLE if group.members else EMPTY

    def _group(self, group_id: str, now_ms: int) -> Group:
        group = self.groups.get(group_id)
        if group is None:
            group = self.groups[group_id] = Group(group_id, self.shard, now_ms)
        return group


def _member(said: MemberMetadata, group: GroupMetadataValue) -> Member:
    member = Member(said.member_id, said.group_instance_id, said.client_id, said.client_host)
    timeout = said.session_timeout
    member.session_timeout_ms = timeout
    member.rebalance_timeout_ms = timeout if said.rebalance_timeout < 0 else said.rebalance_timeout
    member.protocols = ((group.protocol or "", said.subscription),)
    member.assignment = said.assignment
    return member
