"""What a listener asks of tokens: `sasl.oauthbearer.*`, of a listener, its mechanism, or all.

What: `token_settings` reads them, and refuses what cannot work. Rule kept: tokens that anybody can
make are taken where the configuration says that it is meant, and from this machine alone. Source:
Kafka's OAuthBearerValidatorCallbackHandler (names and defaults). Not here: fetching keys
(`server/token_keys.py`), claims (`core/access/bearer.py`).
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from typing import Protocol

from anabranch.core.access.bearer import OAUTHBEARER, TokenRules
from anabranch.core.settings.listeners import Listener, is_loopback
from anabranch.core.settings.setting import ConfigFault, Value

KEYS_URL = "sasl.oauthbearer.jwks.endpoint.url"
UNSECURED = "sasl.oauthbearer.unsecured.tokens.allow"
OF_NODES = (
    "sasl.oauthbearer.token.endpoint.url", "sasl.oauthbearer.client.credentials.client.id",
    "sasl.oauthbearer.client.credentials.client.secret", "sasl.oauthbearer.scope",
    "sasl.login.connect.timeout.ms", "sasl.login.read.timeout.ms",
)  # fmt: skip
"""With what a node gets tokens for its own logins."""
_ADDRESS = re.compile(
    r"file://(localhost)?/.*|https?://([^/?#@]*@)?(\[(?P<ipv6>[^]]*)\]|[-\w.]+)(:(?P<port>\d{0,5}))?"
    r"([/?#][!-~]*)?",
    re.ASCII,
)
SCHEMES = ("https://", "http://", "file://")
TIMEOUT_MS = 10_000


class Settings(Protocol):
    """Those of one listener (`listener_security.py`)."""

    listener: Listener

    def value(self, name: str, mechanism: str = "") -> Value:
        """A setting's value."""

    def fault(self, sentence: str, name: str, mechanism: str = "") -> ConfigFault:
        """What is wrong with a setting."""


@dataclass(frozen=True)
class TokenSettings:
    """Where the keys are that sign tokens, and what tokens must say."""

    rules: TokenRules
    keys_url: str = ""
    """"": tokens are not signed."""
    refresh_ms: int = 3_600_000
    connect_timeout_ms: int = TIMEOUT_MS
    read_timeout_ms: int = TIMEOUT_MS


def token_settings(settings: Settings) -> TokenSettings:
    """Raises ConfigFault."""
    url = settings.value(KEYS_URL, OAUTHBEARER)
    is_unsecured = settings.value(UNSECURED, OAUTHBEARER) is True
    if not url:
        _check_unsecured(settings, is_unsecured)
        return TokenSettings(_rules(settings, is_signed=False))
    if is_unsecured:
        raise settings.fault(
            f"contradicts {KEYS_URL}: tokens are signed, or they are not; remove one of the two",
            UNSECURED, OAUTHBEARER,
        )  # fmt: skip
    assert isinstance(url, str)
    why = _wrong(url)
    if why:
        raise settings.fault(why, KEYS_URL, OAUTHBEARER)
    return TokenSettings(
        _rules(settings, is_signed=True),
        url,
        _whole(settings, "sasl.oauthbearer.jwks.endpoint.refresh.ms", 3_600_000),
        _whole(settings, "sasl.login.connect.timeout.ms", TIMEOUT_MS, least=1),
        _whole(settings, "sasl.login.read.timeout.ms", TIMEOUT_MS, least=1),
    )


def _wrong(url: str) -> str:
    """What is wrong with an address, if anything; not the address, which may have a secret."""
    if not url.startswith(SCHEMES):
        return "must begin with https://, http:// or file://"
    found = _ADDRESS.fullmatch(url)
    if found is not None and _is_host(found["ipv6"]) and _is_port(found["port"]):
        return ""
    return (
        "is no address: write https://HOST:PORT/PATH, with [ ] around an IPv6 address and % for "
        "characters that no address has, or file:///PATH"
    )


def _is_host(ipv6: str | None) -> bool:
    try:
        return ipv6 is None or bool(ipaddress.IPv6Address(ipv6))
    except ValueError:
        return False


def _is_port(digits: str | None) -> bool:
    return not digits or 0 < int(digits) < 1 << 16


def host_of(url: str) -> str:
    """The host of an address."""
    place = url.partition("://")[2].partition("/")[0].rpartition("@")[2]
    return place.partition("]")[0][1:] if place.startswith("[") else place.partition(":")[0]


def node_properties(settings: Settings) -> dict[str, str]:
    """Client properties with which a node gets its own tokens, those that are set."""
    found = {name: settings.value(name, OAUTHBEARER) for name in OF_NODES}
    return {name: str(value) for name, value in found.items() if value is not None}


def _check_unsecured(settings: Settings, is_meant: bool) -> None:
    listener = settings.listener
    if not is_meant:
        raise settings.fault(
            f"listener {listener.name} takes tokens and needs the keys that sign them: give the "
            "https:// or file:// address of a JSON Web Key Set. For tries on this machine, "
            f"{UNSECURED}=true takes tokens that anybody can make",
            KEYS_URL, OAUTHBEARER,
        )  # fmt: skip
    if not is_loopback(listener.host):
        raise settings.fault(
            f"anybody can make such a token, and other machines reach {listener.text}: bind it to "
            f"127.0.0.1, or set {KEYS_URL}",
            UNSECURED, OAUTHBEARER,
        )  # fmt: skip


def _rules(settings: Settings, *, is_signed: bool) -> TokenRules:
    audiences = settings.value("sasl.oauthbearer.expected.audience", OAUTHBEARER)
    return TokenRules(
        audiences if isinstance(audiences, tuple) else (),
        str(settings.value("sasl.oauthbearer.expected.issuer", OAUTHBEARER) or ""),
        str(settings.value("sasl.oauthbearer.scope.claim.name", OAUTHBEARER)),
        str(settings.value("sasl.oauthbearer.sub.claim.name", OAUTHBEARER)),
        _whole(settings, "sasl.oauthbearer.clock.skew.seconds", 30),
        needs_time_of_issue=is_signed,
    )


def _whole(settings: Settings, name: str, default: int, *, least: int = 0) -> int:
    found = settings.value(name, OAUTHBEARER)
    number = found if isinstance(found, int) else default
    if number < least:
        raise settings.fault(f"must not be below {least}", name, OAUTHBEARER)
    return number
