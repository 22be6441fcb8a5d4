"""CreateAcls: access rules (ACLs) are to be added, and cannot be.

KIP: KIP-140, KIP-290.
Versions: 1-3.
Behaviour: needs ALTER on the cluster. SECURITY_DISABLED for each rule, as Kafka without an
    authorizer.
Skipped: ACLs.
"""

from __future__ import annotations

from anabranch.core.access.authorize import Operation
from anabranch.core.api.acls import Authorizing, no_acls, refusing
from anabranch.core.request import Request
from anabranch.core.wire.messages.create_acls import (
    AclCreationResult,
    CreateAclsRequest,
    CreateAclsResponse,
)


def run(node: Authorizing, request: Request, _now_ms: int) -> CreateAclsResponse:
    """Say of each rule that there is no authorizer."""
    body: CreateAclsRequest = request.body
    code, sentence = no_acls(node, request, Operation.ALTER)
    result = AclCreationResult(error_code=code, error_message=sentence)
    return CreateAclsResponse(results=[result] * len(body.creations))


HANDLER = refusing(30, "CreateAcls", Operation.ALTER, run)
