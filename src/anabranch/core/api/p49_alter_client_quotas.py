"""AlterClientQuotas: quotas of users, client ids and addresses are set and removed.

KIP: KIP-546, KIP-590 (forwarded), KIP-612 (addresses).
Versions: 0-1.
Behaviour: needs ALTER_CONFIGS on the cluster. The controller decides about each entity by itself.
    An entity is a user, a client id, both, or an address. A request may ask for validation only.
Skipped: names of hosts as ip entities
"""

from __future__ import annotations

from anabranch.core.access.authorize import Operation, ResourceType, cluster_allowed
from anabranch.core.api.handler import Handler, forward
from anabranch.core.broker.gate import Need
from anabranch.core.controller.client_quotas import Change, plan
from anabranch.core.controller.controller import Controller, decides
from anabranch.core.controller.reasons import Code
from anabranch.core.controller.result import Reason, Result
from anabranch.core.errors import ClientFault, ErrorCode
from anabranch.core.quotas.entities import Entity
from anabranch.core.request import Request
from anabranch.core.sentences import number_of
from anabranch.core.wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    AlteredEntryData,
    EntityData,
    EntryData,
)


def decide(
    controller: Controller, request: Request, _now_ms: int
) -> Result[AlterClientQuotasResponse]:
    """Plan the change of each entity."""
    if not cluster_allowed(controller.authorizer, request, Operation.ALTER_CONFIGS):
        code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        raise ClientFault(code, "Cluster authorization failed.")
    body: AlterClientQuotasRequest = request.body
    planned = plan(controller.image, (_change(each) for each in body.entries))
    response = AlterClientQuotasResponse(
        entries=[_answer(entity, fault) for entity, fault in planned.results.values()]
    )
    if body.validate_only or not planned.records:
        return Result((), response)
    reason = Reason(
        Code.QUOTAS_CHANGED, f"set or removed {number_of(len(planned.records), 'quota')}"
    )
    return Result(tuple(planned.records), response, (reason,))


def _change(entry: EntryData) -> Change:
    values = [(op.key, None if op.remove else op.value) for op in entry.ops]
    return Change(_entity(entry), values)


def _entity(entry: EntryData) -> Entity:
    return {each.entity_type: each.entity_name for each in entry.entity}


def _answer(entity: Entity, fault: ClientFault | None) -> AlteredEntryData:
    return AlteredEntryData(
        error_code=ErrorCode.NONE if fault is None else fault.code,
        error_message=None if fault is None else fault.message,
        entity=[EntityData(kind, name) for kind, name in entity.items()],
    )


def refuse(request: Request, code: ErrorCode, sentence: str) -> AlterClientQuotasResponse:
    """The same error for every entity."""
    fault = ClientFault(code, sentence)
    return AlterClientQuotasResponse(
        entries=[_answer(_entity(each), fault) for each in request.body.entries]
    )


HANDLER = Handler(
    api_key=49,
    name="AlterClientQuotas",
    versions=range(2),
    broker=forward,
    controller=decides(decide, refuse),
    needs=(Need(Operation.ALTER_CONFIGS, ResourceType.CLUSTER),),
    kips=("KIP-546", "KIP-590", "KIP-612"),
    skipped=("Names of hosts are not accepted as ip entities; addresses are.",),
)
