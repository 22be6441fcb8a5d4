"""Delegation tokens: what is kept of one, and the password that it stands for.

What: a token has an owner, in whose name its holder comes, and others who may renew it. Its
password is an HMAC of its id under `delegation.token.secret.key`, which all nodes share: it is in
no record, and each node makes it again. Rule kept: a token that is over is good for
nothing, whether it has been removed yet or not. Times are of the time of day, as Kafka's records
have them. Source: KIP-48, KIP-373 (owners). Not here: who may do what with one
(`core/controller/delegation_tokens.py`), logins (`scram_server.py`).
"""

from __future__ import annotations

import base64
import hmac
from collections.abc import Callable, Mapping
from functools import lru_cache

import msgspec

from anabranch.core.access.principal import Principal
from anabranch.core.access.scram_credential import ScramCredential
from anabranch.core.access.scram_server import (
    ITERATIONS,
    SALT_BYTES,
    TokenLogin,
    make_credential,
    salted,
)

HASH = "sha512"
KEPT_HMACS = 10_000
KEPT_CREDENTIALS = 1_000
"""At most so many are kept: a credential takes thousands of hashes to make."""


class DelegationToken(msgspec.Struct, frozen=True, gc=False):
    """One token. `requester` asked for it, for itself or for another `owner`. It can be renewed
    until `max_ms`, and is good until `expiry_ms`."""

    token_id: str
    owner: Principal
    requester: Principal
    renewers: tuple[Principal, ...]
    issue_ms: int
    max_ms: int
    expiry_ms: int

    def is_over(self, wall_ms: int) -> bool:
        """Whether it is no longer good."""
        return self.end_ms < wall_ms

    @property
    def end_ms(self) -> int:
        """Until when it is good, unless it is renewed."""
        return min(self.max_ms, self.expiry_ms)

    def may_renew(self, principal: Principal) -> bool:
        """Whether someone may renew it, or let it end."""
        return principal == self.owner or principal in self.renewers

    @property
    def people(self) -> tuple[Principal, ...]:
        """Its owner, who has asked for it, and who may renew it."""
        return (self.owner, self.requester, *self.renewers)


Tokens = Mapping[str, DelegationToken]
"""By id."""


@lru_cache(KEPT_HMACS)
def hmac_of(secret: str, token_id: str) -> bytes:
    """What proves that somebody was given a token."""
    return hmac.digest(secret.encode(), token_id.encode(), HASH)


def password_of(token_hmac: bytes) -> str:
    """The HMAC as SCRAM's password."""
    return base64.b64encode(token_hmac).decode()


def principal_of(text: str) -> Principal:
    """Who a record names: `User:alice`."""
    kind, _, name = text.partition(":")
    return Principal(kind, name)


def finder(
    mechanism: str, secret: str, salt_key: bytes, tokens: Callable[[], Tokens]
) -> Callable[[str], TokenLogin | None]:
    """How a login with a mechanism finds a token by its id. `salt_key` is known to no client."""

    @lru_cache(KEPT_CREDENTIALS)
    def credential(token_id: str) -> ScramCredential:
        salt = hmac.digest(salt_key, token_id.encode(), HASH)[:SALT_BYTES]
        password, iterations = password_of(hmac_of(secret, token_id)), ITERATIONS[0]
        made = salted(mechanism, password, salt, iterations)
        return make_credential(mechanism, made, salt, iterations)

    def find(token_id: str) -> TokenLogin | None:
        token = tokens().get(token_id) if secret else None
        if token is None:
            return None
        return TokenLogin(credential(token_id), token.owner.name, token.end_ms)

    return find
