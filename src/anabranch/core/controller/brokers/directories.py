"""Which folder of a broker holds which replica, and what a folder that fails takes away.

What: the plans for AssignReplicasToDirs and for the offline folders that a heartbeat names. A
replica in a failed folder leaves its ISR, and another one leads; the broker keeps everything else.
So does a replica that its broker says is lost by itself, in a folder that works (LOST_DIRECTORY).
A broker of which no folder works is fenced.
Rules kept: the folders of a registration are those that work, so a replica of which the folder is
not among them never leads (`metadata/directories.py`); a replica that counts for its partition and
was lost with its folder does not come to count again because another folder holds something of that
name; who is alone in sync is not taken for lost. Source: KIP-858, Kafka's
ReplicationControlManager. Not here: how a broker chooses a folder.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from anabranch.core.controller.brokers.membership import Consequences, check_broker_epoch
from anabranch.core.controller.brokers.sessions import Sessions
from anabranch.core.controller.cluster_state import ClusterState, PartitionKey
from anabranch.core.controller.reasons import Cause, Code
from anabranch.core.controller.result import Reason, Result
from anabranch.core.diskless.topics import is_diskless
from anabranch.core.errors import ClientFault, ErrorCode
from anabranch.core.metadata.directories import LOST_DIRECTORY, emptied, knows_directories
from anabranch.core.metadata.image import BrokerImage, MetadataImage, PartitionImage
from anabranch.core.metadata.levels import level_of
from anabranch.core.settings.broker import BrokerConfig
from anabranch.core.types import TopicId, topic_id_text
from anabranch.core.wire.messages.assign_replicas_to_dirs import (
    AssignedDirectoryData,
    AssignedPartitionData,
    AssignedTopicData,
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
)
from anabranch.core.wire.metadata_records import (
    BrokerRegistrationChangeRecord,
    MetadataRecord,
    PartitionChangeRecord,
)


def go_offline(
    consequences: Consequences, broker: BrokerImage, reported: Collection[bytes]
) -> tuple[list[MetadataRecord], tuple[Reason, ...]]:
    """What follows from folders that a broker reports as failed; nothing for what is known, or when
    none works: then it is fenced (`none_works`)."""
    failed = [each for each in broker.log_dirs if each in set(reported)]
    left = [each for each in broker.log_dirs if each not in failed]
    if not failed or not left or not knows_directories(consequences.state.image):
        return [], ()
    change = BrokerRegistrationChangeRecord(
        broker_id=broker.broker_id, broker_epoch=broker.epoch, log_dirs=left
    )
    records = [change, *consequences.loses_folders(broker.broker_id, failed)]
    return records, (reported_as_failed(broker, failed),)


def none_works(image: MetadataImage, broker: BrokerImage, reported: Collection[bytes]) -> bool:
    """Whether a broker reports all its folders as failed. It has to be fenced then: a record
    cannot say that no folder is left, because an empty list means "as before" (KIP-858)."""
    return knows_directories(image) and bool(broker.log_dirs) and {*reported} >= {*broker.log_dirs}


def reported_as_failed(broker: BrokerImage, failed: Collection[bytes]) -> Reason:
    """Says which folders a broker lost."""
    names = ", ".join(map(topic_id_text, map(TopicId, failed)))
    return Reason(
        Code.FOLDER_FAILED,
        f"broker {broker.broker_id} reports failed folders: {names}",
        {"broker_id": broker.broker_id, "directories": len(failed)},
    )


def assign(
    state: ClusterState,
    sessions: Sessions,
    config: BrokerConfig,
    request: AssignReplicasToDirsRequest,
) -> Result[AssignReplicasToDirsResponse]:
    """Note where a broker's replicas lie. Raises ClientFault STALE_BROKER_EPOCH, and
    UNSUPPORTED_VERSION where records have no room for it."""
    if not knows_directories(state.image):
        raise ClientFault(
            ErrorCode.UNSUPPORTED_VERSION,
            f"metadata.version {level_of(state.image)} does not support folders.",
        )
    broker = check_broker_epoch(state.image, request.broker_id, request.broker_epoch)
    plan = _Assignment(Consequences(state, config, sessions.suspects), broker)
    answer = AssignReplicasToDirsResponse(
        directories=[
            AssignedDirectoryData(
                id=directory.id,
                topics=[
                    AssignedTopicData(
                        topic_id=topic.topic_id,
                        partitions=[
                            AssignedPartitionData(
                                partition_index=each.partition_index,
                                error_code=plan.take(
                                    (topic.topic_id, each.partition_index), bytes(directory.id)
                                ),
                            )
                            for each in topic.partitions
                        ],
                    )
                    for topic in directory.topics
                ],
            )
            for directory in request.directories
        ]
    )
    records = (*plan.records, *plan.departures())
    return Result(records, answer, tuple(plan.consequences.reasons), atomic=False)


class _Assignment:
    """One request's records, collected partition by partition."""

    def __init__(self, consequences: Consequences, broker: BrokerImage) -> None:
        self.consequences = consequences
        self.broker = broker
        self.records: list[MetadataRecord] = []
        self._offline: dict[PartitionKey, None] = {}
        self._unusable: dict[PartitionKey, None] = {}
        self._seen: set[PartitionKey] = set()

    def take(self, key: PartitionKey, directory: bytes) -> ErrorCode:
        """Plan one partition; the code that answers for it."""
        state = self.consequences.state
        topic = state.image.topic_by_id(key[0])
        if topic is None:
            return ErrorCode.UNKNOWN_TOPIC_ID
        partition = topic.partitions.get(key[1])
        if partition is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if is_diskless(state.image, topic.name):
            return ErrorCode.INVALID_REQUEST  # its records lie in no folder
        broker_id = self.broker.broker_id
        if broker_id not in partition.replicas:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        is_alone = partition.isr == (broker_id,)
        if self._counts_and_is_lost(partition) or (is_alone and directory == LOST_DIRECTORY):
            return ErrorCode.INELIGIBLE_REPLICA
        if key in self._seen or len(partition.directories) != len(partition.replicas):
            return ErrorCode.NONE
        self._seen.add(key)
        position = partition.replicas.index(broker_id)
        if partition.directories[position] != directory:
            directories = list(partition.directories)
            directories[position] = directory
            self.records.append(
                PartitionChangeRecord(partition_id=key[1], topic_id=key[0], directories=directories)
            )
        if directory == LOST_DIRECTORY:
            self._unusable[key] = None
        elif directory not in self.broker.log_dirs:
            self._offline[key] = None
        return ErrorCode.NONE

    def _counts_and_is_lost(self, partition: PartitionImage) -> bool:
        counted = (*partition.isr, *partition.elr, *partition.last_known_elr)
        if self.broker.broker_id not in counted:
            return False
        return self.broker.broker_id in emptied(self.consequences.state.image, partition)

    def departures(self) -> Iterator[MetadataRecord]:
        """Replicas that are lost, with a folder that failed before it was told or by themselves,
        leave their ISRs."""
        leaves, broker_id = self.consequences.leaves_some, self.broker.broker_id
        yield from leaves(broker_id, self._offline)
        yield from leaves(broker_id, self._unusable, Cause.LOG_UNUSABLE)
