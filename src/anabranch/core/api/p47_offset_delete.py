"""OffsetDelete: committed offsets of topics that a group no longer reads are forgotten.

KIP: KIP-496.
Versions: 0.
Behaviour: needs DELETE on the group, then READ on each topic. GROUP_SUBSCRIBED_TO_TOPIC for a topic
    that a member of a consumer group reads; another kind of group must be empty. The answer comes
    when the deletions are committed, as that of OffsetCommit does; that there is nothing to delete
    is proven as for OffsetFetch.
Skipped: nothing
"""

from __future__ import annotations

from anabranch.core.access.authorize import Operation, ResourceType, topic_allowed
from anabranch.core.api.context import Broker
from anabranch.core.api.groups import group_allowed, when_committed
from anabranch.core.api.handler import Handler
from anabranch.core.broker.gate import Need
from anabranch.core.coordination.groups import offsets
from anabranch.core.coordination.groups.classic.group import Group
from anabranch.core.coordination.groups.classic.states import EMPTY
from anabranch.core.coordination.groups.in_flight import Place
from anabranch.core.errors import ApiError, ErrorCode
from anabranch.core.outcome import Outcome
from anabranch.core.replication.partitions import exists
from anabranch.core.request import Request
from anabranch.core.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)


def run(broker: Broker, request: Request, now_ms: int) -> Outcome:
    """The answer, or a wait for the records to be committed."""
    body: OffsetDeleteRequest = request.body
    if not group_allowed(broker, request, Operation.DELETE, body.group_id):
        return OffsetDeleteResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    try:
        if not body.group_id:
            return OffsetDeleteResponse(error_code=ErrorCode.INVALID_GROUP_ID)
        shard = broker.groups.shard_of(body.group_id, now_ms)
        group = broker.groups.find(body.group_id, now_ms)
        done = broker.groups.answer()
        if group is None:
            response = OffsetDeleteResponse(error_code=ErrorCode.GROUP_ID_NOT_FOUND)
            shard.prove(done, now_ms)
        elif group.state is not EMPTY and not group.is_consumer:
            return OffsetDeleteResponse(error_code=ErrorCode.NON_EMPTY_GROUP)
        else:
            response, places = _sorted_out(broker, request, group)
            offsets.delete_offsets(broker.groups, group, places, now_ms, done)
    except ApiError as error:
        return OffsetDeleteResponse(error_code=error.code)

    def tell(code: ErrorCode) -> OffsetDeleteResponse:
        return response if code is ErrorCode.NONE else OffsetDeleteResponse(error_code=code)

    return when_committed(broker, shard, done, now_ms, tell)


def _sorted_out(
    broker: Broker, request: Request, group: Group
) -> tuple[OffsetDeleteResponse, list[Place]]:
    body: OffsetDeleteRequest = request.body
    response, places = OffsetDeleteResponse(), []
    for topic in body.topics:
        answers = []
        for each in topic.partitions:
            code = _fault(broker, request, group, topic.name, each.partition_index)
            if code is ErrorCode.NONE:
                places.append((topic.name, each.partition_index))
            answers.append(
                OffsetDeleteResponsePartition(partition_index=each.partition_index, error_code=code)
            )
        response.topics.append(OffsetDeleteResponseTopic(name=topic.name, partitions=answers))
    return response, places


def _fault(broker: Broker, request: Request, group: Group, topic: str, index: int) -> ErrorCode:
    if not topic_allowed(broker.authorizer, request, Operation.READ, topic):
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    if not exists(broker.image, topic, index):
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if group.state is not EMPTY and group.reads(topic):
        return ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
    return ErrorCode.NONE


HANDLER = Handler(
    api_key=47,
    name="OffsetDelete",
    versions=range(1),
    broker=run,
    needs=(
        Need(Operation.DELETE, ResourceType.GROUP),
        Need(Operation.READ, ResourceType.TOPIC),
    ),
    kips=("KIP-496",),
)
