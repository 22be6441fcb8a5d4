"""One request to a web address, for the keys and tokens of an identity provider.

What: `fetch` reads a `file://`, `http://` or `https://` address, in the thread that calls it. Rules
kept: an answer has a bound in bytes, and in time as a whole, since a peer that drips would hold its
thread for ever; no redirect is followed, since it would carry a
secret to another address; no proxy of the environment is asked, as Kafka's clients ask none; what
was sent is not repeated in an error, nor what follows on `?` in an address. Not here: what an
answer means.
"""

from __future__ import annotations

import http.client
import io
import re
import socket
import ssl
import time
import urllib.parse
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from anabranch.client.stores import add_trusted

LARGEST_ANSWER_BYTES = 1 << 20
OK, ITS_OWN_FAULT = 200, 500
_ADDRESS = re.compile(r"[!-~]+")


class FetchFault(Exception):
    """Nothing was fetched: the sentence begins with the address. `is_temporary`: it may work
    later."""

    def __init__(self, sentence: str, *, is_temporary: bool) -> None:
        super().__init__(sentence)
        self.is_temporary = is_temporary


class _Refused(ValueError):
    """An answer that will not become another."""


@dataclass(frozen=True)
class Ask:
    """A request: a GET, or a POST of `form`; `read_seconds` are for the whole answer."""

    url: str
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    form: Mapping[str, str] | None = field(default=None, repr=False)
    connect_seconds: float = 10.0
    read_seconds: float = 10.0


def fetch(ask: Ask, context: ssl.SSLContext | None = None) -> bytes:
    """The answer's body; `context`: whom https trusts. Raises FetchFault."""
    try:
        where = urllib.parse.urlsplit(ask.url)
        if where.scheme == "file":
            return _read(urllib.parse.unquote(where.path))
        return _asked(ask, where, context)
    except (OSError, http.client.HTTPException, ValueError) as fault:
        sentence = f"{shown(ask.url)}: {fault or type(fault).__name__}"
        raise FetchFault(sentence, is_temporary=not isinstance(fault, _Refused)) from None


def shown(url: str) -> str:
    """An address as it may be told: without a user, a password, or what follows on `?` or `#`."""
    scheme, mark, rest = re.split("[?#]", url, maxsplit=1)[0].partition("://")
    place, slash, path = rest.partition("/")
    return f"{scheme}{mark}{place.rpartition('@')[2]}{slash}{path}"


def trust_of(options: Mapping[str, str]) -> ssl.SSLContext | None:
    """Whom https trusts by a login module's options `ssl.truststore.…`; None: those of the system.
    Raises StoreFault."""
    tls = {name: text for name, text in options.items() if name.startswith("ssl.truststore.")}
    if not tls:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    add_trusted(context, tls)
    return context


def _read(path: str) -> bytes:
    with open(path, "rb") as file:
        return _bounded(file.read(LARGEST_ANSWER_BYTES + 1))


def _bounded(found: bytes) -> bytes:
    if len(found) > LARGEST_ANSWER_BYTES:
        raise ValueError(f"it has more than {LARGEST_ANSWER_BYTES} bytes")
    return found


def _asked(ask: Ask, where: urllib.parse.SplitResult, context: ssl.SSLContext | None) -> bytes:
    if not _ADDRESS.fullmatch(ask.url):
        raise _Refused("it has characters that no address has: write them with %")
    connection = _connection(where, ask.connect_seconds, context)
    try:
        connection.connect()
        deadline = time.monotonic() + ask.read_seconds
        connection.sock.settimeout(ask.read_seconds)
        connection.response_class = partial(_Answer, deadline)  # type: ignore[assignment]
        target = urllib.parse.urlunsplit(("", "", where.path or "/", where.query, ""))
        body, headers = None, {"Accept": "application/json", **ask.headers}
        if ask.form is not None:
            body = urllib.parse.urlencode(ask.form).encode()
            headers["Content-Type"] = "application/x-www-form-urlencoded"
        connection.request("GET" if body is None else "POST", target, body, headers)
        answer = connection.getresponse()
        if answer.status != OK:
            kind = _Refused if answer.status < ITS_OWN_FAULT else ValueError
            raise kind(f"it answers {answer.status} {answer.reason[:100]}")
        return _bounded(answer.read(LARGEST_ANSWER_BYTES + 1))
    finally:
        connection.close()


def _connection(
    where: urllib.parse.SplitResult, seconds: float, context: ssl.SSLContext | None
) -> http.client.HTTPConnection:
    if not where.hostname or where.scheme not in ("http", "https"):
        raise _Refused("it is no address that begins with https://, http:// or file://")
    if where.scheme == "http":
        return http.client.HTTPConnection(where.hostname, where.port, timeout=seconds)
    trust = context or ssl.create_default_context()
    return http.client.HTTPSConnection(where.hostname, where.port, timeout=seconds, context=trust)


class _Answer(http.client.HTTPResponse):
    """One that has to be there by a moment of the steady clock."""

    def __init__(self, deadline: float, sock: socket.socket, *args: Any, **more: Any) -> None:
        super().__init__(sock, *args, **more)
        self.fp = io.BufferedReader(_Until(deadline, sock, self.fp.detach()))


class _Until(io.RawIOBase):
    """The bytes of a socket, up to a moment."""

    def __init__(self, deadline: float, sock: socket.socket, raw: io.RawIOBase) -> None:
        self._deadline = deadline
        self._sock = sock
        self._raw = raw

    def readable(self) -> bool:
        """It is."""
        return True

    def readinto(self, room: Any, /) -> int | None:
        """See io. Raises TimeoutError."""
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError("timed out")
        self._sock.settimeout(left)
        return self._raw.readinto(room)

    def close(self) -> None:
        """The socket is needed no more."""
        self._raw.close()
        super().close()
