"""What a partition knows of the producers that write to it: idempotence and open transactions.

Source: KIP-98, KIP-360, KIP-447. For each producer id: its epoch, its last five batches (a client
may have five in flight), the transaction coordinator's epoch and where its open transaction began.
Rules kept: a batch seen before is answered with its first place and not written again; a batch
from an older epoch is fenced; sequence numbers have no gaps (they wrap from 2^31-1 to 0); a
producer that is not known here may begin anywhere, for its state may have expired or been deleted.
A producer is forgotten by when it last wrote here. Kafka goes by the time of its records, so it
forgets who writes older ones while batches are under way.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from itertools import islice

from anabranch.core.errors import ApiError, ErrorCode
from anabranch.core.log.indexes import AbortedRange
from anabranch.core.wire.batch import BatchHeader

BATCHES_KEPT = 5  # max.in.flight.requests.per.connection of an idempotent producer
SEQUENCES = 2**31


def is_behind(sequence: int, other: int) -> bool:
    """Whether a sequence number comes after another one; they wrap, so the nearer way counts."""
    return 0 < (sequence - other) % SEQUENCES < SEQUENCES // 2


class ProducerBatch:
    """A batch that was appended: enough to recognise it when it comes again."""

    __slots__ = ("first_sequence", "last_offset", "last_sequence", "offset_delta", "timestamp")

    def __init__(
        self, last_sequence: int, last_offset: int, offset_delta: int, timestamp: int
    ) -> None:
        self.last_sequence = last_sequence
        self.last_offset = last_offset
        self.offset_delta = offset_delta
        self.timestamp = timestamp
        self.first_sequence = (
            (last_sequence - offset_delta) % SEQUENCES if last_sequence >= 0 else -1
        )

    @property
    def first_offset(self) -> int:
        """Offset of the batch's first record."""
        return self.last_offset - self.offset_delta


class Producer:
    """One producer id's state in this partition."""

    __slots__ = (
        "batches",
        "coordinator_epoch",
        "epoch",
        "last_timestamp",
        "last_written_ms",
        "producer_id",
        "transaction_first_offset",
    )

    def __init__(self, producer_id: int, epoch: int) -> None:
        self.producer_id = producer_id
        self.epoch = epoch
        self.batches: list[ProducerBatch] = []
        self.coordinator_epoch = -1
        self.last_timestamp = -1
        """The largest timestamp of the last batch: what its writer says."""
        self.last_written_ms = -1
        """When the last batch was appended here, by this broker's clock."""
        self.transaction_first_offset = -1

    @property
    def last_sequence(self) -> int:
        """Sequence number of the last record, -1 when there is none."""
        return self.batches[-1].last_sequence if self.batches else -1

    @property
    def last_offset(self) -> int:
        """Offset of the last data record, -1 when there is none."""
        return self.batches[-1].last_offset if self.batches else -1

    def last_offset_before(self, offset: int) -> int:
        """Offset of the last data record before an offset, or of the last one at all where every
        known batch lies behind: what came before so many is not sent again."""
        before = (each.last_offset for each in reversed(self.batches) if each.last_offset < offset)
        return next(before, self.last_offset)

    def advance_epoch(self, epoch: int) -> None:
        """Begin a newer epoch: what the older one wrote is no longer a duplicate."""
        if epoch != self.epoch:
            self.epoch = epoch
            self.batches.clear()


class ProducerStates:
    """All producers of one partition, and the transactions that are open or not yet replicated."""

    __slots__ = ("now_ms", "open_transactions", "producers", "unreplicated")

    def __init__(self, now_ms: int = 0) -> None:
        self.now_ms = now_ms
        """When what is noted next was written. Batches that are found in a file, and in no snapshot
        yet, count as written when the log was opened: their time is not known."""
        self.producers: dict[int, Producer] = {}
        self.open_transactions: dict[int, int] = {}
        """Producer id -> first offset of its open transaction, the first of all first."""
        self.unreplicated: deque[tuple[int, int]] = deque()
        """(first offset, marker's offset) of ended transactions above the high watermark, by the
        marker's offset."""

    def __iter__(self) -> Iterator[Producer]:
        return iter(self.producers.values())

    def __len__(self) -> int:
        return len(self.producers)

    def duplicate_of(self, header: BatchHeader) -> ProducerBatch | None:
        """The batch of the same epoch and sequence range that was appended before."""
        producer = self.producers.get(header.producer_id)
        if producer is None or producer.epoch != header.producer_epoch:
            return None
        last_sequence = header.last_sequence
        for batch in producer.batches:
            if (
                batch.first_sequence == header.base_sequence
                and batch.last_sequence == last_sequence
            ):
                return batch
        return None

    def is_open(self, producer_id: int, epoch: int) -> bool:
        """Whether a producer has an undecided transaction of this epoch here."""
        producer = self.producers.get(producer_id)
        return (
            producer is not None
            and producer.transaction_first_offset >= 0
            and producer.epoch == epoch
        )

    def has_open(self, producer_id: int) -> bool:
        """Whether a producer has an undecided transaction of any epoch here."""
        producer = self.producers.get(producer_id)
        return producer is not None and producer.transaction_first_offset >= 0

    def reached(self, producer_id: int, epoch: int, sequence: int) -> bool:
        """Whether the log has this sequence number of a producer's epoch, or a later one, or has
        fenced that epoch."""
        producer = self.producers.get(producer_id)
        if producer is None or producer.epoch < epoch:
            return False
        if producer.epoch > epoch:
            return True
        if not producer.batches:
            return False
        return not is_behind(sequence, producer.last_sequence)

    def next_sequence(self, producer_id: int, epoch: int) -> int:
        """Sequence number with which a producer that is known goes on, in this epoch of its."""
        producer = self.producers.get(producer_id)
        if producer is None or producer.epoch != epoch:
            return 0
        return (producer.last_sequence + 1) % SEQUENCES

    def check(self, header: BatchHeader) -> None:
        """Refuse a client's data batch that is fenced or out of order."""
        producer = self.producers.get(header.producer_id)
        if producer is None:
            return
        self.check_epoch(header.producer_id, header.producer_epoch)
        if producer.transaction_first_offset >= 0 and not header.is_transactional:
            raise ApiError(
                ErrorCode.INVALID_TXN_STATE,
                f"Producer {header.producer_id} has an undecided transaction here, and this batch "
                "is of none.",
            )
        first = header.base_sequence
        if header.producer_epoch != producer.epoch:
            if first != 0 and producer.epoch >= 0:
                raise ApiError(
                    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                    f"Producer {header.producer_id} begins epoch {header.producer_epoch} with "
                    f"sequence {first} instead of 0; its epoch here is {producer.epoch}.",
                )
            return
        # With no batch left of this epoch only the first sequence number can follow.
        if first != self.next_sequence(header.producer_id, header.producer_epoch):
            raise ApiError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"Out of order sequence number for producer {header.producer_id}: {first} came, "
                f"but the last one appended is {producer.last_sequence}.",
            )

    def check_epoch(self, producer_id: int, epoch: int) -> None:
        """Refuse an epoch that a newer instance of the producer has fenced."""
        producer = self.producers.get(producer_id)
        if producer is not None and epoch < producer.epoch:
            raise ApiError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"Epoch {epoch} of producer {producer_id} is older than the last one seen here, "
                f"{producer.epoch}.",
            )

    def has_marker(self, producer_id: int, epoch: int) -> bool:
        """Whether this marker was written before, of a transaction whose marker has an epoch that
        no record of it has (KIP-890): the producer is at that epoch, or in a later one already."""
        producer = self.producers.get(producer_id)
        return producer is not None and producer.epoch >= epoch

    def check_marker(self, producer_id: int, epoch: int, coordinator_epoch: int) -> None:
        """Refuse a transaction marker from a deposed transaction coordinator."""
        self.check_epoch(producer_id, epoch)
        producer = self.producers.get(producer_id)
        if producer is not None and coordinator_epoch < producer.coordinator_epoch:
            raise ApiError(
                ErrorCode.TRANSACTION_COORDINATOR_FENCED,
                f"Coordinator epoch {coordinator_epoch} for producer {producer_id} is older than "
                f"the last one seen here, {producer.coordinator_epoch}.",
            )

    def appended(self, header: BatchHeader, base_offset: int, max_timestamp: int) -> None:
        """Note a data batch of a producer (`producer_id` >= 0) that is now in the log."""
        producer_id = header.producer_id
        producer = self.producers.get(producer_id)
        if producer is None:
            producer = self.producers[producer_id] = Producer(producer_id, header.producer_epoch)
        producer.advance_epoch(header.producer_epoch)
        delta = header.last_offset_delta
        batches = producer.batches
        batches.append(
            ProducerBatch(header.last_sequence, base_offset + delta, delta, max_timestamp)
        )
        if len(batches) > BATCHES_KEPT:
            del batches[0]
        producer.last_timestamp = max_timestamp
        producer.last_written_ms = self.now_ms
        if header.is_transactional and producer.transaction_first_offset < 0:
            producer.transaction_first_offset = base_offset
            self.open_transactions[producer_id] = base_offset

    def ended(
        self, header: BatchHeader, marker_offset: int, coordinator_epoch: int, *, committed: bool
    ) -> AbortedRange | None:
        """Note a transaction marker; what it aborted, for the segment's transaction index."""
        producer_id = header.producer_id
        producer = self.producers.get(producer_id)
        if producer is None:
            producer = self.producers[producer_id] = Producer(producer_id, header.producer_epoch)
        producer.advance_epoch(header.producer_epoch)
        producer.coordinator_epoch = coordinator_epoch
        producer.last_timestamp = header.max_timestamp
        producer.last_written_ms = self.now_ms
        first_offset = producer.transaction_first_offset
        producer.transaction_first_offset = -1
        self.open_transactions.pop(producer_id, None)
        if first_offset < 0:
            return None
        self.unreplicated.append((first_offset, marker_offset))
        if committed:
            return None
        stable = next(iter(self.open_transactions.values()), marker_offset + 1)
        return AbortedRange(producer_id, first_offset, marker_offset, stable)

    def first_unstable_offset(self, high_watermark: int) -> int:
        """First offset of a transaction whose outcome is not known below the high watermark; -1."""
        if not self.open_transactions and not self.unreplicated:
            return -1
        self.replicated(high_watermark)
        firsts = [first for first, _ in self.unreplicated]
        firsts += islice(self.open_transactions.values(), 1)
        return min(firsts, default=-1)

    def is_late(self, before_ms: int) -> bool:
        """Whether the oldest open transaction has had no batch since then."""
        for producer_id in islice(self.open_transactions, 1):
            return self.producers[producer_id].last_written_ms < before_ms
        return False

    def replicated(self, high_watermark: int) -> None:
        """Every marker before the high watermark is known to all: readers may pass it."""
        ended = self.unreplicated
        while ended and ended[0][1] < high_watermark:
            ended.popleft()

    def expire(self, now_ms: int, expiration_ms: int, *, keeps_ended: bool = False) -> int:
        """Forget producers that wrote nothing for so long and have no open transaction.

        Those that ended one stay with `keeps_ended`, and while a marker is not on all replicas: a
        log that is opened looks for such markers only where a producer is known to have some."""
        keeps_ended = keeps_ended or bool(self.unreplicated)
        gone = [
            producer.producer_id
            for producer in self.producers.values()
            if producer.transaction_first_offset < 0
            and now_ms - producer.last_written_ms >= expiration_ms
            and not (keeps_ended and producer.coordinator_epoch >= 0)
        ]
        for producer_id in gone:
            del self.producers[producer_id]
        return len(gone)
