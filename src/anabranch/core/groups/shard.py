"""One partition of `__consumer_offsets` while this broker leads it: where its groups are written.

What: appending records, and remembering what is to happen once they are committed. Rule kept: what
a client is told, and what another client may read, is committed: effects wait in `_pending` until
the high watermark has passed their records, in the order of the log. A shard belongs to one
leadership without a break, however many epochs that has (a move of the partition begins one, too);
in the next one everything is read again from the log.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from anabranch.core.errors import ApiError, ErrorCode, StorageFault
from anabranch.core.groups.in_flight import InFlight, Place
from anabranch.core.groups.records import nothing_said
from anabranch.core.groups.undecided import Undecided
from anabranch.core.partition import ACKS_ALL
from anabranch.core.wire.compression import Codec
from anabranch.core.wire.records import Record, build_batch

if TYPE_CHECKING:
    from anabranch.core.api.context import Broker
    from anabranch.core.groups.answers import Answer
    from anabranch.core.replication.replica import Replica

Effect: TypeAlias = Callable[[int], None]
"""Done once its records are committed; called with the wall clock's milliseconds."""

RECORDS_A_BATCH = 1_000
"""More records than this go into several batches, so that none outgrows max.message.bytes."""

NO_GROUP = ""
"""Of a record that is written for a partition's sake."""

CODECS = tuple(Codec)

# fmt: off
_AS_COORDINATOR = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
}
# fmt: on
"""What a member of a group is told when its coordinator's log says this, as in Kafka."""


class Shard:
    """One offsets partition for as long as this broker leads it."""

    def __init__(self, broker: Broker, replica: Replica) -> None:
        self.replica = replica
        self.led_from_epoch = replica.led_from_epoch
        self.is_loaded = False
        self.read_to = 0
        """Where the log ended when it was read: what was read may be above the high watermark."""
        self.image_at_start = broker.image
        """The metadata by which this broker began to lead it, until it is read."""
        self.in_flight = InFlight()
        self.undecided = Undecided()
        self.place = replica.topic_partition
        self._broker = broker
        self._pending: deque[tuple[int, Effect]] = deque()
        self._unproven: list[Answer] = []
        self._is_proving = False

    @property
    def is_current(self) -> bool:
        """Whether this broker has led the partition ever since: nothing of its log was cut."""
        replica = self.replica
        return replica.is_leader and replica.led_from_epoch == self.led_from_epoch

    @property
    def is_settled(self) -> bool:
        """Whether all that was read is committed, so that nobody can see it go back."""
        return self.replica.high_watermark >= self.read_to

    def prove(self, answer: Answer, now_ms: int) -> None:
        """Give an answer NONE once a record that is written after now is committed, else the code
        of the log's refusal.

        Then no broker had led after this one when it was asked, for each in-sync replica has
        fetched from here since; and all that was read is committed. One record proves it to all
        who ask while the one before is under way. Alone in sync, this broker needs none: no other
        can be elected before the metadata says so. With too few in sync nobody is kept waiting: a
        record that is under way may wait for days."""
        replica = self.replica
        if not replica.enough_in_sync:
            answer.give(ErrorCode.COORDINATOR_NOT_AVAILABLE)
            return
        if replica.is_alone and self.is_settled:
            answer.give(ErrorCode.NONE)
            return
        self._unproven.append(answer)
        if not self._is_proving:
            self._prove(now_ms)

    def _prove(self, now_ms: int) -> None:
        asking, self._unproven = self._unproven, []

        def effect(now_ms: int) -> None:
            self._is_proving = False
            for answer in asking:
                answer.give(ErrorCode.NONE)
            if self._unproven:
                self._prove(now_ms)

        self._is_proving = True
        try:
            self.write([nothing_said(NO_GROUP, now_ms)], now_ms, effect)
        except ApiError as fault:
            self._is_proving = False
            for answer in asking:
                answer.give(fault.code)

    def under_way(self, group_id: str) -> Collection[Place]:
        """Where a group has a commit in flight, or in a transaction that is open."""
        in_flight, undecided = self.in_flight.of(group_id), self.undecided.of(group_id)
        return dict.fromkeys((*in_flight, *undecided)) if undecided else in_flight

    def write(self, records: Sequence[Record], now_ms: int, effect: Effect, **how: Any) -> None:
        """Append records; `effect` is done when all of them are committed, perhaps at once. `how`
        is for the batches (`build_batch`).

        Raises ApiError with the code that a member of a group is told; then nothing counts.
        """
        codec = CODECS[self._broker.config.offsets_topic_compression_codec]
        batches = []
        for start in range(0, len(records), RECORDS_A_BATCH):
            some = records[start : start + RECORDS_A_BATCH]
            if len(some) > 1:
                some = [record._replace(offset=index) for index, record in enumerate(some)]
            batches.append(build_batch(some, codec=codec, **how))
        self.write_batches(batches, now_ms, effect)

    def write_batches(self, batches: Sequence[bytearray], now_ms: int, effect: Effect) -> None:
        """As `write`, of batches that are made already."""
        try:
            self._append(batches, now_ms)
        except StorageFault as fault:
            self._broker.faults.append((self.replica, fault))
            raise ApiError(ErrorCode.NOT_COORDINATOR, str(fault)) from fault
        except ApiError as fault:
            raise ApiError(_AS_COORDINATOR.get(fault.code, fault.code), fault.message) from fault
        self._pending.append((self.replica.end_offset, effect))
        self.catch_up(now_ms)

    def _append(self, batches: Sequence[bytearray], now_ms: int) -> None:
        replica = self.replica
        for batch in batches:
            replica.append(batch, required_acks=ACKS_ALL, now_ms=now_ms, client=False)
        self._broker.changed.add(self.place)
        if replica.needs_sync(now_ms):
            self._broker.unsynced.add(self.place)

    def catch_up(self, now_ms: int) -> bool:
        """Do what waits for records that are committed by now. False, and nothing, once this
        broker has ceased to lead: at these offsets there may be others' records then, and what was
        written here may be cut off."""
        if not self.is_current:
            return False
        pending, committed = self._pending, self.replica.high_watermark
        while pending and pending[0][0] <= committed:
            pending.popleft()[1](now_ms)
        return True

    @property
    def pending_effects(self) -> int:
        """Writes that are not committed yet."""
        return len(self._pending)
