"""DescribeProducers: which producers a partition remembers, and their open transactions.

KIP: KIP-664.
Versions: 0.
Behaviour: needs READ on the topic. Each replica answers from its own log, whoever leads, as in
    Kafka: an administrator may ask every broker that hosts the partition. The producers of a
    diskless partition are known to its coordinator alone, and none has a transaction: the list is
    empty, and the message says so without an error.
Skipped: nothing
"""

from __future__ import annotations

from anabranch.core.access.authorize import Operation, ResourceType, topic_allowed
from anabranch.core.api.context import Broker
from anabranch.core.api.handler import Handler
from anabranch.core.broker.gate import Need
from anabranch.core.errors import ApiError, ErrorCode
from anabranch.core.log.producers import Producer
from anabranch.core.metadata.topic_names import is_legal
from anabranch.core.request import Request
from anabranch.core.wire.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)

DISKLESS = (
    "Only the coordinator knows the producers of a diskless partition: see its table of producers."
)


def run(broker: Broker, request: Request, _now_ms: int) -> DescribeProducersResponse:
    """List the producers of each partition, once."""
    body: DescribeProducersRequest = request.body
    response = DescribeProducersResponse(topics=[])
    wanted: dict[str, dict[int, None]] = {}
    for topic in body.topics:
        wanted.setdefault(topic.name, {}).update(dict.fromkeys(topic.partition_indexes))
    for name, indexes in wanted.items():
        refusal = _refusal(broker, request, name)
        partitions = []
        for index in indexes:
            answer = PartitionResponse(partition_index=index, active_producers=[])
            partitions.append(answer)
            try:
                if refusal is not None:
                    raise ApiError(refusal)
                replica = broker.partitions.find(broker.image, name, index)
                if replica.knows_producers:
                    answer.active_producers = [_state(each) for each in replica.producers]
                else:
                    answer.error_message = DISKLESS
            except ApiError as error:
                answer.error_code = error.code
                if refusal is not None:
                    answer.error_message = error.message
        response.topics.append(TopicResponse(name=name, partitions=partitions))
    return response


def _refusal(broker: Broker, request: Request, topic: str) -> ErrorCode | None:
    if not is_legal(topic):
        return ErrorCode.INVALID_TOPIC_EXCEPTION
    if not topic_allowed(broker.authorizer, request, Operation.READ, topic):
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    if broker.image.topic(topic) is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return None


def _state(producer: Producer) -> ProducerState:
    return ProducerState(
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        last_sequence=producer.last_sequence,
        last_timestamp=producer.last_timestamp,
        coordinator_epoch=producer.coordinator_epoch,
        current_txn_start_offset=producer.transaction_first_offset,
    )


HANDLER = Handler(
    api_key=61,
    name="DescribeProducers",
    versions=range(1),
    broker=run,
    needs=(Need(Operation.READ, ResourceType.TOPIC),),
    kips=("KIP-664",),
)
