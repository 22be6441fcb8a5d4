"""Whatever happens to a node, its copy is a prefix of what was committed, or the node stops."""

from __future__ import annotations

from contextlib import suppress
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from tests.core.controller.world import World
from tests.core.metadata.served import (
    BETWEEN,
    NODE,
    Node,
    Served,
    changed_topics,
    registration,
    removal,
    topic,
    topic_id,
)
from tests.core.metadata.test_replay import STEPS, take

from anabranch.core.errors import StorageFault
from anabranch.core.metadata.batches import decode_batches
from anabranch.core.metadata.committed_log import CommittedLog
from anabranch.core.metadata.difference import difference
from anabranch.core.metadata.following.effects import Registered, Unanswered
from anabranch.core.metadata.image import MetadataImage
from anabranch.core.metadata.replay import replay_batch
from anabranch.sim.disk import SimDisk

ACTIONS = (
    *("commit",) * 6, *("answer",) * 12, "snapshot", "epoch", "drop", "reconnect", "write",
    "register", "crash", "power", "fail",
)  # fmt: skip


class Life:
    """A node and the controller that it follows, with whatever comes between them."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.served = Served()
        self.connection = 1
        self.topics: list[int] = []
        self.made = 0
        self.disk = SimDisk(Random(seed + 1))
        self.node = Node(self.disk, segment_bytes=1_024, **{BETWEEN: "400"})
        self.seen = MetadataImage.empty()

    def act(self) -> None:
        """Something happens; then all that was published is looked at."""
        getattr(self, self.random.choice(ACTIONS))()
        if self.node.stopped:
            assert "on purpose" in self.node.stopped, self.node.stopped
            self.begin_again()
        self.look()

    def commit(self) -> None:
        if self.topics and self.random.random() < 0.3:
            gone = self.topics.pop(self.random.randrange(len(self.topics)))
            self.served.commit(removal(gone))
        elif self.random.random() < 0.2:
            self.served.commit(registration(self.served.log.end_offset))
        else:
            self.made += 1
            self.topics.append(self.made)
            self.served.commit(topic(self.made))

    def answer(self) -> None:
        self.node.ask(self.served, self.connection)

    def snapshot(self) -> None:
        self.served.snapshot()

    def epoch(self) -> None:
        self.connection += 1
        self.served.begin(self.served.controller.epoch + 1, self.served.log)

    def drop(self) -> None:
        if self.node.question is not None:
            self.node.answered(Unanswered("lost"))

    def reconnect(self) -> None:
        self.connection += 1

    def register(self) -> None:
        own = self.served.image.brokers.get(NODE)
        if own is not None:
            self.node.step(Registered(own.epoch - self.random.randint(0, 1)))

    def write(self) -> None:
        if self.node.writing:
            self.node.write()

    def crash(self) -> None:
        self.begin_again()

    def power(self) -> None:
        self.disk.cut_power()
        self.begin_again()

    def fail(self) -> None:
        self.disk.fail_in = self.random.randint(1, 30)

    def begin_again(self) -> None:
        self.seen = MetadataImage.empty()
        self.node.published.clear()
        self.node.acted.clear()
        self.node.stopped = ""
        while True:
            with suppress(StorageFault):  # a disk that fails while it is opened: once more
                self.node.restart()
                return

    def look(self) -> None:
        """Each image is the committed one, and each delta tells what became of the one before."""
        for each in self.node.published:
            end = int(each.image.next_offset)
            assert each.image == self.served.images[end]
            assert end >= self.seen.next_offset
            told, changed = each.delta, difference(self.seen, each.image)
            assert {t.topic_id for t in changed.deleted_topics} <= {
                t.topic_id for t in told.deleted_topics
            }
            assert changed_topics(changed) <= changed_topics(told)
            assert changed.changed_brokers <= told.changed_brokers
            assert changed.changed_tokens <= told.changed_tokens
            self.seen = each.image
        self.node.published.clear()
        for act in self.node.acted:
            own = act.image.brokers[NODE]
            assert act.published is not None or own.epoch == self.node.broker_epoch
        self.node.acted.clear()


@pytest.mark.parametrize("seed", range(60))
def test_a_copy_is_a_prefix_of_what_was_committed(seed: int) -> None:
    life = Life(seed)
    for _ in range(300):
        life.act()
    life.disk.fail_in = -1
    life.node.catch_up(life.served, life.connection)
    assert not life.node.stopped
    assert life.node.copy.image == life.served.image
    life.node.restart()
    assert life.node.copy.image == life.served.image


@pytest.mark.parametrize("seed", range(60))
def test_a_store_that_went_back_behind_the_copy_is_never_followed(seed: int) -> None:
    """As long as it serves batches where the copy ends: nothing in a snapshot of a later epoch that
    goes beyond the copy could be compared with it."""
    life = Life(seed)
    for _ in range(150):
        life.act()
    life.disk.fail_in = -1
    served, node = life.served, life.node
    life.commit()
    life.commit()
    node.catch_up(served, life.connection)
    ends = [batch.end_offset for batch in served.log._batches]
    back = life.random.choice(ends[:-1])
    served.log.snapshot = None
    log = CommittedLog(served.log.start_offset, served.log._start_epoch)
    for batch in served.log._batches:
        if batch.end_offset <= back:
            log.extend(batch)
    before = node.copy.image
    served.begin(served.controller.epoch + 1, log)
    life.topics = [n for n in life.topics if served.image.topic_by_id(topic_id(n))]
    for _ in range(life.random.randrange(20)):
        life.commit()
    node.published.clear()
    connection = life.connection + life.random.randrange(2)
    for _ in range(20):
        if not node.stopped:
            node.ask(served, connection)
    assert "went back" in node.stopped
    assert node.copy.image is before and not node.published


@settings(max_examples=50, deadline=None)
@given(STEPS)
def test_a_difference_is_what_replay_tells_of(steps: list[tuple[Any, ...]]) -> None:
    """Of one batch they agree, but for what a batch touched and left as it was."""
    world = World()
    world.start(1, 2)
    for step in steps:
        take(world, step)
    before = MetadataImage.empty()
    for batch in world.batches:
        for decoded in decode_batches(batch):
            image, told = replay_batch(before, decoded.records, decoded.last_offset, 1)
            found = difference(before, image)
            assert sorted(told.created_topics) == list(found.created_topics)
            assert told.deleted_topics == found.deleted_topics
            assert changed_topics(found) <= changed_topics(told)
            for changed_id, indexes in told.changed_partitions.items():
                unchanged = set(indexes) - set(found.changed_partitions.get(changed_id, ()))
                old = before.topic_by_id(changed_id)
                now = image.topics_by_id[changed_id]
                assert all(old and old.partitions[n] == now.partitions[n] for n in unchanged)
            for key in told.changed_configs ^ found.changed_configs:
                assert before.configs.get(key) == image.configs.get(key)
            for broker_id in told.changed_brokers ^ found.changed_brokers:
                assert before.brokers.get(broker_id) == image.brokers.get(broker_id)
            assert found.features_changed <= told.features_changed
            before = image
    assert not changed_topics(difference(before, before))
