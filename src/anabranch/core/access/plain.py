"""PLAIN as its server: one message with name and password.

    message := [authorization id] NUL user name NUL password

Rule kept: an unknown name takes as long as a wrong password, and gives the same answer. Source: RFC
4616; users are those of Kafka's PlainLoginModule, `user_NAME="PASSWORD"`.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping

from anabranch.core.access.login import LoginRefused, Reply, not_understood

PLAIN = "PLAIN"
USER = "user_"
WRONG = "Authentication failed: Invalid username or password"
"""What Kafka tells such a client."""
NOT_THERE = b"\0"
"""Compared with when there is no such user: no message has such a password."""


def plain_users(options: Mapping[str, str]) -> dict[str, bytes]:
    """Passwords by user from the options of a login module."""
    return {
        name.removeprefix(USER): text.encode()
        for name, text in options.items()
        if name.startswith(USER)
    }


class PlainServer:
    """One login with PLAIN."""

    def __init__(self, users: Mapping[str, bytes]) -> None:
        self._users = users

    def respond(self, message: bytes, _wall_ms: int) -> Reply:
        """Judge the only message."""
        try:
            identity, name, password = message.decode().split("\0")
        except ValueError:
            raise not_understood(PLAIN, "Invalid SASL/PLAIN response: expected 3 tokens") from None
        if not name or not password:
            missing = "password" if name else "username"
            raise not_understood(PLAIN, f"{missing} not specified")
        known = self._users.get(name)
        given = hashlib.sha256(password.encode()).digest()
        kept = hashlib.sha256(NOT_THERE if known is None else known).digest()
        if not hmac.compare_digest(given, kept) or known is None:
            raise LoginRefused(f"{PLAIN}: unknown user or wrong password ({name!r})", WRONG)
        if identity not in ("", name):
            raise _other_identity()
        return Reply(b"", name)


def _other_identity() -> LoginRefused:
    return not_understood(
        PLAIN, "Client requested an authorization id that is different from username"
    )
