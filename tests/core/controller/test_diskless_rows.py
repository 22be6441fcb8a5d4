"""The active controller keeps the coordinator's rows of diskless partitions: metadata first."""

from __future__ import annotations

import pytest
from immutables import Map

from anabranch.core.controller.diskless.rows import (
    CreateRows,
    ListTopics,
    LogRows,
    Stage,
    TakeControl,
)
from anabranch.core.diskless.contents import Contents, HeldLog
from anabranch.core.diskless.coordinator import CoordinatorAway, Deposed
from anabranch.core.diskless.rows import LogKey, LogState, NewLogs
from anabranch.core.metadata.image import (
    RESOURCE_TOPIC,
    MetadataDelta,
    MetadataImage,
    PartitionImage,
    TopicImage,
)
from anabranch.core.types import NEVER_MS, TopicId
from anabranch.stores.coordinator.sqlite_memory import SqliteInMemory

STATE = PartitionImage(replicas=(1,), isr=(1,), leader=1, leader_epoch=0, partition_epoch=0)


def id_of(name):
    return TopicId(name.encode().ljust(16, b"-"))


class Controller:
    """The machine, a coordinator that it calls, and metadata that a test changes."""

    def __init__(self, coordinator=None, offset=10):
        self.coordinator = coordinator or SqliteInMemory("c", lambda: 0)
        self.rows = LogRows()
        self.image = MetadataImage(offset=offset)
        self.now_ms = 0
        self.calls = []

    def topic(self, name, partitions, *, diskless=True):
        topic = TopicImage(name, id_of(name), Map(dict.fromkeys(range(partitions), STATE)))
        configs = {"diskless.enable": "true"} if diskless else {}
        image = self.image
        self.image = MetadataImage(
            offset=image.offset + 1,
            topics_by_id=image.topics_by_id.set(topic.topic_id, topic),
            topic_ids_by_name=image.topic_ids_by_name.set(name, topic.topic_id),
            configs=image.configs.set((RESOURCE_TOPIC, name), Map(configs)),
        )
        changed = {topic.topic_id: frozenset(range(partitions))}
        return MetadataDelta(changed_partitions=changed)

    def without(self, name):
        image = self.image
        deleted = image.topic(name)
        self.image = MetadataImage(
            offset=image.offset + 1,
            topics_by_id=image.topics_by_id.delete(deleted.topic_id),
            topic_ids_by_name=image.topic_ids_by_name.delete(name),
            configs=image.configs,
        )
        return MetadataDelta(deleted_topics=(deleted,))

    def follow(self, delta=None):
        self.rows.follow(self.image, delta or MetadataDelta())
        self.settle()

    def settle(self, fail=None):
        """Make its calls until it wants none."""
        while effects := self.rows.take_effects(self.now_ms):
            for effect in effects:
                self.calls.append(effect)
                self.rows.answered(effect, fail or self.call(effect), self.now_ms)

    def call(self, effect):
        coordinator = self.coordinator
        try:
            if isinstance(effect, TakeControl):
                return coordinator.take_control(effect.epoch)
            if isinstance(effect, ListTopics):
                return coordinator.topics(effect.after, effect.limit)
            if isinstance(effect, CreateRows):
                return coordinator.create_logs(effect.epoch, effect.new)
            return coordinator.delete_topics(effect.epoch, effect.topic_ids)
        except Deposed as fault:
            return fault

    @property
    def kept(self):
        return dict(self.coordinator.topics(TopicId(bytes(16)), 1000))


def test_rows_follow_the_metadata_from_the_term_s_begin():
    world = Controller()
    world.coordinator.take_control(1)
    gone = NewLogs(id_of("gone"), "gone", 0, 2)
    world.coordinator.create_logs(1, [gone, NewLogs(id_of("short"), "short", 0, 1)])
    world.topic("classic", 3, diskless=False)
    world.topic("short", 3)
    world.topic("new", 2)
    world.rows.began(2, world.image.next_offset)
    world.follow()
    assert world.kept == {id_of("short"): 3, id_of("new"): 2}
    assert world.rows.stage is Stage.KEEPING
    world.follow(world.topic("later", 4))
    world.follow(world.topic("new", 5))
    assert world.kept == {id_of("short"): 3, id_of("new"): 5, id_of("later"): 4}
    world.follow(world.without("short"))
    assert world.kept == {id_of("new"): 5, id_of("later"): 4}
    made = [each for each in world.calls if isinstance(each, CreateRows)]
    calls = len(world.calls)
    world.follow(world.topic("new", 5))  # a leader moved: there is nothing to do
    assert len(world.calls) == calls
    assert made[-1].new == (NewLogs(id_of("new"), "new", 2, 5),)


def test_rows_that_are_missing_between_others_are_made():
    """A coordinator that was restored knew only partitions that had records."""
    world = Controller()
    keys = [LogKey(id_of("t"), partition) for partition in range(6)]
    logs = [HeldLog(keys[each], "t", LogState(0, 7)) for each in (0, 3, 5)]
    world.coordinator.load(Contents(logs, [], [], [], 0))
    world.topic("t", 6)
    world.rows.began(2, world.image.next_offset)
    world.follow()
    ends = [state and state.high_watermark for state in world.coordinator.states(keys)]
    assert ends == [7, 0, 0, 7, 0, 7]


def test_metadata_from_before_the_term_deletes_nothing():
    world = Controller()
    world.coordinator.take_control(1)
    world.coordinator.create_logs(1, [NewLogs(id_of("t"), "t", 0, 1)])
    before = world.image
    delta = world.topic("t", 1)
    world.rows.began(2, world.image.next_offset)
    world.rows.follow(before, MetadataDelta())
    world.settle()
    assert world.kept == {id_of("t"): 1}
    world.follow(delta)
    assert world.kept == {id_of("t"): 1}


@pytest.mark.parametrize("failing", [1, 2, 3])
def test_what_fails_is_tried_again_after_a_pause(failing):
    world = Controller()
    world.topic("t", 2)
    world.rows.began(2, 0)
    world.rows.follow(world.image, MetadataDelta())
    for _ in range(failing - 1):
        (effect,) = world.rows.take_effects(0)
        world.rows.answered(effect, world.call(effect), 0)
    (effect,) = world.rows.take_effects(0)
    world.rows.answered(effect, CoordinatorAway("down"), 0)
    assert world.rows.trouble == "down"
    assert not world.rows.take_effects(0)
    world.now_ms = world.rows.next_tick_ms
    world.settle()
    assert world.kept == {id_of("t"): 2}
    assert not world.rows.trouble


def test_a_deposed_controller_makes_no_more_calls():
    world = Controller()
    world.rows.began(2, 0)
    world.follow()
    newer = Controller(world.coordinator)
    newer.rows.began(3, 0)
    newer.follow()
    world.follow(world.topic("t", 1))
    assert world.rows.stage is Stage.IDLE
    assert "with epoch 2, the coordinator knows 3; a newer controller" in world.rows.trouble
    assert world.rows.next_tick_ms == NEVER_MS
    assert not world.kept
    newer.follow(newer.topic("t", 1))
    assert world.kept == {id_of("t"): 1}


def test_no_timer_rings_for_a_call_that_may_not_be_made():
    world = Controller()
    world.topic("t", 2)
    world.rows.began(2, 0)
    world.rows.follow(world.image, MetadataDelta())
    (effect,) = world.rows.take_effects(0)
    assert world.rows.next_tick_ms == NEVER_MS
    world.rows.answered(effect, CoordinatorAway("down"), 0)
    assert world.rows.next_tick_ms < NEVER_MS
    world.rows.resigned()
    assert world.rows.next_tick_ms == NEVER_MS


def test_a_deleted_topic_s_rows_never_come_back():
    world = Controller()
    world.rows.began(2, 0)
    world.follow(world.topic("t", 1))
    world.follow(world.without("t"))
    world.coordinator.create_logs(2, [NewLogs(id_of("t"), "t", 0, 1)])
    assert world.coordinator.states([LogKey(id_of("t"), 0)]) == [None]
