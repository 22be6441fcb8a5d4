"""A broker without a socket or a disk: real handlers, replicas and logs over files in memory.

`InMemoryNode` is built with topics, answers messages as if they had come over the wire (each is
encoded and decoded in its version), and lets a test move its clock, its metadata and its disk.
"""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Iterable, Mapping, Sequence
from random import Random
from typing import Any

from immutables import Map

from anabranch.core.access.authorize import AllowAll, Authorizer, Operation, ResourceType
from anabranch.core.access.principal import ANONYMOUS
from anabranch.core.api.context import Broker
from anabranch.core.api.fetch_sessions import FetchSessions
from anabranch.core.api.registry import handlers
from anabranch.core.log.logs import LogFolder
from anabranch.core.log.memory_files import MemoryFiles
from anabranch.core.metadata.features import BOOTSTRAP_LEVELS
from anabranch.core.metadata.image import (
    RESOURCE_TOPIC,
    BrokerImage,
    Endpoint,
    MetadataImage,
    PartitionImage,
    TopicImage,
)
from anabranch.core.outcome import Wait
from anabranch.core.replication.partitions import Partitions
from anabranch.core.replication.replica import Replica
from anabranch.core.request import Request
from anabranch.core.settings.broker import BrokerConfig
from anabranch.core.settings.topic import effective_topic_config, log_config
from anabranch.core.step import Performer, drain
from anabranch.core.types import TopicId, TopicPartition
from anabranch.core.wire.codec import decode, encode
from anabranch.core.wire.records import Record, build_batch

FOLDER = "/logs"
LISTENER = "PLAINTEXT"
START_MS = 1_700_000_000_000


class Denying(AllowAll):
    """Denies what it is given as (operation, resource, name); None stands for any name."""

    allows_all = False

    def __init__(self, *denied: tuple[Operation, ResourceType, str | None]) -> None:
        self.denied = denied
        self.asked: list[tuple[Operation, ResourceType, str]] = []

    def authorize(
        self, _request: Request, operation: Operation, resource: ResourceType, name: str
    ) -> bool:
        self.asked.append((operation, resource, name))
        return not any(
            (operation, resource) == known[:2] and known[2] in (None, name) for known in self.denied
        )

    def authorize_by_type(
        self, _request: Request, operation: Operation, resource: ResourceType
    ) -> bool:
        return (operation, resource, None) not in self.denied


class InMemoryNode(Performer):
    """One broker with id 1 in a cluster in memory; `brokers` are all that are registered."""

    def __init__(
        self,
        *,
        config: Mapping[str, str] | None = None,
        brokers: Sequence[int] = (1,),
        authorizer: Authorizer | None = None,
        session_slots: int = 1000,
    ) -> None:
        self.frame = bytearray()
        self.now_ms = START_MS
        self.files = MemoryFiles()
        self.folder = LogFolder(self.files, FOLDER)
        self.producer_ids: Iterable[int] = itertools.count(1000)
        registered = {each: broker_image(each) for each in brokers}
        self.broker = Broker(
            broker_id=1,
            broker_epoch=7,
            cluster_id="in-memory-cluster-id",
            config=BrokerConfig.of(config or {}),
            image=MetadataImage(brokers=Map(registered), features=Map(BOOTSTRAP_LEVELS)),
            partitions=Partitions(1),
            fetch_sessions=FetchSessions(session_slots, Random(1)),
            authorizer=authorizer or AllowAll(),
            allocate_producer_id=lambda: next(iter(self.producer_ids), None),
            random=Random(2),
        )
        self.broker.partitions.folders = [FOLDER]

    def topic(
        self,
        name: str = "t",
        partitions: int = 1,
        *,
        replicas: Sequence[int] = (1,),
        isr: Sequence[int] | None = None,
        leader: int = 1,
        configs: Mapping[str, str] | None = None,
        incarnation: int = 1,
    ) -> TopicId:
        """Create a topic and open what of it belongs here; `incarnation` counts those of a name."""
        topic_id = TopicId(name.encode().ljust(16, bytes([incarnation]))[:16])
        state = PartitionImage(
            replicas=tuple(replicas),
            isr=tuple(replicas if isr is None else isr),
            leader=leader,
            leader_epoch=0,
            partition_epoch=0,
        )
        topic = TopicImage(name, topic_id, Map(dict.fromkeys(range(partitions), state)))
        image = self.broker.image
        self.broker.image = MetadataImage(
            topics_by_id=image.topics_by_id.set(topic_id, topic),
            topic_ids_by_name=image.topic_ids_by_name.set(name, topic_id),
            brokers=image.brokers,
            features=image.features,
            configs=image.configs.set((RESOURCE_TOPIC, name), Map(configs or {})),
        )
        self.follow()
        return topic_id

    def change(self, name: str, index: int = 0, **changes: Any) -> None:
        """Change a partition's metadata: isr, leader, leader_epoch, partition_epoch …"""
        image = self.broker.image
        topic = image.topic(name)
        state = topic.partitions[index]
        fields = {field: getattr(state, field) for field in state.__struct_fields__}
        fields["partition_epoch"] += 1
        changed = PartitionImage(**{**fields, **changes})
        topic = TopicImage(name, topic.topic_id, topic.partitions.set(index, changed))
        self.broker.image = MetadataImage(
            topics_by_id=image.topics_by_id.set(topic.topic_id, topic),
            topic_ids_by_name=image.topic_ids_by_name,
            brokers=image.brokers,
            features=image.features,
            configs=image.configs,
        )
        self.follow()

    def remove(self, name: str) -> None:
        """Delete a topic."""
        image = self.broker.image
        self.broker.image = MetadataImage(
            topics_by_id=image.topics_by_id.delete(image.topic_ids_by_name[name]),
            topic_ids_by_name=image.topic_ids_by_name.delete(name),
            brokers=image.brokers,
            features=image.features,
            configs=image.configs,
        )
        self.follow()

    def follow(self) -> None:
        """What the server's shell does with a new image."""
        broker = self.broker
        plan = broker.partitions.plan(broker.image, None, broker_epoch=broker.broker_epoch)
        for replica in plan.drop:
            broker.partitions.drop(replica)
            self.folder.delete_log(replica.topic_partition, unique="x", now_ms=self.now_ms)
            broker.changed[replica.topic_partition] = None
        for replica, state in plan.update:
            replica.take_state(state)
            broker.changed[replica.topic_partition] = None
        for place, topic_id, state in plan.create:
            config = effective_topic_config(broker.image, place.topic, broker.config)
            log = self.folder.create_log(
                place, topic_id, log_config(config, broker.config), now_ms=self.now_ms
            )
            replica = Replica(place, topic_id, log, config, broker_id=1, folder=FOLDER)
            replica.take_state(state)
            broker.partitions.host(replica)

    def replica(self, name: str = "t", index: int = 0) -> Replica:
        """A hosted replica."""
        found = self.broker.partitions.get(name, index)
        assert found is not None
        return found

    def send(self, message: Any, version: int, *, client_id: str = "tests") -> Any:
        """The outcome of a request, as its handler gives it; `frame` is what it came in."""
        frame = self.frame = bytearray(b"".join(encode(message, version)))
        api_key = type(message).api_key
        body = decode(type(message), memoryview(frame), version)
        request = Request(api_key, version, 0, client_id, body, ANONYMOUS, LISTENER, "127.0.0.1", 1)
        run = handlers()[api_key].broker
        assert run is not None
        outcome = run(self.broker, request, self.now_ms)
        if hasattr(type(outcome), "api_key"):
            encode(outcome, version)
        return outcome

    def poll(self, wait: Wait, *, after_ms: int = 0, expired: bool = False) -> Any:
        """What a parked request answers now."""
        self.now_ms += after_ms
        drain(self.broker.mailbox, self)
        return wait.poll(self.now_ms, expired)

    def wake_waiting(self, keys: Iterable[Hashable]) -> None:
        """See Performer: a test polls what it has parked itself."""

    def sync_logs(self) -> None:
        """See Performer: nothing is lost from this memory."""
        self.broker.unsynced.clear()

    def expire(self, wait: Wait) -> Any:
        """What a parked request answers when its time is up."""
        self.now_ms = wait.deadline_ms
        return wait.poll(self.now_ms, True)

    def sync(self, name: str = "t", index: int = 0) -> bool:
        """One sync round of a partition; whether waiters care."""
        replica = self.replica(name, index)
        target = replica.log.sync_target()
        self.broker.unsynced.discard(TopicPartition(name, index))
        return target is not None and replica.synced(target[0])


def take_offline(partitions: Partitions, replica: Replica, *, is_rotten: bool = False) -> None:
    """Hide a replica whose folder failed, or its log, as hosting does."""
    partitions.drop(replica)
    partitions.give_up(replica.topic_partition, replica.topic_id, is_rotten=is_rotten)


def broker_image(broker_id: int, *, fenced: bool = False, rack: str | None = None) -> BrokerImage:
    """A registered broker at port 9092 + id."""
    return BrokerImage(
        broker_id=broker_id,
        epoch=7,
        incarnation_id=bytes([broker_id]) * 16,
        endpoints=Map({LISTENER: Endpoint("127.0.0.1", 9092 + broker_id)}),
        rack=rack,
        fenced=fenced,
    )


def batch(
    count: int = 1, *, size: int | None = 10, timestamp: int = START_MS, **how: Any
) -> bytearray:
    """A batch of `count` records with values of `size` bytes (None: tombstones), a millisecond
    apart."""
    value = None if size is None else bytes(size)
    records = [Record(index, timestamp + index, b"k%d" % index, value) for index in range(count)]
    return build_batch(records, **how)
