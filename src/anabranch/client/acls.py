"""Access rules (ACLs) of a cluster: listed, added and removed with Kafka's requests.

Kafka's words for a rule's parts are those of kafka-acls: topic, group, cluster, transactional-id,
read, write, describe-configs … Source: KIP-140. Not here: which rules apply
(`core/access/standard_authorizer.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from anabranch.client.cluster import Cluster, check
from anabranch.core.access.acl_filter import AclFilter
from anabranch.core.access.acls import ALLOW, DENY, LITERAL, PREFIXED, Acl
from anabranch.core.wire.messages.create_acls import (
    AclCreation,
    CreateAclsRequest,
    CreateAclsResponse,
)
from anabranch.core.wire.messages.delete_acls import (
    DeleteAclsFilter,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from anabranch.core.wire.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse

RESOURCES: Mapping[str, int] = {
    "topic": 2, "group": 3, "cluster": 4, "transactional-id": 5, "delegation-token": 6, "user": 7,
}  # fmt: skip
OPERATIONS: Mapping[str, int] = {
    "all": 2, "read": 3, "write": 4, "create": 5, "delete": 6, "alter": 7, "describe": 8,
    "cluster-action": 9, "describe-configs": 10, "alter-configs": 11, "idempotent-write": 12,
    "create-tokens": 13, "describe-tokens": 14, "two-phase-commit": 15,
}  # fmt: skip
PERMISSIONS: Mapping[str, int] = {"deny": DENY, "allow": ALLOW}
PATTERNS: Mapping[str, int] = {"any": 1, "match": 2, "literal": LITERAL, "prefixed": PREFIXED}


async def describe_acls(cluster: Cluster, wanted: AclFilter) -> list[Acl]:
    """The rules that a filter means, in order. Raises ApiError."""
    answer: DescribeAclsResponse = await cluster.send(DescribeAclsRequest(*wanted))
    check(answer.error_code, answer.error_message)
    return sorted(
        Acl(
            of.resource_type, of.pattern_type, of.resource_name, acl.principal, acl.host,
            acl.operation, acl.permission_type,
        )
        for of in answer.resources
        for acl in of.acls
    )  # fmt: skip


async def create_acls(cluster: Cluster, acls: Iterable[Acl]) -> None:
    """Add rules; one that exists stays. Raises ApiError for the first that was refused."""
    creations = [
        AclCreation(
            resource_type=acl.resource_type, resource_name=acl.resource_name,
            resource_pattern_type=acl.pattern_type, principal=acl.principal, host=acl.host,
            operation=acl.operation, permission_type=acl.permission,
        )
        for acl in acls
    ]  # fmt: skip
    answer: CreateAclsResponse = await cluster.send(CreateAclsRequest(creations=creations))
    for made, result in zip(creations, answer.results, strict=True):
        check(result.error_code, result.error_message, of=made.resource_name)


async def delete_acls(cluster: Cluster, filters: Iterable[AclFilter]) -> list[Acl]:
    """Remove what filters mean; what was removed. Raises ApiError for the first refusal."""
    request = DeleteAclsRequest(filters=[DeleteAclsFilter(*each) for each in filters])
    answer: DeleteAclsResponse = await cluster.send(request)
    removed: set[Acl] = set()
    for result in answer.filter_results:
        check(result.error_code, result.error_message)
        for each in result.matching_acls:
            check(each.error_code, each.error_message, of=each.resource_name)
            acl = Acl(
                each.resource_type, each.pattern_type, each.resource_name, each.principal,
                each.host, each.operation, each.permission_type,
            )  # fmt: skip
            removed.add(acl)
    return sorted(removed)
