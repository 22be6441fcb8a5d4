"""DescribeTransactions: the state of transactional ids that this broker coordinates.

KIP: KIP-664
Versions: 0
Behaviour: needs DESCRIBE on each id, and on each topic that is shown. An id that another broker
    coordinates is NOT_COORDINATOR, one that is not known TRANSACTIONAL_ID_NOT_FOUND. While markers
    are written only partitions without one are shown.
Skipped: nothing
"""

from __future__ import annotations

from anabranch.core.access.authorize import Operation, ResourceType, topic_allowed
from anabranch.core.api.context import Broker
from anabranch.core.api.handler import Handler
from anabranch.core.api.transactions import transactional_id_allowed
from anabranch.core.broker.gate import Need
from anabranch.core.coordination.transactions.states import DEAD, DECIDED
from anabranch.core.errors import ApiError, ErrorCode
from anabranch.core.request import Request
from anabranch.core.wire.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TopicData,
    TransactionState,
)


def run(broker: Broker, request: Request, now_ms: int) -> DescribeTransactionsResponse:
    """Each id once, in the order in which they were asked for."""
    body: DescribeTransactionsRequest = request.body
    return DescribeTransactionsResponse(
        transaction_states=[
            _described(broker, request, name, now_ms)
            for name in dict.fromkeys(body.transactional_ids)
        ]
    )


def _described(broker: Broker, request: Request, name: str, now_ms: int) -> TransactionState:
    if not transactional_id_allowed(broker, request, Operation.DESCRIBE, name):
        return _refused(name, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    if not name:
        return _refused(name, ErrorCode.INVALID_REQUEST)
    try:
        known = broker.transactions.find(name, now_ms)
    except ApiError as fault:
        return _refused(name, fault.code)
    if known is None or known.state is DEAD:
        return _refused(name, ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
    left = broker.transactions.markers.left(name)
    partitions = known.partitions if left is None or known.state not in DECIDED else left
    topics: dict[str, list[int]] = {}
    for place in sorted(partitions):
        if topic_allowed(broker.authorizer, request, Operation.DESCRIBE, place.topic):
            topics.setdefault(place.topic, []).append(place.partition)
    return TransactionState(
        transactional_id=name,
        transaction_state=known.state.title,
        transaction_timeout_ms=known.timeout_ms,
        transaction_start_time_ms=known.started_ms,
        producer_id=known.producer_id,
        producer_epoch=known.producer_epoch,
        topics=[TopicData(topic=topic, partitions=found) for topic, found in topics.items()],
    )


def _refused(name: str, code: ErrorCode) -> TransactionState:
    return TransactionState(transactional_id=name, error_code=code)


HANDLER = Handler(
    api_key=65,
    name="DescribeTransactions",
    versions=range(1),
    broker=run,
    needs=(
        Need(Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID),
        Need(Operation.DESCRIBE, ResourceType.TOPIC),
    ),
    kips=("KIP-664",),
)
