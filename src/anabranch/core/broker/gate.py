"""The gate in front of handlers: who may knock, with what right, and at whose expense.

What: what each API key needs (`Need`) and draws on (`Charge`), as tables in its `HANDLER`; the
session of a connection, a machine of three states; `admit`, the one question that is asked before
a handler runs; and `charge`, which counts what its answer took, before the answer is made into
bytes: the answer tells how long the connection rests. Why one place: access control, SASL and
quotas then add rows and a source of limits, and no handler changes.

    handshake --ACCEPTED--> authenticated --TIME_OVER--> expired --ACCEPTED--> authenticated

Rules kept: a session that is not authenticated gets only what opens one (ApiVersions, the SASL
keys); an unknown pair of state and event raises; a session on a listener where all may speak is
authenticated from the start, and only looked at once it has been muted (`is_restricted`); a request
on a muted connection is run later, not refused; a fetch that is over its quota brings nothing, and
what it would have brought is not counted. Source: KIP-43 and KIP-152 (order of SASL requests),
KIP-368 (expiry), KIP-219 (muting after the answer). Not here: ACLs (`core.access.authorize`, which
handlers ask for each topic and group by name), mechanisms of SASL, limits (`core.quotas`).
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, NamedTuple, Protocol

from anabranch.core.errors import Bug
from anabranch.core.types import NO_TIME_MS

if TYPE_CHECKING:
    from anabranch.core.access.authorize import Operation, ResourceType
    from anabranch.core.access.login import Login
    from anabranch.core.access.principal import Principal
    from anabranch.core.request import Request

NS_OF_A_PERCENT = 10_000_000
"""A hundredth of a second, since quotas of time are in per cent."""


class Need(NamedTuple):
    """What a handler asks the authorizer before it looks at something."""

    operation: Operation
    resource: ResourceType


class Charge(Enum):
    """The quota that a request draws on, in Kafka's words."""

    PRODUCE = "producer_byte_rate"
    FETCH = "consumer_byte_rate"
    REQUEST = "request_percentage"
    MUTATION = "controller_mutation_rate"
    EXEMPT = "exempt"
    """What brokers and controllers ask of each other."""


class SessionState(Enum):
    """How far a connection has come."""

    HANDSHAKE = "handshake"
    AUTHENTICATED = "authenticated"
    EXPIRED = "expired"


class SessionEvent(Enum):
    """What happens to a session."""

    ACCEPTED = "accepted"
    TIME_OVER = "time over"


class Verdict(Enum):
    """What becomes of a request at the gate."""

    ADMIT = "admit"
    WAIT = "wait"
    """Its connection is muted: the request is run at `muted_until_ms`."""
    CLOSE = "close"


_NEXT = {
    (SessionState.HANDSHAKE, SessionEvent.ACCEPTED): SessionState.AUTHENTICATED,
    (SessionState.AUTHENTICATED, SessionEvent.ACCEPTED): SessionState.AUTHENTICATED,
    (SessionState.AUTHENTICATED, SessionEvent.TIME_OVER): SessionState.EXPIRED,
    (SessionState.EXPIRED, SessionEvent.ACCEPTED): SessionState.AUTHENTICATED,
}

_VERDICTS = {
    (SessionState.HANDSHAKE, True): Verdict.ADMIT,
    (SessionState.HANDSHAKE, False): Verdict.CLOSE,
    (SessionState.AUTHENTICATED, True): Verdict.ADMIT,
    (SessionState.AUTHENTICATED, False): Verdict.ADMIT,
    (SessionState.EXPIRED, True): Verdict.ADMIT,
    (SessionState.EXPIRED, False): Verdict.CLOSE,
}
"""(state, whether the API key opens sessions) -> verdict."""


class Session:
    """The session of one connection. Times are of the clock that never goes back.

    `is_restricted`: the gate is asked about each request."""

    __slots__ = (
        "expires_ms", "is_by_token", "is_restricted", "login", "mechanism", "muted_until_ms",
        "principal", "refusal", "state", "takes_tokens",
    )  # fmt: skip

    def __init__(self, principal: Principal, *, is_restricted: bool = False) -> None:
        self.principal = principal
        self.is_restricted = is_restricted
        self.state = SessionState.HANDSHAKE if is_restricted else SessionState.AUTHENTICATED
        self.expires_ms = NO_TIME_MS
        self.is_by_token = False
        """Whether the peer has shown a delegation token."""
        self.muted_until_ms = NO_TIME_MS
        self.login: Login | None = None
        """The login that is under way (`core.broker.authentication`)."""
        self.mechanism = ""
        """That of the login that has ended well, "" before there is one."""
        self.refusal = ""
        """Why its login is refused, until that is told and counted."""
        self.takes_tokens = False
        """Whether the next frame is a message of the login, without a request's header."""

    def step(self, event: SessionEvent) -> None:
        """Go on to the next state. Raises Bug for an event that cannot happen now."""
        after = _NEXT.get((self.state, event))
        if after is None:
            raise Bug(f"a session that is {self.state.value} cannot be {event.value}")
        self.state = after

    def accept(
        self, principal: Principal, expires_ms: int = NO_TIME_MS, *, is_by_token: bool = False
    ) -> None:
        """The peer has shown who it is; it must do so again by `expires_ms`."""
        self.step(SessionEvent.ACCEPTED)
        self.is_by_token = is_by_token
        self.principal, self.expires_ms = principal, expires_ms

    @property
    def is_for_good(self) -> bool:
        """Whether the peer has shown who it is, and need not do so again."""
        return self.state is SessionState.AUTHENTICATED and self.expires_ms == NO_TIME_MS

    @property
    def is_begun(self) -> bool:
        """Whether the peer has shown who it is, at least once."""
        return self.state is not SessionState.HANDSHAKE

    def begin_login(self, login: Login) -> None:
        """A login is under way, and has the next messages."""
        self.login, self.takes_tokens = login, login.is_bare

    def end_login(self) -> None:
        """It has ended well."""
        if self.login is not None:
            self.mechanism = self.login.name
        self.login, self.takes_tokens = None, False


class Quotas(Protocol):
    """Where limits come from."""

    def charge(
        self, principal: Principal, client_id: str | None, kind: Charge, amount: float, now_ms: int
    ) -> int:
        """Count what a request took; for how many milliseconds its connection must rest."""

    def take_back(
        self, principal: Principal, client_id: str | None, kind: Charge, amount: float, now_ms: int
    ) -> bool:
        """Count it no more, since it is not sent; False where it must be, now or never."""


def admit(session: Session, *, opens_session: bool, now_ms: int) -> Verdict:
    """What becomes of a request on a restricted session."""
    if session.state is SessionState.AUTHENTICATED and NO_TIME_MS != session.expires_ms <= now_ms:
        session.step(SessionEvent.TIME_OVER)
    verdict = _VERDICTS[session.state, opens_session]
    if verdict is Verdict.ADMIT and now_ms < session.muted_until_ms:
        return Verdict.WAIT
    return verdict


class Taken(NamedTuple):
    """What a request took."""

    request_bytes: int
    answer_bytes: int
    time_ns: int
    """Of the node's loop; 0 where it is not charged."""

    def amount(self, kind: Charge) -> int:
        """What bytes are charged of one kind."""
        return {Charge.PRODUCE: self.request_bytes, Charge.FETCH: self.answer_bytes}.get(kind, 0)


class Rest(NamedTuple):
    """For how long a connection rests, and whether its answer is sent without what it brings."""

    rest_ms: int
    is_empty: bool = False


NO_REST = Rest(0)


def charge(quotas: Quotas, request: Request, kind: Charge, taken: Taken, now_ms: int) -> Rest:
    """Count what a request took."""
    if kind is Charge.EXEMPT:
        return NO_REST
    who = request.principal, request.client_id
    rest_ms = 0
    if taken.time_ns:
        percent = taken.time_ns / NS_OF_A_PERCENT
        rest_ms = quotas.charge(*who, Charge.REQUEST, percent, now_ms)
    amount = taken.amount(kind)
    if amount:
        rest_ms = max(rest_ms, quotas.charge(*who, kind, amount, now_ms))
    is_empty = rest_ms > 0 and kind is Charge.FETCH and quotas.take_back(*who, kind, amount, now_ms)
    return Rest(rest_ms, is_empty)


def mute(session: Session, rest_ms: int, now_ms: int) -> None:
    """Run nothing more of its connection for so long."""
    if rest_ms > 0:
        session.is_restricted = True
        session.muted_until_ms = max(session.muted_until_ms, now_ms + rest_ms)
