"""Kafka's client properties about tokens: `sasl.oauthbearer.*` and what the login module says.

What: `token_login` reads them. As in Kafka, `clientId`, `clientSecret` and `scope` may be options
of the login module, `extension_NAME` adds an extension, and `ssl.truststore.…` says whom the
endpoint is trusted by. Rule kept: no value is repeated in an error. Not here: getting a token
(`tokens.py`).
"""

from __future__ import annotations

import re
import urllib.parse
from collections.abc import Mapping

from anabranch.client.sasl import Login
from anabranch.client.tokens import TokenSource
from anabranch.core.access.bearer import MODULE, OAUTHBEARER
from anabranch.core.access.jaas import JaasFault, parse_jaas

URL = "sasl.oauthbearer.token.endpoint.url"
CLIENT = "sasl.oauthbearer.client.credentials.client.id"
SECRET = "sasl.oauthbearer.client.credentials.client.secret"
SCOPE = "sasl.oauthbearer.scope"
CONNECT, READ = "sasl.login.connect.timeout.ms", "sasl.login.read.timeout.ms"
PROPERTIES = (URL, CLIENT, SECRET, SCOPE, CONNECT, READ)
EXTENSION, TRUST = "extension_", "ssl.truststore."
DEFAULT_MS = "10000"
LOOPBACK = ("localhost", "127.0.0.1", "::1")

_KEY = re.compile(r"[A-Za-z]+")
_VALUE = re.compile(r"[\x21-\x7e \t\r\n]+")


class WrongToken(Exception):
    """A property that cannot be: the text begins with its name."""


def token_login(given: Mapping[str, str]) -> Login:
    """The login of a client with OAUTHBEARER. Raises WrongToken."""
    options = _options(given.get("sasl.jaas.config", ""))
    url = given.get(URL, "").strip()
    where = _split(url)
    if where.scheme == "file" and where.path:
        source = TokenSource(url)
    else:
        source = _endpoint(given, options, url, where)
    return Login(OAUTHBEARER, "", "", source, _extensions(options))


def _split(url: str) -> urllib.parse.SplitResult:
    """The parts of an address; none of what is no address."""
    try:
        found = urllib.parse.urlsplit(url)
        return found if found.port is None or found.port else urllib.parse.urlsplit("")
    except ValueError:
        return urllib.parse.urlsplit("")


def _endpoint(
    given: Mapping[str, str],
    options: Mapping[str, str],
    url: str,
    where: urllib.parse.SplitResult,
) -> TokenSource:
    if where.scheme not in ("http", "https") or not where.hostname:
        raise WrongToken(
            f"{URL} must be a file:// address with a token, or the https:// address of a token "
            "endpoint."
        )
    if where.scheme == "http" and where.hostname not in LOOPBACK:
        raise WrongToken(f"{URL} would send the client's secret unencrypted. Use https://.")
    client, secret = (
        given.get(name) or options.get(option, "")
        for name, option in ((CLIENT, "clientId"), (SECRET, "clientSecret"))
    )
    if not client or not secret:
        raise WrongToken(f"{SECRET if client else CLIENT} is missing: the endpoint asks for it.")
    return TokenSource(
        url, client, secret,
        given.get(SCOPE) or options.get("scope", ""),
        tuple((name, text) for name, text in options.items() if name.startswith(TRUST)),
        _seconds(given, CONNECT), _seconds(given, READ),
    )  # fmt: skip


def _options(text: str) -> dict[str, str]:
    if not text.strip():
        return {}
    try:
        module, options = parse_jaas(text)
    except JaasFault as fault:
        raise WrongToken(f"sasl.jaas.config {fault}") from None
    if module != MODULE:
        raise WrongToken(f"sasl.jaas.config must name {MODULE} for {OAUTHBEARER}.")
    return options


def _extensions(options: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    found = {
        name.removeprefix(EXTENSION): text
        for name, text in options.items()
        if name.startswith(EXTENSION)
    }
    for name, text in found.items():
        if not _KEY.fullmatch(name) or name == "auth" or not _VALUE.fullmatch(text):
            raise WrongToken("sasl.jaas.config has an extension that cannot be sent.")
    return tuple(found.items())


def _seconds(given: Mapping[str, str], name: str) -> float:
    text = given.get(name, DEFAULT_MS)
    if not text.isdecimal() or not 0 < int(text) < 1_000_000_000:
        raise WrongToken(f"{name} must be a number of milliseconds above 0.")
    return int(text) / 1000
