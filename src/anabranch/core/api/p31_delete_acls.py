"""DeleteAcls: access rules (ACLs) are to be removed; there are none.

KIP: KIP-140, KIP-290.
Versions: 1-3.
Behaviour: needs ALTER on the cluster. SECURITY_DISABLED for each filter, as Kafka without an
    authorizer.
Skipped: ACLs.
"""

from __future__ import annotations

from anabranch.core.access.authorize import Operation
from anabranch.core.api.acls import Authorizing, no_acls, refusing
from anabranch.core.request import Request
from anabranch.core.wire.messages.delete_acls import (
    DeleteAclsFilterResult,
    DeleteAclsRequest,
    DeleteAclsResponse,
)


def run(node: Authorizing, request: Request, _now_ms: int) -> DeleteAclsResponse:
    """Say of each filter that there is no authorizer."""
    body: DeleteAclsRequest = request.body
    code, sentence = no_acls(node, request, Operation.ALTER)
    result = DeleteAclsFilterResult(error_code=code, error_message=sentence)
    return DeleteAclsResponse(filter_results=[result] * len(body.filters))


HANDLER = refusing(31, "DeleteAcls", Operation.ALTER, run)
