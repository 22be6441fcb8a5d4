"""The transactional ids that one broker coordinates: which there are, and what is asked of them.

What: `TransactionCoordinator` follows the leadership of the partitions of `__transaction_state`,
finds the id of a request, has the rules decide, and writes what they decided. Rules kept:

- a request reaches an id only while this broker has led the id's partition ever since it was
  loaded; whoever waits when it moves away is told NOT_COORDINATOR;
- an answer is given when its record is committed on the in-sync replicas, and markers are sent only
  then: what was decided can no longer be taken back.

Source: KIP-98, KIP-890. Not here: who may do what (`rules`), markers (`markers`), time (`upkeep`).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from anabranch.core.coordination.answers import Answer
from anabranch.core.coordination.transactions import rules
from anabranch.core.coordination.transactions.loader import TransactionLoader
from anabranch.core.coordination.transactions.markers import Markers
from anabranch.core.coordination.transactions.rules import Answered, NeedsProducerId, Producer
from anabranch.core.coordination.transactions.shard import TransactionShard, server_version
from anabranch.core.coordination.transactions.states import DECIDED, EMPTY
from anabranch.core.coordination.transactions.topic import TRANSACTION_TOPIC, partition_of
from anabranch.core.coordination.transactions.transaction import (
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    Transaction,
)
from anabranch.core.coordination.transactions.upkeep import Upkeep
from anabranch.core.errors import ApiError, ErrorCode
from anabranch.core.types import TopicPartition

if TYPE_CHECKING:
    from anabranch.core.coordination.host import Host
    from anabranch.core.replication.replica import Replica


class Decision(NamedTuple):
    """What a request of a producer comes to."""

    code: ErrorCode
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_PRODUCER_EPOCH


class TransactionCoordinator:
    """All transactional ids of one broker. Calls are for the loop's thread."""

    def __init__(self, broker: Host) -> None:
        self.broker = broker
        self.shards: dict[int, TransactionShard] = {}
        self.markers = Markers(broker)
        self.upkeep = Upkeep(broker, self.shards, self.abort)
        self.commits_total = 0
        self.aborts_total = 0

    # What is asked. Each gives an Answer with a Decision, at once or when it is committed, and the
    # shard that it hangs on; it raises ApiError when it is refused.

    def start(
        self, transactional_id: str, timeout_ms: int, expected: Producer | None, now_ms: int
    ) -> tuple[TransactionShard, Answer]:
        """InitProducerId: a producer begins to use an id. Raises NeedsProducerId when there is no
        producer id at hand: then ask again."""
        shard = self.shard_of(transactional_id, now_ms)
        after = self._with_producer_id(
            lambda new_id: rules.started(
                shard.transactions.get(transactional_id),
                timeout_ms,
                expected,
                is_pending=transactional_id in shard.pending,
                new_producer_id=new_id,
                server_version=server_version(self.broker.image),
                now_ms=now_ms,
            )
        )
        answer = self.answer()

        def then(after: Transaction, _now_ms: int) -> None:
            if after.state is EMPTY:
                answer.give(Decision(ErrorCode.NONE, after.producer_id, after.producer_epoch))
            else:
                self._decided(shard, transactional_id, after)
                answer.give(Decision(ErrorCode.CONCURRENT_TRANSACTIONS))

        shard.change(transactional_id, after, now_ms, then)
        return shard, answer

    def add(
        self,
        transactional_id: str,
        producer: Producer,
        partitions: frozenset[TopicPartition],
        client_version: int,
        now_ms: int,
    ) -> tuple[TransactionShard, Answer]:
        """AddPartitionsToTxn and AddOffsetsToTxn."""
        shard = self.shard_of(transactional_id, now_ms)
        after = rules.added(
            shard.transactions.get(transactional_id),
            producer,
            partitions,
            is_pending=transactional_id in shard.pending,
            client_version=client_version,
            now_ms=now_ms,
        )
        answer = self.answer()
        if isinstance(after, Answered):
            answer.give(Decision(ErrorCode.NONE))
        else:
            shard.change(
                transactional_id,
                after,
                now_ms,
                lambda _after, _now_ms: answer.give(Decision(ErrorCode.NONE)),
            )
        return shard, answer

    def end(
        self,
        transactional_id: str,
        producer: Producer,
        *,
        commits: bool,
        client_version: int,
        now_ms: int,
    ) -> tuple[TransactionShard, Answer]:
        """EndTxn: the answer comes when the decision is committed, and before markers are written.
        Raises NeedsProducerId as `start` does."""
        shard = self.shard_of(transactional_id, now_ms)
        after = self._with_producer_id(
            lambda new_id: rules.ended(
                shard.transactions.get(transactional_id),
                producer,
                commits=commits,
                is_pending=transactional_id in shard.pending,
                client_version=client_version,
                new_producer_id=new_id,
                now_ms=now_ms,
            )
        )
        answer = self.answer()

        def then(after: Transaction, _now_ms: int) -> None:
            self._decided(shard, transactional_id, after)
            answer.give(Decision(ErrorCode.NONE, *after.next_producer))

        if isinstance(after, Answered):
            stands = after.transaction
            answer.give(Decision(ErrorCode.NONE, stands.producer_id, stands.producer_epoch))
        else:
            shard.change(transactional_id, after, now_ms, then)
        return shard, answer

    def abort(
        self, shard: TransactionShard, transactional_id: str, after: Transaction, now_ms: int
    ) -> None:
        """The coordinator itself ends a transaction. Raises ApiError."""

        def then(after: Transaction, _now_ms: int) -> None:
            self._decided(shard, transactional_id, after)

        shard.change(transactional_id, after, now_ms, then)

    def _decided(self, shard: TransactionShard, transactional_id: str, after: Transaction) -> None:
        """The decision is committed: it is carried out, whoever leads after this broker."""
        if after.commits:
            self.commits_total += 1
        else:
            self.aborts_total += 1
        self.markers.send(shard, transactional_id, after)

    def _with_producer_id(self, decide: Callable[[int | None], Any]) -> Any:
        """Decide; with a new producer id only where one is needed."""
        try:
            return decide(None)
        except NeedsProducerId:
            new_id = self.broker.next_producer_id()
            if new_id is None:
                raise
            return decide(new_id)

    # Finding.

    def shard_of(self, transactional_id: str, now_ms: int) -> TransactionShard:
        """The loaded partition that an id is in.

        Raises NOT_COORDINATOR or COORDINATOR_LOAD_IN_PROGRESS.
        """
        broker = self.broker
        index = partition_of(transactional_id, broker.image, broker.config)
        shard = self.shards.get(index)
        if shard is None or not shard.is_current:
            shard = self._lead(index, now_ms)
        shard.catch_up(now_ms)
        if not shard.is_ready:
            raise ApiError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        return shard

    def find(self, transactional_id: str, now_ms: int) -> Transaction | None:
        """An id's committed state, None when it is not known. Raises as `shard_of` does."""
        return self.shard_of(transactional_id, now_ms).transactions.get(transactional_id)

    # Leading partitions of the topic.

    def follow_leadership(self, now_ms: int) -> None:
        """Compare what is led with what is loaded; called when replicas have changed."""
        for index, shard in tuple(self.shards.items()):
            if not shard.is_current:
                self._unload(index, shard)
        for index, replica in self.broker.partitions.by_name.get(TRANSACTION_TOPIC, {}).items():
            if replica.is_leader and index not in self.shards:
                self._begin(index, replica, now_ms)

    def moved(self, keys: Sequence[Hashable], now_ms: int) -> None:
        """These partitions' high watermarks may have risen: do what waited for that. A decision is
        carried out also when the client that asked for it is gone."""
        if not self.shards:
            return
        for key in keys:
            if isinstance(key, TopicPartition) and key.topic == TRANSACTION_TOPIC:
                shard = self.shards.get(key.partition)
                if shard is not None:
                    shard.catch_up(now_ms)

    def _lead(self, index: int, now_ms: int) -> TransactionShard:
        old = self.shards.get(index)
        if old is not None:
            self._unload(index, old)
        replica = self.broker.partitions.get(TRANSACTION_TOPIC, index)
        if replica is None or not replica.is_leader:
            raise ApiError(ErrorCode.NOT_COORDINATOR)
        return self._begin(index, replica, now_ms)

    def _begin(self, index: int, replica: Replica, now_ms: int) -> TransactionShard:
        shard = self.shards[index] = TransactionShard(self.broker, replica, self)
        if replica.start_offset == replica.end_offset:
            self.loaded(self.loader(shard), now_ms)
        else:
            self.broker.mailbox.to_load.append(shard)
        self.upkeep.begin()
        return shard

    def _unload(self, index: int, shard: TransactionShard) -> None:
        del self.shards[index]
        to_load = self.broker.mailbox.to_load
        if shard in to_load:
            to_load.remove(shard)
        self.markers.forget(shard)

    def loader(self, shard: TransactionShard) -> TransactionLoader:
        """What reads a shard's ids; `loaded` takes the result."""
        return TransactionLoader(shard, self.broker.config.transaction_state_log_load_buffer_size)

    def loaded(self, loader: TransactionLoader, now_ms: int) -> None:
        """A shard was read to its end. Its ids take part once all that was read is committed; what
        was decided before is carried out then."""
        shard: TransactionShard = loader.shard
        if not shard.is_current or self.shards.get(shard.place.partition) is not shard:
            return
        shard.is_loaded, shard.read_to = True, loader.read_to
        shard.take(loader.transactions)

        def ready(_now_ms: int) -> None:
            shard.is_ready = True
            for transactional_id, each in list(shard.transactions.items()):
                if each.state in DECIDED:
                    self.markers.send(shard, transactional_id, each)

        shard.when_committed(loader.read_to, ready, now_ms)

    # Time and answers.

    def answer(self) -> Answer:
        """An answer that is given later."""
        return Answer(self.broker.changed)

    def statistics(self) -> dict[str, int]:
        """Counts for metrics."""
        shards = self.shards.values()
        return {
            "transactional_ids": sum(len(shard.transactions) for shard in shards),
            "ongoing": sum(len(shard.ongoing) for shard in shards),
            "awaiting_markers": len(self.markers.sending),
            "asked_again": sum(len(each.waiting) for each in self.markers.sending.values()),
            "markers_total": self.markers.written_total,
            "loading": sum(not shard.is_ready for shard in shards),
            "commits_total": self.commits_total,
            "aborts_total": self.aborts_total,
            "timed_out_total": self.upkeep.timed_out_total,
            "expired_total": self.upkeep.expired_total,
        }
