"""DeleteAcls: the access rules (ACLs) that match filters are removed.

KIP: KIP-140, KIP-290, KIP-801.
Versions: 1-3.
Behaviour: needs ALTER on the cluster. A filter that matches nothing succeeds. A rule that two
    filters match is told for both. The controller decides. SECURITY_DISABLED for each filter
    without an authorizer.
Skipped: nothing
"""

from __future__ import annotations

from anabranch.core.access.acl_filter import AclFilter
from anabranch.core.access.acls import Acl
from anabranch.core.access.authorize import Operation, ResourceType
from anabranch.core.api.acls import Authorizing, controller_decides, refusal
from anabranch.core.api.handler import Handler
from anabranch.core.broker.gate import Need
from anabranch.core.controller.acls import meant
from anabranch.core.controller.controller import Controller, decides
from anabranch.core.controller.reasons import Code
from anabranch.core.controller.result import Reason, Result
from anabranch.core.errors import ClientFault, ErrorCode
from anabranch.core.outcome import Decided, Outcome
from anabranch.core.request import Request
from anabranch.core.sentences import number_of
from anabranch.core.wire.messages.delete_acls import (
    DeleteAclsFilter,
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from anabranch.core.wire.metadata_records import RemoveAccessControlEntryRecord


def decide(controller: Controller, request: Request, _now_ms: int) -> Decided:
    """Find what each filter means, and remove it once."""
    refused = refusal(controller, request, Operation.ALTER)
    if refused is not None:
        return _same(request, *refused)
    body: DeleteAclsRequest = request.body
    acls = controller.image.acls
    removed: dict[bytes, None] = {}
    results: list[DeleteAclsFilterResult] = []
    for each in body.filters:
        try:
            found = meant(acls, _filter(each), removed)
        except ClientFault as fault:
            results.append(
                DeleteAclsFilterResult(error_code=fault.code, error_message=fault.message)
            )
            continue
        removed.update(dict.fromkeys(found))
        told = [_told(acl) for acl in found.values()]
        results.append(DeleteAclsFilterResult(error_message=None, matching_acls=told))
    reasons = (Reason(Code.ACLS_CHANGED, f"removed {number_of(len(removed), 'access rule')}"),)
    return Result(
        tuple(RemoveAccessControlEntryRecord(id=acl_id) for acl_id in removed),
        DeleteAclsResponse(filter_results=results),
        reasons if removed else (),
    )


def _filter(each: DeleteAclsFilter) -> AclFilter:
    return AclFilter(
        each.resource_type_filter, each.resource_name_filter, each.pattern_type_filter,
        each.principal_filter, each.host_filter, each.operation, each.permission_type,
    )  # fmt: skip


def _told(acl: Acl) -> DeleteAclsMatchingAcl:
    return DeleteAclsMatchingAcl(
        error_message=None, resource_type=acl.resource_type, resource_name=acl.resource_name,
        pattern_type=acl.pattern_type, principal=acl.principal, host=acl.host,
        operation=acl.operation, permission_type=acl.permission,
    )  # fmt: skip


def _same(request: Request, code: ErrorCode, sentence: str | None) -> DeleteAclsResponse:
    """The same error for every filter."""
    result = DeleteAclsFilterResult(error_code=code, error_message=sentence)
    return DeleteAclsResponse(filter_results=[result] * len(request.body.filters))


def run(broker: Authorizing, request: Request, _now_ms: int) -> Outcome:
    """Leave it to the controller, if access rules decide here."""
    return controller_decides(broker, request, _same)


HANDLER = Handler(
    api_key=31,
    name="DeleteAcls",
    versions=range(1, 4),
    broker=run,
    controller=decides(decide, _same),
    needs=(Need(Operation.ALTER, ResourceType.CLUSTER),),
    forwards_some=True,
    kips=("KIP-140", "KIP-290", "KIP-801"),
)
