"""ACLs of mirrored topics on the target, by MirrorMaker 2's rules, where both clusters have them.

What: literal ACLs of topics of the source become ACLs of their like: leave to write is dropped,
leave to do all is leave to read. Rules kept: nothing is removed on the target; a source without an
authorizer has none to mirror, and a target without one is told. Source: KIP-382.
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterable
from typing import TypeVar

from anabranch.client.cluster import Cluster, check
from anabranch.core.errors import ApiError, ErrorCode
from anabranch.core.mirror.topics import Acl, mirrored_acl
from anabranch.core.wire.messages.create_acls import (
    AclCreation,
    CreateAclsRequest,
    CreateAclsResponse,
)
from anabranch.core.wire.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from anabranch.pipelines.mirror.driver_flow import FlowState
from anabranch.pipelines.mirror.rights import missing_right

T = TypeVar("T")
TOPIC, LITERAL, ANY = 2, 3, 1
"""Kafka's numbers of a resource's type, a pattern's type, and any operation or permission."""
WITHOUT_ACLS = {ErrorCode.SECURITY_DISABLED, ErrorCode.UNSUPPORTED_VERSION}


async def topic_acls(cluster: Cluster) -> set[Acl] | None:
    """The literal ACLs of all topics; None on a cluster that has no ACLs. Raises ApiError."""
    request = DescribeAclsRequest(
        resource_type_filter=TOPIC, resource_name_filter=None, pattern_type_filter=LITERAL,
        principal_filter=None, host_filter=None, operation=ANY, permission_type=ANY,
    )  # fmt: skip
    try:
        answer: DescribeAclsResponse = await cluster.send(request)
        check(answer.error_code, answer.error_message)
    except ApiError as fault:
        if fault.code in WITHOUT_ACLS:
            return None
        raise
    return {
        Acl(each.resource_name, acl.principal, acl.host, acl.operation, acl.permission_type)
        for each in answer.resources
        for acl in each.acls
    }


async def sync_acls(state: FlowState) -> int:
    """Create on the target what it lacks; how many. Raises ApiError with the remedy."""
    source, target = state.flow.source, state.flow.target
    names = {shape.name: remote for remote, shape in state.topics.mirrored.items()}
    mirrored = {
        made
        for each in await _asked(source, "DESCRIBE", topic_acls(state.source)) or ()
        if each.topic in names and (made := mirrored_acl(each, names[each.topic])) is not None
    }
    if not mirrored:
        return 0
    there = await _asked(target, "DESCRIBE", topic_acls(state.target))
    if there is None:
        raise ApiError(
            ErrorCode.SECURITY_DISABLED,
            f"{target} has no authorizer, so ACLs are not mirrored. Set sync.topic.acls.enabled to "
            f"false, or give {target} an authorizer.",
        )
    return await _asked(target, "ALTER", _create(state.target, sorted(mirrored - there)))


async def _asked(alias: str, operation: str, work: Awaitable[T]) -> T:
    """The answer of a cluster; a refusal names it and the right that it wants."""
    try:
        return await work
    except ApiError as fault:
        remedy = missing_right(
            fault.code, f"{operation} on the cluster, or set sync.topic.acls.enabled to false"
        )
        raise ApiError(fault.code, f"on {alias}: {fault.message}{remedy}") from None


async def _create(cluster: Cluster, acls: Iterable[Acl]) -> int:
    creations = [
        AclCreation(
            resource_type=TOPIC, resource_name=each.topic, resource_pattern_type=LITERAL,
            principal=each.principal, host=each.host, operation=each.operation,
            permission_type=each.permission,
        )
        for each in acls
    ]  # fmt: skip
    if not creations:
        return 0
    answer: CreateAclsResponse = await cluster.send(CreateAclsRequest(creations=creations))
    for made, each in zip(creations, answer.results, strict=True):
        check(each.error_code, each.error_message, of=made.resource_name)
    return len(creations)
