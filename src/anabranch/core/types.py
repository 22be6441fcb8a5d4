"""Ids and offsets by their own names, so that a mix-up is a type error."""

from __future__ import annotations

import base64
from typing import NamedTuple, NewType

BrokerId = NewType("BrokerId", int)
Offset = NewType("Offset", int)
PartitionIndex = NewType("PartitionIndex", int)
NO_LEADER = BrokerId(-1)
TopicId = NewType("TopicId", bytes)
"""16 raw bytes: a fast dictionary key."""
Buffer = bytes | bytearray | memoryview
Records = Buffer | tuple[Buffer, ...]
"""Batches in one piece, or in several that follow each other: for whoever only sends them."""


class Loan:
    """Bytes that stay in their file until they are sent, for whoever only sends them.

    Whatever happens to the file, they are the bytes that were there when they were lent."""

    __slots__ = ("end_offset", "head", "length")

    def __init__(self, length: int) -> None:
        self.length = length
        self.head: Buffer = b""
        """How they begin: the header of the first batch."""
        self.end_offset = -1
        """No record in them has this offset or a greater one; set by who lends it."""

    def __len__(self) -> int:
        return self.length


Piece = Buffer | Loan
"""A part of an answer."""
SIZE_BYTES = 4
"""Of the size that stands before a frame."""
UNKNOWN_BROKER_EPOCH = -1
ZERO_TOPIC_ID = TopicId(bytes(16))
METADATA_TOPIC_ID = TopicId(bytes(15) + b"\x01")
CLUSTER_METADATA_TOPIC = "__cluster_metadata"
NEVER_MS = 2**63 - 1
"""A time that does not come."""
NO_TIME_MS = -1
"""A time that has not been, or is not set."""
LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED = -1, -2, -3, -4, -5
"""What ListOffsets takes in place of a timestamp."""


def topic_id_text(topic_id: bytes) -> str:
    """A topic id as Kafka writes it: url-safe base64 without padding."""
    return base64.urlsafe_b64encode(topic_id).rstrip(b"=").decode()


def parse_topic_id(text: str) -> TopicId:
    """The topic id that a text of 22 characters stands for; raises ValueError."""
    raw = base64.urlsafe_b64decode(text + "==")
    if len(raw) != 16:
        raise ValueError(f"{text!r} is not a topic id")
    return TopicId(raw)


class TopicPartition(NamedTuple):
    """A partition by its topic's name and its index."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"
