"""A whole node in memory, made anew for each input in a fraction of a millisecond.

What: a controller and a broker with real handlers, replicas and logs over `MemoryFiles`; forwarded
requests and wishes reach the controller, decisions are committed at once, and the broker follows
the new image. Time stands still unless an input moves it. Why not the shell of `server`: it needs a
loop and threads; what it does with an outcome is a few lines here. Rule kept: nothing is random, so
an input does the same each time. Not here: sockets, what an input may ask (`stream.py`).
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from functools import cache
from random import Random
from typing import Any

from anabranch.core.access.authorize import AllowAll
from anabranch.core.access.principal import ANONYMOUS
from anabranch.core.api.context import METADATA, Broker
from anabranch.core.api.fetch_sessions import FetchSessions
from anabranch.core.api.registry import handlers
from anabranch.core.controller.brokers.hints import Hints
from anabranch.core.controller.brokers.sessions import Sessions
from anabranch.core.controller.controller import METADATA_KEY, Controller
from anabranch.core.controller.duties import Duties
from anabranch.core.coordination.groups import offsets
from anabranch.core.coordination.groups.coordinator import GroupCoordinator
from anabranch.core.log.logs import LogFolder
from anabranch.core.log.memory_files import MemoryFiles
from anabranch.core.metadata.batches import encode_batch
from anabranch.core.metadata.committed_log import CommittedBatch, CommittedLog
from anabranch.core.metadata.features import SUPPORTED_FEATURES, bootstrap_records
from anabranch.core.metadata.image import (
    RESOURCE_BROKER,
    RESOURCE_TOPIC,
    MetadataDelta,
    MetadataImage,
)
from anabranch.core.outcome import Propose
from anabranch.core.replication.partitions import Assignment, Partitions
from anabranch.core.replication.replica import Replica
from anabranch.core.replication.replication import Replication
from anabranch.core.request import Request
from anabranch.core.settings.broker import BrokerConfig
from anabranch.core.settings.topic import TopicConfig, effective_topic_config, log_config
from anabranch.core.step import Wish
from anabranch.core.types import TopicId, TopicPartition
from anabranch.core.wire.messages.broker_heartbeat import BrokerHeartbeatRequest
from anabranch.core.wire.messages.broker_registration import (
    BrokerRegistrationRequest,
    Feature,
    Listener,
)
from anabranch.core.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from anabranch.core.wire.metadata_records import PartitionChangeRecord

CLUSTER = "made-up-cluster-id"
FOLDER = "/logs"
LISTENER = "PLAINTEXT"
START_MS = 1_700_000_000_000
STEADY_MS = 1_000_000
FIRST_PRODUCER_ID = 1000
SESSION_SLOTS = 4
BROKERS = (1, 2)
MOST_PARTITIONS = 200
"""More are planned and not hosted: an input may ask for a million."""
SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "group.max.size": "5",
    "offsets.topic.num.partitions": "2",
    "offsets.topic.replication.factor": "1",
    "default.replication.factor": "1",
    "max.incremental.fetch.session.cache.slots": str(SESSION_SLOTS),
}
TOPICS: dict[str, tuple[int, dict[str, str]]] = {
    "t": (2, {}),
    "u": (1, {"cleanup.policy": "compact", "compression.type": "lz4",
              "internal.segment.bytes": "300"}),
    "v": (1, {"internal.segment.bytes": "400", "index.interval.bytes": "100",
              "retention.bytes": "900", "flush.messages": "1"}),
    "__consumer_offsets": (2, {"cleanup.policy": "compact", "internal.segment.bytes": "2000"}),
}  # fmt: skip


def _registration(broker_id: int) -> BrokerRegistrationRequest:
    return BrokerRegistrationRequest(
        broker_id=broker_id,
        cluster_id=CLUSTER,
        incarnation_id=bytes([broker_id]) * 16,
        listeners=[Listener(name=LISTENER, host="h", port=9092)],
        features=[
            Feature(name=name, min_supported_version=low, max_supported_version=high)
            for name, (low, high) in SUPPORTED_FEATURES.items()
        ],
        rack=None,
        log_dirs=[bytes([broker_id + 100]) * 16],
    )


def _topics() -> list[CreatableTopic]:
    return [
        CreatableTopic(
            name=name, num_partitions=count, replication_factor=1,
            configs=[CreatableTopicConfig(name=key, value=text) for key, text in texts.items()],
        )
        for name, (count, texts) in TOPICS.items()
    ]  # fmt: skip


@cache
def prototype() -> tuple[BrokerConfig, MetadataImage, tuple[CommittedBatch, ...]]:
    """The settings, the image and the committed batches that every node starts with."""
    config = BrokerConfig.of(SETTINGS)
    node = Node(config, MetadataImage.empty(), ())
    node.commit(bootstrap_records(1))
    for broker_id in BROKERS:
        node.decide(_registration(broker_id))
        beat = BrokerHeartbeatRequest(
            broker_id=broker_id,
            broker_epoch=node.image.brokers[broker_id].epoch,
            current_metadata_offset=node.image.offset,
        )
        node.decide(beat)
        if broker_id == 1:  # the only one while topics are placed: this node leads all of them
            node.decide(CreateTopicsRequest(topics=_topics()))
    return config, node.image, tuple(node.batches)


@cache
def _topic_config(texts: Any, broker: Any, image: Any, topic: str) -> TopicConfig:
    return effective_topic_config(image.image, topic, broker.config)


class _Same:
    """Equal to every other of its kind: carries what is no part of a cache's key."""

    def __init__(self, **held: Any) -> None:
        self.__dict__.update(held)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same)

    def __hash__(self) -> int:
        return 0


class Node:
    """One node: broker and controller leave what they leave in one mailbox."""

    def __init__(
        self, config: BrokerConfig, image: MetadataImage, batches: Sequence[CommittedBatch]
    ) -> None:
        self.now_ms = START_MS
        self.files = MemoryFiles()
        self.clean_points: dict[TopicPartition, int] = {}
        self.folder = LogFolder(self.files, FOLDER)
        self.batches = list(batches)
        self.controller = Controller(1, CLUSTER, config, Random(1))
        log = CommittedLog()
        for batch in batches:
            log.extend(batch)
        self.controller.begin_term(1, image, log, self.now_ms)
        self.producer_ids = itertools.count(FIRST_PRODUCER_ID)
        epoch = image.brokers[1].epoch if 1 in image.brokers else -1
        self.broker = Broker(
            broker_id=1,
            broker_epoch=epoch,
            cluster_id=CLUSTER,
            config=config,
            image=image,
            partitions=Partitions(1),
            fetch_sessions=FetchSessions(SESSION_SLOTS, Random(1)),
            authorizer=AllowAll(),
            allocate_producer_id=lambda: next(self.producer_ids),
            random=Random(2),
            steady_ms=STEADY_MS,
        )
        self.controller.changed = self.broker.changed
        self.broker.partitions.folders = [FOLDER]
        self._follow(image, None)
        self.broker.changed.clear()
        self._began_with = (image, self.broker.partitions, self.folder)
        self._chance = self.broker.random.getstate()

    @classmethod
    def fresh(cls) -> Node:
        """A node with the topics of `TOPICS`."""
        return cls(*prototype())

    def renewed(self) -> Node:
        """A node as `fresh` makes it: this one, with what was touched made anew, if that is less
        work."""
        broker = self.broker
        if (broker.image, broker.partitions, self.folder) != self._began_with:
            return Node.fresh()
        if broker.faults or broker.config is not self.controller.static_config:
            return Node.fresh()
        self.now_ms, broker.steady_ms = START_MS, STEADY_MS
        for replica in list(broker.partitions):
            if replica.log.end_offset or replica.log.start_offset or replica.followers:
                self._begin_anew(replica)
        self.folder.doomed.clear()
        self.clean_points.clear()
        broker.fetch_sessions = FetchSessions(SESSION_SLOTS, Random(1))
        if broker.groups.groups or broker.groups.timers.next_due_ms() is not None:
            broker.groups = GroupCoordinator(broker)
            broker.groups.follow_leadership(self.now_ms)
        broker.replication = Replication(broker)
        broker.replication.follow_states(None, STEADY_MS)
        self.controller.hints = Hints(self.controller.inter_broker_listener)
        self.controller.duties = Duties(broker.config, STEADY_MS)
        self.controller.sessions = Sessions(self.controller.config.broker_session_timeout_ms)
        self.controller.sessions.begin(broker.image, self.now_ms)
        self.producer_ids = itertools.count(FIRST_PRODUCER_ID)
        broker.random.setstate(self._chance)
        for left in (broker.changed, broker.unsynced, broker.wished, broker.wishes):
            left.clear()
        broker.mailbox.is_draining = False
        return self

    def _begin_anew(self, replica: Replica) -> None:
        place = replica.topic_partition
        state = self.broker.image.topics_by_id[replica.topic_id].partitions[place.partition]
        self.broker.partitions.drop(replica)
        self.files.remove_tree(f"{FOLDER}/{place}")
        self._host(Assignment(place, replica.topic_id, state))

    @property
    def image(self) -> MetadataImage:
        """What the controller has decided, and the broker follows."""
        return self.controller.image

    # The controller's shell.

    def commit(self, records: Any) -> None:
        """Make a decision durable and let the broker follow it."""
        if not records:
            return
        first = self.image.next_offset
        payload = encode_batch(records, base_offset=first, epoch=1, now_ms=self.now_ms)
        batch = CommittedBatch(first, first + len(records), 1, payload)
        self.batches.append(batch)
        delta = self.controller.advance(records, batch.end_offset - 1)
        self.controller.log.extend(batch)
        self.broker.changed[METADATA_KEY] = None
        self._follow(self.image, delta)

    def decide(self, body: Any, version: int | None = None) -> Any:
        """The controller's answer to a request, after what it decided was committed."""
        handler = handlers()[type(body).api_key]
        version = handler.versions[-1] if version is None else version
        request = Request(
            handler.api_key, version, 0, "fuzz", body, ANONYMOUS, LISTENER, "127.0.0.1", 1
        )
        return self.committed(handler.controller(self.controller, request, self.now_ms))  # type: ignore[misc]

    def committed(self, outcome: Any) -> Any:
        """What a proposal answers once it is durable; other outcomes as they are."""
        if not isinstance(outcome, Propose):
            return outcome
        self.commit(outcome.result.records)
        return outcome.result.response

    # The broker's shell.

    def _follow(self, image: MetadataImage, delta: MetadataDelta | None) -> None:
        broker = self.broker
        plan = broker.partitions.plan(image, delta, broker_epoch=broker.broker_epoch)
        for replica in plan.drop:
            broker.partitions.drop(replica)
            self.folder.delete_log(replica.topic_partition, unique="x", now_ms=self.now_ms)
            broker.changed[replica.topic_partition] = None
        broker.image = image
        if delta is not None and any(kind == RESOURCE_BROKER for kind, _ in delta.changed_configs):
            broker.config = self.controller.static_config.with_dynamic(
                image.config(RESOURCE_BROKER, "1"), image.config(RESOURCE_BROKER, "")
            )
        for kind, name in () if delta is None else delta.changed_configs:
            for replica in (
                broker.partitions.by_name.get(name, {}).values() if kind == RESOURCE_TOPIC else ()
            ):
                config = self._config(name)
                replica.log.config = log_config(config, broker.config)
                replica.take_config(config)
        for replica, state in plan.update:
            replica.take_state(state)
            broker.changed[replica.topic_partition] = None
        for assignment in plan.create:
            if len(self.folder.logs) < MOST_PARTITIONS:
                self._host(assignment)
        broker.changed[METADATA] = None
        if delta is not None and delta.deleted_topics:
            gone = {topic.name for topic in delta.deleted_topics}
            offsets.topics_deleted(broker.groups, gone, self.now_ms)
        broker.groups.follow_leadership(self.now_ms)

    def _config(self, topic: str) -> TopicConfig:
        image = self.broker.image
        texts = image.config(RESOURCE_TOPIC, topic)
        return _topic_config(texts, _Same(config=self.broker.config), _Same(image=image), topic)

    def _host(self, assignment: Assignment, *, is_new: bool = True) -> None:
        place, topic_id, state = assignment
        config = self._config(place.topic)
        settings = log_config(config, self.broker.config)
        if is_new:
            log = self.folder.create_log(place, topic_id, settings, now_ms=self.now_ms)
        else:
            log = self.folder.open_log(place, topic_id, settings, now_ms=self.now_ms)
        watermark = self.folder.high_watermarks.get(place, 0)
        replica = Replica(
            place, topic_id, log, config, broker_id=1, folder=FOLDER, high_watermark=watermark
        )
        replica.take_state(state)
        self.broker.partitions.host(replica)
        self.broker.changed[place] = None

    def restart(self, *, clean: bool) -> None:
        """Stop in order or die, and open the same files again. Sessions and groups are gone."""
        broker = self.broker
        hosted = [(each.topic_partition, each.topic_id) for each in broker.partitions]
        watermarks = {each.topic_partition: each.high_watermark for each in broker.partitions}
        if clean:
            self.folder.checkpoint_high_watermarks(watermarks)
            self.folder.close()
        self.folder = LogFolder(self.files, FOLDER)
        for replica in list(broker.partitions):
            broker.partitions.drop(replica)
        broker.fetch_sessions = FetchSessions(SESSION_SLOTS, Random(1))
        for place, topic_id in hosted:
            topic = broker.image.topic_by_id(topic_id)
            if topic is not None and place.partition in topic.partitions:
                state = topic.partitions[place.partition]
                self._host(Assignment(place, TopicId(topic_id), state), is_new=False)
        broker.groups.follow_leadership(self.now_ms)

    def change_partition(self, which: int, leader: int, isr: int) -> None:
        """Commit another leader and ISR for one of the hosted partitions."""
        hosted = list(self.broker.partitions)
        if not hosted:
            return
        replica = hosted[which % len(hosted)]
        record = PartitionChangeRecord(
            topic_id=replica.topic_id,
            partition_id=replica.topic_partition.partition,
            leader=(1, 1, 2, -1)[leader % 4],
            isr=([1], [1, 2], [2], [2, 1])[isr % 4],
            replicas=([1], [1, 2], None, [2, 1])[isr // 4 % 4],
        )
        self.commit((record,))

    def grant(self, wish: Wish) -> None:
        """Ask this node's controller."""
        self.decide(wish.message)
        wish.done()

    def sync_logs(self, places: Sequence[TopicPartition]) -> None:
        """One sync round of some partitions."""
        broker = self.broker
        for place in places:
            broker.unsynced.discard(place)
            replica = broker.partitions.get(*place)
            if replica is None:
                continue
            target = replica.log.sync_target()
            if target is not None and replica.synced(target[0]):
                broker.changed[place] = None

    def pass_time(self, milliseconds: int) -> None:
        """Move both clocks, and do what timers do."""
        self.now_ms += milliseconds
        self.broker.steady_ms += milliseconds
        self.broker.groups.tick(self.now_ms)
        result = self.controller.tick(self.now_ms)
        if result is not None:
            self.commit(result.records)
        for replica in list(self.broker.partitions):
            log = replica.log
            log.roll_if_due(self.now_ms)
            if log.config.deletes:
                log.apply_retention(self.now_ms, replica.high_watermark)
            log.expire_producers(self.now_ms)
        self.folder.remove_deleted(self.now_ms)
        self.folder.checkpoint()
        offsets.expire(self.broker.groups, self.now_ms)
