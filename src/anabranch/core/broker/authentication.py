"""SASL on a listener: which mechanisms it offers, and the login that is under way on a connection.

What: `Logins` of a listener makes a mechanism's machine for each login; `handshake` and
`authenticate` are what the two requests of SASL mean. A login is a machine on its connection's
session:

    no login --handshake--> under way --last message--> no login, and the session is the user's
                            under way --message that is refused--> the connection is closed

Rules kept: any other order closes the connection; who is let in again (KIP-368) stays who it was,
and comes with the mechanism that it came with; an answer that refuses waits, so that guessing is
slow, and holds up its connection alone; a client that leaves before it hears of its refusal has
failed all the same (`Session.refusal`).
Source: KIP-43, KIP-152, KIP-368. Version 0 of SaslHandshake means that the messages come without a
header (`bare`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from anabranch.core.access.login import Login, LoginRefused, Mechanism, OtherMechanism, Reply
from anabranch.core.access.principal import LARGEST_USER_BYTES, Principal
from anabranch.core.errors import ErrorCode
from anabranch.core.outcome import Accept, Hangup, Outcome, Refuse, Wait
from anabranch.core.types import NO_TIME_MS
from anabranch.core.wire.messages.sasl_authenticate import SaslAuthenticateResponse
from anabranch.core.wire.messages.sasl_handshake import SaslHandshakeResponse

if TYPE_CHECKING:
    from anabranch.core.broker.gate import Session
    from anabranch.core.request import Request

FIRST_VERSION_WITH_HEADERS = 1


@dataclass(slots=True)
class Logins:
    """What a listener with SASL offers: `mechanisms` makes the machine of a new login."""

    mechanisms: Mapping[str, Callable[[], Mechanism]]
    lifetime_ms: Mapping[str, int] = field(default_factory=dict)
    """For how long a login is good, by mechanism; 0 or none: for good (KIP-368)."""
    delay_ms: int = 0
    """How long a refusal waits."""


class Authenticating(Protocol):
    """A broker or a controller."""

    logins: Mapping[str, Logins]
    """By listener, those with SASL."""


@dataclass(frozen=True, slots=True)
class Clock:
    """The three clocks of a request: what handlers are told, the time of day, the steady one."""

    now_ms: int
    wall_ms: int
    steady_ms: int


def handshake(node: Authenticating, request: Request) -> Outcome:
    """A client names its mechanism."""
    logins = node.logins.get(request.listener)
    session: Any = request.session
    if logins is None or session is None:
        return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)
    if session.login is not None:
        return Hangup("SaslHandshake came in the midst of a login")
    if session.is_for_good:
        return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)
    name, offered = request.body.mechanism, list(logins.mechanisms)
    begin = logins.mechanisms.get(name)
    if begin is None:
        code = ErrorCode.UNSUPPORTED_SASL_MECHANISM
        answer = SaslHandshakeResponse(error_code=code, mechanisms=offered)
        return Refuse(answer, f"a client asks for SASL mechanism {name[:64]!r}", is_login=True)
    is_bare = request.version < FIRST_VERSION_WITH_HEADERS
    is_other = session.mechanism not in ("", name)
    machine = OtherMechanism(name, session.mechanism) if is_other else begin()
    session.begin_login(Login(name, machine, is_bare))
    return SaslHandshakeResponse(mechanisms=offered)


def authenticate(node: Authenticating, request: Request, clock: Clock) -> Outcome:
    """A message of the mechanism."""
    logins = node.logins.get(request.listener)
    session: Any = request.session
    if logins is None or session is None or (session.login is None and session.is_for_good):
        return SaslAuthenticateResponse(
            error_code=ErrorCode.ILLEGAL_SASL_STATE,
            error_message="SaslAuthenticate request received after successful authentication",
        )
    login: Login | None = session.login
    if login is None:
        return Hangup("SaslAuthenticate came before SaslHandshake")
    try:
        reply = login.machine.respond(bytes(request.body.auth_bytes), clock.wall_ms)
        if reply.user is None:
            session.refusal = reply.refusal
            return SaslAuthenticateResponse(auth_bytes=reply.answer)
        return _accepted(session, login, logins, reply, reply.user, clock)
    except LoginRefused as refused:
        session.refusal = str(refused)
        return _refused(refused, logins.delay_ms, clock.now_ms)


def _accepted(
    session: Session, login: Login, logins: Logins, reply: Reply, user: str, clock: Clock
) -> Accept:
    principal = Principal("User", user)
    if len(user.encode()) > LARGEST_USER_BYTES:
        raise LoginRefused("the user's name is too long", "Authentication failed")
    if session.is_begun and session.principal != principal:
        why = (
            "Cannot change principals during re-authentication from "
            f"{session.principal} to {principal}"
        )
        raise LoginRefused(why, why)
    session.end_login()
    lifetime_ms = logins.lifetime_ms.get(login.name, 0)
    if reply.ends_ms != NO_TIME_MS:
        left_ms = max(1, reply.ends_ms - clock.wall_ms)
        lifetime_ms = min(lifetime_ms, left_ms) if lifetime_ms else left_ms
    expires_ms = clock.steady_ms + lifetime_ms if lifetime_ms else NO_TIME_MS
    answer = SaslAuthenticateResponse(auth_bytes=reply.answer, session_lifetime_ms=lifetime_ms)
    return Accept(principal, expires_ms, answer, reply.is_by_token)


def _refused(refused: LoginRefused, delay_ms: int, now_ms: int) -> Outcome:
    answer = SaslAuthenticateResponse(
        error_code=ErrorCode.SASL_AUTHENTICATION_FAILED, error_message=refused.told
    )
    outcome = Refuse(answer, f"a login is refused: {refused}", is_login=True)
    if delay_ms <= 0:
        return outcome
    return Wait((), now_ms + delay_ms, lambda _now_ms, _expired: outcome, holds_up=True)
