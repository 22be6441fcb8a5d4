"""AlterPartition: a leader tells the controller which replicas are in sync now.

KIP: KIP-497, KIP-704 (recovery state), KIP-841 and KIP-903 (who may not be in sync).
Versions: 2-3.
Behaviour: needs CLUSTER_ACTION. A broker whose epoch is stale is refused as a whole; otherwise each
    partition has its own error, or its new state. A change that ends a move of replicas and so
    takes the leadership away is made, and answered NEW_LEADER_ELECTED. Served to brokers only.
Skipped: nothing
"""

from __future__ import annotations

from anabranch.core.access.authorize import Operation, ResourceType, cluster_allowed
from anabranch.core.api.handler import Handler, always
from anabranch.core.broker.gate import Charge, Need
from anabranch.core.controller.brokers.membership import Consequences, check_broker_epoch
from anabranch.core.controller.controller import Controller, decides
from anabranch.core.controller.partitions.in_sync_replicas import (
    ANY_EPOCH,
    Altered,
    Wanted,
    alter_partition,
)
from anabranch.core.controller.result import Reason, Result
from anabranch.core.errors import ClientFault, ErrorCode
from anabranch.core.request import Request
from anabranch.core.wire.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionRequestPartitionData,
    AlterPartitionResponse,
    AlterPartitionResponsePartitionData,
    AlterPartitionResponseTopicData,
)
from anabranch.core.wire.metadata_records import MetadataRecord
from anabranch.core.wire.own_fields import Lags, untagged

EPOCHS_SINCE = 3


def decide(
    controller: Controller, request: Request, _now_ms: int
) -> Result[AlterPartitionResponse]:
    """Decide each partition by itself."""
    if not cluster_allowed(controller.authorizer, request, Operation.CLUSTER_ACTION):
        raise ClientFault(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    body: AlterPartitionRequest = request.body
    check_broker_epoch(controller.image, body.broker_id, body.broker_epoch)
    consequences = Consequences(controller.state, controller.config, controller.sessions.suspects)
    records: list[MetadataRecord] = []
    reasons: list[Reason] = []
    response = AlterPartitionResponse()
    for topic in body.topics:
        answers = []
        for asked in topic.partitions:
            wanted = _wanted(asked, request.version)
            try:
                altered = alter_partition(
                    consequences, controller.sessions, body.broker_id, topic.topic_id, wanted
                )
            except ClientFault as fault:
                code = fault.code
                answers.append(
                    AlterPartitionResponsePartitionData(
                        partition_index=wanted.partition_index, error_code=code
                    )
                )
                continue
            answers.append(_answer(wanted.partition_index, altered))
            if altered.record is not None:
                records.append(altered.record)
                reasons += altered.reasons
        response.topics.append(
            AlterPartitionResponseTopicData(topic_id=topic.topic_id, partitions=answers)
        )
    return Result(tuple(records), response, tuple(reasons), atomic=False)


def _wanted(asked: AlterPartitionRequestPartitionData, version: int) -> Wanted:
    if version >= EPOCHS_SINCE:
        isr = tuple((each.broker_id, each.broker_epoch) for each in asked.new_isr_with_epochs)
    else:
        isr = tuple((broker_id, ANY_EPOCH) for broker_id in asked.new_isr)
    return Wanted(
        asked.partition_index,
        asked.leader_epoch,
        asked.partition_epoch,
        isr,
        asked.leader_recovery_state,
        tuple(untagged(Lags, asked.unknown_tagged_fields).lags),
    )


def _answer(index: int, altered: Altered) -> AlterPartitionResponsePartitionData:
    state = altered.state
    return AlterPartitionResponsePartitionData(
        partition_index=index,
        error_code=ErrorCode.NEW_LEADER_ELECTED if altered.leads_elsewhere else ErrorCode.NONE,
        leader_id=state.leader,
        leader_epoch=state.leader_epoch,
        isr=list(altered.isr),
        leader_recovery_state=state.recovery_state,
        partition_epoch=state.partition_epoch,
    )


def refuse(_request: Request, code: ErrorCode, _sentence: str) -> AlterPartitionResponse:
    """An answer with the error."""
    return AlterPartitionResponse(error_code=code)


HANDLER = Handler(
    api_key=56,
    name="AlterPartition",
    versions=range(2, 4),
    controller=decides(decide, refuse),
    needs=(Need(Operation.CLUSTER_ACTION, ResourceType.CLUSTER),),
    charge=Charge.EXEMPT,
    of_broker=always,
    kips=("KIP-497", "KIP-704", "KIP-841", "KIP-903"),
)
