"""How a client secures its connections, from Kafka's client properties.

What: `security_of` reads `security.protocol`, `sasl.*` and `ssl.*`, and refuses what cannot be,
with the name of the property and what to do; `Security.context` makes the TLS context from the
stores. A store may be PEM or PKCS12, whatever its `type` says, since its first bytes tell; JKS is
refused.
Rules kept: a `Security` has texts only, so that it can be sent to tasks; no value of a property is
repeated in an error or a repr, but for those that are words of Kafka's. Source: KIP-651 (PEM).
Not here: speaking SASL (sasl.py).
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field

from anabranch.client.sasl import MECHANISMS, Login
from anabranch.client.scram import MECHANISMS as SCRAM
from anabranch.client.stores import StoreFault, add_key, add_trusted
from anabranch.client.token_properties import PROPERTIES, WrongToken, token_login
from anabranch.core.access.bearer import OAUTHBEARER
from anabranch.core.access.jaas import JaasFault, parse_jaas
from anabranch.core.errors import ClientFault, ErrorCode
from anabranch.core.settings.setting import is_true

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}

EFFECTIVE = (
    "security.protocol", "sasl.mechanism", "sasl.jaas.config",
    "ssl.truststore.location", "ssl.truststore.password", "ssl.truststore.type",
    "ssl.truststore.certificates", "ssl.keystore.location", "ssl.keystore.password",
    "ssl.keystore.type", "ssl.keystore.key", "ssl.keystore.certificate.chain",
    "ssl.key.password", "ssl.endpoint.identification.algorithm", "ssl.enabled.protocols",
    *PROPERTIES,
)  # fmt: skip
"""Properties that do something here."""
JAVAS = (
    "ssl.protocol", "ssl.provider", "ssl.keymanager.algorithm", "ssl.trustmanager.algorithm",
    "ssl.secure.random.implementation", "sasl.kerberos.kinit.cmd",
    "sasl.kerberos.min.time.before.relogin", "sasl.kerberos.service.name",
    "sasl.kerberos.ticket.renew.jitter", "sasl.kerberos.ticket.renew.window.factor",
    "sasl.login.class", "sasl.login.callback.handler.class",
    "sasl.client.callback.handler.class", "sasl.oauthbearer.jwt.retriever.class",
    "sasl.oauthbearer.jwt.validator.class", "sasl.login.refresh.window.factor",
    "sasl.login.refresh.window.jitter", "sasl.login.refresh.min.period.seconds",
    "sasl.login.refresh.buffer.seconds", "sasl.login.retry.backoff.ms",
    "sasl.login.retry.backoff.max.ms",
)  # fmt: skip
"""Properties about Java's libraries and their pauses, which change nothing here."""
REFUSED = {
    "ssl.cipher.suites": "Python's library chooses the cipher suites: leave it out",
    "ssl.engine.factory.class": "Java classes are not supported: leave it out",
    "security.providers": "Java classes are not supported: leave it out",
}
REFUSED_PREFIXES = ("sasl.oauthbearer.", "sasl.login.")

MODULES = ("PlainLoginModule", "ScramLoginModule")
JAAS = 'org.apache.kafka.common.security.scram.ScramLoginModule required username="…" password="…";'


@dataclass(frozen=True)
class Security:
    """What `security_of` found."""

    login: Login | None = None
    uses_tls: bool = False
    tls: Mapping[str, str] = field(default_factory=dict, repr=False)

    def context(self) -> ssl.SSLContext | None:
        """A TLS context, None without TLS. Raises ClientFault for a store that cannot be used."""
        if not self.uses_tls:
            return None
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        algorithm = self.tls.get("ssl.endpoint.identification.algorithm", "https")
        context.check_hostname = bool(algorithm)
        try:
            if not add_trusted(context, self.tls):
                context.load_default_certs()
            add_key(context, self.tls)
        except StoreFault as fault:
            raise ClientFault(ErrorCode.INVALID_CONFIG, str(fault)) from None
        versions = [VERSIONS[each] for each in _versions(self.tls)]
        context.minimum_version, context.maximum_version = min(versions), max(versions)
        return context


PLAINTEXT = Security()


def is_about_security(name: str) -> bool:
    """Whether a client property is one of those that `security_of` reads."""
    return name == "security.protocol" or name.startswith(("sasl.", "ssl.", "security."))


def security_of(properties: Mapping[str, str], prefix: str = "") -> Security:
    """Security from client properties; others are left alone. Errors name properties with
    `prefix`. Raises ClientFault."""
    given = {name: text for name, text in properties.items() if is_about_security(name)}
    try:
        return _security(given)
    except _Wrong as wrong:
        raise ClientFault(ErrorCode.INVALID_CONFIG, f"{prefix}{wrong}") from None


class _Wrong(Exception):
    """A property that cannot be: the text begins with its name."""


def _security(given: Mapping[str, str]) -> Security:
    for name in given:
        _check_name(name)
    protocol = given.get("security.protocol", PROTOCOLS[0]).strip().upper()
    if protocol not in PROTOCOLS:
        raise _Wrong(f"security.protocol must be one of {', '.join(PROTOCOLS)}.")
    uses_tls = protocol.endswith("SSL")
    tls = {name: text for name, text in given.items() if name.startswith("ssl.")}
    if uses_tls:
        _check_tls(tls)
    login = _login(given) if protocol.startswith("SASL") else None
    return Security(login, uses_tls, tls if uses_tls else {})


def _check_name(name: str) -> None:
    if name in EFFECTIVE or name in JAVAS:
        return
    if name in REFUSED:
        raise _Wrong(f"{name} is not supported. {REFUSED[name]}.")
    if name.startswith(REFUSED_PREFIXES):
        raise _Wrong(f"{name} is not supported. Leave it out.")
    raise _Wrong(f"{name} is unknown. Correct its name, or leave it out.")


def _check_tls(tls: Mapping[str, str]) -> None:
    algorithm = tls.get("ssl.endpoint.identification.algorithm", "https")
    if algorithm.lower() not in ("https", ""):
        raise _Wrong(
            "ssl.endpoint.identification.algorithm must be https, or empty to accept a certificate "
            "of another host."
        )
    _versions(tls)


def _versions(tls: Mapping[str, str]) -> list[str]:
    text = tls.get("ssl.enabled.protocols", ",".join(VERSIONS))
    names = [each.strip() for each in text.split(",") if each.strip()]
    if not names or not set(names) <= VERSIONS.keys():
        raise _Wrong(f"ssl.enabled.protocols must be of {', '.join(VERSIONS)}.")
    return names


def _login(given: Mapping[str, str]) -> Login:
    mechanism = given.get("sasl.mechanism", "GSSAPI").strip()
    if mechanism not in MECHANISMS:
        raise _Wrong(
            f"sasl.mechanism must be one of {', '.join(MECHANISMS)}; without it Kafka's default is "
            "GSSAPI, which is not supported."
        )
    if mechanism == OAUTHBEARER:
        return _token_login(given)
    module, options = _jaas(given.get("sasl.jaas.config", ""))
    is_token = is_true(options.get("tokenauth"))
    if is_token and (mechanism not in SCRAM or module != MODULES[1]):
        raise _Wrong(
            f"sasl.jaas.config has tokenauth, so sasl.mechanism must be one of {', '.join(SCRAM)} "
            f"and the module {MODULES[1]}."
        )
    return Login(mechanism, options["username"], options["password"], is_token=is_token)


def _token_login(given: Mapping[str, str]) -> Login:
    try:
        return token_login(given)
    except WrongToken as wrong:
        raise _Wrong(str(wrong)) from None


def _jaas(text: str) -> tuple[str, dict[str, str]]:
    """The module and its options."""
    try:
        module, options = parse_jaas(text)
    except JaasFault:
        raise _Wrong(
            f"sasl.jaas.config is missing or cannot be read. Write it like {JAAS}"
        ) from None
    if module not in MODULES:
        raise _Wrong(f"sasl.jaas.config must name one of {', '.join(MODULES)}, as in {JAAS}")
    if not options.get("username") or "password" not in options:
        raise _Wrong(f"sasl.jaas.config needs username and password, as in {JAAS}")
    if "\0" in options["username"] + options["password"]:
        raise _Wrong("sasl.jaas.config has a zero byte, which no mechanism can send.")
    return module, options
