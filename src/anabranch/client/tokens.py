"""Where a client of OAUTHBEARER has its token from: a file, or the token endpoint of a provider.

What: `TokenSource` says where, in texts that can be sent to tasks; `token_of` gives a token. A file
is read for each login. A token of an endpoint (OAuth's client credentials) is used for logins until
four fifths of its life are over, by this process. Rules kept: no token and no secret is in an
error, a log line or a repr; there are three tries, also of a file, which may just be written.
Source: RFC 6749 §4.4; Kafka's FileJwtRetriever and ClientCredentialsJwtRetriever. Not here: what is
said to a broker (`sasl.py`), whether a token is good, which brokers decide.
"""

from __future__ import annotations

import asyncio
import base64
import json
import re
import time
import urllib.parse
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

from anabranch.client.stores import StoreFault
from anabranch.client.web import Ask, FetchFault, fetch, trust_of
from anabranch.core.errors import ClientFault, ErrorCode

SHARE_OF_LIFE = 0.8
"""Kafka's `sasl.login.refresh.window.factor`."""
TRIES = 3
PAUSE_SECONDS = 0.2
LARGEST_TOKEN_BYTES = 512 << 10
_TOKEN = re.compile(r"[-A-Za-z0-9._~+/]+=*")


@dataclass(frozen=True)
class TokenSource:
    """`url`: `file://` with a token, or a token endpoint, which is asked with `client_id` and
    `client_secret`. `trust`: whom https trusts, as `ssl.truststore.…` of the login module."""

    url: str
    client_id: str = ""
    client_secret: str = field(default="", repr=False)
    scope: str = ""
    trust: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    connect_seconds: float = 10.0
    read_seconds: float = 10.0


_Found = tuple[str, float]
"""A token, and for how many seconds it is good."""
REMEDY = "Check sasl.oauthbearer.token.endpoint.url, and the client's id and secret"


@dataclass
class _Kept:
    lock: asyncio.Lock
    token: str = ""
    good_until: float = 0.0
    """By the steady clock."""


_KEPT: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[TokenSource, _Kept]] = WeakKeyDictionary()


async def token_of(source: TokenSource) -> str:
    """A token for a login. Raises ClientFault, which names the address."""
    if source.url.startswith("file:"):
        return (await _tried(_read, source))[0]
    of_loop = _KEPT.setdefault(asyncio.get_running_loop(), {})
    kept = of_loop.setdefault(source, _Kept(asyncio.Lock()))
    async with kept.lock:
        if time.monotonic() >= kept.good_until:
            kept.token, seconds = await _tried(_ask, source)
            kept.good_until = time.monotonic() + SHARE_OF_LIFE * seconds
        return kept.token


async def _tried(how: Callable[[TokenSource], _Found], source: TokenSource) -> _Found:
    for number in range(1, TRIES):
        try:
            return await asyncio.to_thread(how, source)
        except FetchFault as fault:
            if not fault.is_temporary:
                raise _fault(f"{fault}. {REMEDY}") from None
        await asyncio.sleep(PAUSE_SECONDS * number)
    try:
        return await asyncio.to_thread(how, source)
    except FetchFault as fault:
        raise _fault(f"{fault}. {REMEDY}") from None


def _read(source: TokenSource) -> _Found:
    text = fetch(Ask(source.url)).decode("ascii", "replace")
    return _checked(text.strip(), source.url), 0.0


def _ask(source: TokenSource) -> _Found:
    form = {"grant_type": "client_credentials"}
    if source.scope:
        form["scope"] = source.scope
    parts = (source.client_id, source.client_secret)
    pair = ":".join(urllib.parse.quote(each, safe="") for each in parts).encode()
    headers = {"Authorization": f"Basic {base64.b64encode(pair).decode()}"}
    ask = Ask(source.url, headers, form, source.connect_seconds, source.read_seconds)
    try:
        found = json.loads(fetch(ask, trust_of(dict(source.trust))))
    except StoreFault as fault:
        raise _fault(str(fault)) from None
    except (ValueError, RecursionError):
        found = None
    answer = found if isinstance(found, dict) else {}
    token = _checked(answer.get("access_token") or answer.get("id_token"), source.url)
    return token, _seconds(token, answer.get("expires_in"))


def _checked(token: Any, where: str) -> str:
    if not isinstance(token, str) or not _TOKEN.fullmatch(token):
        raise FetchFault(f"{where.partition('?')[0]} has no token", is_temporary=True)
    if len(token) > LARGEST_TOKEN_BYTES:
        why = f"{where.partition('?')[0]} has a token of {len(token)} bytes, too many"
        raise FetchFault(why, is_temporary=False)
    return token


def _seconds(token: str, said: Any) -> float:
    """For how long a token is good; 0 where nothing tells it."""
    found = [said] if _is_time(said) else []
    claims = _claims(token)
    if _is_time(claims.get("exp")):
        found.append(claims["exp"] - time.time())
    return max(0.0, min(found, default=0.0))


def _claims(token: str) -> dict[str, Any]:
    try:
        payload = token.split(".")[1]
        claims = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
    except (ValueError, IndexError, RecursionError):
        return {}
    return claims if isinstance(claims, dict) else {}


def _is_time(value: Any) -> bool:
    return isinstance(value, int | float) and abs(value) < 1e12


def _fault(sentence: str) -> ClientFault:
    return ClientFault(
        ErrorCode.SASL_AUTHENTICATION_FAILED, f"There is no token to log in with: {sentence}."
    )
