"""What requests need of a partition, whatever keeps its records.

What: one Protocol that the handlers of produce, fetch, list-offsets, offset-for-leader-epoch,
delete-records and of groups ask. Why: a handler that knows only this has no branch for a kind of
partition. The classic replica (`core.replication.replica`) is a composite of a local log and an
older tail (`composite.py`); a diskless partition is another implementation. What has a body here
holds for a partition that this node keeps alone, without transactions.

Rules kept: an append gives a ticket, and `acknowledged` says later what became of it, so that a
kind that learns its offsets late fits; a read whose bytes are not in memory raises ColdRead, and
the caller gathers these for all partitions of its request before anything is brought in; a
StorageFault is handed back to the partition (`failed`), which knows what goes offline. Not here:
followers and in-sync replicas (`core.replication`), hosting.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

from anabranch.core.errors import ApiError, ErrorCode

if TYPE_CHECKING:
    from anabranch.core.errors import StorageFault
    from anabranch.core.log.lookup import AbortedTransaction, TimestampOffset
    from anabranch.core.log.producers import ProducerStates
    from anabranch.core.metadata.image import BrokerImage
    from anabranch.core.step import Mailbox
    from anabranch.core.types import Buffer, Loan, Records, TopicId, TopicPartition

ACKS_ALL = -1
READ_COMMITTED = 1
UNKNOWN_OFFSET = -1


class Ticket(Protocol):
    """What an append gives. Offsets may be UNKNOWN_OFFSET until `acknowledged` gives a code."""

    @property
    def first_offset(self) -> int:
        """The offset of the batch's first record."""

    @property
    def last_offset(self) -> int:
        """The offset of its last record."""

    @property
    def log_append_time_ms(self) -> int:
        """-1 unless the topic uses LogAppendTime."""

    @property
    def start_offset(self) -> int:
        """Where the partition began when this was appended."""


class Partition(Protocol):
    """One partition as this node serves it. Errors are ApiError with Kafka's code, or StorageFault
    where its storage failed."""

    __slots__ = ()

    topic_partition: TopicPartition
    """Its place: also the key that is left in `changed` when it moves."""
    topic_id: TopicId
    """Which topic of that name."""
    leader_id: int
    """The broker that clients are sent to, -1 when there is none."""
    leader_epoch: int
    """The newest leader epoch that is known here."""
    led_from_epoch: int
    """Where this node's leadership began without a break, -1 when it does not lead: a ticket holds
    as long as this stays."""
    is_leader: bool
    """Whether appends are taken here."""
    appended_bytes: int
    """How much was ever appended: only grows, and is cheap to compare."""
    knows_producers: bool = True
    """Whether it remembers producers itself. Else what gives offsets elsewhere does, and refuses
    what is out of order."""

    @property
    def path(self) -> str:
        """Where its records lie, for sentences about faults."""

    @property
    def start_offset(self) -> int:
        """The first offset that can be read, wherever its record lies."""

    @property
    def local_start_offset(self) -> int:
        """The first offset that lies on this node's disk, from which followers copy. It is later
        than `start_offset` only where another store holds what is older."""
        return self.start_offset

    @property
    def remote_end_offset(self) -> int:
        """Where what another store holds ends (exclusive); 0 when it holds nothing."""
        return 0

    @property
    def end_offset(self) -> int:
        """The offset after the last record."""

    @property
    def high_watermark(self) -> int:
        """The offset after the last committed record."""

    @property
    def last_stable_offset(self) -> int:
        """Where readers that want only committed transactions stop."""
        return self.high_watermark

    @property
    def producers(self) -> ProducerStates:
        """The producers that it remembers."""

    def failed(self, fault: StorageFault, left: Mailbox) -> None:
        """A call raised this fault, and its request is refused: leave in the mailbox what follows
        for the partition."""

    def ensure_current(self, since: int = 0) -> None:
        """Raises ColdRead where this node must ask elsewhere where the partition stands: at all,
        or (`since`, a number that `Partitions.count` gave) since a request came. Its offsets are
        looked at after this."""
        return

    def check_epoch(self, current_leader_epoch: int) -> None:
        """Compare the epoch a client knows with ours; -1 means that it did not say.

        Raises FENCED_LEADER_EPOCH (the client is behind) or UNKNOWN_LEADER_EPOCH (we are).
        """
        if current_leader_epoch < 0 or current_leader_epoch == self.leader_epoch:
            return
        if current_leader_epoch < self.leader_epoch:
            raise ApiError(
                ErrorCode.FENCED_LEADER_EPOCH,
                f"The requested leader epoch {current_leader_epoch} is older than "
                f"{self.leader_epoch}, the current one of {self.topic_partition}.",
            )
        raise ApiError(
            ErrorCode.UNKNOWN_LEADER_EPOCH,
            f"The requested leader epoch {current_leader_epoch} is newer than "
            f"{self.leader_epoch}, the last one known here of {self.topic_partition}.",
        )

    def check_leader(self) -> None:
        """Raises NOT_LEADER_OR_FOLLOWER unless this node leads the partition."""
        if not self.is_leader:
            raise ApiError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
                f"Partition {self.topic_partition} is led by another broker.",
            )

    @property
    def may_be_deposed(self) -> bool:
        """Whether another node may lead, and have acknowledged more, before this one knows it: what
        is unknown here is then refused only when the controller has confirmed the leadership."""
        return False

    def check_offset(self, offset: int) -> None:
        """Raises OFFSET_OUT_OF_RANGE. Of one beyond the end, see first `may_be_deposed`."""
        if not self.start_offset <= offset <= self.end_offset:
            raise ApiError(ErrorCode.OFFSET_OUT_OF_RANGE)

    # Appending.

    @property
    def takes_transactions(self) -> bool:
        """Whether records of transactions can be appended."""
        return True

    def append(
        self, records: Buffer, *, required_acks: int, now_ms: int, client: bool = True
    ) -> Ticket:
        """Append whole batches, all of them or none; a writable buffer may be patched.
        `client=False` is for batches that this node has just made."""

    def acknowledged(
        self, ticket: Ticket, led_from_epoch: int, acks: int = ACKS_ALL
    ) -> ErrorCode | None:
        """What became of an append under `acks`; None: not known yet. `led_from_epoch` is what it
        was at the append."""

    def needs_sync(self, now_ms: int) -> bool:
        """Whether what was appended should now be brought to stable storage."""
        return False

    @property
    def enough_in_sync(self) -> bool:
        """Whether acks=all may be promised."""
        return True

    @property
    def is_alone(self) -> bool:
        """Whether no other node has to have a record before it counts."""
        return True

    # Reading.

    def read(self, offset: int, *, max_bytes: int, upto: int, at_least_one: bool) -> Records:
        """Whole batches from the one that holds `offset`, all of them before `upto`; nothing for
        none. More than `max_bytes` only for a first batch, with `at_least_one`. Raises ColdRead."""

    def lend(self, offset: int, *, max_bytes: int, upto: int, at_least_one: bool) -> Records | Loan:
        """As `read`, for whoever only sends what is committed: it may stay in its file."""
        return self.read(offset, max_bytes=max_bytes, upto=upto, at_least_one=at_least_one)

    def read_limit(self, isolation_level: int, *, is_follower: bool) -> int:
        """The offset that a reader of this kind may not reach."""
        if isolation_level == READ_COMMITTED:
            return self.last_stable_offset
        return self.high_watermark

    def aborted_transactions(self, first: int, upto: int) -> list[AbortedTransaction]:
        """Aborted transactions with records in `[first, upto)`, in order. Raises ColdRead."""
        return []

    # Looking up.

    @property
    def high_watermark_lags(self) -> bool:
        """Whether an election is so fresh that more may be committed than is known here."""
        return False

    def epoch_of(self, offset: int) -> int:
        """The leader epoch of an offset."""

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """(epoch, end offset) as OffsetForLeaderEpoch answers; (-1, -1) when unknown."""

    def offset_for_timestamp(self, timestamp: int, since: int = 0) -> TimestampOffset | None:
        """The first record that is not older; None when there is none. Raises ColdRead; `since` as
        in `know`."""

    def max_timestamp_offset(self, since: int = 0) -> TimestampOffset | None:
        """The newest record by timestamp, the first one of equals. Raises ColdRead; `since` as in
        `know`."""

    # Shortening.

    @property
    def may_shorten(self) -> bool:
        """Whether its records may be deleted before an offset: not where the newest of each key is
        kept."""
        return True

    def delete_before(self, offset: int) -> None:
        """Raise the first offset that can be read: now, or soon (`low_watermark` tells)."""

    def low_watermark(self, brokers: Mapping[int, BrokerImage]) -> int:
        """The smallest start of all copies on living `brokers`."""
        return self.start_offset
