"""What is open on a node, by its settings and its files, before it runs.

What: `check` lists what `core.settings.open_doors` finds, files with secrets that others may read,
key stores that cannot be used, and certificates that end soon. Rule kept: nothing is changed, and
no secret is repeated.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterator

from anabranch.core.settings.http_listener import open_http
from anabranch.core.settings.listener_security import ListenerSettings
from anabranch.core.settings.open_doors import open_doors
from anabranch.core.settings.setting import ConfigFault
from anabranch.core.settings.validation import Resource, setting_of
from anabranch.server.config import NodeConfig
from anabranch.server.listener_security import ListenerSecurity

SOON_DAYS = 30
DAY_SECONDS = 86_400
KEYSTORE = "ssl.keystore.location"
CHAIN = "ssl.keystore.certificate.chain"
SECRETS = ("password", "secret", "sasl.jaas.config", "ssl.keystore.key")
OTHERS = stat.S_IRGRP | stat.S_IROTH


def check(config: NodeConfig, properties_file: str | None = None) -> list[str]:
    """What is open; each sentence names the remedy."""
    found = open_doors(config.broker, config.listeners, config.controller_listener_names)
    http = config.http_settings
    if http is not None:
        found += _http(http, config.broker.http_tokens_file)
    has_secrets = any(map(_is_secret, config.broker.static))
    if properties_file is not None and has_secrets:
        found += _readable(properties_file)
    for settings in config.secure_listeners.values():
        found += _stores(settings)
    return list(dict.fromkeys(found))


def _is_secret(name: str) -> bool:
    setting = setting_of(Resource.BROKER, name)
    return any(word in name for word in SECRETS) or (setting is not None and setting.sensitive)


def _http(settings: ListenerSettings, tokens_file: str) -> Iterator[str]:
    yield from open_http(settings, has_tokens=bool(tokens_file))
    yield from _stores(settings)
    if tokens_file:
        yield from _readable(tokens_file)


def _readable(path: str) -> Iterator[str]:
    try:
        mode = os.stat(path).st_mode
    except OSError:
        return
    if mode & OTHERS:
        yield f"{path} has secrets, and other users may read it: chmod 600 {path}"


def _stores(settings: ListenerSettings) -> Iterator[str]:
    if not settings.uses_tls:
        return
    try:
        ListenerSecurity(settings)
    except ConfigFault as fault:
        yield fault.message
        return
    tls = settings.tls()
    if path := tls.get(KEYSTORE):
        yield from _readable(path)
    days = _days_left(tls.get(CHAIN) or _text(path))
    if days is not None and days < SOON_DAYS:
        state = f"ends in {days:.0f} days" if days > 0 else "has ended"
        yield f"listener {settings.listener.name}: its certificate {state}: renew {path or CHAIN}"


def _text(path: str | None) -> str:
    try:
        with open(path or os.devnull, encoding="ascii") as file:
            return file.read()
    except (OSError, UnicodeDecodeError):
        return ""


def _days_left(text: str) -> float | None:
    """Of the first certificate of a PEM text; None where there is none, as in PKCS12, or no package
    that reads it."""
    try:
        from cryptography.x509 import load_pem_x509_certificate
    except ImportError:
        return None
    try:
        ends = load_pem_x509_certificate(text.encode()).not_valid_after_utc
    except ValueError:
        return None
    return (ends.timestamp() - time.time()) / DAY_SECONDS
