"""Brokers that replicate over a pipe in memory: real handlers and logs, a controller of few lines.

`Peers` joins some brokers that host topic `t`. Nothing moves by itself: a test publishes metadata
to whom it likes, and delivers, loses or delays each message (`mail`). `settle` delivers everything
until nothing is new.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from random import Random
from typing import Any

from immutables import Map
from tests.core.api.in_memory_node import batch, broker_image

from anabranch.core.access.authorize import AllowAll
from anabranch.core.access.principal import ANONYMOUS
from anabranch.core.api.acks import Awaited
from anabranch.core.api.context import Broker
from anabranch.core.api.fetch_sessions import FetchSessions
from anabranch.core.api.registry import handlers
from anabranch.core.due import REPLICATION
from anabranch.core.errors import ErrorCode
from anabranch.core.log.checkpoints import LOG_STARTS
from anabranch.core.log.logs import LogFolder
from anabranch.core.log.memory_files import MemoryFiles
from anabranch.core.metadata.image import (
    RESOURCE_TOPIC,
    MetadataImage,
    PartitionImage,
    TopicImage,
)
from anabranch.core.outcome import Wait
from anabranch.core.replication.effects import SendAlterPartition, SendFetch
from anabranch.core.replication.partitions import Partitions
from anabranch.core.replication.replica import Replica
from anabranch.core.request import Request
from anabranch.core.settings.broker import BrokerConfig
from anabranch.core.settings.topic import effective_topic_config, log_config
from anabranch.core.step import Performer, drain
from anabranch.core.types import TopicId, TopicPartition
from anabranch.core.wire.codec import decode, encode
from anabranch.core.wire.messages.alter_partition import (
    AlterPartitionResponse,
    AlterPartitionResponsePartitionData,
    AlterPartitionResponseTopicData,
)
from anabranch.core.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)

FOLDER = "/logs"
TOPIC_ID = TopicId(b"t" * 16)
PLACE = TopicPartition("t", 0)
START_MS = 1_700_000_000_000
IMMEDIATE = {"replica.fetch.wait.max.ms": "0"}


class Peer(Performer):
    """One broker."""

    def __init__(self, peers: Peers, broker_id: int) -> None:
        self.peers, self.broker_id = peers, broker_id
        self.files = MemoryFiles()
        self.waits: list[tuple[Wait, list[Any]]] = []
        self.begin()

    def begin(self) -> None:
        """A process begins on what the disk holds."""
        self.unsynced: set[TopicPartition] = set()
        self.faults: list[Any] = []
        self.folder = LogFolder(self.files, FOLDER)
        image = self.peers.brokers[self.broker_id]
        self.broker = Broker(
            broker_id=self.broker_id,
            broker_epoch=image.epoch,
            cluster_id="peers",
            config=BrokerConfig.of(self.peers.config),
            image=MetadataImage(),
            partitions=Partitions(self.broker_id),
            fetch_sessions=FetchSessions(100, Random(self.broker_id)),
            authorizer=AllowAll(),
            allocate_producer_id=lambda: None,
            random=Random(self.broker_id),
        )
        self.broker.mailbox.due.performs(REPLICATION, self.perform)
        self.clock()

    def clock(self) -> None:
        """What the shell does at the begin of each step."""
        self.broker.steady_ms = self.peers.now_ms
        self.broker.wall_ms = START_MS + self.peers.now_ms

    def publish(self, image: MetadataImage) -> None:
        """What the shell does with a new image."""
        self.clock()
        broker, touched = self.broker, []
        broker.image = image
        plan = broker.partitions.plan(image, None, broker_epoch=broker.broker_epoch)
        for replica in plan.drop:
            broker.partitions.drop(replica)
            touched.append(replica.topic_partition)
        for replica, state in plan.update:
            replica.take_state(state)
            touched.append(replica.topic_partition)
        for place, topic_id, state in plan.create:
            config = effective_topic_config(image, place.topic, broker.config)
            is_here = self.files.exists(f"{FOLDER}/{place}")
            make = self.folder.open_log if is_here else self.folder.create_log
            now_ms = broker.wall_ms
            log = make(place, topic_id, log_config(config, broker.config), now_ms=now_ms)
            replica = Replica(
                place,
                topic_id,
                log,
                config,
                broker_id=self.broker_id,
                folder=FOLDER,
                high_watermark=self.folder.high_watermarks.get(place, 0),
            )
            replica.take_state(state)
            broker.partitions.host(replica)
            touched.append(place)
        broker.changed.update(dict.fromkeys(touched))
        broker.replication.follow_states(touched, broker.steady_ms)
        self.finish()

    def finish(self) -> None:
        """What the shell does at the end of each step."""
        self.broker.unsynced |= self.unsynced
        self.unsynced = set()
        drain(self.broker.mailbox, self)
        self.broker.unsynced |= self.unsynced

    def sync_logs(self) -> None:
        """One round at once, or none while the disk is stuck."""
        broker = self.broker
        while broker.unsynced:
            place = broker.unsynced.pop()
            replica = broker.partitions.get(*place)
            if not self.peers.syncs:
                self.unsynced.add(place)
            elif replica is not None:
                target = replica.log.sync_target()
                if target is not None and replica.synced(target[0]):
                    broker.changed[place] = None
                broker.replication.log_synced()

    def take_faults(self) -> None:
        """A test looks at them."""
        self.faults += self.broker.faults
        self.broker.faults.clear()

    def perform(self) -> None:
        """Give requests to the mail."""
        for effect in self.broker.replication.take_effects():
            self.peers.mail.append((self, self.broker, effect))

    def wake_waiting(self, keys: Iterable[Hashable]) -> None:
        """Poll who waits for what changed."""
        changed = set(keys)
        for wait, box in self.waits:
            if not box and (not changed.isdisjoint(wait.keys) or is_acknowledged(wait)):
                answer = wait.poll(self.broker.wall_ms, False)
                if answer is not None:
                    box.append(answer)
        self.waits = [(wait, box) for wait, box in self.waits if not box]

    def ask(self, message: Any, version: int) -> Any:
        """A request through its handler and over the wire's bytes; a parked one is a list."""
        self.clock()
        body = decode(
            type(message), memoryview(bytearray(b"".join(encode(message, version)))), version
        )
        api_key = type(message).api_key
        request = Request(api_key, version, 0, "peer", body, ANONYMOUS, "PLAINTEXT", "::1", 1)
        outcome = handlers()[api_key].broker(self.broker, request, self.broker.wall_ms)
        if not isinstance(outcome, Wait):
            return outcome
        box: list[Any] = []
        self.waits.append((outcome, box))
        return box

    def produce(self, count: int = 1, *, acks: int = -1, index: int = 0, **how: Any) -> Any:
        """Send a batch: its partition's answer, or the box that it will come into."""
        data = PartitionProduceData(index=index, records=batch(count, **how))
        request = ProduceRequest(
            acks=acks,
            timeout_ms=30_000,
            topic_data=[TopicProduceData(name="t", partition_data=[data])],
        )
        answer = self.ask(request, 11)
        self.finish()
        return answer if isinstance(answer, list) else outcome_of(answer)

    @property
    def replica(self) -> Replica:
        """The replica of partition 0."""
        found = self.broker.partitions.get(self.peers.topic, 0)
        assert found is not None
        return found

    @property
    def end(self) -> int:
        """Its log's end."""
        return self.replica.log.end_offset

    @property
    def high_watermark(self) -> int:
        """Its high watermark."""
        return self.replica.high_watermark

    def bytes_upto(self, offset: int) -> bytes:
        """Its log from its start, byte by byte."""
        log, read = self.replica.log, b""
        at = log.start_offset
        while at < offset:
            part = bytes(log.read(at, max_bytes=1 << 20, upto=offset, at_least_one=True))
            if not part:
                break
            read += part
            at = at + max(1, _offsets_in(part))
        return read


def _offsets_in(records: bytes) -> int:
    from anabranch.core.wire.batch import walk

    first = last = None
    for _, header in walk(memoryview(records)):
        first = header.base_offset if first is None else first
        last = header.next_offset
    return 0 if first is None else last - first


def is_acknowledged(wait: Wait) -> bool:
    """Whether a produce request waits for nothing any more: it was woken while a test held it."""
    return any(isinstance(key, Awaited) and not key.left for key in wait.keys)


def outcome_of(response: Any) -> Any:
    """The partition's answer in a response for one partition."""
    return response.responses[0].partition_responses[0]


class Peers:
    """Some brokers, the mail between them, and the metadata."""

    def __init__(
        self,
        count: int = 3,
        *,
        config: dict[str, str] | None = None,
        topic_config: dict[str, str] | None = None,
        observers: Sequence[int] = (),
        partitions: int = 1,
        publish: bool = True,
        topic: str = "t",
    ) -> None:
        self.now_ms = 1_000
        self.topic = topic
        self.syncs = True
        self.config = IMMEDIATE | (config or {})
        self.topic_config = topic_config or {}
        ids = range(1, count + 1)
        self.brokers = {each: broker_image(each) for each in ids}
        replicas = tuple(each for each in ids if each not in observers)
        state = PartitionImage(
            replicas=replicas,
            isr=replicas,
            leader=replicas[0],
            leader_epoch=0,
            partition_epoch=0,
            observers=tuple(observers),
        )
        self.states = dict.fromkeys(range(partitions), state)
        self.mail: list[tuple[Peer, Broker, Any]] = []
        self.refusals: list[ErrorCode] = []
        self.peers = {each: Peer(self, each) for each in ids}
        if publish:
            self.publish()

    def __getitem__(self, broker_id: int) -> Peer:
        return self.peers[broker_id]

    # The controller.

    @property
    def state(self) -> PartitionImage:
        """Partition 0 as committed."""
        return self.states[0]

    @property
    def image(self) -> MetadataImage:
        topic = TopicImage(self.topic, TOPIC_ID, Map(self.states))
        return MetadataImage(
            topics_by_id=Map({TOPIC_ID: topic}),
            topic_ids_by_name=Map({self.topic: TOPIC_ID}),
            brokers=Map(self.brokers),
            configs=Map({(RESOURCE_TOPIC, self.topic): Map(self.topic_config)}),
        )

    def publish(self, *ids: int) -> None:
        """Give the committed metadata to these brokers, or to all."""
        for each in ids or tuple(self.peers):
            self.peers[each].publish(self.image)

    def change(self, index: int = 0, **changes: Any) -> None:
        """Commit a change; a new leader begins a new leader epoch."""
        old = self.states[index]
        fields = {name: getattr(old, name) for name in old.__struct_fields__}
        fields["partition_epoch"] += 1
        if "leader" in changes:
            fields["leader_epoch"] += 1
        self.states[index] = PartitionImage(**{**fields, **changes})

    def elect(self, leader: int, *, isr: Sequence[int] | None = None, **changes: Any) -> None:
        """Commit a new leader, by default with the ISR as it is, and publish it to all."""
        isr = self.state.isr if isr is None else tuple(isr)
        self.change(leader=leader, isr=isr, **changes)
        self.publish()

    def alter(self, request: Any) -> AlterPartitionResponse:
        """AlterPartition as the controller decides it, in short; `refusals` go first."""
        response = AlterPartitionResponse(topics=[])
        for topic in request.topics:
            answers = [self._alter_one(request.broker_id, each) for each in topic.partitions]
            response.topics.append(
                AlterPartitionResponseTopicData(topic_id=topic.topic_id, partitions=answers)
            )
        return response

    def _alter_one(self, broker_id: int, asked: Any) -> AlterPartitionResponsePartitionData:
        index = asked.partition_index
        state, code = self.states[index], ErrorCode.NONE
        members = [each.broker_id for each in asked.new_isr_with_epochs]
        if self.refusals:
            code = self.refusals.pop(0)
        elif asked.leader_epoch != state.leader_epoch:
            code = ErrorCode.FENCED_LEADER_EPOCH
        elif asked.partition_epoch != state.partition_epoch:
            code = ErrorCode.INVALID_UPDATE_VERSION
        elif broker_id not in members or not set(members) <= set(state.replicas):
            code = ErrorCode.INVALID_REQUEST
        elif any(
            not self.brokers[each.broker_id].active
            or each.broker_epoch not in (-1, self.brokers[each.broker_id].epoch)
            for each in asked.new_isr_with_epochs
        ):
            code = ErrorCode.INELIGIBLE_REPLICA
        if code != ErrorCode.NONE:
            return AlterPartitionResponsePartitionData(partition_index=index, error_code=code)
        is_recovered = asked.leader_recovery_state == state.recovery_state
        if set(members) != set(state.isr) or not is_recovered:
            self.change(index, isr=tuple(members), recovery_state=asked.leader_recovery_state)
            state = self.states[index]
        return AlterPartitionResponsePartitionData(
            partition_index=index,
            leader_id=state.leader,
            leader_epoch=state.leader_epoch,
            isr=members,
            leader_recovery_state=state.recovery_state,
            partition_epoch=state.partition_epoch,
        )

    # The mail.

    def deliver(self, at: int = 0, *, lose: bool = False, lose_answer: bool = False) -> None:
        """Deliver one message and its answer, or lose either."""
        sender, broker, effect = self.mail.pop(at)
        answer = None
        if not lose:
            answer = self._answer(effect)
        if sender.broker is not broker:
            return  # the process that asked has ended
        sender.clock()
        replication, now_ms = broker.replication, self.now_ms
        if isinstance(effect, SendFetch):
            if answer is None or lose_answer:
                replication.fetch_failed(effect, now_ms)
            else:
                replication.fetched(effect, answer, now_ms)
        elif answer is None or lose_answer:
            replication.alter_failed(effect, now_ms)
        else:
            replication.altered(effect, answer, now_ms)
        sender.finish()

    def _answer(self, effect: Any) -> Any:
        if isinstance(effect, SendAlterPartition):
            return self.alter(effect.request)
        target = self.peers[effect.leader_id]
        answer = target.ask(effect.request, effect.version)
        target.finish()
        encoded = b"".join(bytes(part) for part in encode(answer, effect.version))
        return decode(type(answer), memoryview(bytearray(encoded)), effect.version)

    def lose_all(self) -> None:
        """Lose every message that is under way."""
        for _ in range(len(self.mail)):
            self.deliver(lose=True)

    def run(self, rounds: int = 30) -> None:
        """Deliver everything that is there, some times over."""
        for _ in range(rounds):
            for _ in range(len(self.mail)):
                self.deliver()

    def wait(self, milliseconds: int) -> None:
        """Let time pass: every broker ticks once."""
        self.now_ms += milliseconds
        for peer in self.peers.values():
            peer.clock()
            peer.broker.replication.tick(self.now_ms)
            peer.finish()

    def settle(self) -> None:
        """Until everybody has everything: messages, retries, the controller's news."""
        for _ in range(4):
            self.run(8)
            self.publish()
            self.wait(int(self.config.get("replica.fetch.backoff.ms", 1000)))
        self.run(4)

    def restart(
        self, broker_id: int, *, lose_from: int | None = None, watermark: int | None = None
    ) -> None:
        """End a process and begin it anew; its log may have lost its end (power was lost), and its
        high watermarks be those of some seconds ago, `watermark`."""
        peer = self.peers[broker_id]
        if lose_from is not None:
            peer.replica.log.truncate_to(lose_from)
        watermarks = {
            each.topic_partition: each.high_watermark if watermark is None else watermark
            for each in peer.broker.partitions
        }
        peer.folder.checkpoint()
        peer.folder.checkpoint_high_watermarks(watermarks)
        old = self.brokers[broker_id]
        fields = {name: getattr(old, name) for name in old.__struct_fields__}
        self.brokers[broker_id] = type(old)(**{**fields, "epoch": old.epoch + 1})
        peer.waits.clear()
        peer.begin()

    def crash(self, broker_id: int) -> None:
        """The same, and the next process has forgotten where logs began: a minute may pass before
        that is on disk."""
        self.restart(broker_id)
        self.peers[broker_id].files.remove(f"{FOLDER}/{LOG_STARTS}")
        self.peers[broker_id].begin()
