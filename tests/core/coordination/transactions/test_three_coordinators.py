"""However coordinators follow one another, a transaction is decided once, and ends.

Three brokers replicate the topic of ids over mail that a test delivers when it likes; a change of
leaders is told to whom it likes, and a process may end between any two steps. Markers are taken as
a partition takes them: none of a coordinator that was deposed, none of an older epoch.

Invariants: no partition gets both markers of one transaction; what a producer was told to be
committed has the marker that says so; when all is delivered and the timeout is over, every
transaction has ended and every partition of it has a marker.
"""

from __future__ import annotations

from itertools import count
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st
from immutables import Map
from tests.core.coordination.transactions.transaction_world import Marker, taken, written
from tests.core.replication.peers import Peers

from anabranch.core.coordination.transactions.states import IDLE
from anabranch.core.coordination.transactions.topic import TRANSACTION_TOPIC
from anabranch.core.errors import ErrorCode
from anabranch.core.metadata.features import BOOTSTRAP_LEVELS
from anabranch.core.metadata.image import MetadataImage
from anabranch.core.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from anabranch.core.wire.messages.end_txn import EndTxnRequest
from anabranch.core.wire.messages.init_producer_id import InitProducerIdRequest

BROKERS = (1, 2, 3)
TIMEOUT_MS = 1_000
ROUND_MS = 10_000
any_broker = st.sampled_from(BROKERS)

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("init"), any_broker),
        st.tuples(st.just("add"), any_broker),
        st.tuples(st.just("end"), any_broker, st.booleans()),
        st.tuples(st.just("deliver"), st.integers(0, 5)),
        st.tuples(st.just("marker"), st.integers(0, 3), st.booleans()),
        st.tuples(st.just("elect"), any_broker, st.booleans()),
        st.tuples(st.just("restart"), any_broker),
        st.tuples(st.just("late")),
        st.tuples(st.just("settle")),
    ),
    max_size=30,
)


class WithFeatures(Peers):
    @property
    def image(self) -> MetadataImage:
        plain = super().image
        fields = {name: getattr(plain, name) for name in plain.__struct_fields__}
        return MetadataImage(**{**fields, "features": Map(BOOTSTRAP_LEVELS)})


class Coordinators:
    """The brokers, one producer, and the partition that takes its markers."""

    def __init__(self) -> None:
        self.peers = WithFeatures(3, topic=TRANSACTION_TOPIC, publish=False)
        self.ids = count(100)
        self.asks: list[Any] = []
        self.markers: list[Marker] = []
        self.producer = (-1, -1)
        self.epoch_seen: dict[int, int] = {}
        self.coordinator_epoch = -1
        self.ending: list[tuple[tuple[int, int], bool, Any]] = []
        self.starting: list[Any] = []
        self.added: dict[tuple[int, int], list[Any]] = {}
        for each in BROKERS:
            self.begin(each)
        self.peers.publish()
        self.settle()

    def begin(self, broker_id: int) -> None:
        self.peers[broker_id].broker.allocate_producer_id = lambda: next(self.ids)

    # What the producer does; it takes over what it is told when it looks.

    def init(self, broker_id: int) -> None:
        message = InitProducerIdRequest(transactional_id="id", transaction_timeout_ms=TIMEOUT_MS)
        self.starting.append(self.ask(broker_id, message, 5))

    def add(self, broker_id: int) -> None:
        self.look()
        transaction = AddPartitionsToTxnTransaction(
            transactional_id="id",
            producer_id=self.producer[0],
            producer_epoch=self.producer[1],
            topics=[AddPartitionsToTxnTopic(name=TRANSACTION_TOPIC, partitions=[0])],
        )
        box = self.ask(broker_id, AddPartitionsToTxnRequest(transactions=[transaction]), 5)
        self.added.setdefault(self.producer, []).append(box)

    def end(self, broker_id: int, commits: bool) -> None:
        self.look()
        message = EndTxnRequest(
            transactional_id="id",
            producer_id=self.producer[0],
            producer_epoch=self.producer[1],
            committed=commits,
        )
        self.ending.append((self.producer, commits, self.ask(broker_id, message, 5)))

    def look(self) -> None:
        for box in self.starting:
            if box and not box[0].error_code:
                self.take(box[0].producer_id, box[0].producer_epoch)
        for producer, _commits, box in self.ending:
            if producer == self.producer and box and not box[0].error_code:
                self.take(box[0].producer_id, box[0].producer_epoch)

    def take(self, producer_id: int, epoch: int) -> None:
        self.producer = max(self.producer, (producer_id, epoch))

    def ask(self, broker_id: int, message: Any, version: int) -> Any:
        peer = self.peers[broker_id]
        peer.clock()
        self.follow(peer)
        answer = peer.ask(message, version)
        self.finish(peer)
        return answer if isinstance(answer, list) else [answer]

    # What happens to the brokers.

    def follow(self, peer: Any) -> None:
        now_ms = peer.broker.wall_ms
        peer.broker.follow_leadership(now_ms)
        peer.broker.groups.load(now_ms)
        self.finish(peer)

    def finish(self, peer: Any) -> None:
        peer.finish()
        for ask in peer.broker.peers.take_effects():
            self.asks.append((peer, peer.broker, ask))

    def deliver(self, at: int) -> None:
        if self.peers.mail:
            self.peers.deliver(at % len(self.peers.mail))
        self.collect()

    def collect(self) -> None:
        for each in BROKERS:
            self.finish(self.peers[each])

    def marker(self, at: int, is_lost: bool) -> None:
        """A request for markers arrives; its answer may be lost."""
        if not self.asks:
            return
        peer, broker, ask = self.asks.pop(at % len(self.asks))
        answer = self.written(ask.message)
        if peer.broker is broker:
            peer.clock()
            broker.peers.answered(ask, None if is_lost else answer)
            self.finish(peer)

    def written(self, message: Any) -> Any:
        (marker,) = [each for found in written(message).values() for each in found]
        if marker.coordinator_epoch < self.coordinator_epoch:
            return taken(message, ErrorCode.TRANSACTION_COORDINATOR_FENCED)
        if marker.epoch < self.epoch_seen.get(marker.producer_id, -1):
            return taken(message, ErrorCode.INVALID_PRODUCER_EPOCH)
        self.coordinator_epoch = marker.coordinator_epoch
        self.epoch_seen[marker.producer_id] = marker.epoch
        self.markers.append(marker)
        return taken(message)

    def elect(self, leader: int, is_told: bool) -> None:
        """The controller takes the leader for dead; it alone need not hear of that."""
        state = self.peers.state
        if leader == state.leader or leader not in state.isr:
            return
        former = state.leader
        isr = tuple(each for each in state.isr if each != former)
        self.peers.change(leader=leader, isr=isr)
        self.peers.publish(*(each for each in BROKERS if is_told or each != former))
        for each in BROKERS:
            if is_told or each != former:
                self.follow(self.peers[each])

    def restart(self, broker_id: int) -> None:
        """A process ends; its log stays."""
        self.peers.restart(broker_id)
        self.begin(broker_id)
        self.peers.publish(broker_id)
        self.follow(self.peers[broker_id])

    def late(self) -> None:
        """The transaction's timeout goes by, and a round that looks for it."""
        self.peers.wait(ROUND_MS + 1)
        for each in BROKERS:
            broker = self.peers[each].broker
            broker.groups.tick(broker.wall_ms)
        self.collect()

    def settle(self) -> None:
        for _ in range(3):
            self.peers.settle()
            for each in BROKERS:
                self.follow(self.peers[each])
            while self.asks:
                self.marker(0, False)

    # What has to hold.

    def check(self) -> None:
        for _ in range(4):
            self.settle()
            self.late()
        self.settle()
        self.look()
        decided: dict[tuple[int, int], set[bool]] = {}
        for marker in self.markers:
            decided.setdefault((marker.producer_id, marker.epoch), set()).add(marker.commits)
        assert all(len(each) == 1 for each in decided.values()), f"decided twice: {decided}"
        leader = self.peers[self.peers.state.leader].broker.transactions
        known = leader.shards[0].transactions.get("id")
        if known is None:
            return
        assert known.state in IDLE, f"it has not ended: {known}"
        assert not leader.markers.sending
        self.check_answers(decided)

    def check_answers(self, decided: dict[tuple[int, int], set[bool]]) -> None:
        joined = {
            producer
            for producer, boxes in self.added.items()
            if any(
                box
                and not box[0]
                .results_by_transaction[0]
                .topic_results[0]
                .results_by_partition[0]
                .partition_error_code
                for box in boxes
            )
        }
        for producer_id, epoch in joined:
            assert (producer_id, epoch + 1) in decided, f"no marker of epoch {epoch}"
        for (producer_id, epoch), commits, box in self.ending:
            if box and not box[0].error_code and commits:
                assert decided[producer_id, epoch + 1] == {True}, "told committed, and aborted"


BEGUN = [("init", 1), ("settle",), ("add", 1), ("settle",)]
DEPOSED = [*BEGUN, ("end", 1, True), ("elect", 2, False), ("late",), ("settle",)]
"""The decision of the first broker is cut off; the second one aborts, since time is over."""
RETRIED = [*BEGUN, ("end", 1, True), ("settle",), ("elect", 2, True), ("settle",), ("end", 2, True)]


@given(STEPS)
@example(DEPOSED)
@example([*DEPOSED, ("marker", 0, False), ("elect", 3, True), ("end", 3, True), ("settle",)])
@example(RETRIED)
@example([*BEGUN, ("end", 1, True), *[("deliver", 0)] * 3, ("restart", 1), ("end", 1, False)])
@example([*BEGUN, ("init", 1), ("deliver", 0), ("end", 1, True), ("elect", 2, True)])
@settings(max_examples=60, deadline=None)
def test_a_transaction_is_decided_once_and_ends(steps):
    world = Coordinators()
    for name, *how in steps:
        getattr(world, name)(*how)
    world.check()


def test_the_plain_way_commits():
    """The model lets something happen at all."""
    world = Coordinators()
    for name, *how in [*RETRIED, ("add", 2), ("settle",), ("end", 2, False)]:
        getattr(world, name)(*how)
    world.check()
    assert [(each.epoch, each.commits) for each in world.markers] == [(1, True), (2, False)]
