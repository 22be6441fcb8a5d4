"""OffsetForLeaderEpoch: where a leader epoch ended, so that a reader finds where histories part.

KIP: KIP-101, KIP-279, KIP-320.
Versions: 2-4.
Behaviour: the largest epoch up to the one asked for and the offset at which it ended; the log's end
    for the current epoch; -1 and -1 for an epoch that is not known. Only the leader answers, and
    the client's current leader epoch is compared first. Followers need CLUSTER_ACTION, others
    DESCRIBE.
Skipped: nothing
"""

from __future__ import annotations

from anabranch.core.access.authorize import Operation, cluster_allowed, topic_allowed
from anabranch.core.api.context import Broker
from anabranch.core.api.handler import Handler
from anabranch.core.errors import ApiError, ErrorCode
from anabranch.core.partition import Partition
from anabranch.core.request import Request
from anabranch.core.wire.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)


def run(broker: Broker, request: Request, _now_ms: int) -> OffsetForLeaderEpochResponse:
    """Look every epoch up."""
    body: OffsetForLeaderEpochRequest = request.body
    is_peer = cluster_allowed(broker.authorizer, request, Operation.CLUSTER_ACTION)
    response = OffsetForLeaderEpochResponse(topics=[])
    for topic in body.topics:
        allowed = is_peer or topic_allowed(
            broker.authorizer, request, Operation.DESCRIBE, topic.topic
        )
        answers = []
        for partition in topic.partitions:
            answer = EpochEndOffset(partition=partition.partition)
            answers.append(answer)
            try:
                if not allowed:
                    raise ApiError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
                _look_up(broker, topic.topic, partition, answer)
            except ApiError as error:
                answer.error_code = error.code
        response.topics.append(OffsetForLeaderTopicResult(topic=topic.topic, partitions=answers))
    return response


def _look_up(
    broker: Broker, topic: str, partition: OffsetForLeaderPartition, answer: EpochEndOffset
) -> None:
    found: Partition = broker.partitions.find_leader(
        broker.image,
        topic,
        partition.partition,
        current_leader_epoch=partition.current_leader_epoch,
    )
    answer.leader_epoch, answer.end_offset = found.end_offset_for_epoch(partition.leader_epoch)


HANDLER = Handler(
    api_key=23,
    name="OffsetForLeaderEpoch",
    versions=range(2, 5),
    broker=run,
    kips=("KIP-101", "KIP-279", "KIP-320"),
)
