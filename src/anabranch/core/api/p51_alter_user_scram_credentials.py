"""AlterUserScramCredentials: credentials of users are set and removed.

KIP: KIP-554, KIP-900.
Versions: 0.
Behaviour: needs ALTER on the cluster. The controller decides; a user with a change that cannot be
made keeps all its
    credentials. The salted password is not kept, only what a login is checked against.
Skipped: mutation quotas.
"""

from __future__ import annotations

from anabranch.core.access.authorize import Operation, ResourceType, cluster_allowed
from anabranch.core.api.handler import Handler, forward
from anabranch.core.broker.gate import Need
from anabranch.core.controller.controller import Controller, decides
from anabranch.core.controller.reasons import Code
from anabranch.core.controller.result import Reason, Result
from anabranch.core.controller.scram import USERS_SINCE, added, faults_of, removed
from anabranch.core.errors import ErrorCode
from anabranch.core.metadata.features import METADATA_VERSION
from anabranch.core.outcome import Decided
from anabranch.core.request import Request
from anabranch.core.sentences import number_of
from anabranch.core.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
)
from anabranch.core.wire.metadata_records import MetadataRecord


def decide(controller: Controller, request: Request, _now_ms: int) -> Decided:
    """Check each user's changes, and make those that can be made."""
    if not cluster_allowed(controller.authorizer, request, Operation.ALTER):
        code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        return _same(request, code, "Cluster authorization failed.")
    if controller.image.features.get(METADATA_VERSION, USERS_SINCE) < USERS_SINCE:
        sentence = "The current metadata.version does not support SCRAM"
        return _same(request, ErrorCode.UNSUPPORTED_VERSION, sentence)
    body: AlterUserScramCredentialsRequest = request.body
    faults = faults_of(controller.image.scram, body.deletions, body.upsertions)
    made: list[MetadataRecord] = [
        *(removed(each) for each in body.deletions if faults[each.name] is None),
        *(added(each) for each in body.upsertions if faults[each.name] is None),
    ]
    results = [_result(user, *(fault or (ErrorCode.NONE, None))) for user, fault in faults.items()]
    sentence = f"set or removed {number_of(len(made), 'credential')} of users"
    reasons = (Reason(Code.USERS_CHANGED, sentence),)
    answer = AlterUserScramCredentialsResponse(results=results)
    return Result(tuple(made), answer, reasons if made else ())


def _result(user: str, code: ErrorCode, sentence: str | None) -> AlterUserScramCredentialsResult:
    return AlterUserScramCredentialsResult(user=user, error_code=code, error_message=sentence)


def _same(request: Request, code: ErrorCode, sentence: str) -> AlterUserScramCredentialsResponse:
    """The same error for every user."""
    body: AlterUserScramCredentialsRequest = request.body
    names = [*(each.name for each in body.deletions), *(each.name for each in body.upsertions)]
    users = dict.fromkeys(names)
    results = [_result(user, code, sentence) for user in users]
    return AlterUserScramCredentialsResponse(results=results)


HANDLER = Handler(
    api_key=51,
    name="AlterUserScramCredentials",
    versions=range(1),
    broker=forward,
    controller=decides(decide, _same),
    needs=(Need(Operation.ALTER, ResourceType.CLUSTER),),
    kips=("KIP-554", "KIP-900"),
    skipped=("Mutation quotas are not applied.",),
)
