"""Delegation tokens: made, listed, renewed and ended with Kafka's requests (KIP-48).

Rule kept: the HMAC of a token, which is a password, is in no text of it. Not here: logins with one
(sasl.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from anabranch.client.cluster import Cluster, check
from anabranch.core.access.delegation_tokens import password_of
from anabranch.core.access.principal import Principal
from anabranch.core.errors import ClientFault, ErrorCode
from anabranch.core.wire.messages.create_delegation_token import (
    CreatableRenewers,
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from anabranch.core.wire.messages.describe_delegation_token import (
    DescribeDelegationTokenOwner,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)
from anabranch.core.wire.messages.expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)
from anabranch.core.wire.messages.renew_delegation_token import (
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)

SERVERS_CHOICE = -1
"""A period that the cluster chooses."""
AT_ONCE = -1


@dataclass(frozen=True)
class Token:
    """A token as a cluster tells of it. Times are in ms since 1970."""

    token_id: str
    hmac: bytes = field(repr=False)
    owner: Principal
    requester: Principal
    renewers: tuple[Principal, ...]
    issue_ms: int
    expiry_ms: int
    max_ms: int

    @property
    def password(self) -> str:
        """What logs in with it: its HMAC in Base64."""
        return password_of(self.hmac)


async def create_token(
    cluster: Cluster,
    renewers: Sequence[Principal] = (),
    *,
    owner: Principal | None = None,
    max_lifetime_ms: int = SERVERS_CHOICE,
) -> Token:
    """Make a token, of who asks or of another owner. Raises ApiError."""
    request = CreateDelegationTokenRequest(
        owner_principal_type=owner and owner.type, owner_principal_name=owner and owner.name,
        renewers=[CreatableRenewers(*each) for each in renewers], max_lifetime_ms=max_lifetime_ms,
    )  # fmt: skip
    made: CreateDelegationTokenResponse = await cluster.send(request)
    check(made.error_code)
    return Token(
        made.token_id, bytes(made.hmac), Principal(made.principal_type, made.principal_name),
        Principal(made.token_requester_principal_type, made.token_requester_principal_name),
        tuple(renewers), made.issue_timestamp_ms, made.expiry_timestamp_ms, made.max_timestamp_ms,
    )  # fmt: skip


async def list_tokens(cluster: Cluster, owners: Sequence[Principal] = ()) -> list[Token]:
    """The tokens that who asks may see, of all owners if none is named. Raises ApiError."""
    named = [DescribeDelegationTokenOwner(*each) for each in owners]
    answer: DescribeDelegationTokenResponse = await cluster.send(
        DescribeDelegationTokenRequest(owners=named or None)
    )
    check(answer.error_code)
    return [
        Token(
            each.token_id, bytes(each.hmac), Principal(each.principal_type, each.principal_name),
            Principal(each.token_requester_principal_type, each.token_requester_principal_name),
            tuple(Principal(one.principal_type, one.principal_name) for one in each.renewers),
            each.issue_timestamp, each.expiry_timestamp, each.max_timestamp,
        )
        for each in answer.tokens
    ]  # fmt: skip


async def find_token(cluster: Cluster, token_id: str) -> Token:
    """A token by its id. Raises ApiError if who asks sees none."""
    for each in await list_tokens(cluster):
        if each.token_id == token_id:
            return each
    raise ClientFault(
        ErrorCode.DELEGATION_TOKEN_NOT_FOUND,
        f"There is no delegation token {token_id}, or it is not yours to see.",
    )


async def renew_token(cluster: Cluster, token: Token, period_ms: int = SERVERS_CHOICE) -> int:
    """Let a token be good for longer; its new end. Raises ApiError."""
    request = RenewDelegationTokenRequest(hmac=token.hmac, renew_period_ms=period_ms)
    answer: RenewDelegationTokenResponse = await cluster.send(request)
    check(answer.error_code)
    return answer.expiry_timestamp_ms


async def expire_token(cluster: Cluster, token: Token, period_ms: int = AT_ONCE) -> int:
    """Let a token end after a period, or remove it now; its end. Raises ApiError."""
    request = ExpireDelegationTokenRequest(hmac=token.hmac, expiry_time_period_ms=period_ms)
    answer: ExpireDelegationTokenResponse = await cluster.send(request)
    check(answer.error_code)
    return answer.expiry_timestamp_ms
