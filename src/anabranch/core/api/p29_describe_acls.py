"""DescribeAcls: the access rules (ACLs) that match a filter.

KIP: KIP-140, KIP-290.
Versions: 1-3.
Behaviour: needs DESCRIBE on the cluster. A broker or controller tells what its image has; while it
    has none, COORDINATOR_LOAD_IN_PROGRESS. SECURITY_DISABLED without an authorizer.
Skipped: nothing.
"""

from __future__ import annotations

from itertools import groupby

from anabranch.core.access.acl_filter import AclFilter
from anabranch.core.access.authorize import Operation, ResourceType
from anabranch.core.access.standard_authorizer import StandardAuthorizer
from anabranch.core.api.acls import Authorizing, refusal
from anabranch.core.api.handler import Handler
from anabranch.core.broker.gate import Need
from anabranch.core.errors import ErrorCode
from anabranch.core.request import Request
from anabranch.core.wire.messages.describe_acls import (
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)

SENTENCE = "No Authorizer is configured on the broker"


def run(node: Authorizing, request: Request, _now_ms: int) -> DescribeAclsResponse:
    """Find the rules in this node's image."""
    refused = refusal(node, request, Operation.DESCRIBE, SENTENCE)
    if refused is not None:
        code, sentence = refused
        return DescribeAclsResponse(error_code=code, error_message=sentence)
    assert isinstance(node.authorizer, StandardAuthorizer)
    body: DescribeAclsRequest = request.body
    wanted = AclFilter(
        body.resource_type_filter, body.resource_name_filter, body.pattern_type_filter,
        body.principal_filter, body.host_filter, body.operation, body.permission_type,
    )  # fmt: skip
    if fault := wanted.fault():
        return DescribeAclsResponse(error_code=ErrorCode.INVALID_REQUEST, error_message=fault)
    rules = node.authorizer.rules
    if rules is None:
        return DescribeAclsResponse(
            error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
            error_message="The access rules are not loaded yet.",
        )
    found = groupby((acl for _, acl in wanted.of(rules)), key=lambda acl: acl.resource)
    return DescribeAclsResponse(
        error_message=None,
        resources=[
            DescribeAclsResource(
                resource_type=kind,
                resource_name=name,
                pattern_type=pattern,
                acls=[
                    AclDescription(each.principal, each.host, each.operation, each.permission)
                    for each in rules_of_it
                ],
            )
            for (kind, pattern, name), rules_of_it in found
        ],
    )


HANDLER = Handler(
    api_key=29,
    name="DescribeAcls",
    versions=range(1, 4),
    broker=run,
    controller=run,
    needs=(Need(Operation.DESCRIBE, ResourceType.CLUSTER),),
    kips=("KIP-140", "KIP-290"),
)
