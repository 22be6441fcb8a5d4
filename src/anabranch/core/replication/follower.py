"""One partition that is copied from its leader: what is asked, and what an answer does to the log.

The rule it keeps: only an answer to what is still the question (same leader epoch, same log end)
touches the log. A log is cut where its history leaves the leader's, as the leader says by epochs,
and nowhere else; never to the high watermark, and not at all when the log knows newer leader epochs
than the metadata does. The one exception: a copy that was left behind is cut to where its first
open transaction begins, when compaction may have taken that transaction's marker from the leader's
log meanwhile. When the leader's log begins after this one ends (or this one is empty, or has no
history), the copy begins anew where the leader's disk does; also a log of which compaction took
records and committed ones are to be cut, and one that the leader has deleted whole and that may
hold what was never committed.
Source: KIP-101, KIP-279, KIP-320, KIP-595 (the epoch rides on the fetch). Not here: sessions and
sending (`fetcher`).
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

from anabranch.core.errors import ApiError, ErrorCode, ProtocolError, StorageFault
from anabranch.core.log.holes import may_have_holes
from anabranch.core.log.producer_snapshot import decode_snapshot
from anabranch.core.log.truncation import Beginning
from anabranch.core.wire.batch import walk
from anabranch.core.wire.messages.fetch import FetchPartition
from anabranch.core.wire.own_fields import LocalStart, untagged

if TYPE_CHECKING:
    from anabranch.core.log.log import Log
    from anabranch.core.replication.replica import Replica
    from anabranch.core.types import Buffer, TopicId
    from anabranch.core.wire.messages.fetch import PartitionData

NOTHING_SENT = -1
NO_TRANSACTION = -1
PAUSE_MS = 60_000
"""What was copied for the second time is not copied for a third time before that, however short
delete.retention.ms is: a copy that goes back more often than it gets on has no end."""
FIRST_PAUSE_MS = 20
SHORT_PAUSES = 3
"""Under each leadership a follower asks again after 20, 80 and 320 ms at most, before it waits as
long as the setting says."""
BASE_OFFSET_BYTES = 8
"""A batch begins with its base offset."""


_PASSING = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.OFFSET_OUT_OF_RANGE,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
)
"""What a leader answers while it and this broker do not know the same metadata yet."""


BEGINS_LATER = (ErrorCode.OFFSET_OUT_OF_RANGE, ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE)
"""What a leader answers that has no such offset, or has it in another store."""


class Next(Enum):
    """How a partition goes on after an answer."""

    UNCHANGED = "unchanged"
    """Nothing new to say to the leader."""
    FETCH = "fetch"
    """The log moved: ask from its new end."""
    LATER = "later"
    """An error that time heals: ask again soon, then every `replica.fetch.backoff.ms`."""
    STOPPED = "stopped"
    """Fenced: newer metadata is on its way, and begins anew."""


class FollowedPartition:
    """One followed partition under one leader epoch."""

    __slots__ = (
        "copies_again",
        "kept_to",
        "key",
        "knows_start",
        "leader_epoch",
        "leader_id",
        "obstacle",
        "pauses",
        "reached",
        "replica",
        "sent_offset",
        "sent_start",
    )

    def __init__(self, replica: Replica) -> None:
        self.replica = replica
        self.leader_id = replica.leader_id
        self.leader_epoch = replica.leader_epoch
        self.key: tuple[TopicId, int] = (replica.topic_id, replica.topic_partition.partition)
        self.sent_offset = self.sent_start = NOTHING_SENT
        self.kept_to = replica.log.end_offset
        """What lies before was copied under earlier leaderships: the leader may have less of it."""
        self.reached = NOTHING_SENT
        """Where the log ended when it was last cut for that: what lies before is copied again."""
        self.copies_again = False
        """Whether the last answer had the log cut to where a transaction begins."""
        self.knows_start = False
        """Whether the leader has said where a log without history begins."""
        self.obstacle = ""
        """Why the last answer could not be used, for people."""
        self.pauses = 0

    @property
    def is_current(self) -> bool:
        """Whether the metadata still asks for exactly this."""
        replica = self.replica
        return replica.leader_epoch == self.leader_epoch and not replica.is_leader

    def pause_ms(self, longest_ms: int) -> int:
        """How long to wait after an error that time heals: a leader that does not know yet
        that it leads learns of it within milliseconds, so the first waits are short."""
        self.pauses += 1
        if self.pauses > SHORT_PAUSES:
            return longest_ms
        return min(longest_ms, FIRST_PAUSE_MS << 2 * (self.pauses - 1))

    def asked(self, max_bytes: int) -> FetchPartition:
        """The question: everything from the log's end on, or from the leader's start on."""
        log = self.replica.log
        self.sent_offset, self.sent_start = log.end_offset, log.start_offset
        if self._has_no_history():
            self.sent_offset = 0
        return FetchPartition(
            partition=self.key[1],
            current_leader_epoch=self.leader_epoch,
            fetch_offset=self.sent_offset,
            last_fetched_epoch=log.epochs.latest,
            log_start_offset=log.start_offset,
            partition_max_bytes=max_bytes,
            high_watermark=self.replica.high_watermark,
        )

    def take(self, answer: PartitionData, wall_ms: int) -> Next:
        """Bring the log in line with the answer.

        Raises ApiError (the records do not fit, or the leader refuses for a cause that should not
        be), StorageFault (as the log does).
        """
        replica, log = self.replica, self.replica.log
        self.copies_again = False
        if not self.is_current:
            return Next.UNCHANGED
        has_no_history = self._has_no_history()
        if self.sent_offset != (0 if has_no_history else log.end_offset):
            return Next.FETCH
        if replica.is_ahead:
            raise ApiError(ErrorCode.UNKNOWN_LEADER_EPOCH, self._older_metadata())
        if answer.error_code:
            return self._refused(answer, wall_ms)
        if answer.diverging_epoch.epoch >= 0:
            diverging = answer.diverging_epoch
            self._part(truncation_offset(log, diverging.epoch, diverging.end_offset))
            return Next.FETCH
        if has_no_history:
            self._begin_at(0, 0)
        if self._cannot_be_compared(answer.log_start_offset):
            self._begin_at(log.end_offset, log.end_offset)
        if answer.records:
            if log.end_offset == answer.log_start_offset:  # the leader has nothing of this log
                replica.copied(answer.high_watermark, answer.log_start_offset)
            first_offset = self._without_marker(answer, wall_ms)
            if first_offset != NO_TRANSACTION:
                self._copy_again(first_offset)
                return Next.FETCH
            self._append(answer.records, wall_ms)
        replica.copied(answer.high_watermark, answer.log_start_offset)
        moved = log.end_offset != self.sent_offset or log.start_offset != self.sent_start
        return Next.FETCH if moved else Next.UNCHANGED

    def _cannot_be_compared(self, leader_start: int) -> bool:
        """Whether the leader has deleted all that this log holds, and some of it may never have
        been committed: what it says of producers and transactions would stay in force."""
        replica, log = self.replica, self.replica.log
        return (
            log.start_offset < leader_start == log.end_offset
            and replica.high_watermark < leader_start
            and log.epochs.latest != self.leader_epoch
        )

    def _part(self, offset: int) -> None:
        """Cut the log where histories part.

        Where the leader has lost committed records, compaction may have taken from this log what
        they superseded: a shorter log would lack keys that the leader has, so the copy begins
        anew."""
        replica, log = self.replica, self.replica.log
        relied_on = max(replica.high_watermark, log.compacted_to)  # the first may be an older one
        if log.config.compacted and offset < relied_on and may_have_holes(log, offset):
            self._begin_at(log.local_start_offset, log.start_offset)
            return
        self.knows_start = self.knows_start and offset >= log.local_start_offset
        try:
            log.truncate_to(offset)
        finally:  # a disk that refuses may have cut already
            replica.truncated()

    def _without_marker(self, answer: PartitionData, wall_ms: int) -> int:
        """Where the first transaction begins that is open in this log, and whose marker may lie
        where the leader's log has a gap or an empty batch now; NO_TRANSACTION for none.

        Compaction touches nothing behind an open transaction, so behind a gap it has ended. Its
        marker stays as long as the leader has a record of it; what was copied before may be such a
        record, and the leader no longer have it. A replica in sync has all that may be compacted;
        the metadata may not tell yet that this one is not, nor a new leader that so much is
        committed."""
        replica, log = self.replica, self.replica.log
        open_here = log.producers.open_transactions
        is_behind = log.end_offset < answer.high_watermark
        if not open_here or (replica.broker_id in replica.in_sync_replicas and not is_behind):
            return NO_TRANSACTION
        opened = {
            producer_id: first_offset
            for producer_id, first_offset in open_here.items()
            if log.local_start_offset <= first_offset
            and (first_offset < self.kept_to or self._is_old(producer_id, first_offset, wall_ms))
        }
        next_offset = log.end_offset
        try:
            for _, header in walk(answer.records or b""):
                if not opened:
                    break
                if header.base_offset > next_offset or not header.record_count:
                    return min(opened.values())
                if header.is_control:
                    opened.pop(header.producer_id, None)
                next_offset = header.next_offset
        except ProtocolError:
            return NO_TRANSACTION  # the append says so
        return NO_TRANSACTION

    def _is_old(self, producer_id: int, first_offset: int, wall_ms: int) -> bool:
        """Whether a producer's last batch was copied so long ago that the leader may have nothing
        of its transaction left, nor the marker."""
        log = self.replica.log
        age_ms = wall_ms - log.producers.producers[producer_id].last_written_ms
        least_ms = PAUSE_MS if first_offset < self.reached else 0
        return age_ms >= max(log.config.delete_retention_ms, least_ms)

    def _copy_again(self, offset: int) -> None:
        """Cut the log to where a transaction begins: what the leader has of it is copied again.

        This log was not compacted behind its open transaction, so nothing that is kept was
        superseded by what goes."""
        replica, log = self.replica, self.replica.log
        self.reached = log.end_offset
        if offset <= log.local_start_offset:
            self._begin_at(log.local_start_offset, log.start_offset)
        else:
            try:
                log.truncate_to(offset)
            finally:  # as above
                replica.truncated()
        self.kept_to, self.copies_again = min(self.kept_to, log.end_offset), True

    def _older_metadata(self) -> str:
        return (
            f"the metadata is older than this log, which has leader epoch "
            f"{self.replica.log.epochs.latest}: the log was not truncated. Stop all nodes and "
            "restore the metadata from a longer copy; if there is none and the leader's records "
            "are correct, stop this node, remove this partition's folder and start it"
        )

    def _append(self, records: Buffer, wall_ms: int) -> None:
        """Append; an empty log begins where the batch does in which the leader's log starts."""
        replica, log = self.replica, self.replica.log
        first_offset = int.from_bytes(records[:BASE_OFFSET_BYTES])
        local_start, start_offset = log.local_start_offset, log.start_offset
        is_within_a_batch = first_offset < log.end_offset == local_start
        if is_within_a_batch:
            self._begin_at(first_offset, start_offset)
        try:
            log.append_as_follower(records, now_ms=wall_ms)
        finally:  # a full disk may have taken nothing: a log's start never goes back
            if is_within_a_batch and log.fault is None:
                if log.end_offset < local_start:
                    self._begin_at(local_start, start_offset)
                log.delete_records_before(start_offset)
        replica.appended_bytes += len(records)

    def _refused(self, answer: PartitionData, wall_ms: int) -> Next:
        if answer.error_code == ErrorCode.FENCED_LEADER_EPOCH:
            return Next.STOPPED
        if answer.error_code not in BEGINS_LATER or answer.log_start_offset < 0:
            code = ErrorCode(answer.error_code)
            if code in _PASSING:
                return Next.LATER
            raise ApiError(code, f"the leader refuses it with {code.name}")
        told = untagged(LocalStart, answer.unknown_tagged_fields)
        start_offset = answer.log_start_offset
        beginning = None
        if told.offset > start_offset:
            if decode_snapshot(told.producers) is None:
                return Next.LATER  # there was no room for it
            epochs = [(each.epoch, each.start_offset) for each in told.epochs]
            beginning = Beginning(told.producers, epochs)
            self.replica.log.producers.now_ms = wall_ms
        self._begin_at(max(told.offset, start_offset), start_offset, beginning)
        return Next.FETCH

    def _has_no_history(self) -> bool:
        """Whether this log has neither records nor epochs, and begins where nobody can tell why.

        Its start may be of a history that is gone: a leader that an unclean election found without
        records gives the same offsets again. One that is in sync, or eligible to lead, never goes
        back: it has had what is committed, and its start is how far that was deleted."""
        replica, log = self.replica, self.replica.log
        if self.knows_start or not 0 < log.local_start_offset == log.end_offset:
            return False
        may_lead = (*replica.in_sync_replicas, *replica.eligible)
        return log.epochs.latest < 0 and replica.broker_id not in may_lead

    def _begin_at(self, offset: int, start_offset: int, beginning: Beginning | None = None) -> None:
        """Drop what lies here and go on at an offset; the whole log begins at `start_offset`, if
        that is earlier. What the leader knows of the log before the offset is `beginning`; a log
        that begins again where it did knows it itself."""
        log, has_remote = self.replica.log, start_offset < offset
        if offset > log.local_start_offset:
            self.replica.forget_older()
        self.replica.began_remotely += has_remote
        try:
            if has_remote and beginning is None and offset == log.local_start_offset:
                beginning = log.local_beginning()
            log.truncate_fully(offset, start_offset, beginning)
            self.knows_start = True
        except StorageFault:
            self.replica.failed_remotely += has_remote
            raise
        finally:
            self.replica.truncated()


def truncation_offset(log: Log, leader_epoch: int, leader_end: int) -> int:
    """Where a log must end so that it agrees with a leader whose `leader_epoch` ended there.

    The leader names its largest epoch that is not above ours. When we have that epoch too, the
    shorter of both ends is common to both; when not, our largest epoch below it is (the next fetch
    finds out how much of that).
    """
    own_epoch, own_end = log.end_offset_for_epoch(leader_epoch)
    if own_epoch < 0:
        return min(leader_end, log.end_offset)
    if own_epoch != leader_epoch:
        return min(own_end, log.end_offset)
    return min(own_end, leader_end, log.end_offset)
