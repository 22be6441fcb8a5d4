"""One login over SASL as the server sees it: what a mechanism says to each message of its client.

What: the contract between mechanisms (`plain.py`, `scram_server.py`, `bearer.py`) and requests
(`core/broker/authentication.py`). Rule kept: what a client is told about a refusal is the same
whatever was wrong with its name or its secret; the log is told more, and never a secret. Source:
KIP-43, KIP-152.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol

from anabranch.core.types import NO_TIME_MS


@dataclass(slots=True)
class Login:
    """A login that is under way. `is_bare`: its messages come without the header of a request."""

    name: str
    machine: Mechanism
    is_bare: bool


class LoginRefused(Exception):
    """A client is not let in: the text is for the log, `told` for the client."""

    def __init__(self, why: str, told: str) -> None:
        super().__init__(why)
        self.told = told


class Reply(NamedTuple):
    """What the server says next. `user` is set once the client has shown who it is; `ends_ms` is
    when what it showed is over, by the time of day. `refusal`: why it is not let in, for the log,
    where the client has a last word before it is told."""

    answer: bytes
    user: str | None = None
    ends_ms: int = NO_TIME_MS
    refusal: str = ""
    is_by_token: bool = False
    """Whether it was a delegation token."""


class Mechanism(Protocol):
    """One login: a machine that takes the client's messages in order."""

    def respond(self, message: bytes, wall_ms: int) -> Reply:
        """The answer to the next message, at a time of day. Raises LoginRefused."""


class OtherMechanism:
    """A session is to be renewed with another mechanism than it began with: that is refused."""

    def __init__(self, name: str, began_with: str) -> None:
        self._why = (
            f"SASL mechanism '{name}' requested by client is not supported for re-authentication "
            f"of mechanism '{began_with}'"
        )

    def respond(self, _message: bytes, _wall_ms: int) -> Reply:
        """Kafka, too, answers the mechanism's name well, and refuses its first message."""
        raise LoginRefused(self._why, self._why)


def invalid_credentials(mechanism: str, why: str) -> LoginRefused:
    """Name or secret are wrong: the client is not told which."""
    told = (
        "Authentication failed during authentication due to invalid credentials with SASL "
        f"mechanism {mechanism}"
    )
    return LoginRefused(f"{mechanism}: {why}", told)


def not_understood(mechanism: str, why: str) -> LoginRefused:
    """The client does not keep to the mechanism."""
    return LoginRefused(f"{mechanism}: {why}", f"Authentication failed: {why}")
