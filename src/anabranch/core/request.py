"""One request as handlers see it.

What: the decoded body, its version, and who sent it over which connection. Not here: the frame that
it came in (`core.wire.frame`), what a handler gives back (`core.outcome`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import msgspec

if TYPE_CHECKING:
    from anabranch.core.access.login import Login
    from anabranch.core.access.principal import Principal


NO_LISTENER = ""
"""Of a request inside an envelope: it came to a broker's listener, which is none of this node's, so
what the nodes' own listeners may do is not for its client. That broker has looked at the connection
and at what it can tell alone."""


class ConnectionSession(Protocol):
    """Whose a connection is, as handlers see it: a `Session` of `core.broker.gate`."""

    @property
    def principal(self) -> Principal:
        """Who has shown who it is, or who is taken for it."""

    @property
    def login(self) -> Login | None:
        """The login that is under way."""

    @property
    def is_for_good(self) -> bool:
        """Whether it need not do so again."""

    @property
    def is_by_token(self) -> bool:
        """Whether it has shown a delegation token."""

    @property
    def is_begun(self) -> bool:
        """Whether it has done so at least once."""

    def begin_login(self, login: Login) -> None:
        """A login is under way."""

    def end_login(self) -> None:
        """It has ended well."""

    @property
    def expires_ms(self) -> int:
        """When it must do so again, by the steady clock; NO_TIME_MS for never."""


class Request(msgspec.Struct):
    """One decoded request and who sent it.

    `body` is the message class of the API in the sender's version; its `records` fields are slices
    of the frame as it was received, writable, and owned by this request alone.
    """

    api_key: int
    version: int
    correlation_id: int
    client_id: str | None
    body: Any
    principal: Principal
    """Who asks: of a forwarded request not whose the connection is."""
    listener: str
    client_host: str
    connection_id: int
    session: ConnectionSession | None = None
    """Of the connection; None where the request came over none."""
