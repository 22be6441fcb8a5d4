"""Producer ids in blocks: a broker asks for a thousand at a time (KIP-730).

Rule kept: a block is handed out once, since the record that moves the counter is durable before the
answer is sent; a broker that dies wastes the rest of its block.
"""

from __future__ import annotations

from anabranch.core.controller.brokers.membership import check_broker_epoch
from anabranch.core.controller.cluster_state import ClusterState
from anabranch.core.controller.result import Result
from anabranch.core.errors import ClientFault, ErrorCode
from anabranch.core.wire.messages.allocate_producer_ids import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
)
from anabranch.core.wire.metadata_records import ProducerIdsRecord

BLOCK_SIZE = 1000
"""Ids in a block: Kafka's."""
LARGEST_ID = 2**63 - 1


def allocate(
    state: ClusterState, request: AllocateProducerIdsRequest
) -> Result[AllocateProducerIdsResponse]:
    """The next block for a broker. Raises ClientFault STALE_BROKER_EPOCH."""
    check_broker_epoch(state.image, request.broker_id, request.broker_epoch)
    first = state.image.next_producer_id
    if first > LARGEST_ID - BLOCK_SIZE:
        raise ClientFault(
            ErrorCode.UNKNOWN_SERVER_ERROR,
            "Exhausted all producerIds as the next block's end producerId exceeds the int64 type "
            "limit",
        )
    record = ProducerIdsRecord(
        broker_id=request.broker_id,
        broker_epoch=request.broker_epoch,
        next_producer_id=first + BLOCK_SIZE,
    )
    response = AllocateProducerIdsResponse(producer_id_start=first, producer_id_len=BLOCK_SIZE)
    return Result((record,), response)
