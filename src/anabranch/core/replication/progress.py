"""How far a follower is, as its leader knows it from the follower's fetches.

What: a follower's log end (the offset it asks from: it has everything before), its log start, its
broker epoch, and when it last had everything. Rule kept, as in Kafka: a follower was caught up at
the time of a fetch that asks from the leader's end, or of the fetch before when it now asks from
what was the end then; so that a leader that is written to without pause does not lose followers
that are a moment behind. Source: KIP-16, KIP-903. Not here: what follows for the ISR (`in_sync`).
"""

from __future__ import annotations

UNKNOWN_OFFSET = -1
UNKNOWN_BROKER_EPOCH = -1
NEVER_MS = -1


class Progress:
    """One follower or observer under one leadership. Times are of the steady clock."""

    __slots__ = (
        "broker_epoch",
        "broker_id",
        "caught_up_ms",
        "end_offset",
        "fetched_ms",
        "leader_end_then",
        "start_offset",
    )

    def __init__(self, broker_id: int) -> None:
        self.broker_id = broker_id
        self.broker_epoch = UNKNOWN_BROKER_EPOCH
        self.end_offset = self.start_offset = self.leader_end_then = UNKNOWN_OFFSET
        self.caught_up_ms = self.fetched_ms = NEVER_MS

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
