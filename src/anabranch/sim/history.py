"""What simulated clients did and saw: the only evidence that counts at the end of a run.

What: records of sends, polls, commits and assignments, in the order in which they were written
down, and counts of what clients were answered. Why: the promise is made to clients, so it is judged
by what they saw and not by what a broker believes. Rule kept: values are unique in a run, and a
record says no more than its client can know. Source: the histories of Jepsen. Not here: judgement
(`checks/`), clients (`clients/`).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from hashlib import blake2b
from typing import TypeAlias

from anabranch.core.types import ZERO_TOPIC_ID, TopicId, TopicPartition

WRITTEN_AS = "written-as"
"""The header of a tombstone that says what its value would have been."""
TOMBSTONES = b"05"
OPEN, OK, FAILED, UNKNOWN = "open", "ok", "failed", "unknown"


@dataclass(slots=True, eq=False)
class Send:
    """One record of a producer. `outcome` is `ok` only when a broker said so, `failed` only when
    no broker can have it, else `unknown`; `open` while it is under way.

    `offset` is -1 also when a broker said that it has the record and not where."""

    id: str
    client: str
    place: TopicPartition
    value: bytes
    acks: int
    idempotent: bool
    invoked_us: int
    completed_us: int = -1
    outcome: str = OPEN
    offset: int = -1
    topic_id: TopicId = ZERO_TOPIC_ID
    """Which of the topics of that name, as far as the client knew when it sent."""
    key: bytes | None = None


@dataclass(frozen=True, slots=True)
class Poll:
    """One answer that moved a reader: what it asked from, and what came.

    Order is promised within one client name and partition only."""

    client: str
    place: TopicPartition
    at_us: int
    position: int
    records: list[tuple[int, bytes]]
    isolation: int
    in_group: bool = False
    topic_id: TopicId = ZERO_TOPIC_ID
    """Which of the topics of that name it asked for."""


@dataclass(frozen=True, slots=True)
class Commit:
    """An offset that a member committed; not `ok`: refused, or nobody answered."""

    group: str
    place: TopicPartition
    offset: int
    ok: bool
    at_us: int


@dataclass(frozen=True, slots=True)
class Assigned:
    """A member was given partitions."""

    group: str
    client: str
    generation: int
    places: tuple[TopicPartition, ...]
    at_us: int


@dataclass(frozen=True, slots=True)
class Thrown:
    """A reader was told that its position is out of range, or its epoch unknown, by whom it took
    for the leader: it starts over."""

    client: str
    place: TopicPartition
    position: int
    at_us: int


@dataclass(frozen=True, slots=True)
class UncleanAsked:
    """An operator asked for an unclean election: whatever is lost by it was allowed."""

    place: TopicPartition
    at_us: int


Event: TypeAlias = Send | Poll | Commit | Assigned | Thrown | UncleanAsked


def is_tombstone(send: Send) -> bool:
    """Whether a record has a key and no value: such a one when its number ends so."""
    return send.key is not None and send.value[-1] in TOMBSTONES


class History:
    """All clients' records of one run.

    `open` are sends whose outcome was not looked at yet, `fresh` other records of that kind."""

    def __init__(self) -> None:
        self.sends: list[Send] = []
        self.polls: list[Poll] = []
        self.commits: list[Commit] = []
        self.assigned: list[Assigned] = []
        self.unclean_asked: list[UncleanAsked] = []
        self.deletes_asked: set[TopicPartition] = set()
        """Partitions of which an operator wanted records deleted."""
        self.open: list[Send] = []
        self.thrown: list[Thrown] = []
        self.fresh: list[Poll | Commit | Assigned | Thrown] = []
        self.marks: Counter[str] = Counter()

    def add(self, event: Event) -> None:
        """Write something down."""
        if isinstance(event, Send):
            self.sends.append(event)
            self.open.append(event)
        elif isinstance(event, Poll):
            self.polls.append(event)
            self.fresh.append(event)
        elif isinstance(event, Commit):
            self.commits.append(event)
            self.fresh.append(event)
        elif isinstance(event, Assigned):
            self.assigned.append(event)
            self.fresh.append(event)
        elif isinstance(event, Thrown):
            self.thrown.append(event)
            self.fresh.append(event)
        else:
            self.unclean_asked.append(event)

    def mark(self, name: str) -> None:
        """Count something of `checks.marks.MARKS` that only a client could notice."""
        self.marks[name] += 1

    @property
    def operations(self) -> int:
        """Everything that clients did."""
        return len(self.sends) + len(self.polls) + len(self.commits)

    def digest(self) -> str:
        """What two equal histories have in common, as hexadecimal text."""
        digest = blake2b(digest_size=16)
        for events in (self.sends, self.polls, self.commits, self.assigned, self.unclean_asked):
            for event in events:
                digest.update(repr(event).encode())
        return digest.hexdigest()
