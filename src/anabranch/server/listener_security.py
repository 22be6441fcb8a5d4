"""What one listener asks of its clients: keys and trust for TLS, logins for SASL.

What: `ListenerSecurity` makes the TLS context of a listener, again whenever one of its files has
changed (`reload`) or its settings have (`take`), and with them the keys that sign tokens, and hands
over what the client has shown. Rule kept: a store that cannot be used stops the start, and is told
once while the node runs, which goes on with the one before. Not here: what is allowed in
settings (`core/settings/listener_security.py`), whose a connection is and which logins there are
(`core/broker/listener_logins.py`).
"""

from __future__ import annotations

import os
import secrets
import ssl
from collections.abc import Container
from threading import Lock

from anabranch.client.security import VERSIONS
from anabranch.client.stores import StoreFault, add_key, add_trusted
from anabranch.client.web import trust_of
from anabranch.core.access.bearer import OAUTHBEARER
from anabranch.core.broker.authentication import Logins
from anabranch.core.broker.gate import Session
from anabranch.core.broker.listener_logins import Chance, Image, logins_of, session_of
from anabranch.core.settings.broker import BrokerConfig
from anabranch.core.settings.listener_security import ListenerSettings
from anabranch.core.settings.listener_tokens import KEYS_URL, token_settings
from anabranch.core.settings.setting import ConfigFault
from anabranch.server.logs import logger
from anabranch.server.outbound import FILES, REMEDY, refuse_endless
from anabranch.server.token_keys import HAS_PACKAGE, MISSING, KeysFault, TokenKeys

LOG = logger("listener")

NONCE_BYTES = 24
SECRET_BYTES = 32
CLIENT_AUTH = {
    "required": ssl.CERT_REQUIRED, "requested": ssl.CERT_OPTIONAL, "none": ssl.CERT_NONE,
}  # fmt: skip

CHANCE = Chance(
    lambda: secrets.token_urlsafe(NONCE_BYTES), lambda: secrets.token_bytes(SECRET_BYTES)
)


class ListenerSecurity:
    """One listener with TLS or SASL. Raises ConfigFault for a store that cannot be used."""

    def __init__(self, settings: ListenerSettings) -> None:
        self.settings = settings
        self.uses_tls = settings.uses_tls
        self._rules = settings.mapping_rules()
        self._told = self._refused = ""
        self._turn = Lock()
        """Held for moments: files are read in a thread, settings are taken on the loop."""
        self._seen = _stamp(settings)
        self._context: ssl.SSLContext | None = None
        self._token_keys = self._keys_of_tokens()
        if self.uses_tls:
            self._context = _usable_context(settings)

    # Keys and trust.

    def context(self) -> ssl.SSLContext:
        """Keys and trust as they are now."""
        assert self._context is not None
        return self._context

    @property
    def has_changed(self) -> bool:
        """Whether keys or trust are to be read again: a file is another, or the time has come."""
        keys = self._token_keys
        return self._has_changed_files or (keys is not None and keys.is_due)

    @property
    def _has_changed_files(self) -> bool:
        return self.uses_tls and _stamp(self.settings) != self._seen

    def reload(self) -> None:
        """Read them again; connections that are open go on. May take a while."""
        if self._token_keys is not None and self._token_keys.is_due:
            self._token_keys.reload()
        if self._has_changed_files:
            self._reload_files()

    def check(self, settings: ListenerSettings) -> None:
        """Raise ConfigFault for settings that cannot be gone over to."""
        settings.check()
        if self.uses_tls:
            _usable_context(settings)

    def context_under(self, settings: ListenerSettings) -> ssl.SSLContext:
        """Keys and trust with other settings. Raises ConfigFault."""
        return _usable_context(settings)

    def take(self, settings: ListenerSettings) -> bool:
        """Go over to other settings, where they are others; connections that are open go on. If a
        store of theirs cannot be used, the keys of before stay until it can."""
        before, self._refused = self._refused, ""
        if settings.reloaded == self.settings.reloaded:
            return False
        try:
            settings.check()
        except ConfigFault as fault:
            self._refused = f"{fault.name}: {fault.message}"
            if self._refused != before:
                self._tell("keeping the settings of before", self._refused)
            return False
        with self._turn:
            self.settings, self._seen = settings, ()
        if self.uses_tls:
            self._reload_files()
        return True

    @property
    def is_kept_back(self) -> bool:
        """Whether it goes on with keys or logins of before, as those of now cannot be used."""
        return bool(self._refused or self._told)

    def _tell(self, sentence: str, why: str) -> None:
        LOG.warning(sentence, listener=self.settings.listener.name, why=why, remedy=REMEDY)

    def _reload_files(self) -> None:
        settings, before = self.settings, self._told
        seen, found, why = _stamp(settings), self._context, ""
        try:
            found = _context(settings)
        except StoreFault as fault:
            seen, why = (), str(fault)
        with self._turn:
            if settings is not self.settings:  # others were taken meanwhile
                return
            self._context, self._seen, self._told = found, seen, why
        if not why:
            LOG.info("new keys and certificates are in use", listener=settings.listener.name)
        elif why != before:
            self._tell("keeping the keys that were read before", why)

    def _keys_of_tokens(self) -> TokenKeys | None:
        """None where tokens are not taken, or not signed. Raises ConfigFault."""
        settings = self.settings
        if not settings.uses_sasl or OAUTHBEARER not in settings.mechanisms:
            return None
        found = token_settings(settings)
        if not found.keys_url:
            return None
        if not HAS_PACKAGE:
            raise settings.fault(MISSING, "sasl.enabled.mechanisms")
        keys = TokenKeys(found, self._trust_for_keys)
        if found.keys_url.startswith("file:"):
            self._read_at_start(keys)
        return keys

    def _read_at_start(self, keys: TokenKeys) -> None:
        try:
            keys.read()
        except KeysFault as fault:
            raise self.settings.fault(str(fault), KEYS_URL, OAUTHBEARER) from None
        keys.reload()

    def _trust_for_keys(self) -> ssl.SSLContext | None:
        """Whom the address of the keys is trusted by, where the login module says it. Raises
        StoreFault."""
        return trust_of(self.settings.login_options(OAUTHBEARER))

    # Who is there.

    def session(self, tls: ssl.SSLObject | None) -> Session | str:
        """Whose a new connection is, after its handshake; a sentence if it may not be."""
        certificate = tls.getpeercert() if tls is not None else None
        return session_of(self.settings, self._rules, certificate)

    def logins(self, image: Image) -> Logins | None:
        """What the listener offers with SASL, if it does; `image` has the credentials of SCRAM."""
        verify = None if self._token_keys is None else self._token_keys.verify
        return logins_of(self.settings, image, CHANCE, verify)


def _stamp(settings: ListenerSettings) -> tuple[tuple[int, int, int], ...]:
    tls, stamps = settings.tls(), []
    for name in FILES:
        try:
            found = os.stat(tls.get(name) or os.devnull)
            stamps.append((found.st_mtime_ns, found.st_size, found.st_ino))
        except (OSError, ValueError):  # a path may be any text
            stamps.append((0, 0, 0))
    return tuple(stamps)


def _usable_context(settings: ListenerSettings) -> ssl.SSLContext:
    """Raises ConfigFault."""
    try:
        return _context(settings)
    except StoreFault as fault:
        name = settings.listener.name
        raise ConfigFault(f"listener {name}: {fault}", name="listeners") from None


def _context(settings: ListenerSettings) -> ssl.SSLContext:
    """Raises StoreFault."""
    tls = settings.tls()
    refuse_endless(tls)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_TICKET | ssl.OP_NO_COMPRESSION
    context.num_tickets = 0  # a session that is resumed would not show its certificate again
    asked = settings.client_auth
    if asked != "none":
        add_trusted(context, tls)
    context.verify_mode = CLIENT_AUTH[asked]
    add_key(context, tls)
    names = settings.value("ssl.enabled.protocols")
    versions = [VERSIONS[each] for each in names if each in VERSIONS]  # type: ignore[union-attr]
    if not versions:
        raise StoreFault(f"ssl.enabled.protocols must have one of {', '.join(VERSIONS)}.")
    context.minimum_version, context.maximum_version = min(versions), max(versions)
    return context


class NodeSecurity:
    """The listeners of a node that are not plaintext, by name."""

    def __init__(self, listeners: dict[str, ListenerSettings]) -> None:
        self._by_name = {name: ListenerSecurity(each) for name, each in listeners.items()}
        self._given: list[tuple[dict[str, Logins], Image]] = []

    def of(self, listener: str) -> ListenerSecurity | None:
        """What a listener asks of its clients; None: nothing."""
        return self._by_name.get(listener)

    def logins(self, image: Image) -> dict[str, Logins]:
        """What the listeners with SASL offer; it changes with their settings."""
        found = {name: each.logins(image) for name, each in self._by_name.items()}
        given = {name: each for name, each in found.items() if each is not None}
        self._given.append((given, image))
        return given

    def kept_back(self) -> list[bool]:
        """Of each, whether it cannot use its settings of now."""
        return [each.is_kept_back for each in self._by_name.values()]

    def check(self, config: BrokerConfig, names: Container[str]) -> None:
        """Raise ConfigFault for settings that listeners cannot go over to, those of which the names
        in small letters are among `names`."""
        for name, each in self._by_name.items():
            if name.lower() in names:
                each.check(each.settings.under(config))

    def take(self, config: BrokerConfig) -> None:
        """Go over to what was changed of listeners while the node runs."""
        for name, each in self._by_name.items():
            if not each.take(each.settings.under(config)):
                continue
            for given, image in self._given:
                logins = each.logins(image)
                if logins is not None:
                    given[name] = logins
