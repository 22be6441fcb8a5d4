"""Who writes in a rehearsal: a producer that sends each record once and writes down what it heard.

What: `Sender` learns the leaders as any client does, sends batches, and keeps for each record what
a broker said of it. `Steady` sends one at a time, at an even rate, over all partitions of a topic.
Why once: what is refused or unanswered is then a plain count of what an application would have had
to send again, and no retry hides how long writes were impossible.

Rule kept: `ok` is a broker's word. Not here: retries, idempotence, batching (`sim/clients`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from anabranch.core.errors import ErrorCode
from anabranch.core.types import NO_LEADER, ZERO_TOPIC_ID, TopicId
from anabranch.core.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from anabranch.core.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from anabranch.core.wire.records import Record, build_batch
from anabranch.sim.cluster import Cluster
from anabranch.sim.rehearsal.answers import Place, Writes
from anabranch.sim.rehearsal.model import TopicPlan
from anabranch.sim.rehearsal.units import SECOND_US

REQUEST_TIMEOUT_MS = 30_000
"""Kafka's request.timeout.ms: how long a producer waits, and has the leader wait for replicas."""

REFRESH_US = 100_000
"""Kafka's retry.backoff.ms: the pause before metadata are asked for again."""

METADATA_TIMEOUT_US = 2_000_000

UNANSWERED = "no answer"
NOBODY_LEADS = "LEADER_NOT_AVAILABLE"
"""What a client tells itself when the metadata name no leader: it does not even send."""


@dataclass(slots=True, eq=False)
class Sent:
    """Records that went in one batch. `told` is empty until something was heard or given up."""

    place: Place
    values: tuple[bytes, ...]
    acks: int
    sent_us: int
    told: str = ""
    base_offset: int = -1
    told_us: int = -1

    @property
    def is_acknowledged(self) -> bool:
        """Whether a broker promised to keep them."""
        return self.told == "NONE"


class Sender:
    """One producer. `log` holds what it sent, in order."""

    def __init__(self, cluster: Cluster, name: str, topic: str) -> None:
        self.cluster = cluster
        self.world = cluster.world
        self.name = name
        self.topic = topic
        self.topic_id: TopicId = ZERO_TOPIC_ID
        self.leaders: dict[int, int] = {}
        self.log: list[Sent] = []
        self.sends: Callable[[str, Sent], None] | None = None
        """Hears of each batch before it goes."""
        self.heard: list[Callable[[Sent], None]] = []
        """Hear of each batch when its fate is known."""
        self._asking = False
        self._turn = 0
        self._count = 0

    def send_fresh(self, partition: int, count: int, acks: int) -> None:
        """Send a batch as a producer that has just started: it asks who leads, then sends."""
        self._ask_once(len(self.cluster.nodes), lambda: self.send(partition, count, acks))

    def _ask_once(self, attempts: int, then: Callable[[], object]) -> None:
        def told(response: Any) -> None:
            self._learn(response)
            if response is None and attempts > 1:
                self._ask_once(attempts - 1, then)
            else:
                then()

        self._ask_metadata(told)

    def send(self, partition: int, count: int, acks: int, broker: int | None = None) -> Sent:
        """Send a batch to whom it takes for the leader, or to `broker`."""
        values = tuple(f"{self.name}/{self._count + index}".encode() for index in range(count))
        self._count += count
        sent = Sent((self.topic, partition), values, acks, self.world.now_us)
        self.log.append(sent)
        if self.sends is not None:
            self.sends(self.name, sent)
        leader = self.leaders.get(partition, NO_LEADER) if broker is None else broker
        if leader == NO_LEADER:
            self.refresh()
            self._end(sent, NOBODY_LEADS)
            return sent
        data = PartitionProduceData(index=partition, records=self._batch(values))
        topic = TopicProduceData(name=self.topic, topic_id=self.topic_id, partition_data=[data])
        message = ProduceRequest(acks=acks, timeout_ms=REQUEST_TIMEOUT_MS, topic_data=[topic])
        self.cluster.call(
            self.name,
            leader,
            message,
            lambda response: self._answered(sent, response),
            timeout_us=REQUEST_TIMEOUT_MS * 1_000,
        )
        return sent

    def _batch(self, values: tuple[bytes, ...]) -> bytearray:
        now_ms = self.world.now_ms
        return build_batch([Record(i, now_ms, None, value) for i, value in enumerate(values)])

    def _answered(self, sent: Sent, response: Any) -> None:
        if response is None:
            self.refresh()
            self._end(sent, UNANSWERED)
            return
        part = response.responses[0].partition_responses[0]
        code = ErrorCode(part.error_code)
        if code is ErrorCode.NONE:
            sent.base_offset = part.base_offset
        elif code is not ErrorCode.NOT_ENOUGH_REPLICAS:
            self.refresh()
        self._end(sent, code.name)

    def _end(self, sent: Sent, told: str) -> None:
        sent.told, sent.told_us = told, self.world.now_us
        for hear in self.heard:
            hear(sent)

    # Metadata.

    def refresh(self) -> None:
        """Ask one broker after the other who leads, until one knows a leader for each partition."""
        if not self._asking:
            self._asking = True
            self._ask()

    def _ask(self) -> None:
        self._ask_metadata(self._told)

    def _ask_metadata(self, told: Callable[[Any], None]) -> None:
        nodes = sorted(self.cluster.nodes)
        self._turn += 1
        message = MetadataRequest(
            topics=[MetadataRequestTopic(name=self.topic)], allow_auto_topic_creation=False
        )
        node = nodes[self._turn % len(nodes)]
        self.cluster.call(self.name, node, message, told, timeout_us=METADATA_TIMEOUT_US)

    def _learn(self, response: Any) -> bool:
        """Take what an answer says; False when it does not name a leader for each partition."""
        topic = response.topics[0] if response is not None and response.topics else None
        if topic is None or topic.error_code:
            return False
        self.topic_id = topic.topic_id
        for part in topic.partitions:
            self.leaders[part.partition_index] = part.leader_id
        return NO_LEADER not in self.leaders.values()

    def _told(self, response: Any) -> None:
        if self._learn(response):
            self._asking = False
        else:
            self.world.after(REFRESH_US, self._ask)


class Steady(Sender):
    """Writes to a topic at an even rate until it is stopped."""

    def __init__(self, cluster: Cluster, plan: TopicPlan) -> None:
        super().__init__(cluster, f"producer-{plan.name}", plan.name)
        self.plan = plan
        self._next = 0
        self._stopped = False

    def start(self) -> None:
        """Send the first record now."""
        if self.plan.rate_per_second > 0:
            self._go_on()

    def stop(self) -> None:
        """Send nothing more."""
        self._stopped = True

    def _go_on(self) -> None:
        if self._stopped:
            return
        self.send(self._next % len(self.plan.replicas), 1, self.plan.acks)
        self._next += 1
        self.world.after(round(SECOND_US / self.plan.rate_per_second), self._go_on)


def fared(sender: Sender, acks: int, from_us: int, to_us: int) -> Writes:
    """How a producer fared between two moments."""
    writes, times = Writes(sender.topic, acks), list[int]()
    last_us = from_us
    for sent in sorted(sender.log, key=lambda each: (each.told_us < 0, each.told_us)):
        count = len(sent.values)
        writes.sent += count
        if sent.is_acknowledged:
            writes.acknowledged += count
            times.append(sent.told_us - sent.sent_us)
            writes.longest_gap_us = max(writes.longest_gap_us, sent.told_us - last_us)
            last_us = sent.told_us
        elif sent.acks == 0 or not sent.told or sent.told == UNANSWERED:
            writes.unanswered += count
        else:
            writes.refused[sent.told] = writes.refused.get(sent.told, 0) + count
    if writes.sent:
        writes.longest_gap_us = max(writes.longest_gap_us, to_us - last_us)
        writes.median_us = sorted(times)[len(times) // 2] if times else 0
    return writes
