"""The active controller keeps the coordinator's rows of diskless partitions: metadata first."""

from __future__ import annotations

from random import Random

import pytest
from immutables import Map

from anabranch.core.controller.diskless.rows import (
    CreateRows,
    ListRemoteTopics,
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
from anabranch.core.remote.facts import TryEnded
from anabranch.core.types import NEVER_MS, TopicId
from anabranch.stores.coordinator.sqlite_memory import SqliteInMemory

STATE = PartitionImage(replicas=(1,), isr=(1,), leader=1, leader_epoch=0, partition_epoch=0)


def id_of(name):
    return TopicId(name.encode().ljust(16, b"-"))


class Controller:
    """The machine, a coordinator that it calls, and metadata that a test changes."""

    def __init__(self, coordinator=None, offset=10, *, has_remote=False):
        self.coordinator = coordinator or SqliteInMemory("c", lambda: 0)
        self.rows = LogRows(has_remote=has_remote)
        self.image = MetadataImage(offset=offset)
        self.now_ms = 0
        self.calls = []

    def topic(self, name, partitions, *, diskless=True, **own):
        topic = TopicImage(name, id_of(name), Map(dict.fromkeys(range(partitions), STATE)))
        configs = {"diskless.enable": "true"} if diskless else {}
        configs |= {key.replace("_", "."): value for key, value in own.items()}
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
            if isinstance(effect, ListRemoteTopics):
                return coordinator.remote.topics(effect.after, effect.limit)
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


def test_rows_of_what_was_classic_begin_where_the_metadata_says():
    """The coordinator has no seal of them: it was lost, and restored."""
    world = Controller()
    world.topic("t", 4, diskless_start_offsets="9,0,5")
    world.rows.began(2, world.image.next_offset)
    world.follow()
    keys = [LogKey(id_of("t"), partition) for partition in range(4)]
    states = world.coordinator.states(keys)
    assert [(each.start_offset, each.high_watermark) for each in states] == [
        (9, 9), (0, 0), (5, 5), (0, 0),
    ]  # fmt: skip


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


class RemoteWorld:
    """A controller, and leaders that begin remote logs, also of topics that they do not know to be
    deleted."""

    def __init__(self, seed):
        self.random = Random(seed)
        self.controller = Controller(has_remote=True)
        self.term = 0
        self.led = {}
        """Living topics that have a remote log."""
        self.deleted = set()
        """Topics that were deleted in this term."""
        self.count = 0
        self.begin_term()

    def begin_term(self):
        self.term += 1
        self.deleted = set()
        self.controller.rows.began(self.term, self.controller.image.next_offset)
        self.controller.rows.follow(self.controller.image, MetadataDelta())

    def lead(self, name):
        key = LogKey(id_of(name), 0)
        try:
            self.controller.coordinator.remote.lead(key, name, 1)
        except TryEnded:
            return False
        return True

    def event(self):
        controller, random = self.controller, self.random
        living = sorted(each.name for each in controller.image.topics_by_id.values())
        match random.choice(("create", "lead", "lead", "delete", "late", "fail", "call", "term")):
            case "create":
                self.count += 1
                delta = controller.topic(f"t{self.count}", 1, diskless=random.random() < 0.3)
                controller.rows.follow(controller.image, delta)
            case "lead" if living:
                name = random.choice(living)
                assert self.lead(name)
                self.led[name] = None
            case "delete" if living:
                name = random.choice(living)
                self.led.pop(name, None)
                self.deleted.add(name)
                delta = controller.without(name)
                controller.rows.follow(controller.image, delta)
            case "late" if self.deleted:
                self.lead(random.choice(sorted(self.deleted)))
            case "fail" | "call":
                self.call(fails=random.random() < 0.3)
            case "term" if random.random() < 0.3:
                self.begin_term()

    def call(self, *, fails):
        controller = self.controller
        for effect in controller.rows.take_effects(controller.now_ms):
            result = controller.call(effect) if not fails or self.random.random() < 0.5 else None
            if fails:
                result = CoordinatorAway("no answer")
            controller.rows.answered(effect, result, controller.now_ms)
        controller.now_ms += 50

    @property
    def remote(self):
        topics = self.controller.coordinator.remote.topics(TopicId(bytes(16)), 1000)
        return set(topics)


@pytest.mark.parametrize("seed", range(40))
def test_remote_logs_end_with_their_topics_and_no_other_does(seed, monkeypatch):
    monkeypatch.setattr("anabranch.core.controller.diskless.rows.PAGE", 3)
    world = RemoteWorld(seed)
    for _ in range(world.random.randrange(20, 200)):
        world.event()
        assert {id_of(each) for each in world.led} <= world.remote
    world.controller.now_ms += 10_000
    world.controller.settle()
    assert not [each for each in sorted(world.deleted) if world.lead(each)]
    world.begin_term()
    world.controller.settle()
    assert {id_of(each) for each in world.led} == world.remote
