"""A simulated operator: creates topics, deletes records, elects leaders, alters settings, looks.

What: one request an operation, to any broker, again at another one for as long as none answers.
What is done and in which order is the schedule's; the operator only carries it out. Rule kept: an
operation is repeated only when nobody answered, and all of these may be done twice. Not here: what
the answers should be (the checks look at the state).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from anabranch.core.errors import ErrorCode
from anabranch.core.types import TopicId, TopicPartition
from anabranch.core.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from anabranch.core.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from anabranch.core.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from anabranch.core.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from anabranch.core.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from anabranch.core.wire.messages.describe_cluster import DescribeClusterRequest
from anabranch.core.wire.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    TopicRequest,
)
from anabranch.core.wire.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from anabranch.core.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from anabranch.core.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from anabranch.sim.clients.client import NOBODY, Client
from anabranch.sim.history import UncleanAsked

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from anabranch.sim.plan_parts import Alteration

MOST_ATTEMPTS = 5
TOPIC_RESOURCE, BROKER_RESOURCE = 2, 4
SET = 0
PREFERRED, UNCLEAN = 0, 1

Done = Callable[[Any], None]


class Admin(Client):
    """See the module. `answered` counts operations that got any answer."""

    answered = 0

    def create_topic(
        self,
        name: str,
        *,
        partitions: int,
        replication_factor: int,
        configs: Mapping[str, str],
        done: Done | None = None,
    ) -> None:
        """Create a topic; `done` hears its result."""
        settings = [
            CreatableTopicConfig(name=key, value=value) for key, value in sorted(configs.items())
        ]
        topic = CreatableTopic(
            name=name,
            num_partitions=partitions,
            replication_factor=replication_factor,
            assignments=[],
            configs=settings,
        )
        self._do(CreateTopicsRequest(topics=[topic], timeout_ms=5_000), done)

    def elect(self, place: TopicPartition, kind: int) -> None:
        """Have the preferred leader (0), or whoever is there (1), lead a partition."""
        if kind == UNCLEAN:
            self.history.add(UncleanAsked(place, self.world.now_us))
        wanted = TopicPartitions(topic=place.topic, partitions=[place.partition])
        self._do(ElectLeadersRequest(election_type=kind, topic_partitions=[wanted]))

    def request(self, message: Any, done: Done) -> None:
        """Ask for anything; `done` hears its result."""
        self._do(message, done)

    def alter(self, topic: str, name: str, value: str) -> None:
        """Set one setting of a topic."""
        resource = AlterConfigsResource(
            resource_type=TOPIC_RESOURCE,
            resource_name=topic,
            configs=[AlterableConfig(name=name, config_operation=SET, value=value)],
        )
        self._do(IncrementalAlterConfigsRequest(resources=[resource]))

    def change(self, wanted: Alteration, done: Done) -> None:
        """Make one change of the settings of a topic or of all brokers; `done` hears its result."""
        resource = AlterConfigsResource(
            resource_type=TOPIC_RESOURCE if wanted.topic else BROKER_RESOURCE,
            resource_name=wanted.topic,
            configs=[
                AlterableConfig(
                    name=wanted.name, config_operation=wanted.operation, value=wanted.value
                )
            ],
        )
        self._do(IncrementalAlterConfigsRequest(resources=[resource]), done)

    def move(self, place: TopicPartition, replicas: Sequence[int] | None) -> None:
        """Give a partition other replicas; None takes a move back."""
        wanted = None if replicas is None else list(replicas)
        part = ReassignablePartition(partition_index=place.partition, replicas=wanted)
        topic = ReassignableTopic(name=place.topic, partitions=[part])
        self._do(AlterPartitionReassignmentsRequest(topics=[topic], timeout_ms=5_000))

    def add_partitions(self, topic: str, count: int) -> None:
        """Let a topic have that many partitions."""
        wanted = CreatePartitionsTopic(name=topic, count=count, assignments=None)
        self._do(CreatePartitionsRequest(topics=[wanted], timeout_ms=5_000))

    def delete_topic(self, topic_id: TopicId, done: Done | None = None) -> None:
        """Delete a topic; `done` hears of it."""
        state = DeleteTopicState(topic_id=topic_id)
        self._do(DeleteTopicsRequest(topics=[state], timeout_ms=5_000), done)

    def describe(self) -> None:
        """Look at the cluster and at the topics."""
        self._do(DescribeClusterRequest())
        topics = [TopicRequest(name=name) for name in self.topics]
        self._do(DescribeTopicPartitionsRequest(topics=topics))

    def delete_records(self, place: TopicPartition, share: float) -> None:
        """Delete that share of the records that can be seen now, the oldest ones."""
        self.history.deletes_asked.add(place)
        known = self.places.get(place)
        if known is None or known.leader == NOBODY:
            self.refresh(lambda: None)
            return
        part = ListOffsetsPartition(partition_index=place.partition, timestamp=-1)
        message = ListOffsetsRequest(
            replica_id=-1, topics=[ListOffsetsTopic(name=place.topic, partitions=[part])]
        )

        def told(response: Any) -> None:
            answer = response.topics[0].partitions[0] if response is not None else None
            if answer is not None and not answer.error_code and answer.offset > 0:
                self._delete_upto(known.leader, place, int(answer.offset * share))

        self.ask(known.leader, message, told)

    def _delete_upto(self, leader: int, place: TopicPartition, offset: int) -> None:
        part = DeleteRecordsPartition(partition_index=place.partition, offset=offset)
        topic = DeleteRecordsTopic(name=place.topic, partitions=[part])
        message = DeleteRecordsRequest(topics=[topic], timeout_ms=5_000)
        self.ask(leader, message, self._count, timeout_ms=6_000)

    def _count(self, response: Any) -> None:
        if response is not None:
            self.answered += 1

    def _do(self, message: Any, done: Done | None = None, attempt: int = 1) -> None:
        node_id = self.anybody()

        def told(response: Any) -> None:
            self._count(response)
            if (response is None or _is_for_another(response)) and attempt < MOST_ATTEMPTS:
                self.later(self.backoff_ms(attempt), self._do, message, done, attempt + 1)
            elif done is not None:
                done(response)

        self.ask(node_id, message, told, timeout_ms=6_000)


def _is_for_another(response: Any) -> bool:
    return getattr(response, "error_code", 0) == ErrorCode.NOT_CONTROLLER
