"""What a rehearsal showed: for how long what was missing, what was lost and why, what it costs.

The rule it keeps: every number was seen in the run, but for the time that copying takes: that is
bytes that followers really appended, at the size that the file states, over the bandwidth that the
file states. Conditions are those of a client, not those of the metadata: a partition whose leader
has died is offline from that moment, not from the moment when the controller has noticed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from anabranch.sim.rehearsal.model import Claim
from anabranch.sim.rehearsal.units import SECOND_US

Place = tuple[str, int]


UNCLEANLY = "uncleanly"
LAST_KNOWN = "as the last known leader"
"""How somebody got to lead who was not in sync (KIP-966 knows the second)."""

SHORTEST_US = 10_000
"""What lasts less is a handover: a client cannot tell it from a slow answer."""


class Condition(Enum):
    """What may be wrong with a partition; the value is how people call it."""

    OFFLINE = "offline"
    """No broker serves it: no leader, or one that is down, frozen or does not know it yet."""
    READ_ONLY = "read-only"
    """It is served, and acks=all is refused: fewer in sync than min.insync.replicas."""
    UNDER_REPLICATED = "under-replicated"
    """Fewer live in-sync replicas than replicas."""


@dataclass(frozen=True, slots=True)
class Span:
    """A condition of one partition from a moment to another; `to_us` is None when it lasts."""

    condition: Condition
    place: Place
    from_us: int
    to_us: int | None = None


@dataclass(frozen=True, slots=True)
class Move:
    """A partition got another leader, or none (-1). `how` is empty for one that was in sync."""

    at_us: int
    place: Place
    was: int
    now: int
    how: str = ""


@dataclass(frozen=True, slots=True)
class Loss:
    """Acknowledged records of one partition that are nowhere any more, and what allowed it.

    `rule` is empty when nothing allowed it: then a promise was broken."""

    place: Place
    offsets: tuple[int, ...]
    acks: int
    rule: str


@dataclass(slots=True)
class Writes:
    """How the producer of one topic fared. Each record is sent once."""

    topic: str
    acks: int
    sent: int = 0
    acknowledged: int = 0
    refused: dict[str, int] = field(default_factory=dict)
    unanswered: int = 0
    longest_gap_us: int = 0
    """The longest time without an acknowledgement."""
    median_us: int = 0
    """How long an acknowledgement took, in the middle."""

    @property
    def refusals(self) -> int:
        """Records that a broker refused, whatever the code."""
        return sum(self.refused.values())


@dataclass(frozen=True, slots=True)
class Verdict:
    """A claim beside what was seen."""

    claim: Claim
    seen: int

    @property
    def holds(self) -> bool:
        """Whether the claim is true."""
        return self.seen == self.claim.expected


@dataclass(slots=True)
class Answers:
    """Everything a rehearsal showed."""

    name: str
    seed: int
    length_us: int
    bandwidth_bytes: int
    topics: Mapping[str, int] = field(default_factory=dict)
    """Every topic and its number of partitions."""
    spans: Sequence[Span] = ()
    writes: Sequence[Writes] = ()
    losses: Sequence[Loss] = ()
    moves: Sequence[Move] = ()
    leaders: Mapping[int, int] = field(default_factory=dict)
    """How many partitions each broker leads at the end."""
    copied_bytes: Mapping[int, int] = field(default_factory=dict)
    """What each broker had to copy after it had fallen behind."""
    copy_us: int = 0
    """How long the slowest of them takes at the stated bandwidth."""
    creations: Sequence[tuple[int, str, str]] = ()
    """Topics that were to be created: moment, name, the error's name (`NONE` when it worked)."""
    verdicts: Sequence[Verdict] = ()
    violation: str = ""
    lessons: Sequence[str] = ()

    @property
    def partitions(self) -> int:
        """How many partitions there were."""
        return sum(self.topics.values())

    def of(self, condition: Condition, topic: str = "") -> list[Span]:
        """The spans of one condition, of all topics or of one."""
        return [
            span
            for span in self.spans
            if span.condition is condition and topic in ("", span.place[0])
        ]

    def places(self, condition: Condition, topic: str = "") -> list[Place]:
        """The partitions that were ever in a condition."""
        return sorted({span.place for span in self.of(condition, topic)})

    def longest_us(self, condition: Condition, topic: str = "") -> int:
        """The longest time that any partition was in a condition."""
        return max((self._length(span) for span in self.of(condition, topic)), default=0)

    def at_end(self, condition: Condition, topic: str = "") -> list[Place]:
        """The partitions that were still in a condition at the end."""
        return sorted({span.place for span in self.of(condition, topic) if span.to_us is None})

    def _length(self, span: Span) -> int:
        return (self.length_us if span.to_us is None else span.to_us) - span.from_us

    @property
    def records_lost(self) -> int:
        """Acknowledged records that are gone."""
        return sum(len(loss.offsets) for loss in self.losses)

    @property
    def copied_total(self) -> int:
        """What all brokers had to copy."""
        return sum(self.copied_bytes.values())


def as_json(answers: Answers) -> dict[str, object]:
    """The answers for programs: seconds and bytes as numbers."""
    return {
        "name": answers.name,
        "seed": answers.seed,
        "seconds": answers.length_us / SECOND_US,
        "topics": dict(answers.topics),
        "conditions": {each.name.lower(): _condition_json(answers, each) for each in Condition},
        "writes": [_writes_json(each) for each in answers.writes],
        "records_lost": answers.records_lost,
        "losses": [
            {
                "partition": _name(loss.place),
                "acks": acks_text(loss.acks),
                "offsets": list(loss.offsets),
                "rule": loss.rule or None,
            }
            for loss in answers.losses
        ],
        "leaders_moved": len(answers.moves),
        "moves": [
            {
                "at": move.at_us / SECOND_US,
                "partition": _name(move.place),
                "from": move.was,
                "to": move.now,
                "how": move.how or "clean",
            }
            for move in answers.moves
        ],
        "leaders_at_end": {str(broker): count for broker, count in answers.leaders.items()},
        "heal": {
            "bytes": answers.copied_total,
            "bytes_by_broker": {str(key): value for key, value in answers.copied_bytes.items()},
            "bandwidth_bytes_per_second": answers.bandwidth_bytes,
            "seconds": answers.copy_us / SECOND_US,
        },
        "creations": [
            {"at": at_us / SECOND_US, "topic": topic, "error": error}
            for at_us, topic, error in answers.creations
        ],
        "claims": [_verdict_json(each) for each in answers.verdicts],
        "violation": answers.violation or None,
        "lessons": list(answers.lessons),
    }


def _condition_json(answers: Answers, condition: Condition) -> dict[str, object]:
    return {
        "partitions": len(answers.places(condition)),
        "longest_seconds": answers.longest_us(condition) / SECOND_US,
        "at_end": [_name(place) for place in answers.at_end(condition)],
        "spans": [
            {
                "partition": _name(span.place),
                "from": span.from_us / SECOND_US,
                "to": None if span.to_us is None else span.to_us / SECOND_US,
            }
            for span in answers.of(condition)
        ],
    }


def _writes_json(writes: Writes) -> dict[str, object]:
    return {
        "topic": writes.topic,
        "acks": acks_text(writes.acks),
        "sent": writes.sent,
        "acknowledged": writes.acknowledged,
        "refused": dict(sorted(writes.refused.items())),
        "unanswered": writes.unanswered,
        "longest_gap_seconds": writes.longest_gap_us / SECOND_US,
        "median_seconds": writes.median_us / SECOND_US,
    }


def _verdict_json(verdict: Verdict) -> dict[str, object]:
    claim = verdict.claim
    return {
        "says": claim.says,
        "measure": claim.measure,
        "claimed": claim.expected,
        "seen": verdict.seen,
        "holds": verdict.holds,
    }


def acks_text(acks: int) -> str:
    """`0`, `1` or `all`."""
    return "all" if acks < 0 else str(acks)


def _name(place: Place) -> str:
    return f"{place[0]}-{place[1]}"
