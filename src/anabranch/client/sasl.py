"""Authentication of a connection as a client: the mechanism is named, then its messages pass.

Mechanisms: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512. Rule kept: no password is in an error, a log line
or a repr. A broker that wants a session renewed (KIP-368) closes the connection when it is over;
the next one is dialled as after any other end. Source: KIP-43, KIP-84, KIP-152.
"""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from anabranch.client.scram import MECHANISMS as SCRAM
from anabranch.client.scram import ScramClient, ScramFault
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
MECHANISMS = (PLAIN, *SCRAM)
NONCE_BYTES = 24

Send = Callable[[Message], Awaitable[Any]]
"""Sends a request in the newest common version; gives the response."""


@dataclass(frozen=True)
class Login:
    """Who a client is."""

    mechanism: str
    username: str
    password: str = field(repr=False)


async def authenticate(send: Send, address: str, login: Login) -> None:
    """Log in on a new connection. Raises ClientFault, which names the address and the remedy."""
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
            await _say(send, address, login, f"\0{login.username}\0{login.password}".encode())
        else:
            await _prove(send, address, login)
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


async def _prove(send: Send, address: str, login: Login) -> None:
    nonce = secrets.token_urlsafe(NONCE_BYTES)
    scram = ScramClient(login.mechanism, login.username, login.password, nonce)
    server_first = await _say(send, address, login, scram.first())
    scram.check(await _say(send, address, login, scram.final(server_first)))


async def _say(send: Send, address: str, login: Login, message: bytes) -> bytes:
    answer: SaslAuthenticateResponse = await send(SaslAuthenticateRequest(auth_bytes=message))
    if answer.error_code:
        raise _refused(address, login, answer.error_code, answer.error_message)
    return bytes(answer.auth_bytes)


def _refused(address: str, login: Login, code: int, message: str | None) -> ClientFault:
    known = ErrorCode(code)
    said = f" It says: {message}" if message else ""
    if login.password:  # a broker that repeats what it was sent must not have it printed
        said = said.replace(login.password, "…")
    end = "" if not said or said.endswith((".", "!", "?")) else "."
    return ClientFault(
        known,
        f"{address} does not let user {login.username!r} in with {login.mechanism} "
        f"({known.name}).{said}{end} Check username and password in sasl.jaas.config, and "
        "sasl.mechanism.",
    )
