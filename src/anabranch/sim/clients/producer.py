"""A simulated producer: batches a partition, in order, with up to five on their way.

What: idempotent producers number their batches, send again what was not answered, and begin a new
epoch when the broker has lost the thread; plain ones send with acks 0, 1 or all and may send the
same batch twice. A producer that storms gives an answer little time and asks again at once.

Rule kept: a record's outcome is `ok` only when a broker said so, `failed` only when no broker can
have it, else `unknown`. A batch that was ever sent is never sent again under another epoch, so that
the same value at two offsets of an idempotent producer is the broker's fault. Source: KIP-98,
KIP-360, the Java producer's rules for retries. Not here: transactions, partitioners, lingering.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from anabranch.core.errors import ErrorCode
from anabranch.core.partition.protocol import ACKS_ALL
from anabranch.core.types import TopicPartition
from anabranch.core.wire.messages.init_producer_id import InitProducerIdRequest
from anabranch.core.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from anabranch.core.wire.records import Record, build_batch
from anabranch.sim.clients.client import NOBODY, Client, Patience
from anabranch.sim.history import FAILED, OK, UNKNOWN, WRITTEN_AS, Send, is_tombstone

if TYPE_CHECKING:
    from anabranch.core.wire.messages.init_producer_id import InitProducerIdResponse
    from anabranch.core.wire.messages.produce import PartitionProduceResponse, ProduceResponse
    from anabranch.sim.cluster import Cluster
    from anabranch.sim.history import History

MOST_IN_FLIGHT = 5
"""What a broker remembers of a producer (KIP-98), so what an idempotent one may have on its way."""

KEYS = 5
NO_ANSWER = -999
"""Our own code for a request that nobody answered."""

_LOST_THE_THREAD = frozenset(
    {
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    }
)
_AGAIN = frozenset(
    {
        NO_ANSWER,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.NETWORK_EXCEPTION,
    }
)
"""What the Java producer sends again after."""
_SAME_LEADER = frozenset(
    {
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.CORRUPT_MESSAGE,
    }
)
"""Answers that say nothing against the leader that is known."""
_MARKS: dict[int, str] = {
    ErrorCode.NOT_ENOUGH_REPLICAS: "not-enough-replicas",
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: "not-enough-replicas-after-append",
    ErrorCode.NOT_LEADER_OR_FOLLOWER: "not-leader",
    ErrorCode.REQUEST_TIMED_OUT: "request-timed-out",
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER: "out-of-order-sequence",
}
"""Answers that a campaign must have seen, with their marks."""


@dataclass(frozen=True, slots=True)
class Manner:
    """How a producer works. `renews_id` asks for a new id where others count their epoch up."""

    acks: int = ACKS_ALL
    idempotent: bool = True
    in_flight: int = MOST_IN_FLIGHT
    retries: bool = True
    server_timeout_ms: int = 1_500
    renews_id: bool = False


@dataclass(slots=True, eq=False)
class _Batch:
    number: int
    """Counts the batches of a partition: what is on its way lies within `in_flight` of them."""
    sends: list[Send]
    deadline_us: int
    sequence: int = -1
    attempts: int = 0
    over: bool = False


@dataclass(slots=True, eq=False)
class _Lane:
    """One partition's batches: those that wait, in order, and those on their way."""

    place: TopicPartition
    waiting: list[_Batch] = field(default_factory=list)
    flying: list[_Batch] = field(default_factory=list)
    producer_id: int = -1
    epoch: int = -1
    next_sequence: int = 0
    batches: int = 0
    paused: bool = False


class Producer(Client):
    """See the module."""

    def __init__(
        self,
        cluster: Cluster,
        name: str,
        history: History,
        topics: tuple[str, ...],
        patience: Patience,
        manner: Manner,
        versions: dict[int, int] | None = None,
        compacted: frozenset[str] = frozenset(),
    ) -> None:
        super().__init__(cluster, name, history, topics, patience, versions)
        self.manner = manner
        self.compacted = compacted
        """Topics whose records get a key, and some of them no value."""
        self.lanes: dict[TopicPartition, _Lane] = {}
        self._sent = 0

    def send(self, place: TopicPartition, count: int) -> None:
        """Give the producer a batch of so many new records for a partition."""
        if self.stopped:
            return
        lane = self.lanes.get(place)
        if lane is None:
            lane = self.lanes[place] = _Lane(place)
        now_us = self.world.now_us
        sends = []
        for _ in range(count):
            self._sent += 1
            send = Send(
                id=f"{self.name}/{self._sent}",
                client=self.name,
                place=place,
                value=f"{self.name}/{self._sent}".encode(),
                acks=self.manner.acks,
                idempotent=self.manner.idempotent,
                invoked_us=now_us,
                key=self._key() if place.topic in self.compacted else None,
            )
            self.history.add(send)
            sends.append(send)
        delivery_us = 1_000 * self.patience.delivery_timeout_ms
        lane.batches += 1
        batch = _Batch(lane.batches, sends, now_us + delivery_us)
        lane.waiting.append(batch)
        self.later(self.patience.delivery_timeout_ms, self._expire, lane, batch)
        self._go_on(lane)

    def _key(self) -> bytes:
        return b"k%d" % (self._sent * 7 % KEYS)

    @property
    def is_idle(self) -> bool:
        """Whether every record's fate is known to its sender."""
        return not any(lane.waiting or lane.flying for lane in self.lanes.values())

    # Sending.

    def _go_on(self, lane: _Lane) -> None:
        """Send what may be sent; what is repeated goes alone, so that order is kept."""
        while lane.waiting and not lane.paused:
            batch = lane.waiting[0]
            if lane.flying:
                oldest = min(each.number for each in lane.flying)
                if batch.attempts or batch.number - oldest >= self.manner.in_flight:
                    return
            if self.manner.idempotent and lane.producer_id < 0:
                self._ask_for_id(lane)
                return
            known = self.places.get(lane.place)
            if known is None or known.leader == NOBODY:
                self._pause(lane, refresh=True, attempts=1 + (known is not None))
                return
            lane.waiting.pop(0)
            self._send(lane, batch, known.leader)

    def _send(self, lane: _Lane, batch: _Batch, leader: int) -> None:
        if self.manner.idempotent and batch.sequence < 0:
            batch.sequence = lane.next_sequence
            lane.next_sequence += len(batch.sends)
        batch.attempts += 1
        lane.flying.append(batch)
        topic, index = lane.place
        for send in batch.sends:
            send.topic_id = self.topic_id(topic)
        data = PartitionProduceData(index=index, records=self._records(lane, batch))
        message = ProduceRequest(
            acks=self.manner.acks,
            timeout_ms=self.manner.server_timeout_ms,
            topic_data=[
                TopicProduceData(name=topic, topic_id=self.topic_id(topic), partition_data=[data])
            ],
        )
        key = (lane.producer_id, lane.epoch)
        attempt = batch.attempts
        self.ask(
            leader,
            message,
            lambda response: self._answered(lane, batch, key, attempt, response),
        )
        if self.manner.acks == 0:
            self._settle(lane, batch, UNKNOWN)

    def _records(self, lane: _Lane, batch: _Batch) -> bytearray:
        now_ms = self.world.now_ms
        records = [_record(index, now_ms, send) for index, send in enumerate(batch.sends)]
        return build_batch(
            records,
            producer_id=lane.producer_id,
            producer_epoch=lane.epoch,
            base_sequence=batch.sequence,
        )

    def _ask_for_id(self, lane: _Lane) -> None:
        lane.paused = True
        node_id = self.anybody()

        def told(response: InitProducerIdResponse | None) -> None:
            if response is None or response.error_code or response.producer_id < 0:
                self._pause(lane, refresh=True, attempts=2)
                return
            lane.producer_id, lane.epoch = response.producer_id, response.producer_epoch
            lane.next_sequence = 0
            lane.paused = False
            self._go_on(lane)

        self.ask(node_id, InitProducerIdRequest(transactional_id=None), told)

    def _pause(self, lane: _Lane, *, refresh: bool, attempts: int) -> None:
        """Wait a moment, and for metadata where they may be stale, before anything else is sent."""
        lane.paused = True

        def go_on() -> None:
            lane.paused = False
            self._go_on(lane)

        if refresh:
            self.later(self.backoff_ms(attempts), self.refresh, go_on)
        else:
            self.later(self.backoff_ms(attempts), go_on)

    # Answers.

    def _answered(
        self,
        lane: _Lane,
        batch: _Batch,
        key: tuple[int, int],
        attempt: int,
        response: ProduceResponse | None,
    ) -> None:
        if batch.over or attempt != batch.attempts or batch not in lane.flying:
            return
        code, answer = _verdict(response)
        mark = _MARKS.get(code)
        if mark is not None:
            self.history.mark(mark)
        if code == ErrorCode.NONE or code == ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
            base = answer.base_offset if answer is not None and not code else -1
            if batch.attempts > 1:
                self.history.mark("retried-and-acknowledged")
            self._settle(lane, batch, OK, base)
        elif (lane.producer_id, lane.epoch) != key:
            self._give_up(lane, batch)
        elif code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and self.manner.idempotent:
            self._out_of_order(lane, batch)
        elif code in _LOST_THE_THREAD and self.manner.idempotent:
            self._begin_anew(lane)
        elif code in _AGAIN and self.manner.retries:
            self._again(lane, batch, code)
        else:
            self._give_up(lane, batch)
            if code == ErrorCode.MESSAGE_TOO_LARGE and self.manner.idempotent:
                self._begin_anew(lane)  # else its numbers are missing for good
        self._go_on(lane)

    def _again(self, lane: _Lane, batch: _Batch, code: int) -> None:
        lane.flying.remove(batch)
        place = 0
        while place < len(lane.waiting) and self._is_before(lane.waiting[place], batch):
            place += 1
        lane.waiting.insert(place, batch)
        if not lane.paused:
            self._pause(lane, refresh=code not in _SAME_LEADER, attempts=batch.attempts)

    def _is_before(self, one: _Batch, other: _Batch) -> bool:
        return 0 <= one.sequence < other.sequence

    def _out_of_order(self, lane: _Lane, batch: _Batch) -> None:
        """An earlier batch is missing: it is on its way again, or its record was lost."""
        earlier = [
            each
            for each in (*lane.flying, *lane.waiting)
            if each is not batch and 0 <= each.sequence < batch.sequence
        ]
        if earlier:
            self._again(lane, batch, ErrorCode.REQUEST_TIMED_OUT)
        else:
            self._begin_anew(lane)

    def _begin_anew(self, lane: _Lane) -> None:
        """A new epoch from sequence 0; what was ever sent under the old one stays unknown."""
        for batch in [*lane.flying, *lane.waiting]:
            if batch.sequence >= 0:
                self._give_up(lane, batch)
        lane.next_sequence = 0
        if self.manner.renews_id or lane.epoch < 0 or lane.epoch >= 2**15 - 2:
            lane.producer_id = lane.epoch = -1
        else:
            lane.epoch += 1

    def topic_changed(self, name: str) -> None:
        """What was sent to the topic that was deleted is not sent to the one that has its name."""
        for lane in self.lanes.values():
            if lane.place.topic == name:
                for batch in [*lane.flying, *lane.waiting]:
                    if batch.attempts:
                        self._give_up(lane, batch)
                if self.manner.idempotent and lane.producer_id >= 0:
                    self._begin_anew(lane)

    def _give_up(self, lane: _Lane, batch: _Batch) -> None:
        """A copy of what was sent may still arrive: it failed only if it never was."""
        self._settle(lane, batch, UNKNOWN if batch.attempts else FAILED)

    def _expire(self, lane: _Lane, batch: _Batch) -> None:
        """The delivery timeout: a gap in the sequence makes a new epoch necessary."""
        if batch.over:
            return
        if batch.sequence >= 0:
            self._begin_anew(lane)
        if not batch.over:
            self._give_up(lane, batch)
        self._go_on(lane)

    def _settle(self, lane: _Lane, batch: _Batch, outcome: str, base_offset: int = -1) -> None:
        batch.over = True
        if batch in lane.flying:
            lane.flying.remove(batch)
        elif batch in lane.waiting:
            lane.waiting.remove(batch)
        for index, send in enumerate(batch.sends):
            send.completed_us = self.world.now_us
            send.outcome = outcome
            send.offset = base_offset + index if base_offset >= 0 else -1


def _record(index: int, now_ms: int, send: Send) -> Record:
    """What is sent. A tombstone has no value: who wrote it stands in a header."""
    if is_tombstone(send):
        return Record(index, now_ms, send.key, None, ((WRITTEN_AS, send.value),))
    return Record(index, now_ms, send.key, send.value)


def _verdict(
    response: ProduceResponse | None,
) -> tuple[int, PartitionProduceResponse | None]:
    if response is None:
        return NO_ANSWER, None
    answer = response.responses[0].partition_responses[0]
    return answer.error_code, answer
