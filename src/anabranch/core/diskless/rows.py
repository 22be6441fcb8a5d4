"""What brokers and the batch coordinator tell each other about diskless partitions.

What: the rows that the coordinator keeps, what a broker asks it to commit, and its verdicts. Why
here: the broker's machines, both SQL engines and the simulator speak of the same things. Rules
kept: a partition is named by its topic's id, so that a topic made anew is another one; offsets and
high watermarks are exclusive ends where they are called so; times are milliseconds since 1970 by
the coordinator's own clock. Not here: SQL, what is decided (`commit.py`).
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

from anabranch.core.errors import ErrorCode
from anabranch.core.types import TopicId

VERDICTS_KEPT_MS = 3_600_000
"""How long `outcome` knows the verdicts: any producer has stopped waiting long before."""
MOST_RUNS_FOUND = 500
"""Of one partition in one answer: a reader's budget is reached long before."""
MOST_RUNS_DROPPED = 1000
"""By one call of `delete_before`, in all its partitions; `expire` drops the others."""
NO_PRODUCER = -1
"""Producer id of a batch that is not idempotent."""


class LogKey(NamedTuple):
    """A partition as the coordinator knows it; they are locked in this order."""

    topic_id: TopicId
    partition: int


class LogState(NamedTuple):
    """Where a partition stands."""

    start_offset: int
    high_watermark: int
    byte_size: int = 0
    """Of the batches that are still there, in runs or in remote segments."""
    tiered_end: int = 0
    """Records before it lie in remote segments; 0: none ever did."""
    leader_epoch: int = 0
    """Of records in objects. Where the topic was classic before, that of its last leader."""

    @property
    def first_run_offset(self) -> int:
        """Where records that lie in runs may begin."""
        return max(self.start_offset, self.tiered_end)


class NewLogs(NamedTuple):
    """Partitions below `end` of a topic that the metadata log has; so many as `first` had rows."""

    topic_id: TopicId
    topic: str
    first: int
    end: int
    begins: tuple[int, ...] = ()
    """Where the first partitions of one that was classic became diskless, by their numbers."""


class Batch(NamedTuple):
    """One record batch in an object, as its broker asks to commit it."""

    key: LogKey
    byte_offset: int
    """Where it begins in the object."""
    byte_size: int
    record_count: int
    max_timestamp: int
    timestamp_type: int = 0
    """0 CreateTime, 1 LogAppendTime."""
    producer_id: int = NO_PRODUCER
    producer_epoch: int = -1
    base_sequence: int = -1

    @property
    def last_sequence(self) -> int:
        """The sequence number of its last record; after 2147483647 comes 0."""
        if self.base_sequence < 0:
            return -1
        return (self.base_sequence + self.record_count - 1) & 0x7FFFFFFF


class Commit(NamedTuple):
    """One object that lies in the store, and the batches in it in the order of their arrival."""

    object_id: int
    object_key: str
    byte_size: int
    broker_id: int
    broker_epoch: int
    batches: tuple[Batch, ...]
    waited_for: frozenset[int] = frozenset()
    """Places in `batches` of those that may be the first of a producer that was forgotten: the
    broker has waited for what comes before them (`gaps.py`)."""


class Verdict(NamedTuple):
    """What became of one batch."""

    code: ErrorCode
    base_offset: int = -1
    start_offset: int = -1
    """Where its partition began then."""
    is_duplicate: bool = False
    """It had been committed before: `base_offset` is what it got then."""
    expected_sequence: int = -1
    """With OUT_OF_ORDER_SEQUENCE_NUMBER: the sequence number that is next; -1 when the partition
    knows nothing of this producer. Before it lie batches that another broker may still commit."""


class CommitState(IntEnum):
    """What became of an object."""

    COMMITTED = 0
    REFUSED = 1
    """Its lease is over, or the broker's epoch is not current: nothing of it counts, and it will
    never be committed."""
    PENDING = 2
    """Prepared and not committed (an answer to a question only)."""


class Committed(NamedTuple):
    """The coordinator's answer for one object."""

    state: CommitState
    verdicts: tuple[Verdict, ...] = ()
    """One for each batch, in order; empty unless COMMITTED. They are kept for VERDICTS_KEPT_MS:
    who asks later gets none, and `why`."""
    why: str = ""


class Prepared(NamedTuple):
    """An object that may be uploaded and committed before `expires_ms`; then it is collected."""

    object_id: int
    object_key: str
    expires_ms: int
    """By the coordinator's clock."""
    lease_ms: int
    """How long that was from when it was given."""


class Run(NamedTuple):
    """Committed batches of one partition that lie side by side in one object: one row.

    Offsets are `[base_offset, end_offset)`."""

    key: LogKey
    base_offset: int
    end_offset: int
    object_id: int
    object_key: str
    byte_offset: int
    byte_size: int
    max_timestamp: int
    timestamp_type: int = 0


class Wanted(NamedTuple):
    """Which runs of a partition a reader wants."""

    key: LogKey
    offset: int
    max_bytes: int


class Found(NamedTuple):
    """Runs from the one that holds the wanted offset, or the next one where a restore has left out
    that offset, as many as fit and at least one; `state` is None where there is no such partition
    (any more)."""

    key: LogKey
    state: LogState | None
    runs: tuple[Run, ...] = ()


class Change(NamedTuple):
    """A partition moved: its end (a commit) or its start (retention, DeleteRecords); `state` is
    None when it is gone. `runs` are new ones, where they came along."""

    key: LogKey
    state: LogState | None
    runs: tuple[Run, ...] = ()
