"""Keys and values of the topic `__consumer_offsets`: committed offsets and classic groups.

Each starts with an int16 and is then laid out by its schema:

    key    int16 type: 1 OffsetCommitKey (0 is its oldest form, same layout), 2 GroupMetadataKey
    value  int16 version of the schema

A value that is absent (null) is a tombstone and never comes here. Of the keys of KIP-848, share and
streams groups (3 and up) only the names of groups that may have committed offsets are read.
"""

from __future__ import annotations

import struct
from typing import Annotated

from anabranch.core.errors import ProtocolError
from anabranch.core.types import ZERO_TOPIC_ID, Buffer
from anabranch.core.wire.codec import M, decode_exact, encode
from anabranch.core.wire.schema import (
    Bytes,
    Int32,
    Int64,
    Message,
    NullableString,
    String,
    Struct,
    TopicUuid,
)


class OffsetCommitKey(Message, type_id=1, versions="0", flexible="none"):
    group: String = ""
    topic: String = ""
    partition: Int32 = 0


class OffsetCommitValue(Message, type_id=1, versions="0-4", flexible="4+"):
    offset: Int64 = 0
    leader_epoch: Annotated[Int32, "3+"] = -1
    metadata: String = ""
    commit_timestamp: Int64 = 0
    expire_timestamp: Annotated[Int64, "1"] = -1
    topic_id: Annotated[TopicUuid, "4+", "tag 0"] = ZERO_TOPIC_ID
    kept_until: Annotated[Int64, "4+", "tag 10000"] = -1
    """Ours: what `expire_timestamp` says in version 1, which has no room for a topic's id. Kafka
    passes it over, and keeps such an offset for the group's own time."""


class GroupMetadataKey(Message, type_id=2, versions="0", flexible="none"):
    group: String = ""


class MemberMetadata(Struct):
    member_id: String = ""
    group_instance_id: Annotated[NullableString, "3+"] = None
    client_id: String = ""
    client_host: String = ""
    rebalance_timeout: Annotated[Int32, "1+"] = -1
    session_timeout: Int32 = 0
    subscription: Bytes = b""
    assignment: Bytes = b""


class GroupMetadataValue(Message, type_id=2, versions="0-4", flexible="4+"):
    protocol_type: String = ""
    generation: Int32 = 0
    protocol: NullableString = ""
    leader: NullableString = ""
    current_state_timestamp: Annotated[Int64, "2+"] = -1
    members: list[MemberMetadata] = []


_TYPE = struct.Struct(">h")
_NEWER_GROUPS = frozenset({3, 17})
"""ConsumerGroupMetadataKey (KIP-848) and StreamsGroupMetadataKey (KIP-1071): a group, laid out as
in GroupMetadataKey. Share groups commit no offsets here."""
_KEYS: dict[int, type[OffsetCommitKey] | type[GroupMetadataKey]] = {
    0: OffsetCommitKey,
    1: OffsetCommitKey,
    2: GroupMetadataKey,
}

OffsetsKey = OffsetCommitKey | GroupMetadataKey
OffsetsValue = OffsetCommitValue | GroupMetadataValue


def encode_key(key: OffsetsKey) -> bytes:
    """A key for the log, with its type before it."""
    return with_int16(key.type_id, key, 0)


def decode_key(key: Buffer) -> OffsetsKey:
    """The key that a record has; raises ProtocolError, also for a type that is not known."""
    type_id = first_int16(key, "OffsetsKey", "type")
    cls = _KEYS.get(type_id)
    if cls is None:
        raise ProtocolError("OffsetsKey", 0, "type", 0, f"no key has type {type_id}")
    return decode_exact(cls, key, 0, 2)


def newer_group(key: Buffer) -> str | None:
    """The group that a key says is of a protocol that is not served; None for any other key."""
    try:
        if first_int16(key, "OffsetsKey", "type") in _NEWER_GROUPS:
            return decode_exact(GroupMetadataKey, key, 0, 2).group
    except ProtocolError:
        pass
    return None


def encode_value(value: OffsetsValue, version: int) -> bytes:
    """A value for the log in a version of its schema, with that version before it."""
    return with_int16(version, value, version)


def decode_value(cls: type[M], value: Buffer) -> M:
    """The value of a record whose key told its class; raises ProtocolError."""
    version = first_int16(value, cls.__name__, "version")
    return decode_exact(cls, value, version, 2)


def with_int16(number: int, message: Message, version: int) -> bytes:
    """A key or value of an internal topic: an int16, then the message in a version."""
    return b"".join((_TYPE.pack(number), *encode(message, version)))


def first_int16(buffer: Buffer, name: str, field: str) -> int:
    """What a key or value of an internal topic begins with; raises ProtocolError."""
    if len(buffer) < _TYPE.size:
        raise ProtocolError(name, 0, field, 0, f"{len(buffer)} bytes are too few")
    number: int = _TYPE.unpack_from(buffer)[0]
    return number
