"""How far a follower is, as its leader knows it from the follower's fetches.

What: a follower's log end (the offset it asks from: it has everything before), its log start, its
broker epoch, and when it last had everything. Rule kept, as in Kafka: a follower was caught up at
the time of a fetch that asks from the leader's end, or of the fetch before when it now asks from
what was the end then; so that a leader that is written to without pause does not lose followers
that are a moment behind. What a session does not name is as it was said before: such a follower is
heard of by every fetch of its session (`Heard`), which costs nothing for each partition.
Source: KIP-16, KIP-227, KIP-903. Not here: what follows for the ISR (`in_sync`).
"""

from __future__ import annotations

from anabranch.core.partition.protocol import UNKNOWN_OFFSET
from anabranch.core.types import NO_TIME_MS, UNKNOWN_BROKER_EPOCH


class Heard:
    """When a follower last fetched in a session, for all partitions that it does not name."""

    __slots__ = ("ms",)

    def __init__(self, ms: int = NO_TIME_MS) -> None:
        self.ms = ms


class Progress:
    """One follower or observer under one leadership. Times are of the steady clock."""

    __slots__ = (
        "broker_epoch",
        "broker_id",
        "caught_up_ms",
        "end_offset",
        "fetched_ms",
        "heard",
        "leader_end_then",
        "start_offset",
    )

    def __init__(self, broker_id: int) -> None:
        self.broker_id = broker_id
        self.broker_epoch = UNKNOWN_BROKER_EPOCH
        self.end_offset = self.start_offset = self.leader_end_then = UNKNOWN_OFFSET
        self.caught_up_ms = self.fetched_ms = NO_TIME_MS
        self.heard: Heard | None = None

    def stayed(self, leader_end: int) -> None:
        """The leader's log ends at `leader_end` still: a follower that has all of it had it when it
        was last heard of."""
        if self.heard is not None and self.end_offset >= leader_end:
            self.fetched_ms = max(self.fetched_ms, self.heard.ms)
            self.caught_up_ms = max(self.caught_up_ms, self.heard.ms)

    def fetched(
        self, fetch_offset: int, leader_end: int, now_ms: int, broker_epoch: int, start_offset: int
    ) -> None:
        """The follower asks from `fetch_offset` while the leader's log ends at `leader_end`."""
        if fetch_offset >= leader_end:
            self.caught_up_ms = max(self.caught_up_ms, now_ms)
        elif fetch_offset >= self.leader_end_then >= 0:
            self.caught_up_ms = max(self.caught_up_ms, self.fetched_ms)
        self.end_offset = fetch_offset
        self.start_offset = start_offset
        self.broker_epoch = broker_epoch
        self.leader_end_then = leader_end
        self.fetched_ms = now_ms
