"""R15: no coordinator tells an offset that is older than what another one has acknowledged.

Three brokers replicate the topic of offsets over mail that a test delivers when it likes, and a
change of leaders is told to whom it likes. The invariant: a fetch that is asked after a commit was
acknowledged, by whichever coordinator, tells that offset or a later one, or refuses. Each commit
here is of a higher offset than the one before.
"""

from __future__ import annotations

from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.core.replication.peers import Peers

from anabranch.core.coordination.groups.offsets_topic import OFFSETS_TOPIC
from anabranch.core.errors import ErrorCode
from anabranch.core.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from anabranch.core.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)

BROKERS = (1, 2, 3)
any_broker = st.sampled_from(BROKERS)

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("commit"), any_broker),
        st.tuples(st.just("fetch"), any_broker),
        st.tuples(st.just("deliver"), st.integers(0, 5)),
        st.tuples(st.just("elect"), any_broker, st.booleans()),
        st.tuples(st.just("settle")),
    ),
    max_size=25,
)
"""What happens. An election is told to those who are in sync then, or to the former leader too."""


class Coordinators:
    """The brokers, and what their clients were told. The offsets are those of the one topic."""

    def __init__(self) -> None:
        self.peers = Peers(3, topic=OFFSETS_TOPIC)
        self.asked = 0
        self.commits: list[tuple[int, Any]] = []
        self.fetches: list[tuple[int, Any]] = []
        self.settle()

    @property
    def acknowledged(self) -> int:
        """The highest offset of which a client knows that it is committed; -1 before."""
        return max((offset for offset, box in self.commits if _was_taken(box)), default=-1)

    def commit(self, broker_id: int) -> None:
        self.asked += 1
        part = OffsetCommitRequestPartition(partition_index=0, committed_offset=self.asked)
        topics = [OffsetCommitRequestTopic(name=OFFSETS_TOPIC, partitions=[part])]
        box = self.ask(broker_id, OffsetCommitRequest(group_id="g", topics=topics))
        self.commits.append((self.asked, box))

    def fetch(self, broker_id: int) -> None:
        topics = [OffsetFetchRequestTopics(name=OFFSETS_TOPIC, partition_indexes=[0])]
        group = OffsetFetchRequestGroup(group_id="g", topics=topics)
        floor = self.acknowledged
        self.fetches.append((floor, self.ask(broker_id, OffsetFetchRequest(groups=[group]))))

    def ask(self, broker_id: int, message: Any) -> Any:
        peer = self.peers[broker_id]
        self.load(peer)
        answer = peer.ask(message, 9)
        peer.finish()
        return answer if isinstance(answer, list) else [answer]

    def load(self, peer: Any) -> None:
        groups, now_ms = peer.broker.groups, self.peers.now_ms
        groups.follow_leadership(now_ms)
        groups.load(now_ms)

    def deliver(self, at: int) -> None:
        if self.peers.mail:
            self.peers.deliver(at % len(self.peers.mail))

    def elect(self, leader: int, is_told: bool) -> None:
        """The controller takes the leader for dead; it alone need not hear of that."""
        state = self.peers.state
        if leader == state.leader or leader not in state.isr:
            return
        former = state.leader
        isr = tuple(each for each in state.isr if each != former)
        self.peers.change(leader=leader, isr=isr)
        self.peers.publish(*(each for each in BROKERS if is_told or each != former))

    def settle(self) -> None:
        self.peers.settle()
        for each in BROKERS:
            self.load(self.peers[each])

    def check(self) -> None:
        for floor, box in self.fetches:
            if box and not box[0].groups[0].error_code:
                told = box[0].groups[0].topics[0].partitions[0].committed_offset
                assert told >= floor, f"{told} was told after {floor} was acknowledged"


def _was_taken(box: list[Any]) -> bool:
    return bool(box) and box[0].topics[0].partitions[0].error_code == ErrorCode.NONE


DEPOSED = [("commit", 1), ("settle",), ("elect", 2, False), ("commit", 2), *[("deliver", 0)] * 8]
"""What the second broker acknowledges, the first one has not heard of."""
UNSETTLED = [
    ("commit", 1), ("settle",), ("commit", 1), ("elect", 2, False), ("fetch", 1), ("elect", 3, True),
]  # fmt: skip
HELD_BACK = [
    ("commit", 1), ("settle",), ("fetch", 1), ("deliver", 0), ("deliver", 0),
    ("elect", 2, False), ("commit", 2), *[("deliver", 2)] * 6,
    ("fetch", 1), ("deliver", 0), ("deliver", 0),
]  # fmt: skip
"""Fetches of the other two lie on their way while one of them is elected: what they commit at the
former leader was written before the commit that is acknowledged elsewhere."""


@given(STEPS)
@example([*DEPOSED, ("fetch", 1)])
@example([*DEPOSED, ("fetch", 1), ("settle",)])
@example([*DEPOSED, ("commit", 1), ("fetch", 1), ("fetch", 2), ("settle",)])
@example(UNSETTLED)
@example(HELD_BACK)
@settings(max_examples=60, deadline=None)
def test_no_fetch_tells_less_than_was_acknowledged_before(steps):
    world = Coordinators()
    for name, *how in steps:
        getattr(world, name)(*how)
        world.check()
    world.settle()
    world.check()


def test_the_examples_are_what_they_are_for():
    """In each a commit is acknowledged of which the first broker does not know when it is asked."""
    for steps in ([*DEPOSED, ("fetch", 1)], HELD_BACK):
        world = Coordinators()
        for name, *how in steps:
            getattr(world, name)(*how)
        floor, box = world.fetches[-1]
        assert floor == 2
        assert world.peers[1].replica.is_leader and not box


def test_every_fetch_is_answered_by_the_coordinator_in_its_turn():
    """Also those that come while a record is under way that proves nothing for them."""
    world = Coordinators()
    world.commit(1)
    for _ in range(3):
        world.fetch(1)
        world.deliver(0)
    before = world.peers[1].end
    world.settle()
    assert world.acknowledged == 1
    told = [box[0].groups[0].topics[0].partitions[0].committed_offset for _, box in world.fetches]
    assert told == [1, 1, 1]
    assert world.peers[1].end - before <= 1, "one record for all that came meanwhile"
