"""OAUTHBEARER as its server: one message with a token, and what its claims must say.

    message := "n," ["a=" authorization id] "," SEP *(key "=" value SEP) SEP      SEP := %x01

One of the keys is `auth`, its value `Bearer TOKEN`. A token that is refused is answered with the
JSON of RFC 7628, the client says SEP alone, and then it is told that its login has failed.
Rules kept: a token has an end, a time of issue and a subject, which is the user's name; whatever is
wrong with it, its client is told the same; the log is told more, and never the token.
Source: RFC 7628, RFC 7519, Kafka's OAuthBearerSaslServer and BrokerJwtValidator. Not here:
signatures (`Verify`; `server/token_keys.py`).
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeGuard

from anabranch.core.access.login import LoginRefused, Reply, invalid_credentials, not_understood

OAUTHBEARER = "OAUTHBEARER"
MODULE = "OAuthBearerLoginModule"
SEPARATOR = "\x01"
INVALID_TOKEN = '{"status":"invalid_token"}'
"""What Kafka answers, whatever is wrong with a token."""
LARGEST_TOKEN_BYTES = 64 << 10
"""Far more than providers make. Kafka takes 512 KB, but who has shown nothing yet could keep the
node busy with them."""
LATEST_SECONDS = 253_402_300_799
"""The end of year 9999: a later end of a token is as good as this one."""
MS = 1_000
BLANKS = "".join(map(chr, range(0x21)))
"""What Java's `trim` takes away."""
SHOWN = 64
"""So much of a claim is repeated in the log."""

_GS2 = re.compile(r"n,(?:a=((?:[^=,]|=2C|=3D)+))?,")
_AUTH = re.compile(r"bearer +([-A-Za-z0-9._~+/]+=*)", re.IGNORECASE)
_KEY = re.compile(r"[A-Za-z]+")
_VALUE = re.compile(r"[\x21-\x7e \t\r\n]+")

Claims = Mapping[str, Any]
Verify = Callable[[str], Claims]
"""The claims of a token whose signature is right. Raises TokenRefused."""


class TokenRefused(Exception):
    """A token is not good: the sentence is for the log, and has no part of its signature."""


@dataclass(frozen=True)
class TokenRules:
    """What claims must say; names and defaults are those of `sasl.oauthbearer.*`."""

    audiences: tuple[str, ...] = ()
    issuer: str = ""
    scope_claim: str = "scope"
    subject_claim: str = "sub"
    skew_seconds: int = 30
    needs_time_of_issue: bool = True

    def judge(self, claims: Claims, wall_ms: int) -> tuple[str, int]:
        """The user's name, and when the token ends, in ms of the time of day. Raises
        TokenRefused."""
        ends = self._times(claims, wall_ms / MS)
        self._check_issuer(claims)
        self._check_scope(claims.get(self.scope_claim))
        name = _name(claims.get(self.subject_claim))
        if not name:
            raise TokenRefused(f"it has no text in its claim {self.subject_claim}")
        return name, int(min(ends, LATEST_SECONDS) * MS)

    def _times(self, claims: Claims, now: float) -> float:
        ends, starts, issued = (_time(claims, name) for name in ("exp", "nbf", "iat"))
        if ends is None:
            raise TokenRefused("it has no end (exp)")
        if issued is None and self.needs_time_of_issue:
            raise TokenRefused("it has no time of issue (iat)")
        if now - self.skew_seconds >= ends:
            raise TokenRefused(f"it ended {now - ends:.0f} seconds ago")
        if starts is not None and now + self.skew_seconds < starts:
            raise TokenRefused(f"it begins in {starts - now:.0f} seconds")
        if max(starts or 0, issued or 0) > ends:
            raise TokenRefused("it ends before it begins")
        return ends

    def _check_issuer(self, claims: Claims) -> None:
        if self.issuer and claims.get("iss") != self.issuer:
            raise TokenRefused(f"it is of another issuer ({_shown(claims.get('iss'))})")
        named = claims.get("aud")
        found = [named] if isinstance(named, str) else named
        if self.audiences and not (_is_texts(found) and set(found) & set(self.audiences)):
            raise TokenRefused(f"it is for another audience ({_shown(named)})")

    def _check_scope(self, scope: Any) -> None:
        found = scope if isinstance(scope, list) else [] if scope is None else [scope]
        if not _is_texts(found) or not all(each.strip() for each in found):
            raise TokenRefused(
                f"its claim {self.scope_claim} is neither a text nor a list of texts"
            )


def _name(value: Any) -> str:
    """A user's name as Kafka makes it of a claim; "" for what is none, also in UTF-8."""
    name = value.strip(BLANKS) if isinstance(value, str) else ""
    return name if name.encode(errors="ignore").decode() == name else ""


def _is_texts(value: Any) -> TypeGuard[list[str]]:
    return isinstance(value, list) and all(isinstance(each, str) for each in value)


def _shown(value: Any) -> str:
    return repr(value)[:SHOWN]


def _time(claims: Claims, name: str) -> float | None:
    found = claims.get(name)
    if found is None:
        return None
    if isinstance(found, bool) or not isinstance(found, int | float) or not _is_finite(found):
        raise TokenRefused(f"its claim {name} is no time")
    return float(found)


def _is_finite(number: float) -> bool:
    try:
        return math.isfinite(number)
    except OverflowError:  # an integer that no float can be
        return False


@dataclass(frozen=True)
class FirstMessage:
    """What a client begins with."""

    identity: str
    token: str


def read_first(message: bytes) -> FirstMessage | None:
    """The client's message; None for what is none."""
    try:
        start, *pairs, before_last, last = message.decode().split(SEPARATOR)
    except ValueError:
        return None
    gs2 = _GS2.fullmatch(start)
    found = dict(each.partition("=")[::2] for each in pairs)
    if gs2 is None or before_last or last or len(found) != len(pairs):
        return None
    auth = _AUTH.fullmatch(found.pop("auth", ""))
    if not all(_KEY.fullmatch(key) and _VALUE.fullmatch(text) for key, text in found.items()):
        return None
    identity = (gs2[1] or "").replace("=2C", ",").replace("=3D", "=")
    return None if auth is None else FirstMessage(identity, auth[1])


class BearerServer:
    """One login with OAUTHBEARER."""

    def __init__(self, verify: Verify, rules: TokenRules) -> None:
        self._verify = verify
        self._rules = rules
        self._why = ""

    def respond(self, message: bytes, wall_ms: int) -> Reply:
        """Judge the token, or hear that the client knows that it is refused."""
        if self._why:
            raise self._ended(message)
        if len(message) > LARGEST_TOKEN_BYTES:
            raise not_understood(
                OAUTHBEARER,
                f"a message with a token has at most {LARGEST_TOKEN_BYTES} bytes, and this one "
                f"{len(message)}",
            )
        first = read_first(message)
        if first is None:
            raise invalid_credentials(OAUTHBEARER, "the first message cannot be read")
        try:
            name, ends_ms = self._rules.judge(self._verify(first.token), wall_ms)
        except TokenRefused as refused:
            self._why = str(refused)
            why = f"{OAUTHBEARER}: the token is refused: {self._why}"
            return Reply(INVALID_TOKEN.encode(), refusal=why)
        if first.identity not in ("", name):
            raise _other_identity()
        return Reply(b"", name, ends_ms)

    def _ended(self, message: bytes) -> LoginRefused:
        if message != SEPARATOR.encode():
            return invalid_credentials(OAUTHBEARER, f"more follows on a token ({self._why})")
        return LoginRefused(f"{OAUTHBEARER}: the token is refused: {self._why}", INVALID_TOKEN)


def _other_identity() -> LoginRefused:
    return not_understood(
        OAUTHBEARER,
        "Client requested an authorization id that is different from the token's principal name",
    )
