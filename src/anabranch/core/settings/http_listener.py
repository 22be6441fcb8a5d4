"""The listener of metrics and health as settings write it: address, TLS, and who may read.

What: `http_listener` reads `http.listener` and `http.security.protocol`. Rule kept: pages are not
served beyond loopback without encryption, nor with it to those who do not show who they are, unless
that is meant. Keys are those of all listeners, or under `listener.name.http.`. Not here: the file
with tokens (`server/http_guard.py`).
"""

from __future__ import annotations

from anabranch.core.settings.broker import BrokerConfig
from anabranch.core.settings.listener_security import ListenerSettings
from anabranch.core.settings.listeners import (
    Listener,
    is_loopback,
    parse_listeners,
    refuse_unmeant_plaintext,
)
from anabranch.core.settings.setting import ConfigFault

NAME = "http.listener"
TOKENS = "http.tokens.file"


def http_listener(broker: BrokerConfig, address: str, protocol: str) -> ListenerSettings | None:
    """What `http.listener` and `http.security.protocol` mean; None where it is off. Raises
    ConfigFault."""
    if not address:
        return None
    try:
        (listener,) = parse_listeners(NAME, f"HTTP://{address}", {"HTTP": protocol})
    except (ConfigFault, ValueError):
        raise ConfigFault(
            f"{address} is not an address; write host:port, for example 127.0.0.1:9644",
            name=NAME,
        ) from None
    settings = ListenerSettings(broker, listener)
    settings.check()
    allow = broker.listener_plaintext_beyond_loopback_allow
    refuse_unmeant_plaintext(NAME, [listener], allow)
    if not allow and not broker.listener_unauthenticated_beyond_loopback_allow:
        _refuse_strangers(settings, has_tokens=bool(broker.http_tokens_file))
    return settings


def _refuse_strangers(settings: ListenerSettings, *, has_tokens: bool) -> None:
    listener: Listener = settings.listener
    if not has_tokens and not settings.authenticates and not is_loopback(listener.host):
        raise ConfigFault(
            f"{listener.host}:{listener.port} would show metrics and placement to anyone on other "
            f"machines; set {TOKENS}, set listener.name.http.ssl.client.auth=required, or set "
            "listener.unauthenticated.beyond.loopback.allow=true if that is meant",
            name=NAME,
        )


def open_http(settings: ListenerSettings, *, has_tokens: bool) -> list[str]:
    """What is open: sentences with their remedy."""
    lets_in = has_tokens or settings.authenticates
    if settings.uses_tls and lets_in:
        return []
    if lets_in:
        return [f"{NAME} is not encrypted: set http.security.protocol=SSL"]
    return [
        f"{NAME} shows metrics and placement to anyone who reaches it: set {TOKENS}, and "
        "http.security.protocol=SSL beyond the loopback interface"
    ]
