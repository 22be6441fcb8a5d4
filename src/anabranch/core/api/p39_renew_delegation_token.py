"""RenewDelegationToken: a token is good for longer.

KIP: KIP-48, KIP-590 (forwarded), KIP-900.
Versions: 1-2.
Behaviour: refused on connections that show no one, and on those by token. Owner and renewers may do
    it while the token is good, for the period or delegation.token.expiry.time.ms, whichever is
    shorter, and never beyond its maximum. The controller decides.
Skipped: nothing
"""

from __future__ import annotations

from anabranch.core.api.handler import Handler
from anabranch.core.api.tokens import check_connection, decided_by, passes_on
from anabranch.core.controller.controller import Controller
from anabranch.core.controller.delegation_tokens import check_enabled, renewed
from anabranch.core.controller.reasons import Code
from anabranch.core.controller.result import Reason, Result
from anabranch.core.errors import ErrorCode
from anabranch.core.metadata.concerns.delegation_tokens import entry
from anabranch.core.outcome import Decided
from anabranch.core.request import Request
from anabranch.core.wire.messages.renew_delegation_token import (
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)


def decide(controller: Controller, request: Request) -> Decided:
    """Renew it."""
    body: RenewDelegationTokenRequest = request.body
    check_enabled(controller.image, controller.config)
    token = renewed(
        controller.token_of(bytes(body.hmac)), request.principal, body.renew_period_ms,
        controller.config, controller.wall_ms,
    )  # fmt: skip
    sentence = f"renewed delegation token {token.token_id} of {token.owner}"
    answer = RenewDelegationTokenResponse(expiry_timestamp_ms=token.expiry_ms)
    return Result((entry(token),), answer, (Reason(Code.TOKENS_CHANGED, sentence),))


def refuse(_request: Request, code: ErrorCode, _sentence: str) -> RenewDelegationTokenResponse:
    """It stays as it is."""
    return RenewDelegationTokenResponse(error_code=code)


HANDLER = Handler(
    api_key=39,
    name="RenewDelegationToken",
    versions=range(1, 3),
    broker=passes_on((check_connection,), refuse),
    controller=decided_by((check_connection,), decide, refuse),
    forwards_some=True,
    kips=("KIP-48", "KIP-590", "KIP-900"),
)
