"""Committed offsets as records of `__consumer_offsets`, as Kafka 4.1 writes them.

A committed offset is (group, topic, partition) -> offset; a null value deletes it. Source: Kafka's
OffsetCommitValue version 4, with the topic's id (version 1, which has no room for one, where the
client set a retention). Not here: the records of groups themselves (`group_records`).
"""

from __future__ import annotations

from functools import lru_cache
from struct import Struct

from anabranch.core.coordination.groups.committed_offset import CommittedOffset
from anabranch.core.coordination.internal_topics import LONGEST_KEPT
from anabranch.core.types import ZERO_TOPIC_ID
from anabranch.core.wire.offsets_records import (
    OffsetCommitKey,
    OffsetCommitValue,
    encode_key,
    encode_value,
)
from anabranch.core.wire.records import Record

OFFSET_VERSION = 4
OFFSET_VERSION_WITH_EXPIRY = 1

NO_TOPIC = ""

_NO_METADATA_VALUE = Struct(">hqiBqBBB16s")
"""A value of version 4 with empty metadata (compact: one byte) and one tagged field, the topic's
id: how many, its tag, its size, and it."""

KEYS_KEPT = 65_536
"""Encoded keys of commits that are kept: a consumer commits the same partitions all its life."""


def offset_key(group_id: str, topic: str, partition: int) -> bytes:
    """The key of a committed offset."""
    is_short = len(group_id) <= LONGEST_KEPT >= len(topic)
    return (_kept_key if is_short else _key)(group_id, topic, partition)


def _key(group_id: str, topic: str, partition: int) -> bytes:
    return encode_key(OffsetCommitKey(group=group_id, topic=topic, partition=partition))


_kept_key = lru_cache(KEYS_KEPT)(_key)


def offset_record(
    group_id: str, topic: str, partition: int, committed: CommittedOffset | None, now_ms: int
) -> Record:
    """A committed offset, or None for its deletion."""
    key = offset_key(group_id, topic, partition)
    if committed is None:
        return Record(0, now_ms, key, None)
    has_id = committed.topic_id != ZERO_TOPIC_ID
    if has_id and not committed.metadata and committed.expire_timestamp_ms < 0:
        offset, epoch, _, commit_ms, _, topic_id = committed
        short = _NO_METADATA_VALUE.pack(
            OFFSET_VERSION, offset, epoch, 1, commit_ms, 1, 0, len(topic_id), topic_id
        )
        return Record(0, now_ms, key, short)
    value = OffsetCommitValue(
        offset=committed.offset,
        leader_epoch=committed.leader_epoch,
        metadata=committed.metadata,
        commit_timestamp=committed.commit_timestamp_ms,
    )
    version = OFFSET_VERSION
    if committed.expire_timestamp_ms >= 0 and not has_id:
        value.expire_timestamp = committed.expire_timestamp_ms
        version = OFFSET_VERSION_WITH_EXPIRY
    else:
        value.kept_until, value.topic_id = committed.expire_timestamp_ms, committed.topic_id
    return Record(0, now_ms, key, encode_value(value, version))


def nothing_said(group_id: str, now_ms: int) -> Record:
    """A record that changes nothing: the deletion of an offset of a topic that cannot be. Once it
    is committed, its writer led when it wrote; of many a compacted log keeps one, for a day."""
    return offset_record(group_id, NO_TOPIC, 0, None, now_ms)


def committed_offset(value: OffsetCommitValue) -> CommittedOffset:
    """What a value of the log says."""
    return CommittedOffset(
        value.offset,
        value.leader_epoch,
        value.metadata,
        value.commit_timestamp,
        max(value.expire_timestamp, value.kept_until),
        value.topic_id,
    )
