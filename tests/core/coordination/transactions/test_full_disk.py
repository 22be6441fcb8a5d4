"""A full disk delays a marker and loses none: what waits for it goes on when there is room again.

Every set of the logs that a decision is written to has no room, each way in which a transaction can
end, and room that comes back at once or log by log.
"""

from __future__ import annotations

from itertools import combinations

import pytest
from tests.core.coordination.transactions.transaction_world import (
    TV1,
    TV2,
    TransactionWorld,
)
from tests.core.log.support import batch

from anabranch.core.coordination.groups import offsets
from anabranch.core.coordination.groups.classic.group import CommittedOffset
from anabranch.core.coordination.groups.offsets_topic import OFFSETS_TOPIC
from anabranch.core.coordination.transactions.topic import TRANSACTION_TOPIC, partition_of
from anabranch.core.log.files import DiskFull
from anabranch.core.log.room import Room
from anabranch.core.types import TopicPartition

PLACES = (("here", 0), ("here", 1), (OFFSETS_TOPIC, 0), (TRANSACTION_TOPIC, -1))
"""Where a decision is written; the last one is where it is noted that all is done."""
GROUP = "g"
SETS = [each for count in range(1, 5) for each in combinations(PLACES, count)]
ORDERS = dict.fromkeys([*SETS, *(each[::-1] for each in SETS)])
"""Which logs have no room, in the order in which they get it back."""


class Deciding(TransactionWorld):
    """A broker that leads all of it, and a transaction that it has to end."""

    def __init__(self, version: int, *, commits: bool) -> None:
        super().__init__()
        self.node.topic(OFFSETS_TOPIC, 1)
        self.commits = commits
        self.begun = self.producer()
        if version == TV1:
            self.add(self.begun, ("here", 0), ("here", 1))
            self.add_offsets(self.begun, GROUP)
        else:
            self.add_batched(self.begun, ("here", 0), ("here", 1), (OFFSETS_TOPIC, 0))
        for index in range(2):
            self.write(index)
        self.commit_offset()
        assert self.end(self.begun, commits, version=version) == 0

    def write(self, index: int) -> None:
        producer_id, epoch = self.begun
        how = {"producer_id": producer_id, "producer_epoch": epoch, "base_sequence": 0}
        records = batch(1, transactional=True, **how)
        replica = self.node.replica("here", index)
        replica.append(records, required_acks=1, now_ms=self.node.now_ms)

    def commit_offset(self) -> None:
        groups, now_ms = self.broker.groups, self.node.now_ms
        group = offsets.transactions_group(groups, GROUP, -1, "", None, now_ms)
        committed = [(("here", 0), CommittedOffset(offset=7))]
        done = self.coordinator.answer()
        offsets.commit_in_transaction(groups, group, committed, self.begun, done, now_ms)

    def log(self, place: tuple[str, int]):
        topic, index = place
        if topic == TRANSACTION_TOPIC:
            index = partition_of("id", self.broker.image, self.broker.config)
        return self.node.replica(topic, index).log

    def fill(self, place: tuple[str, int]) -> None:
        room = self.log(place).room = Room()
        room.refused(0)

    def take_markers(self) -> None:
        """The broker writes what its coordinator asks for, as far as there is room."""
        asks, self.asks = self.asks, []
        for ask in asks:
            self.broker.peers.answered(ask, self.node.send(ask.message, 2))
            self.settle()

    def take_faults(self) -> None:
        """Nothing goes offline."""
        assert all(isinstance(fault, DiskFull) for _, fault in self.broker.faults)
        self.broker.faults.clear()

    def go_on(self) -> None:
        """Time for a few tries."""
        for _ in range(4):
            self.take_markers()
            self.advance(100)

    def is_decided(self, place: tuple[str, int]) -> bool:
        topic, index = place
        if topic == TRANSACTION_TOPIC:
            return self.state().startswith("Complete")
        replica = self.node.replica(topic, index)
        return replica.last_stable_offset == replica.log.end_offset

    def offset(self) -> int | None:
        """What the group has committed."""
        shard = self.broker.groups.shard_in(0, self.node.now_ms)
        assert not len(shard.undecided)
        group = self.broker.groups.groups.get(GROUP)
        found = None if group is None else group.offsets.get("here", {}).get(0)
        return None if found is None else found.offset


@pytest.mark.parametrize("commits", [True, False])
@pytest.mark.parametrize("version", [TV1, TV2])
def test_a_transaction_ends_by_itself_once_there_is_room(version, commits):
    for order in ORDERS:
        world = Deciding(version, commits=commits)
        for place in order:
            world.fill(place)
        full = list(order)
        while full:
            world.go_on()
            for place in PLACES[:-1]:
                assert world.is_decided(place) is (place not in full), (order, full)
            assert not world.is_decided(PLACES[-1])
            world.log(full.pop(0)).room = Room()
        world.go_on()
        assert all(map(world.is_decided, PLACES)), order
        assert world.offset() == (7 if commits else None), order
        assert len(world.asks) == 0
        for place in PLACES[:-1]:
            index = TopicPartition(*place)
            assert world.node.replica(*index).log.end_offset == 2, "one marker, not two"
