"""One partition of a coordinator's topic while this broker leads it.

What: appending records, and remembering what is to happen once they are committed. Rule kept: what
a client is told, and what another client may read, is committed: effects wait in `_pending` until
the high watermark has passed their records, in the order of the log. A shard belongs to one
leadership without a break, however many epochs that has (a move of the partition begins one, too);
in the next one everything is read again from the log. Not here: what stands in the records.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeAlias, TypeVar

from anabranch.core.coordination.shard_load import ShardLoad
from anabranch.core.errors import ApiError, ErrorCode, StorageFault
from anabranch.core.partition.protocol import ACKS_ALL
from anabranch.core.wire.compression import Codec
from anabranch.core.wire.records import DEFAULT_LIMIT_BYTES, Record, build_batch

if TYPE_CHECKING:
    from anabranch.core.coordination.host import Host
    from anabranch.core.replication.replica import Replica

Effect: TypeAlias = Callable[[int], None]
"""Done once its records are committed; called with the wall clock's milliseconds."""

RECORDS_A_WRITE = 1_000
"""Of what time alone deletes: so that no batch grows large, nor outgrows a segment."""
MOST_WRITE_BYTES = DEFAULT_LIMIT_BYTES
"""Of a write's records before they are compressed: readers take no more of a batch."""
BESIDE_BYTES = 32
"""Of a record, beside its key and value: at most."""
_T = TypeVar("_T")

# fmt: off
AS_COORDINATOR = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
}
# fmt: on
"""What a client is told when its coordinator's log says this, as in Kafka."""


class Coordinator(Protocol):
    """Whose partition a shard is: what reads its log back."""

    def loader(self, shard: Any) -> Any:
        """What reads a shard's log, in steps; `loaded` takes the result."""

    def loaded(self, loader: Any, now_ms: int) -> None:
        """A shard was read to its end."""


class Shard:
    """One partition for as long as this broker leads it."""

    refusals: ClassVar[Mapping[ErrorCode, ErrorCode]] = AS_COORDINATOR

    def __init__(self, broker: Host, replica: Replica, coordinator: Coordinator) -> None:
        self.replica = replica
        self.coordinator = coordinator
        self.led_from_epoch = replica.led_from_epoch
        self.is_loaded = False
        self.read_to = 0
        """Where the log ended when it was read: what was read may be above the high watermark."""
        self.place = replica.topic_partition
        self._broker = broker
        self._pending: deque[tuple[int, Effect]] = deque()
        self._is_catching_up = False

    @property
    def is_current(self) -> bool:
        """Whether this broker has led the partition ever since: nothing of its log was cut."""
        replica = self.replica
        return replica.is_leader and replica.led_from_epoch == self.led_from_epoch

    def sliced(self) -> ShardLoad:
        """What reads it back: see `core.coordination.sliced`."""
        return ShardLoad(self._broker, self)

    @property
    def is_settled(self) -> bool:
        """Whether all that was read is committed, so that nobody can see it go back."""
        return self.replica.high_watermark >= self.read_to

    @property
    def codec(self) -> Codec:
        """Compression of batches."""
        return Codec.NONE

    def write(self, records: Sequence[Record], now_ms: int, effect: Effect, **how: Any) -> None:
        """Append records; `effect` is done when they are committed, perhaps at once. `how` is for
        their batch (`build_batch`).

        They are one batch, as in Kafka: neither a full disk nor a crash, nor another leader, leaves
        a part of them. What outgrows a segment, or the next coordinator could not read, is refused;
        what may be done in parts is written in several calls (`in_writes`). Raises ApiError with
        the code that a client is told; then nothing counts."""
        size_bytes = sum(map(_most_bytes, records))
        if size_bytes > MOST_WRITE_BYTES:
            code, why = ErrorCode.RECORD_LIST_TOO_LARGE, f"{size_bytes} bytes are too many at once."
            raise ApiError(self.refusals.get(code, code), why)
        if len(records) > 1:
            records = [record._replace(offset=index) for index, record in enumerate(records)]
        self.write_batch(build_batch(records, codec=self.codec, **how), now_ms, effect)

    def write_batch(self, batch: bytearray, now_ms: int, effect: Effect) -> None:
        """As `write`, of a batch that is made already."""
        try:
            self._append(batch, now_ms)
        except StorageFault as fault:
            self._broker.faults.append((self.replica, fault))
            raise ApiError(ErrorCode.NOT_COORDINATOR, str(fault)) from fault
        except ApiError as fault:
            raise ApiError(self.refusals.get(fault.code, fault.code), fault.message) from fault
        self.when_committed(self.replica.end_offset, effect, now_ms)

    def _append(self, batch: bytearray, now_ms: int) -> None:
        replica = self.replica
        replica.append(batch, required_acks=ACKS_ALL, now_ms=now_ms, client=False)
        self._broker.changed[self.place] = None
        if replica.needs_sync(now_ms):
            self._broker.unsynced.add(self.place)

    def when_committed(self, end_offset: int, effect: Effect, now_ms: int) -> None:
        """Do something once all records before an offset are committed, perhaps at once."""
        self._pending.append((end_offset, effect))
        self.catch_up(now_ms)

    def catch_up(self, now_ms: int) -> bool:
        """Do what waits for records that are committed by now. False, and nothing, once this
        broker has ceased to lead: at these offsets there may be others' records then, and what was
        written here may be cut off.

        What is done may write, and that may be committed at once: it has its turn when what is
        being done is over, lest hundreds that were committed together are done within each other.
        """
        if not self.is_current:
            return False
        if self._is_catching_up:
            return True
        pending, replica = self._pending, self.replica
        self._is_catching_up = True
        try:
            while pending and pending[0][0] <= replica.high_watermark:
                pending.popleft()[1](now_ms)
        finally:
            self._is_catching_up = False
        return True

    @property
    def pending_effects(self) -> int:
        """Writes that are not committed yet."""
        return len(self._pending)


def _most_bytes(record: Record) -> int:
    return len(record.key or b"") + len(record.value or b"") + BESIDE_BYTES


def in_writes(what: Sequence[_T]) -> Iterator[Sequence[_T]]:
    """What need not be written at once, in the sizes of writes."""
    for start in range(0, len(what), RECORDS_A_WRITE):
        yield what[start : start + RECORDS_A_WRITE]
