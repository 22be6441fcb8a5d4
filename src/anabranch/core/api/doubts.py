"""Whether this broker still leads, for a client that asks for what it has never seen.

What: a request whose offset or leader epoch lies beyond this leader's own asks `is_certain`, waits
while anything is `waiting`, and answers NOT_LEADER_OR_FOLLOWER when its time is over. Why: a leader
that was deposed, and has not heard of it, knows less than its successor has acknowledged. Clients
that are told OFFSET_OUT_OF_RANGE start over by `auto.offset.reset`; those that are told
NOT_LEADER_OR_FOLLOWER look for the leader, and ask again. Rule kept: only an answer of the active
controller to a question that left after the request had come is proof, and it is asked only for
such a request. Source: decision 50. Not here: how the controller is asked (`core/replication`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from anabranch.core.replication.replica import Replica
    from anabranch.core.replication.replication import Replication
    from anabranch.core.types import TopicPartition

PROOF_MS = 1000
"""How long a request waits for the controller, also one that does not wait for records: else its
client would be sent to look for another leader each time. Clients wait longer."""


class Doubts:
    """Of one request: which partitions it waits for, and for which question about each."""

    __slots__ = ("_questions", "_replication", "_until_ms", "waiting")

    def __init__(self, replication: Replication) -> None:
        self._replication = replication
        self._questions: dict[TopicPartition, int] = {}
        self._until_ms = -1
        self.waiting: set[TopicPartition] = set()

    def is_certain(self, replica: Replica) -> bool:
        """Whether this broker led a partition after the request had come; if that is not known,
        have the controller asked, and wait."""
        place = replica.topic_partition
        question = self._questions.get(place)
        if question is not None and replica.confirmed >= question:
            return True
        asked = self._replication.ask_whether_leading(replica)
        self._questions.setdefault(place, asked)
        self.waiting.add(place)
        return False

    def until(self, now_ms: int) -> int:
        """When the request has waited long enough; `now_ms` counts the first time."""
        if self._until_ms < 0:
            self._until_ms = now_ms + PROOF_MS
        return self._until_ms
