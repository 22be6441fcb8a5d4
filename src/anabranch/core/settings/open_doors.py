"""What a node's settings leave open: each a sentence with its remedy.

What: `open_doors` looks at listeners, authorizer and super users of a configuration. Rule kept: it
repeats no secret. Not here: files and certificates (`server/security_check.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from anabranch.core.access.bearer import OAUTHBEARER
from anabranch.core.access.principal import ANONYMOUS
from anabranch.core.access.standard_authorizer import super_users_of
from anabranch.core.settings.broker import BrokerConfig
from anabranch.core.settings.listener_security import ListenerSettings
from anabranch.core.settings.listener_tokens import KEYS_URL, host_of, token_settings
from anabranch.core.settings.listeners import Listener, is_loopback

PLAIN = "PLAIN"


def open_doors(
    config: BrokerConfig, listeners: Sequence[Listener], controller_names: Sequence[str]
) -> list[str]:
    """What is open; nothing when all is closed."""
    settings = [ListenerSettings(config, each) for each in listeners]
    found = [sentence for each in settings for sentence in _listener(each)]
    if not config.authorizer_class_name:
        found.append("every client may do everything: set authorizer.class.name and add ACLs")
    elif config.allow_everyone_if_no_acl_found:
        found.append(
            "allow.everyone.if.no.acl.found=true opens each resource without an ACL: remove it"
        )
    if str(ANONYMOUS) in super_users_of(config.super_users):
        found.append(f"super.users has {ANONYMOUS}: clients that do not log in may do everything")
    open_controllers = [
        each.listener.text
        for each in settings
        if each.listener.name in controller_names and not each.authenticates
    ]
    if open_controllers and config.authorizer_class_name:
        found.append(
            f"{', '.join(open_controllers)} is for controllers, asks for no login, and allows "
            "everything: give it SASL or ssl.client.auth=required"
        )
    return found


def _listener(settings: ListenerSettings) -> Iterator[str]:
    listener = settings.listener
    where = "other machines" if not is_loopback(listener.host) else "this machine"
    if not settings.authenticates:
        yield (
            f"{listener.text} lets in any client of {where} without a login: use SASL_SSL, or SSL "
            "with ssl.client.auth=required"
        )
    if not listener.encrypted and not is_loopback(listener.host):
        yield f"{listener.text} is not encrypted, and others on the way can read it: use SASL_SSL"
        if settings.uses_sasl and PLAIN in settings.mechanisms:
            yield f"{listener.text} takes passwords of PLAIN without encryption: use SASL_SSL"
        if settings.uses_sasl and OAUTHBEARER in settings.mechanisms:
            yield f"{listener.text} takes tokens without encryption: use SASL_SSL"
    if settings.uses_sasl and OAUTHBEARER in settings.mechanisms:
        yield from _tokens(settings)


def _tokens(settings: ListenerSettings) -> Iterator[str]:
    url = token_settings(settings).keys_url
    if not url:
        yield f"{settings.listener.text} takes tokens that anybody can make: set {KEYS_URL}"
    elif url.startswith("http://") and not is_loopback(host_of(url)):
        yield f"{KEYS_URL} is not encrypted, and others on the way can change keys: use https://"
