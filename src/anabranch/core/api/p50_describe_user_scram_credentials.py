"""DescribeUserScramCredentials: which mechanisms users have credentials for.

KIP: KIP-554.
Versions: 0.
Behaviour: needs DESCRIBE on the cluster. A node tells what its image has, never a key or a salt. No
users named: all.
Skipped: nothing.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from anabranch.core.access.authorize import Operation, ResourceType, cluster_allowed
from anabranch.core.api.handler import Handler
from anabranch.core.broker.gate import Need
from anabranch.core.errors import ERRORS, ClientFault, ErrorCode
from anabranch.core.metadata.image import MetadataImage
from anabranch.core.request import Request
from anabranch.core.wire.messages.describe_user_scram_credentials import (
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)


def on_broker(broker: Any, request: Request, _now_ms: int) -> DescribeUserScramCredentialsResponse:
    """What a broker knows."""
    return answer(broker, broker.image, request)


def on_controller(
    controller: Any, request: Request, _now_ms: int
) -> DescribeUserScramCredentialsResponse:
    """What a controller knows."""
    return answer(controller, controller.known, request)


def answer(
    node: Any, image: MetadataImage, request: Request
) -> DescribeUserScramCredentialsResponse:
    """The users of an image."""
    body: DescribeUserScramCredentialsRequest = request.body
    if not cluster_allowed(node.authorizer, request, Operation.DESCRIBE):
        return _refused(body)
    known: dict[str, list[CredentialInfo]] = {}
    for (mechanism, name), each in sorted(image.scram.items()):
        info = CredentialInfo(mechanism=mechanism, iterations=each.iterations)
        known.setdefault(name, []).append(info)
    times = Counter(each.name for each in body.users or ())
    results = [_result(name, known, times[name]) for name in times or sorted(known)]
    return DescribeUserScramCredentialsResponse(error_message=None, results=results)


def _refused(body: DescribeUserScramCredentialsRequest) -> DescribeUserScramCredentialsResponse:
    """As Kafka's: also for each user that is asked about, whose name is not repeated."""
    code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    each = DescribeUserScramCredentialsResult(error_code=code, error_message=None)
    return DescribeUserScramCredentialsResponse(
        error_code=code,
        error_message=ERRORS[code].sentence,
        results=[each for _ in body.users or ()],
    )


def _result(
    name: str, known: dict[str, list[CredentialInfo]], times: int
) -> DescribeUserScramCredentialsResult:
    if times > 1:
        fault = ClientFault(
            ErrorCode.DUPLICATE_RESOURCE,
            "Cannot describe SCRAM credentials for the same user twice in a single request: "
            f"{name}",
        )
    elif name not in known:
        fault = ClientFault(
            ErrorCode.RESOURCE_NOT_FOUND,
            f"Attempt to describe a user credential that does not exist: {name}",
        )
    else:
        return DescribeUserScramCredentialsResult(
            user=name, error_message=None, credential_infos=known[name]
        )
    return DescribeUserScramCredentialsResult(
        user=name, error_code=fault.code, error_message=fault.message
    )


HANDLER = Handler(
    api_key=50,
    name="DescribeUserScramCredentials",
    versions=range(1),
    broker=on_broker,
    controller=on_controller,
    needs=(Need(Operation.DESCRIBE, ResourceType.CLUSTER),),
    kips=("KIP-554",),
)
