"""The controller's answers reach a leader before its metadata does: what counts then.

The model: a controller, one leader that has its answers at once and the metadata whenever it comes,
and followers of which only the log ends are kept. Meanwhile the minimum and the replicas change,
and brokers come and go. Whom the controller may elect cleanly has all that counts.
"""

from __future__ import annotations

from random import Random

from tests.core.api.in_memory_node import START_MS, batch
from tests.core.controller.test_reassignment import move
from tests.core.controller.test_resources import alter as alter_config
from tests.core.controller.world import World

from anabranch.core.log.logs import LogFolder
from anabranch.core.log.memory_files import MemoryFiles
from anabranch.core.metadata.image import MetadataImage, PartitionImage
from anabranch.core.replication.in_sync import asked, may_join, propose, settle
from anabranch.core.replication.replica import Replica
from anabranch.core.settings.broker import BrokerConfig
from anabranch.core.settings.topic import effective_topic_config, log_config
from anabranch.core.types import TopicPartition
from anabranch.core.wire.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionRequestTopicData,
)

TOPIC = 2
MINIMUM = "min.insync.replicas"
LEADER, OTHERS = 1, (2, 3, 4)
TARGETS = ((1, 2), (1, 2, 3), (1, 4), (1, 2, 3, 4), (1,), (1, 3))
PLACE = TopicPartition("t", 0)


class Overtaken:
    """Partition t-0, always led by broker 1."""

    def __init__(self, *replicas: int, minimum: int) -> None:
        self.world, self.config = World(), BrokerConfig.of({})
        self.world.start(LEADER, *OTHERS)
        self.world.create("t", list(replicas), min_insync_replicas=str(minimum))
        self.images: list[MetadataImage] = []
        """What the leader has not been told yet."""
        self.known = self.world.image
        topic = effective_topic_config(self.known, "t", self.config)
        topic_id = self.known.topic("t").topic_id  # type: ignore[union-attr]
        folder = LogFolder(MemoryFiles(), "/logs")
        log = folder.create_log(PLACE, topic_id, log_config(topic, self.config), now_ms=0)
        self.replica = Replica(PLACE, topic_id, log, topic, broker_id=LEADER, folder="/logs")
        self.replica.take_state(self.state)
        self.ends = dict.fromkeys(OTHERS, 0)

    @property
    def state(self) -> PartitionImage:
        return self.world.partition("t")

    def step(self, name: str, broker: int, number: int) -> None:
        before = self.world.image
        getattr(self, name)(broker, number)
        if self.world.image is not before:
            self.images.append(self.world.image)
        state = self.state
        for each in {*state.isr, *state.elr} - {LEADER}:
            assert self.ends[each] >= self.replica.high_watermark, f"{each} may lead, and lacks"

    # Steps.

    def write(self, _broker: int, _number: int) -> None:
        self.replica.append(batch(), required_acks=1, now_ms=START_MS)

    def fetch(self, broker: int, number: int) -> None:
        """A follower tells that it has all records but so many."""
        if broker in self.replica.replicas and self.world.image.brokers[broker].active:
            self.ends[broker] = max(self.ends[broker], self.replica.log.end_offset - number)
            self.replica.follower_fetched(broker, self.ends[broker])

    def join(self, broker: int, _number: int) -> None:
        if broker in self.replica.replicas:
            follower = self.replica.progress_of(broker)
            if may_join(self.replica, follower, self.known):
                self._ask((*self.replica.in_sync_replicas, broker))

    def lag(self, broker: int, _number: int) -> None:
        isr = tuple(each for each in self.replica.in_sync_replicas if each != broker)
        if self.replica.proposal is None and len(isr) < len(self.replica.in_sync_replicas):
            self._ask(isr)

    def swap(self, broker: int, number: int) -> None:
        """One joins and another leaves, at once."""
        isr = tuple(each for each in self.replica.in_sync_replicas if each != OTHERS[number])
        if broker in self.replica.replicas and broker not in isr:
            if may_join(self.replica, self.replica.progress_of(broker), self.known):
                self._ask((*isr, broker))

    def _ask(self, isr: tuple[int, ...]) -> None:
        proposal = propose(self.replica, isr, -1)
        topic = AlterPartitionRequestTopicData(
            topic_id=self.replica.topic_id, partitions=[asked(self.replica, proposal)]
        )
        epoch = self.world.image.brokers[LEADER].epoch
        request = AlterPartitionRequest(broker_id=LEADER, broker_epoch=epoch, topics=[topic])
        answer = self.world.ask(request, 3).topics[0].partitions[0]
        settle(self.replica, proposal, answer)
        self.replica.advance()

    def stop(self, broker: int, _number: int) -> None:
        self.world.beat(broker, want_fence=True)

    def back(self, broker: int, _number: int) -> None:
        self.world.beat(broker)

    def require(self, _broker: int, number: int) -> None:
        alter_config(self.world, TOPIC, "t", MINIMUM, str(number + 1))

    def place(self, broker: int, number: int) -> None:
        move(self.world, *TARGETS[(broker + 3 * number) % len(TARGETS)])

    def cancel(self, _broker: int, _number: int) -> None:
        move(self.world, cancel=True)

    def hear(self, _broker: int, number: int) -> None:
        """The metadata comes, up to some point."""
        for _ in range(min(len(self.images), number + 1)):
            self.known = self.images.pop(0)
            self.replica.take_config(effective_topic_config(self.known, "t", self.config))
            self.replica.take_state(self.known.topic("t").partitions[0])  # type: ignore[union-attr]


STEPS = (
    "write", "write", "fetch", "fetch", "join", "join", "lag", "swap", "stop", "back", "back",
    "require", "place", "cancel", "hear",
)  # fmt: skip
WALKS = 120
LONGEST = 60


def test_who_may_be_elected_has_all_that_counts_whatever_the_leader_was_told() -> None:
    for seed in range(WALKS):
        random = Random(seed)
        model = Overtaken(1, 2, 3, minimum=seed % 3 + 1)
        for _ in range(LONGEST):
            model.step(random.choice(STEPS), random.choice(OTHERS), random.randrange(3))
        _ends_in_agreement(model)


def _ends_in_agreement(model: Overtaken) -> None:
    """When the leader has heard everything, and all who are in sync have fetched, all counts."""
    while model.images:
        model.hear(LEADER, 0)
    for each in model.replica.in_sync_replicas:
        if each != LEADER:
            model.fetch(each, 0)
    replica = model.replica
    assert replica.is_leader and set(replica.in_sync_replicas) == set(model.state.isr)
    assert replica.high_watermark == replica.log.end_offset or not replica.enough_in_sync


def test_a_raised_minimum_makes_eligible_who_left_before_the_leader_hears_of_it() -> None:
    model = Overtaken(1, 2, minimum=1)
    for name, number in [("require", 1), ("lag", 0), ("write", 0)]:
        model.step(name, 2, number)
    assert (model.state.isr, model.state.elr) == ((1,), (2,))
    assert model.replica.high_watermark == 0
    model.step("hear", 2, 2)
    assert model.replica.high_watermark == 0
    model.step("require", 2, 0)
    model.step("hear", 2, 2)
    assert (model.state.elr, model.replica.high_watermark) == ((), 1)


def test_a_factor_that_grows_with_a_join_asks_for_more_before_the_leader_hears_of_it() -> None:
    model = Overtaken(1, 2, minimum=3)
    for name, broker, number in [
        ("lag", 2, 0), ("write", 2, 0), ("place", 4, 1), ("hear", 2, 2), ("fetch", 3, 0),
        ("join", 3, 0),
    ]:  # fmt: skip
        model.step(name, broker, number)
    assert (model.state.replicas, model.state.isr) == ((1, 2, 3), (1, 3))
    assert (model.state.elr, model.replica.high_watermark) == ((2,), 0)
