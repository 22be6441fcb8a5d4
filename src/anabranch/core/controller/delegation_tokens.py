"""Plans for delegation tokens: made, renewed, let end, and removed when they are over.

Rules kept: no token outlives `delegation.token.max.lifetime.ms`, and each renewal is for
`delegation.token.expiry.time.ms` at most; only owner and renewers renew a token and let it end;
texts, codes and the order of checks are those of Kafka 4.1's DelegationTokenControlManager.
Decisions here use the time of day, alone in the controller: times of tokens are of that clock on
every node. A clock that goes back makes tokens live longer, never shorter.
Source: KIP-48, KIP-373. Not here: where requests about tokens are refused (`core/api/tokens.py`).
"""

from __future__ import annotations

import base64
from random import Random

from msgspec.structs import replace

from anabranch.core.access.delegation_tokens import DelegationToken, Tokens
from anabranch.core.access.principal import LARGEST_USER_BYTES, Principal
from anabranch.core.controller.brokers.sessions import AFTER_A_HIT_MS
from anabranch.core.controller.reasons import Code
from anabranch.core.controller.result import Reason, Result
from anabranch.core.controller.token_index import TokenIndex
from anabranch.core.errors import ClientFault, ErrorCode
from anabranch.core.metadata.features import METADATA_VERSION
from anabranch.core.metadata.image import MetadataImage
from anabranch.core.sentences import number_of
from anabranch.core.settings.broker import BrokerConfig
from anabranch.core.wire.metadata_records import MetadataRecord, RemoveDelegationTokenRecord

TOKENS_SINCE = 14
"""Level of metadata.version from which tokens have records (Kafka 3.6)."""
MOST_RECORDS = 1_000
"""Tokens that are removed in one run: Kafka's."""
LATEST_MS = 2**63 - 1
USER = "User"
MOST_RENEWERS = 1_000
"""Of one token: every node keeps them all in memory, and who logs in may ask for tokens."""


def check_enabled(image: MetadataImage, config: BrokerConfig) -> str:
    """The secret. Raises ClientFault where there are no tokens."""
    if not config.delegation_token_secret_key:
        raise ClientFault(ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED)
    if image.features.get(METADATA_VERSION, TOKENS_SINCE) < TOKENS_SINCE:
        raise ClientFault(ErrorCode.UNSUPPORTED_VERSION)
    return config.delegation_token_secret_key


def made(
    owner: Principal, requester: Principal, renewers: tuple[Principal, ...], lifetime_ms: int,
    config: BrokerConfig, rng: Random, wall_ms: int,
) -> DelegationToken:  # fmt: skip
    """A new token, for at most `lifetime_ms` if that is positive. Raises ClientFault."""
    _check_names(owner, renewers)
    most_ms = config.delegation_token_max_lifetime_ms
    max_ms = _later(wall_ms, min(most_ms, lifetime_ms) if lifetime_ms > 0 else most_ms)
    expiry_ms = min(max_ms, _later(wall_ms, config.delegation_token_expiry_time_ms))
    return DelegationToken(_new_id(rng), owner, requester, renewers, wall_ms, max_ms, expiry_ms)


def _check_names(owner: Principal, renewers: tuple[Principal, ...]) -> None:
    """Raise ClientFault for who can be no renewer, or could not log in as the owner."""
    if any(each.type != USER for each in (owner, *renewers)):
        raise ClientFault(ErrorCode.INVALID_PRINCIPAL_TYPE)
    if len(renewers) > MOST_RENEWERS or any(
        len(each.name.encode()) > LARGEST_USER_BYTES for each in (owner, *renewers)
    ):
        raise ClientFault(ErrorCode.INVALID_REQUEST)


def renewed(
    token: DelegationToken | None, who: Principal, period_ms: int, config: BrokerConfig,
    wall_ms: int,
) -> DelegationToken:  # fmt: skip
    """A token that was found, None if none was, good for longer. Raises ClientFault."""
    token = _existing(token)
    if token.is_over(wall_ms):
        raise ClientFault(ErrorCode.DELEGATION_TOKEN_EXPIRED)
    _check_renewer(token, who)
    most_ms = config.delegation_token_expiry_time_ms
    for_ms = min(period_ms, most_ms) if period_ms > 0 else most_ms
    return replace(token, expiry_ms=min(token.max_ms, _later(wall_ms, for_ms)))


def ended(
    token: DelegationToken | None, who: Principal, period_ms: int, wall_ms: int
) -> DelegationToken | RemoveDelegationTokenRecord:
    """A token that was found, None if none was, with an end after a period; or the record that
    removes it now, if the period is negative. Raises ClientFault."""
    token = _existing(token)
    _check_renewer(token, who)
    if period_ms < 0:
        return RemoveDelegationTokenRecord(token_id=token.token_id)
    if token.is_over(wall_ms):
        raise ClientFault(ErrorCode.DELEGATION_TOKEN_EXPIRED)
    return replace(token, expiry_ms=min(token.max_ms, _later(wall_ms, period_ms)))


def _existing(token: DelegationToken | None) -> DelegationToken:
    if token is None:
        raise ClientFault(ErrorCode.DELEGATION_TOKEN_NOT_FOUND)
    return token


def _check_renewer(token: DelegationToken, who: Principal) -> None:
    if not token.may_renew(who):
        raise ClientFault(ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH)


def _later(wall_ms: int, period_ms: int) -> int:
    return min(LATEST_MS, wall_ms + period_ms)


def _new_id(rng: Random) -> str:
    """A random UUID as Kafka writes them, which never begins with a dash."""
    while True:
        drawn = bytearray(rng.randbytes(16))
        drawn[6], drawn[8] = drawn[6] & 0x0F | 0x40, drawn[8] & 0x3F | 0x80
        text = base64.urlsafe_b64encode(bytes(drawn)).decode().rstrip("=")
        if not text.startswith("-"):
            return text


class TokenDuty:
    """Removes tokens that are over, every `delegation.token.expiry.check.interval.ms`."""

    def __init__(self, config: BrokerConfig, now_ms: int) -> None:
        self.due_ms = now_ms + config.delegation_token_expiry_check_interval_ms

    def due(
        self, tokens: Tokens, index: TokenIndex, config: BrokerConfig, now_ms: int, wall_ms: int
    ) -> Result[None] | None:
        """The removals, if it is time. `now_ms` is of the steady clock, `wall_ms` of the day."""
        if now_ms < self.due_ms:
            return None
        over = index.over(tokens, wall_ms, MOST_RECORDS + 1)
        goes_on = len(over) > MOST_RECORDS
        interval_ms = config.delegation_token_expiry_check_interval_ms
        self.due_ms = now_ms + (AFTER_A_HIT_MS if goes_on else interval_ms)
        records: list[MetadataRecord] = [
            RemoveDelegationTokenRecord(token_id=each) for each in over[:MOST_RECORDS]
        ]
        if not records:
            return None
        sentence = f"removed {number_of(len(records), 'delegation token')} that had expired"
        return Result(tuple(records), None, (Reason(Code.TOKENS_CHANGED, sentence),), atomic=False)
