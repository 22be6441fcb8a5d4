"""OffsetForLeaderEpoch: the offset at which a leader epoch ended, so that readers find divergence.

KIP: KIP-101, KIP-279, KIP-320.
Versions: 2-4.
Behaviour: the largest epoch up to the one asked for and the offset at which it ended; the log's end
    for the current epoch; -1 and -1 for an epoch that is not known. Only the leader answers, and
    the client's current leader epoch is compared first. Followers need CLUSTER_ACTION, others
    DESCRIBE. For an epoch newer than its own, a leader first asks the controller whether it still
    leads (`doubts`), because consumers reset their offsets if the epoch is unknown.
Skipped: nothing
"""

from __future__ import annotations

from functools import partial

from anabranch.core.access.authorize import Operation, ResourceType, cluster_allowed, topic_allowed
from anabranch.core.api.context import Broker
from anabranch.core.api.doubts import Doubts
from anabranch.core.api.handler import Handler
from anabranch.core.broker.gate import Need
from anabranch.core.errors import ApiError, ErrorCode
from anabranch.core.log.files import ColdRead
from anabranch.core.outcome import Cold, Outcome, Wait
from anabranch.core.replication.replica import replica_of
from anabranch.core.request import Request
from anabranch.core.wire.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)


def run(broker: Broker, request: Request, now_ms: int) -> Outcome:
    """Look every epoch up; wait where this broker may have been deposed."""
    return _begin(broker, request, broker.partitions.unhosted.count(), now_ms)


def _begin(broker: Broker, request: Request, since: int, now_ms: int) -> Outcome:
    doubts = Doubts(broker.replication)
    missing: list[ColdRead] = []
    response = _answer(broker, request, doubts, missing, since)
    if missing:
        return Cold(tuple(missing), partial(_begin, broker, request, since))
    if not doubts.waiting:
        return response

    def poll(_now_ms: int, expired: bool) -> Outcome | None:
        doubts.waiting.clear()
        later = _answer(broker, request, doubts, missing, since)
        return None if doubts.waiting and not expired else later

    return Wait(tuple(doubts.waiting), doubts.until(now_ms), poll)


def _answer(
    broker: Broker, request: Request, doubts: Doubts, missing: list[ColdRead], since: int
) -> OffsetForLeaderEpochResponse:
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
                certain = None if body.replica_id >= 0 else doubts
                _look_up(broker, topic.topic, partition, answer, certain, since)
            except ApiError as error:
                answer.error_code = error.code
            except ColdRead as cold:
                missing.append(cold)
        response.topics.append(OffsetForLeaderTopicResult(topic=topic.topic, partitions=answers))
    return response


def _look_up(
    broker: Broker,
    topic: str,
    partition: OffsetForLeaderPartition,
    answer: EpochEndOffset,
    doubts: Doubts | None,
    since: int,
) -> None:
    """`doubts` None: a follower asks, which says what leader epoch it follows."""
    found = broker.partitions.find_leader(
        broker.image,
        topic,
        partition.partition,
        current_leader_epoch=partition.current_leader_epoch,
    )
    found.ensure_current(since)
    is_beyond = found.may_be_deposed and partition.leader_epoch > found.leader_epoch
    if is_beyond and doubts is not None and not doubts.is_certain(replica_of(found)):
        raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    answer.leader_epoch, answer.end_offset = found.end_offset_for_epoch(partition.leader_epoch)


HANDLER = Handler(
    api_key=23,
    name="OffsetForLeaderEpoch",
    versions=range(2, 5),
    broker=run,
    needs=(
        Need(Operation.DESCRIBE, ResourceType.TOPIC),
        Need(Operation.CLUSTER_ACTION, ResourceType.CLUSTER),
    ),
    kips=("KIP-101", "KIP-279", "KIP-320"),
)
