"""Who may read a node's pages over HTTP, and the keys that they are encrypted with.

What: `HttpGuard` judges requests by the tokens of `http.tokens.file`, which is read again when it
changes, and has the TLS context. Rules kept: `/healthz` and `/readyz` say one word to anyone, since
what watches a process has no token; a file that cannot be read leaves the tokens of before, and is
told once. Not here: what is allowed in settings (`core/settings/http_listener.py`).
"""

from __future__ import annotations

import asyncio
import os
import ssl
from typing import TYPE_CHECKING

from anabranch.core.access.http_tokens import TokensFault, is_let_in, tokens_of
from anabranch.core.sentences import shortened
from anabranch.core.settings.http_listener import TOKENS
from anabranch.core.settings.listener_security import ListenerSettings
from anabranch.core.settings.setting import ConfigFault
from anabranch.server.clocks import steady_ms
from anabranch.server.line_limit import LineLimit
from anabranch.server.listener_security import ListenerSecurity
from anabranch.server.logs import logger

if TYPE_CHECKING:
    from anabranch.server.config import NodeConfig

OPEN = ("/healthz", "/readyz")
LARGEST_FILE_BYTES = 1 << 16
LINES_A_SECOND = 1
LONGEST_WHY = 1_000
"""Characters of why a handshake failed: it may quote what its client sent."""
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
        self._reading: asyncio.Task[None] | None = None
        if tokens_file:
            try:
                self._read()
            except (OSError, TokensFault) as fault:
                raise ConfigFault(_unusable(tokens_file, fault), name=TOKENS) from None

    @property
    def uses_tls(self) -> bool:
        """Whether pages are encrypted."""
        return self._security.uses_tls

    def context(self) -> ssl.SSLContext:
        """Keys and trust for the next handshake; files that have changed are read meanwhile, in a
        thread, for those to come."""
        is_idle = self._reading is None or self._reading.done()
        if is_idle and self._security.has_changed:
            reading = asyncio.to_thread(self._security.reload)
            self._reading = asyncio.get_running_loop().create_task(reading)
        return self._security.context()

    def handshake_failed(self, host: str, why: str) -> None:
        """A client is not let in."""
        more = self._lines.take(steady_ms())
        if more is not None:
            why = shortened(why, LONGEST_WHY)
            LOG.warning("a TLS handshake failed", listener="http", peer=host, why=why, **more)

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


def guard_of(config: NodeConfig) -> HttpGuard | None:
    """That of a node's pages; None where they are off. Raises ConfigFault."""
    settings = config.http_settings
    return None if settings is None else HttpGuard(settings, config.broker.http_tokens_file)


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
