"""DescribeDelegationToken: tokens of some owners, or all, with their HMACs.

KIP: KIP-48, KIP-373 (DESCRIBE_TOKENS).
Versions: 1-3.
Behaviour: refused on connections that show no one, and on those by token. A broker tells what its
    image has. Owner, requester and renewers see a token; others need DESCRIBE on the token, or
    DESCRIBE_TOKENS on its owner. Null owners are all, an empty list is none. Tokens that are over
    are listed until they are removed.
Skipped: nothing
"""

from __future__ import annotations

from anabranch.core.access.authorize import Operation, ResourceType
from anabranch.core.access.delegation_tokens import DelegationToken, hmac_of
from anabranch.core.access.principal import Principal
from anabranch.core.api.context import Broker
from anabranch.core.api.handler import Handler
from anabranch.core.api.tokens import check_connection, may
from anabranch.core.broker.gate import Need
from anabranch.core.errors import ClientFault, ErrorCode
from anabranch.core.request import Request
from anabranch.core.wire.messages.describe_delegation_token import (
    DescribedDelegationToken,
    DescribedDelegationTokenRenewer,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)


def run(broker: Broker, request: Request, _now_ms: int) -> DescribeDelegationTokenResponse:
    """The tokens that the request may see."""
    try:
        check_connection(broker, request)
    except ClientFault as fault:
        return DescribeDelegationTokenResponse(error_code=fault.code)
    secret = broker.config.delegation_token_secret_key
    if not secret:
        return DescribeDelegationTokenResponse(error_code=ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED)
    body: DescribeDelegationTokenRequest = request.body
    owners = body.owners
    named = {Principal(each.principal_type, each.principal_name) for each in owners or ()}
    shown = [
        _described(token, secret)
        for _, token in sorted(broker.image.tokens.items())
        if (owners is None or not named.isdisjoint(token.people))
        and _may_see(broker, request, token)
    ]
    return DescribeDelegationTokenResponse(tokens=shown)


def _may_see(broker: Broker, request: Request, token: DelegationToken) -> bool:
    return (
        request.principal in token.people
        or may(
            broker, request, Operation.DESCRIBE, ResourceType.DELEGATION_TOKEN, token.token_id
        )
        or may(
            broker, request, Operation.DESCRIBE_TOKENS, ResourceType.USER, str(token.owner)
        )
    )  # fmt: skip


def _described(token: DelegationToken, secret: str) -> DescribedDelegationToken:
    return DescribedDelegationToken(
        principal_type=token.owner.type, principal_name=token.owner.name,
        token_requester_principal_type=token.requester.type,
        token_requester_principal_name=token.requester.name,
        issue_timestamp=token.issue_ms, expiry_timestamp=token.expiry_ms,
        max_timestamp=token.max_ms, token_id=token.token_id, hmac=hmac_of(secret, token.token_id),
        renewers=[DescribedDelegationTokenRenewer(*each) for each in token.renewers],
    )  # fmt: skip


HANDLER = Handler(
    api_key=41,
    name="DescribeDelegationToken",
    versions=range(1, 4),
    broker=run,
    needs=(
        Need(Operation.DESCRIBE, ResourceType.DELEGATION_TOKEN),
        Need(Operation.DESCRIBE_TOKENS, ResourceType.USER),
    ),
    kips=("KIP-48", "KIP-373"),
)
