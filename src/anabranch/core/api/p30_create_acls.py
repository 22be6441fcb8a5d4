"""CreateAcls: access rules (ACLs) are added.

KIP: KIP-140, KIP-290, KIP-801.
Versions: 1-3.
Behaviour: needs ALTER on the cluster. Each rule is checked by itself, and one that exists succeeds.
    The controller decides. SECURITY_DISABLED for each rule without an authorizer.
Skipped: nothing
"""

from __future__ import annotations

from anabranch.core.access.acls import Acl
from anabranch.core.access.authorize import Operation, ResourceType
from anabranch.core.api.acls import Authorizing, controller_decides, refusal
from anabranch.core.api.handler import Handler
from anabranch.core.broker.gate import Need
from anabranch.core.controller.acls import check_new, exists, new_id
from anabranch.core.controller.controller import Controller, decides
from anabranch.core.controller.reasons import Code
from anabranch.core.controller.result import Reason, Result
from anabranch.core.errors import ClientFault, ErrorCode
from anabranch.core.metadata.concerns.acls import entry
from anabranch.core.outcome import Decided, Outcome
from anabranch.core.request import Request
from anabranch.core.sentences import number_of
from anabranch.core.wire.messages.create_acls import (
    AclCreation,
    AclCreationResult,
    CreateAclsRequest,
    CreateAclsResponse,
)


def decide(controller: Controller, request: Request, _now_ms: int) -> Decided:
    """Check each rule, and add those that are new."""
    refused = refusal(controller, request, Operation.ALTER)
    if refused is not None:
        return _same(request, *refused)
    body: CreateAclsRequest = request.body
    acls = controller.image.acls
    added: dict[Acl, bytes] = {}
    results: list[AclCreationResult] = []
    for creation in body.creations:
        acl = _acl(creation)
        try:
            check_new(acl)
        except ClientFault as fault:
            results.append(AclCreationResult(error_code=fault.code, error_message=fault.message))
            continue
        if acl not in added and not exists(acls, acl):
            added[acl] = new_id(acls, controller.rng)
        results.append(AclCreationResult(error_message=None))
    reasons = (Reason(Code.ACLS_CHANGED, f"added {number_of(len(added), 'access rule')}"),)
    return Result(
        tuple(entry(acl_id, acl) for acl, acl_id in added.items()),
        CreateAclsResponse(results=results),
        reasons if added else (),
    )


def _acl(creation: AclCreation) -> Acl:
    return Acl(
        creation.resource_type, creation.resource_pattern_type, creation.resource_name,
        creation.principal, creation.host, creation.operation, creation.permission_type,
    )  # fmt: skip


def _same(request: Request, code: ErrorCode, sentence: str | None) -> CreateAclsResponse:
    """The same error for every rule."""
    result = AclCreationResult(error_code=code, error_message=sentence)
    return CreateAclsResponse(results=[result] * len(request.body.creations))


def run(broker: Authorizing, request: Request, _now_ms: int) -> Outcome:
    """Leave it to the controller, if access rules decide here."""
    return controller_decides(broker, request, _same)


HANDLER = Handler(
    api_key=30,
    name="CreateAcls",
    versions=range(1, 4),
    broker=run,
    controller=decides(decide, _same),
    needs=(Need(Operation.ALTER, ResourceType.CLUSTER),),
    forwards_some=True,
    kips=("KIP-140", "KIP-290", "KIP-801"),
)
