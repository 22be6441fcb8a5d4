"""What clients with transactions did and were told, as its judges read it.

What: each transaction with its writes, the offsets that it commits, when its commit was first asked
for, and what its client was told; each read. Rule kept: a client says no more than it can know. A
transaction is `committed` when its client was told so, `aborted` when nobody ever asked to commit
it (or was refused at once), and else `unknown`: then it is all or nothing. Not here: judgement
(`checks/transactions.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from anabranch.core.types import ZERO_TOPIC_ID, TopicId, TopicPartition

if TYPE_CHECKING:
    from anabranch.sim.world import World

OPEN, COMMITTED, ABORTED, UNKNOWN = "open", "committed", "aborted", "unknown"
NEVER = -1


@dataclass(slots=True, eq=False)
class Written:
    """One record. `offset` is -1 also when a broker said only that it has it."""

    place: TopicPartition
    value: bytes
    offset: int = -1
    acknowledged_us: int = NEVER
    topic_id: TopicId = ZERO_TOPIC_ID
    key: bytes | None = None
    """Of a record in a compacted topic."""
    is_tombstone: bool = False
    """Whether it has no value: a header then says `value`."""


@dataclass(slots=True, eq=False)
class Transaction:
    """One transaction of one process."""

    client: str
    transactional_id: str
    number: int
    producer_id: int
    epoch: int
    began_us: int
    writes: list[Written] = field(default_factory=list)
    consumed: list[tuple[TopicPartition, int]] = field(default_factory=list)
    """The records that it read, of a loop."""
    offsets: dict[TopicPartition, int] = field(default_factory=dict)
    commit_sent_us: int = NEVER
    ended_us: int = NEVER
    outcome: str = OPEN

    @property
    def label(self) -> str:
        """How sentences name it."""
        return f"{self.client}#{self.number}"


@dataclass(frozen=True, slots=True)
class Started:
    """A process was told that it may use an id."""

    client: str
    transactional_id: str
    producer_id: int
    epoch: int
    at_us: int


@dataclass(frozen=True, slots=True)
class Read:
    """What moved a reader's position from `start` to `end`."""

    client: str
    place: TopicPartition
    at_us: int
    start: int
    end: int
    records: tuple[tuple[int, bytes], ...]
    is_committed: bool
    """Whether it reads what is committed alone."""
    stable: int
    """The last stable offset that came with it."""


class TransactionHistory:
    """All of it. `on_read`, `on_started` and `on_committed` hear at once."""

    def __init__(self, world: World, *, doubles: bool) -> None:
        self.world = world
        self.doubles = doubles
        """Whether requests may arrive twice, so that a refusal says nothing of the first one."""
        self.transactions: list[Transaction] = []
        self.starts: list[Started] = []
        self.reads: list[Read] = []
        self.on_read: Callable[[Read], None] = _nothing
        self.on_committed: Callable[[Transaction], None] = _nothing
        self.fenced = 0
        """Processes that were told that another has their id."""
        self.final_offsets: dict[TopicPartition, int] = {}
        """What the group had committed when all was over."""

    def started(self, client: str, name: str, producer_id: int, epoch: int) -> None:
        """A process may use an id."""
        self.starts.append(Started(client, name, producer_id, epoch, self.world.now_us))

    def begin(self, client: str, name: str, producer_id: int, epoch: int) -> Transaction:
        """A process begins a transaction."""
        begun = Transaction(
            client, name, len(self.transactions), producer_id, epoch, self.world.now_us
        )
        self.transactions.append(begun)
        return begun

    def ended(self, transaction: Transaction, outcome: str) -> None:
        """Its client knows what came of it."""
        transaction.outcome = outcome
        transaction.ended_us = self.world.now_us
        if outcome == COMMITTED:
            self.on_committed(transaction)

    def read(self, read: Read) -> None:
        """A reader moved on."""
        self.reads.append(read)
        self.on_read(read)


def _nothing(_event: object) -> None:
    return None
