"""Who observes a partition: replicas that copy and serve reads and are counted nowhere.

What: the plan that sets a partition's observers. Rule kept: an observer is registered, is not among
the partition's replicas, and so is never in the ISR, never eligible, never leads (elections look at
`replicas` alone), and is not part of the replication factor. Source: decision 0013. Not here:
which broker should observe (placement), how an observer copies (`core/replication`).
"""

from __future__ import annotations

from collections.abc import Sequence

from anabranch.core.controller.cluster_state import ClusterState
from anabranch.core.controller.reasons import Code
from anabranch.core.controller.result import Reason, Result
from anabranch.core.errors import ClientFault, ErrorCode
from anabranch.core.metadata.features import check_own_record
from anabranch.core.metadata.image import MetadataImage, PartitionImage
from anabranch.core.wire.metadata_records import ReplicaRolesRecord


def set_observers(
    state: ClusterState, topic_name: str, index: int, observers: Sequence[int]
) -> Result[None]:
    """Make these brokers, in this order, the partition's only observers.

    Raises ClientFault UNSUPPORTED_VERSION, UNKNOWN_TOPIC_OR_PARTITION, INVALID_REPLICA_ASSIGNMENT.
    """
    image = state.image
    check_own_record(image, ReplicaRolesRecord)
    topic = image.topic(topic_name)
    partition = None if topic is None else topic.partitions.get(index)
    if topic is None or partition is None:
        raise ClientFault(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such partition as {topic_name}-{index}"
        )
    _check(image, partition, observers)
    if partition.observers == tuple(observers):
        return Result((), None)
    record = ReplicaRolesRecord(
        partition_id=index, topic_id=topic.topic_id, observers=list(observers)
    )
    said = ", ".join(map(str, observers)) or "none"
    reason = Reason(
        Code.OBSERVERS_SET,
        f"{topic_name}-{index} is observed by {said}",
        {"partition": f"{topic_name}-{index}", "observers": list(observers)},
    )
    return Result((record,), None, (reason,))


def _check(image: MetadataImage, partition: PartitionImage, observers: Sequence[int]) -> None:
    for position, broker_id in enumerate(observers):
        if broker_id not in image.brokers:
            why = "is not registered"
        elif broker_id in partition.replicas:
            why = "is a regular replica"
        elif broker_id in observers[:position]:
            why = "is named twice"
        else:
            continue
        raise ClientFault(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"Broker {broker_id} cannot observe the partition: it {why}.",
        )
