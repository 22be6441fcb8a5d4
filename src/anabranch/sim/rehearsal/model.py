"""What a rehearsal plans: the cluster, its topics, what happens to it and when, what was claimed.

The rule it keeps: a plan is complete and consistent. Who holds one need not check it again: every
broker, rack and topic that is named exists, every replica list is one that the cluster can hold.
Not here: how it is written (`rehearsal_file.py`), what becomes of it (`stage.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from anabranch.core.diskless.topics import makes_diskless
from anabranch.core.partition.protocol import ACKS_ALL


class Action(Enum):
    """What an event does, by the word that files use."""

    KILL = "kill"
    POWER_LOSS = "power_loss"
    PAUSE = "pause"
    RESUME = "resume"
    START = "start"
    SHUT_DOWN = "shut_down"
    RESTART = "restart"
    WIPE = "wipe"
    ROLL = "roll"
    CUT = "cut"
    HEAL = "heal"
    ELECT = "elect"
    SET = "set"
    CREATE = "create"
    ADD = "add"
    DRAIN = "drain"
    GROW = "grow"
    OUTAGE = "outage"
    RESTORE = "restore"
    SEND = "send"
    READ = "read"


@dataclass(frozen=True, slots=True)
class BrokerChoice:
    """Brokers, named so that it can be told only at the moment: `text` is how the file says it."""

    text: str
    brokers: tuple[int, ...] = ()
    role: str = ""
    """`leader`, `followers` or `controller`: then `brokers` is empty until it happens."""
    topic: str = ""
    partition: int = 0


@dataclass(frozen=True, slots=True)
class TopicPlan:
    """One topic, its replicas, and who writes to it.

    `retained_bytes` is what a partition holds when the rehearsal begins: a few records stand for
    them, and copying one of those counts as its share.
    """

    name: str
    replicas: tuple[tuple[int, ...], ...]
    settings: Mapping[str, str]
    retained_bytes: int = 0
    acks: int = ACKS_ALL
    rate_per_second: float = 0.0
    record_bytes: int = 1_000

    @property
    def is_diskless(self) -> bool:
        """Whether its records lie in object storage, and the cluster manages its replicas."""
        return makes_diskless(self.settings)


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happens at a moment. `line` is where the file says it."""

    at_us: int
    action: Action
    line: int
    who: BrokerChoice | None = None
    to: BrokerChoice | None = None
    """The other side of a cut; whom a producer speaks to although it may not lead."""
    one_way: bool = False
    plane: str = "all"
    """Which links a cut is of: `data` between brokers, `control` to controllers, or `all`."""
    down_us: int = 0
    """How long a restart takes."""
    election: str = ""
    topic: str = ""
    partition: int | None = None
    records: int = 0
    acks: int = ACKS_ALL
    settings: Mapping[str, str] = field(default_factory=dict)
    replication: int = 0
    partitions: int = 0
    """How many a topic is created with, or grows to."""
    remote: str = ""
    """What is away, or is back: `objects` or `coordinator`."""
    says: str = ""
    """What a transcript calls it."""


@dataclass(frozen=True, slots=True)
class Claim:
    """A sentence that somebody wrote, and the number that would make it true."""

    says: str
    measure: str
    expected: int
    topic: str = ""
    partition: int = 0
    at_us: int = -1
    """For what changes: the moment it is looked at; -1 is the end."""


@dataclass(frozen=True, slots=True)
class Rehearsal:
    """A whole plan."""

    name: str
    about: str
    source: str
    seed: int
    length_us: int
    brokers: tuple[int, ...]
    later: tuple[int, ...]
    """Those of the brokers that do not run before an event adds them."""
    racks: Mapping[int, str]
    controller: int
    """Which node is the active controller at the beginning."""
    between_racks_us: int
    """How long a message takes, one way, from one rack to another."""
    bandwidth_bytes: int
    settings: Mapping[str, str]
    topics: tuple[TopicPlan, ...]
    events: tuple[Event, ...]
    claims: tuple[Claim, ...]
    watch: tuple[str, int]
    """The partition that a transcript follows."""

    @property
    def is_diskless(self) -> bool:
        """Whether a topic is diskless."""
        return any(topic.is_diskless for topic in self.topics)

    def seen_by(self, name: str, partition: int) -> tuple[int, ...]:
        """The brokers that matter to a partition: its replicas, and all where it is diskless."""
        topic = self.topic(name)
        assert topic is not None
        return self.brokers if topic.is_diskless else tuple(sorted(topic.replicas[partition]))

    def topic(self, name: str) -> TopicPlan | None:
        """The topic of that name that exists from the beginning, or None."""
        return next((each for each in self.topics if each.name == name), None)
