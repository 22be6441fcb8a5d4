"""The topics in a consumer's subscription, as far as the coordinator needs them.

    version int16 | topics: int32 count, each int16 length + UTF-8 | user data and more, not read

Source: Kafka's ConsumerProtocolSubscription. Why read it at all: offsets of topics that a group
still reads are kept, and may not be deleted (KIP-496, KIP-211).
"""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct, error

_HEAD = Struct(">hi").unpack_from
_LENGTH = Struct(">h").unpack_from


def subscribed_topics(subscriptions: Iterable[bytes]) -> frozenset[str] | None:
    """The topics of all members together; None when one of them cannot be read."""
    topics: set[str] = set()
    try:
        for subscription in subscriptions:
            topics.update(_topics(subscription))
    except (error, ValueError):
        return None
    return frozenset(topics)


def _topics(subscription: bytes) -> list[str]:
    version, count = _HEAD(subscription)
    position = 6
    if version < 0 or count > (len(subscription) - position) // 2:
        raise ValueError("more topics than there is room for")
    topics = []
    for _ in range(count):
        (length,) = _LENGTH(subscription, position)
        position += 2
        end = position + length
        if length < 0 or end > len(subscription):
            raise ValueError("a topic's name ends early")
        topics.append(subscription[position:end].decode())
        position = end
    return topics
