"""Who may read a node's pages over HTTP, and the keys that they are encrypted with.

What: `HttpGuard` judges requests by the tokens of `http.tokens.file`, which is read again when it
changes, and has the TLS context. Rules kept: `/healthz` and `/readyz` say one word to anyone, since
what watches a process has no token; a file that cannot be read leaves the tokens of before, and is
told once. Not here: what is allowed in settings (`core/settings/http_listener.py`).
"""

from __future__ import annotations

import os
import ssl
from typing import Any

from anabranch.core.access.http_tokens import TokensFault, is_let_in, tokens_of
from anabranch.core.settings.http_listener import TOKENS
from anabranch.core.settings.listener_security import ListenerSettings
from anabranch.core.settings.setting import ConfigFault
from anabranch.server.clocks import steady_ms
from anabranch.server.line_limit import LineLimit
from anabranch.server.listener_security import ListenerSecurity
from anabranch.server.logs import logger

OPEN = ("/healthz", "/readyz")
LARGEST_FILE_BYTES = 1 << 16
LINES_A_SECOND = 1
LOG = logger("http")


class HttpGuard:
    """See the module. Raises ConfigFault for a file or a store that cannot be used."""

    def __init__(self, settings: ListenerSettings, tokens_file: str) -> None:
        self.refused_total = 0
        self._security = ListenerSecurity(settings)
        self._file = tokens_file
        self._stamp: object = None
        self._tokens: tuple[bytes, ...] = ()
        self._lines = LineLimit(LINES_A_SECOND)
        if tokens_file:
            try:
                self._read()
            except (OSError, TokensFault) as fault:
                raise ConfigFault(_unusable(tokens_file, fault), name=TOKENS) from None

    def context(self) -> ssl.SSLContext | None:
        """The TLS context, which has the newest keys at each handshake; None without TLS."""
        if not self._security.uses_tls:
            return None
        context = self._security.context()
        context.sni_callback = self._renew
        return context

    def _renew(self, connection: ssl.SSLObject, _name: Any, _context: ssl.SSLContext) -> None:
        """Whether or not a client names a host."""
        if self._security.has_changed:
            self._security.reload()
        connection.context = self._security.context()

    def is_let_in(self, path: str, header: str, peer: str) -> bool:
        """Whether a request may be answered; one that may not is counted and logged."""
        if not self._file or path in OPEN or is_let_in(header, self._newest()):
            return True
        self.refused_total += 1
        more = self._lines.take(steady_ms())
        if more is not None:
            why = "its token is wrong" if header else "it has no token"
            LOG.warning("a request is refused", peer=peer, path=path[:64], why=why, **more)
        return False

    def _newest(self) -> tuple[bytes, ...]:
        if self._stamp_now() != self._stamp:
            self._stamp = self._stamp_now()
            try:
                self._read()
            except (OSError, TokensFault) as fault:
                LOG.warning("keeping the tokens of before", file=self._file, why=_why(fault))
        return self._tokens

    def _read(self) -> None:
        stamp = self._stamp_now()
        with open(self._file, encoding="ascii", errors="replace") as file:
            self._tokens = tokens_of(file.read(LARGEST_FILE_BYTES))
        self._stamp = stamp

    def _stamp_now(self) -> object:
        try:
            found = os.stat(self._file)
        except OSError:
            return None
        return found.st_mtime_ns, found.st_size, found.st_ino


def _unusable(path: str, fault: Exception) -> str:
    remedy = ""
    if isinstance(fault, OSError):
        remedy = (
            "; write a file with one token a line, such as `openssl rand -hex 32` prints, which "
            f"the node's user may read, or remove {TOKENS}"
        )
    return f"{TOKENS}: {path}: {_why(fault)}{remedy}"


def _why(fault: Exception) -> str:
    return fault.strerror or "it cannot be read" if isinstance(fault, OSError) else str(fault)
