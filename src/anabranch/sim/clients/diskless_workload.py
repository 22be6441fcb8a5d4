"""All clients of a schedule's diskless topics, made from its plan.

What: producers, readers, an operator who makes, deletes and shortens topics and looks where they
end, and at the end an auditor. They have a history of their own. Rule kept: as in `workload.py`.
Not here: what they do (`diskless.py`), judgement (`checks/diskless_clients.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from anabranch.core.diskless.commit import ProducerKey
from anabranch.core.diskless.rows import NO_PRODUCER, LogKey
from anabranch.core.types import EARLIEST, LATEST
from anabranch.core.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from anabranch.sim.clients.client import Patience
from anabranch.sim.clients.diskless import DisklessAdmin, DisklessProducer, DisklessReader
from anabranch.sim.clients.fetcher import ReadOptions
from anabranch.sim.clients.topics import PlannedTopics
from anabranch.sim.diskless_plan import LOOK, REST
from anabranch.sim.diskless_upkeep import PACE

if TYPE_CHECKING:
    from anabranch.core.types import TopicPartition
    from anabranch.sim.checks.diskless_clients import DisklessClientChecks
    from anabranch.sim.cluster import Cluster
    from anabranch.sim.plan_parts import ClientPlan, DisklessPlan, Operation

OPERATOR, AUDITOR = "diskless-operator", "diskless-auditor"


class DisklessWorkload:
    """See the module."""

    def __init__(self, cluster: Cluster, plan: DisklessPlan, checks: DisklessClientChecks) -> None:
        self.cluster = cluster
        self.world = cluster.world
        self.plan = plan
        self.checks = checks
        self.history = checks.history
        self.names = tuple(topic.name for topic in plan.topics)
        self.producers: dict[str, DisklessProducer] = {}
        self.readers: dict[str, DisklessReader] = {}
        self.operator = DisklessAdmin(cluster, OPERATOR, self.history, self.names, Patience())
        self.operations = 0
        self.topics = PlannedTopics(self.operator, plan.topics)

    def start(self) -> None:
        """Plan the beginnings of all clients and all operations."""
        self.operator.refresh(_nothing)
        for client in self.plan.clients:
            self.world.at(client.begins_us, self._begin, client)
        for operation in self.plan.operations:
            self.world.at(operation.at_us, self._operate, operation)

    def _begin(self, plan: ClientPlan) -> None:
        asked = (self.cluster, plan.name, self.history, self.names, plan.patience)
        if plan.manner is not None:
            producer = DisklessProducer(*asked, plan.manner, compacted=self.plan.compacted)
            producer.on_send = self.checks.sent
            self.producers[plan.name] = producer
            producer.refresh(_nothing)
        elif plan.reading is not None:
            self._read(DisklessReader(*asked), plan.reading)

    def _read(self, reader: DisklessReader, reading: ReadOptions) -> None:
        self.readers[reader.name] = reader
        reader.begin(reading, self.plan.places, self.checks.thrown)

    # Operations.

    def _operate(self, operation: Operation) -> None:
        self.operations += 1
        place, number = operation.place, operation.number
        if operation.kind == "send":
            self.producers[operation.client].send(place, number)
            return
        self.world.note("operate", OPERATOR, f"{operation.kind} {place}", number=number)
        if operation.kind == LOOK:
            self._look(place)
        elif operation.kind == REST:
            self._rest(operation.client, place)
        elif operation.kind == "delete":
            self.operator.delete_records(place, number / 100)
        else:
            self.topics.make_again(place.topic, number)

    def _look(self, place: TopicPartition) -> None:
        """Where it ends, asked of any broker: what was acknowledged before lies before that."""
        operator = self.operator
        least = self.checks.acknowledged_end(place)
        part = ListOffsetsPartition(partition_index=place.partition, timestamp=LATEST)
        topic = ListOffsetsTopic(name=place.topic, partitions=[part])

        def told(response: Any) -> None:
            answer = response.topics[0].partitions[0] if response is not None else None
            if answer is not None and not answer.error_code:
                self.checks.looked(place, least, answer.offset)

        message = ListOffsetsRequest(replica_id=-1, topics=[topic])
        operator.ask(operator.anybody(), message, told)

    def _rest(self, name: str, place: TopicPartition) -> None:
        """It is as if a producer had been idle so long that the coordinator forgets it."""
        producer, remotes = self.producers.get(name), self.cluster.remotes
        producer_id = NO_PRODUCER
        if producer is not None and not self.checks.doubles:
            producer_id = producer.rest(place)
        if producer is not None and remotes is not None and producer_id != NO_PRODUCER:
            key = LogKey(producer.topic_id(place.topic), place.partition)
            tables = remotes.coordinator.tables
            tables.set_back(ProducerKey(key, producer_id), PACE.idle_producer_ms)

    # The end.

    @property
    def is_idle(self) -> bool:
        """Whether every producer knows what became of its records."""
        return all(producer.is_idle for producer in self.producers.values())

    def audit(self) -> None:
        """Read everything from the beginning, as a reader who comes after it all."""
        auditor = DisklessReader(self.cluster, AUDITOR, self.history, self.names, Patience())
        self._read(auditor, ReadOptions(max_wait_ms=200, pause_ms=10, start=EARLIEST))

    def behind(self, place: TopicPartition, end_offset: int) -> str:
        """A reader that has not read a partition to its end, "" when there is none."""
        for name, reader in self.readers.items():
            if reader.fetcher.positions[place].offset < end_offset:
                return f"{name} is at {reader.fetcher.positions[place].offset} of {place}"
        return ""


def _nothing() -> None:
    return None
