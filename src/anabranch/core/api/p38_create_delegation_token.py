"""CreateDelegationToken: a token is made, for the requester or another owner.

KIP: KIP-48, KIP-373 (other owners), KIP-590 (forwarded), KIP-900.
Versions: 1-3.
Behaviour: refused on connections that show no one, and on those by token. For another owner it
    needs CREATE_TOKENS on that user. The controller decides; its clock gives the times. Owners
    and renewers are users, at most 1,000 of a token, whose names can log in. The answer
    has the HMAC, which is the token's password.
Skipped: nothing
"""

from __future__ import annotations

from msgspec.structs import replace

from anabranch.core.access.authorize import Operation, ResourceType
from anabranch.core.access.delegation_tokens import hmac_of
from anabranch.core.access.principal import Principal
from anabranch.core.api.handler import Handler
from anabranch.core.api.tokens import (
    check_connection,
    check_owner,
    decided_by,
    owner_of,
    passes_on,
)
from anabranch.core.broker.gate import Need
from anabranch.core.controller.controller import Controller
from anabranch.core.controller.delegation_tokens import check_enabled, made
from anabranch.core.controller.reasons import Code
from anabranch.core.controller.result import Reason, Result
from anabranch.core.errors import ErrorCode
from anabranch.core.metadata.concerns.delegation_tokens import entry
from anabranch.core.outcome import Decided
from anabranch.core.request import Request
from anabranch.core.wire.messages.create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)


def decide(controller: Controller, request: Request) -> Decided:
    """Make a token."""
    body: CreateDelegationTokenRequest = request.body
    secret = check_enabled(controller.image, controller.config)
    renewers = tuple(Principal(each.principal_type, each.principal_name) for each in body.renewers)
    owner, lifetime_ms = owner_of(request), body.max_lifetime_ms
    token = made(
        owner, request.principal, renewers, lifetime_ms, controller.config, controller.rng,
        controller.wall_ms,
    )  # fmt: skip
    answer = replace(
        _answer(request), issue_timestamp_ms=token.issue_ms,
        expiry_timestamp_ms=token.expiry_ms, max_timestamp_ms=token.max_ms,
        token_id=token.token_id, hmac=hmac_of(secret, token.token_id),
    )  # fmt: skip
    sentence = f"made delegation token {token.token_id} of {owner}"
    return Result((entry(token),), answer, (Reason(Code.TOKENS_CHANGED, sentence),))


def _answer(request: Request) -> CreateDelegationTokenResponse:
    owner, requester = owner_of(request), request.principal
    return CreateDelegationTokenResponse(
        principal_type=owner.type, principal_name=owner.name,
        token_requester_principal_type=requester.type,
        token_requester_principal_name=requester.name,
    )  # fmt: skip


def refuse(request: Request, code: ErrorCode, _sentence: str) -> CreateDelegationTokenResponse:
    """No token."""
    times = dict.fromkeys(("issue_timestamp_ms", "expiry_timestamp_ms", "max_timestamp_ms"), -1)
    return replace(_answer(request), error_code=code, **times)


CHECKS = (check_connection, check_owner)
HANDLER = Handler(
    api_key=38,
    name="CreateDelegationToken",
    versions=range(1, 4),
    broker=passes_on(CHECKS, refuse),
    controller=decided_by(CHECKS, decide, refuse),
    needs=(Need(Operation.CREATE_TOKENS, ResourceType.USER),),
    forwards_some=True,
    kips=("KIP-48", "KIP-373", "KIP-590", "KIP-900"),
)
