"""Groups as records of `__consumer_offsets`, as Kafka 4.1 writes them.

A group is (group) -> generation, members and their assignments; a null value deletes it. Source:
Kafka's GroupMetadataValue version 3. Not here: committed offsets (`offset_records`).
"""

from __future__ import annotations

from anabranch.core.coordination.groups.classic.group import Group
from anabranch.core.wire.offsets_records import (
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadata,
    encode_key,
    encode_value,
)
from anabranch.core.wire.records import Record

GROUP_VERSION = 3


def group_key(group_id: str) -> bytes:
    """The key of a group."""
    return encode_key(GroupMetadataKey(group=group_id))


def group_deleted(group_id: str, now_ms: int) -> Record:
    """A group that is no more."""
    return Record(0, now_ms, group_key(group_id), None)


def group_record(group: Group, assignments: dict[str, bytes], now_ms: int) -> Record:
    """A group with its members, as it will be once `assignments` are handed out."""
    members = [
        MemberMetadata(
            member_id=member.member_id,
            group_instance_id=member.instance_id,
            client_id=member.client_id,
            client_host=member.client_host,
            rebalance_timeout=member.rebalance_timeout_ms,
            session_timeout=member.session_timeout_ms,
            subscription=member.metadata(group.protocol),
            assignment=assignments.get(member.member_id, b""),
        )
        for member in group.members.values()
    ]
    value = GroupMetadataValue(
        protocol_type=group.protocol_type or "",
        generation=group.generation_id,
        protocol=group.protocol,
        leader=group.leader_id if members else None,
        current_state_timestamp=group.state_since_ms,
        members=members,
    )
    return Record(0, now_ms, group_key(group.group_id), encode_value(value, GROUP_VERSION))
