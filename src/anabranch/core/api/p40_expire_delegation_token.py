"""ExpireDelegationToken: a token ends sooner, or is removed.

KIP: KIP-48, KIP-590 (forwarded), KIP-900.
Versions: 1-2.
Behaviour: refused on connections that show no one, and on those by token. Owner and renewers may do
    it: a negative period removes the token, another one ends it after so long. Sessions that are
    open end when the token would have ended. The controller decides.
Skipped: nothing
"""

from __future__ import annotations

from anabranch.core.access.delegation_tokens import DelegationToken
from anabranch.core.api.handler import Handler
from anabranch.core.api.tokens import check_connection, decided_by, passes_on
from anabranch.core.controller.controller import Controller
from anabranch.core.controller.delegation_tokens import check_enabled, ended
from anabranch.core.controller.reasons import Code
from anabranch.core.controller.result import Reason, Result
from anabranch.core.errors import ErrorCode
from anabranch.core.metadata.concerns.delegation_tokens import entry
from anabranch.core.outcome import Decided
from anabranch.core.request import Request
from anabranch.core.wire.messages.expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)
from anabranch.core.wire.metadata_records import MetadataRecord


def decide(controller: Controller, request: Request) -> Decided:
    """Let it end."""
    body: ExpireDelegationTokenRequest = request.body
    check_enabled(controller.image, controller.config)
    token, wall_ms = controller.token_of(bytes(body.hmac)), controller.wall_ms
    found = ended(token, request.principal, body.expiry_time_period_ms, wall_ms)
    record: MetadataRecord
    if isinstance(found, DelegationToken):
        record, ends_ms = entry(found), found.expiry_ms
        sentence = f"changed the end of delegation token {found.token_id}"
    else:
        record, ends_ms = found, wall_ms
        sentence = f"removed delegation token {found.token_id}"
    answer = ExpireDelegationTokenResponse(expiry_timestamp_ms=ends_ms)
    return Result((record,), answer, (Reason(Code.TOKENS_CHANGED, sentence),))


def refuse(_request: Request, code: ErrorCode, _sentence: str) -> ExpireDelegationTokenResponse:
    """It stays as it is."""
    return ExpireDelegationTokenResponse(error_code=code)


HANDLER = Handler(
    api_key=40,
    name="ExpireDelegationToken",
    versions=range(1, 3),
    broker=passes_on((check_connection,), refuse),
    controller=decided_by((check_connection,), decide, refuse),
    forwards_some=True,
    kips=("KIP-48", "KIP-590", "KIP-900"),
)
