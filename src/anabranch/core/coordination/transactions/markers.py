"""Markers: what was decided is written into every partition of a transaction, and into no other.

What: `Markers` sends WriteTxnMarkers to the leaders of a transaction's partitions, also to this
broker itself, and has the transaction completed when each partition has its marker. Rules kept:

- `send` is called when the decision is committed, never before;
- a partition is asked again, for ever, until it has its marker or is no more: without it, readers
  of committed records wait there;
- one request a broker is under way. What comes meanwhile goes with the next, so that the more there
  is to do the fewer requests it takes;
- the epoch of the coordinator is the leader epoch of its partition, by which a leader refuses the
  markers of one that was deposed.

Source: KIP-98, KIP-890. Not here: writing a marker into a log.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from anabranch.core.broker.peers import MARKERS
from anabranch.core.coordination.transactions.transaction import Transaction, completed
from anabranch.core.diskless.topics import is_diskless
from anabranch.core.errors import ApiError, ErrorCode
from anabranch.core.types import TopicPartition
from anabranch.core.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)

if TYPE_CHECKING:
    from anabranch.core.coordination.host import Host
    from anabranch.core.coordination.timers import Timer
    from anabranch.core.coordination.transactions.shard import TransactionShard

RETRY_MS = 50
"""The pause before partitions are asked again: an election takes longer than this, and asking costs
one request a broker."""
TIMEOUT_MS = 10_000
"""How long a leader may take: its followers must have the marker. A marker may come twice."""
MOST_PARTITIONS = 10_000
"""Markers of one request: about 300 KB."""

HAS_NO_NEED = frozenset(
    {
        ErrorCode.NONE,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
        ErrorCode.UNSUPPORTED_VERSION,
    }
)
"""The partition has the marker; or it knows a newer epoch of this producer, so that nothing of this
transaction is under way there; or it could never hold a record of it."""


class PendingDecision:
    """A decision that is being carried out."""

    __slots__ = ("left", "shard", "transaction", "transactional_id", "waiting")

    def __init__(
        self, shard: TransactionShard, transactional_id: str, transaction: Transaction
    ) -> None:
        self.shard = shard
        self.transactional_id = transactional_id
        self.transaction = transaction
        self.left = set(transaction.partitions)
        """Without a marker, as far as is known here."""
        self.waiting: set[TopicPartition] = set()
        """Of these, those that are asked again after a pause."""


class Part(NamedTuple):
    """What one request says of one transaction."""

    sending: PendingDecision
    partitions: list[TopicPartition]


class Markers:
    """All decisions that this broker carries out."""

    def __init__(self, broker: Host) -> None:
        self.sending: dict[str, PendingDecision] = {}
        self.written_total = 0
        """Markers that partitions have, or need no more."""
        self._broker = broker
        self._unrouted: list[PendingDecision] = []
        """Decisions of this step."""
        self._queues: dict[int, dict[str, list[TopicPartition]]] = {}
        """Broker -> id -> partitions that it leads."""
        self._under_way: set[int] = set()
        self._retry: Timer | None = None

    def send(
        self, shard: TransactionShard, transactional_id: str, transaction: Transaction
    ) -> None:
        """Carry out what is decided and committed, once this step's answers have left: whoever
        decided need not wait for that."""
        sending = self.sending[transactional_id] = PendingDecision(
            shard, transactional_id, transaction
        )
        self._unrouted.append(sending)
        self._broker.peers.ask_last(self._ask)

    def forget(self, shard: TransactionShard) -> None:
        """Another broker coordinates these ids from now on, and carries out what is left."""
        for transactional_id in [
            name for name, each in self.sending.items() if each.shard is shard
        ]:
            del self.sending[transactional_id]

    def left(self, transactional_id: str) -> frozenset[TopicPartition] | None:
        """The partitions that have no marker yet, None when nothing is carried out."""
        sending = self.sending.get(transactional_id)
        return None if sending is None else frozenset(sending.left)

    def _is_current(self, sending: PendingDecision) -> bool:
        return self.sending.get(sending.transactional_id) is sending and sending.shard.is_current

    # To whom.

    def _route(self, sending: PendingDecision, partitions: Iterable[TopicPartition]) -> None:
        """Queue each partition for its leader; one that is no more needs no marker, nor does one
        of a diskless topic, which has taken the name since."""
        image = self._broker.image
        for place in sorted(partitions):
            state = image.partition(place.topic, place.partition)
            if state is None or is_diskless(image, place.topic):
                sending.left.discard(place)
            elif state.leader < 0:
                sending.waiting.add(place)
            else:
                queue = self._queues.setdefault(state.leader, {})
                queue.setdefault(sending.transactional_id, []).append(place)

    def _go_on(self, sending: PendingDecision, now_ms: int) -> None:
        if not sending.left:
            self._complete(sending, now_ms)
        elif sending.waiting:
            self._pause()

    def _ask(self) -> None:
        decided, self._unrouted = self._unrouted, []
        for sending in decided:
            if self._is_current(sending):
                self._route(sending, sending.transaction.partitions)
                self._go_on(sending, self._broker.wall_ms)
        for broker_id in [each for each in self._queues if each not in self._under_way]:
            parts = self._next(broker_id)
            if not parts:
                continue
            self._under_way.add(broker_id)
            if not self._broker.peers.ask(
                broker_id,
                MARKERS,
                WriteTxnMarkersRequest(markers=[_marker(part) for part in parts]),
                partial(self._answered, broker_id, parts),
                timeout_ms=TIMEOUT_MS,
            ):
                self._answered(broker_id, parts, None)

    def _next(self, broker_id: int) -> list[Part]:
        """The parts of the next request to a broker."""
        queue, parts, count = self._queues[broker_id], [], 0
        while queue and count < MOST_PARTITIONS:
            transactional_id = next(iter(queue))
            partitions = queue.pop(transactional_id)
            sending = self.sending.get(transactional_id)
            if sending is not None and self._is_current(sending):
                parts.append(Part(sending, partitions))
                count += len(partitions)
        if not queue:
            del self._queues[broker_id]
        return parts

    # What came of it.

    def _answered(self, broker_id: int, parts: list[Part], response: Any) -> None:
        self._under_way.discard(broker_id)
        now_ms = self._broker.wall_ms
        codes = _codes(response)
        for sending, partitions in parts:
            if not self._is_current(sending):
                continue
            producer_id = sending.transaction.producer_id
            for place in partitions:
                code = codes.get((producer_id, *place))
                if code in HAS_NO_NEED:
                    sending.left.discard(place)
                    self.written_total += 1
                else:
                    sending.waiting.add(place)
            self._go_on(sending, now_ms)
        self._broker.peers.ask_last(self._ask)

    def _pause(self) -> None:
        if self._retry is None:
            self._retry = self._broker.after(RETRY_MS, self._again)

    def _again(self, now_ms: int) -> None:
        """The pause is over: ask whoever leads now."""
        self._retry = None
        for sending in list(self.sending.values()):
            if not self._is_current(sending):
                continue
            waiting, sending.waiting = sending.waiting, set()
            if waiting or not sending.left:
                self._route(sending, waiting)
                self._go_on(sending, now_ms)
        self._broker.peers.ask_last(self._ask)

    def _complete(self, sending: PendingDecision, now_ms: int) -> None:
        """Every partition has its marker: say so in the log; later if the log takes nothing now."""
        del self.sending[sending.transactional_id]
        after = completed(sending.transaction, now_ms)
        try:
            sending.shard.change(sending.transactional_id, after, now_ms, _nothing)
        except ApiError:
            self.sending[sending.transactional_id] = sending
            self._pause()


def _nothing(_after: Transaction, _now_ms: int) -> None:
    """Who waits for it asks again."""


def _marker(part: Part) -> WritableTxnMarker:
    sending = part.sending
    topics: dict[str, list[int]] = {}
    for place in part.partitions:
        topics.setdefault(place.topic, []).append(place.partition)
    return WritableTxnMarker(
        producer_id=sending.transaction.producer_id,
        producer_epoch=sending.transaction.producer_epoch,
        transaction_result=sending.transaction.commits,
        topics=[
            WritableTxnMarkerTopic(name=name, partition_indexes=indexes)
            for name, indexes in topics.items()
        ],
        coordinator_epoch=sending.shard.replica.leader_epoch,
        transaction_version=sending.transaction.client_version,
    )


def _codes(response: Any) -> dict[tuple[int, str, int], int]:
    """(producer id, topic, partition) -> code; nothing where there was no answer."""
    if response is None:
        return {}
    return {
        (marker.producer_id, topic.name, each.partition_index): each.error_code
        for marker in response.markers
        for topic in marker.topics
        for each in topic.partitions
    }
