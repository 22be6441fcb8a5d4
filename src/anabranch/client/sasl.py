"""Authentication of a connection as a client: the mechanism is named, then its messages pass.

Mechanisms: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER. `authenticate` tells for how long a
broker lets the session be; the connection renews it in time (KIP-368). Rule kept: no password and
no token is in an error, a log line or a repr. Source: KIP-43, KIP-84, KIP-152.
"""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from anabranch.client.scram import MECHANISMS as SCRAM
from anabranch.client.scram import ScramClient, ScramFault
from anabranch.client.tokens import TokenSource, token_of
from anabranch.core.access.bearer import OAUTHBEARER, SEPARATOR
from anabranch.core.errors import ClientFault, ErrorCode
from anabranch.core.wire.messages.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from anabranch.core.wire.messages.sasl_handshake import (
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from anabranch.core.wire.schema import Message

PLAIN = "PLAIN"
MECHANISMS = (PLAIN, *SCRAM, OAUTHBEARER)
NONCE_BYTES = 24

Send = Callable[[Message], Awaitable[Any]]
"""Sends a request in the newest common version; gives the response."""


@dataclass(frozen=True)
class Login:
    """Who a client is."""

    mechanism: str
    username: str
    password: str = field(repr=False)
    tokens: TokenSource | None = None
    """Where OAUTHBEARER has its tokens from."""
    extensions: tuple[tuple[str, str], ...] = ()
    """What OAUTHBEARER says beside the token (KIP-342)."""
    is_token: bool = False
    """Whether name and password are id and HMAC of a delegation token (KIP-48)."""


async def authenticate(send: Send, address: str, login: Login) -> int:
    """Log in; for how many milliseconds the session is good, 0: for good. Raises ClientFault, which
    names the address and the remedy."""
    token = "" if login.tokens is None else await token_of(login.tokens)
    shake: SaslHandshakeResponse = await send(SaslHandshakeRequest(mechanism=login.mechanism))
    if shake.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM:
        offered = ", ".join(shake.mechanisms) or "none"
        raise ClientFault(
            ErrorCode.UNSUPPORTED_SASL_MECHANISM,
            f"{address} does not offer sasl.mechanism {login.mechanism}; it offers {offered}.",
        )
    if shake.error_code == ErrorCode.ILLEGAL_SASL_STATE:
        raise asks_for_none(address, ErrorCode.ILLEGAL_SASL_STATE)
    if shake.error_code:
        raise _refused(address, login, shake.error_code, None)
    try:
        if login.mechanism == PLAIN:
            message = f"\0{login.username}\0{login.password}"
            answer = await _say(send, address, login, message.encode())
        elif login.tokens is not None:
            answer = await _show(send, address, login, token)
        else:
            answer = await _prove(send, address, login)
        return answer.session_lifetime_ms
    except ScramFault as fault:
        text = f"{address} cannot be trusted with {login.mechanism}: {fault}."
        raise ClientFault(ErrorCode.SASL_AUTHENTICATION_FAILED, text) from None


def asks_for_none(address: str, code: ErrorCode) -> ClientFault:
    """What a listener without SASL means."""
    return ClientFault(
        code,
        f"{address} does not ask for a login. Set security.protocol to PLAINTEXT or SSL, as its "
        "listener has it.",
    )


async def _show(send: Send, address: str, login: Login, token: str) -> SaslAuthenticateResponse:
    more = "".join(f"{name}={text}{SEPARATOR}" for name, text in login.extensions)
    message = f"n,,{SEPARATOR}auth=Bearer {token}{SEPARATOR}{more}{SEPARATOR}"
    answer = await _say(send, address, login, message.encode(), token)
    if answer.auth_bytes:  # it is refused: the broker tells why once it hears that this is known
        answer = await _say(send, address, login, SEPARATOR.encode(), token)
    return answer


async def _prove(send: Send, address: str, login: Login) -> SaslAuthenticateResponse:
    nonce = secrets.token_urlsafe(NONCE_BYTES)
    scram = ScramClient(
        login.mechanism, login.username, login.password, nonce, is_token=login.is_token
    )
    begun = await _say(send, address, login, scram.first())
    ended = await _say(send, address, login, scram.final(bytes(begun.auth_bytes)))
    scram.check(bytes(ended.auth_bytes))
    return ended


async def _say(
    send: Send, address: str, login: Login, message: bytes, token: str = ""
) -> SaslAuthenticateResponse:
    answer: SaslAuthenticateResponse = await send(SaslAuthenticateRequest(auth_bytes=message))
    if answer.error_code:
        raise _refused(address, login, answer.error_code, answer.error_message, token)
    return answer


def _refused(
    address: str, login: Login, code: int, message: str | None, token: str = ""
) -> ClientFault:
    known = ErrorCode(code)
    said = f" It says: {message}" if message else ""
    for secret in (login.password, token, token.rpartition(".")[2]):
        if secret:  # a broker that repeats what it was sent must not have it printed
            said = said.replace(secret, "…")
    end = "" if not said or said.endswith((".", "!", "?")) else "."
    if login.tokens is not None:
        return ClientFault(
            known,
            f"{address} does not accept the token from {login.tokens.url.partition('?')[0]} "
            f"({known.name}).{said}{end} The broker's log tells the cause; check end, audience and "
            "issuer of the token.",
        )
    if login.is_token:
        return ClientFault(
            known,
            f"{address} does not let delegation token {login.username!r} in with "
            f"{login.mechanism} ({known.name}).{said}{end} The token may be over or unknown: look "
            "with anabranch tokens list, and check id and HMAC in sasl.jaas.config.",
        )
    return ClientFault(
        known,
        f"{address} does not let user {login.username!r} in with {login.mechanism} "
        f"({known.name}).{said}{end} Check username and password in sasl.jaas.config, and "
        "sasl.mechanism.",
    )
