"""DescribeAcls: the access rules (ACLs) that match a filter; there are none.

KIP: KIP-140, KIP-290.
Versions: 1-3.
Behaviour: needs DESCRIBE on the cluster. Always SECURITY_DISABLED, as Kafka without an authorizer.
Skipped: ACLs.
"""

from __future__ import annotations

from anabranch.core.access.authorize import Operation
from anabranch.core.api.acls import Authorizing, no_acls, refusing
from anabranch.core.request import Request
from anabranch.core.wire.messages.describe_acls import DescribeAclsResponse

SENTENCE = "No Authorizer is configured on the broker"


def run(node: Authorizing, request: Request, _now_ms: int) -> DescribeAclsResponse:
    """Say that there is no authorizer."""
    code, sentence = no_acls(node, request, Operation.DESCRIBE, SENTENCE)
    return DescribeAclsResponse(error_code=code, error_message=sentence)


HANDLER = refusing(29, "DescribeAcls", Operation.DESCRIBE, run)
