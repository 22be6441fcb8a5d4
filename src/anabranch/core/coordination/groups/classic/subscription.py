"""What consumers say in their subscriptions and assignments, as far as it is needed here.

    subscription  version int16 | topics: int32 count, each int16 length + UTF-8 | more, not read
    assignment    version int16 | topics: int32 count, each int16 length + UTF-8 and
                  partitions: int32 count, each int32 | user data, not read

Source: Kafka's ConsumerProtocolSubscription and ConsumerProtocolAssignment. Why the coordinator
reads subscriptions: offsets of topics that a group still reads are kept, and may not be deleted
(KIP-496, KIP-211). Assignments are read by tools only.
"""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct, error

_HEAD = Struct(">hi").unpack_from
_HEAD_BYTES = 6
_LENGTH = Struct(">h").unpack_from
_COUNT = Struct(">i").unpack_from


def subscribed_topics(subscriptions: Iterable[bytes]) -> frozenset[str] | None:
    """The topics of all members together; None when one of them cannot be read."""
    topics: set[str] = set()
    try:
        for subscription in subscriptions:
            topics.update(_topics(subscription))
    except (error, ValueError):
        return None
    return frozenset(topics)


def assigned_partitions(assignment: bytes) -> list[tuple[str, int]]:
    """(topic, partition) of an assignment; nothing when it cannot be read."""
    try:
        return _assigned(assignment)
    except (error, ValueError):
        return []


def _topics(subscription: bytes) -> list[str]:
    version, count = _HEAD(subscription)
    position = _HEAD_BYTES
    if version < 0 or count > (len(subscription) - position) // 2:
        raise ValueError("more topics than there is room for")
    topics = []
    for _ in range(count):
        topic, position = _name(subscription, position)
        topics.append(topic)
    return topics


def _assigned(assignment: bytes) -> list[tuple[str, int]]:
    _, count = _HEAD(assignment)
    position = _HEAD_BYTES
    found = []
    for _ in range(min(count, len(assignment))):
        topic, position = _name(assignment, position)
        (partitions,) = _COUNT(assignment, position)
        position += 4
        if not 0 <= partitions <= (len(assignment) - position) // 4:
            raise ValueError("more partitions than there is room for")
        indexes = Struct(f">{partitions}i").unpack_from(assignment, position)
        position += 4 * partitions
        found += [(topic, index) for index in indexes]
    return found


def _name(said: bytes, position: int) -> tuple[str, int]:
    (length,) = _LENGTH(said, position)
    start, end = position + 2, position + 2 + length
    if length < 0 or end > len(said):
        raise ValueError("a topic's name ends early")
    return said[start:end].decode(), end
