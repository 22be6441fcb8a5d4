"""What a listener's settings say about TLS and SASL, and what speaks to it from another node.

What: `ListenerSettings` looks a setting up as Kafka does: under `listener.name.NAME.MECHANISM.`,
then `listener.name.NAME.`, then alone. `check` refuses what cannot work before anything is opened.
Rule kept: no value of a secret is repeated. Source: KIP-103, KIP-226. Not here: files
(`server/listener_security.py`).
"""

from __future__ import annotations

from anabranch.core.access.bearer import MODULE as BEARER_MODULE
from anabranch.core.access.bearer import OAUTHBEARER
from anabranch.core.access.certificate_names import MappingRules, RuleFault
from anabranch.core.access.jaas import JaasFault, parse_jaas
from anabranch.core.access.plain import PLAIN, plain_users
from anabranch.core.access.scram_server import HASHES as SCRAM
from anabranch.core.settings.broker import BrokerConfig
from anabranch.core.settings.catalogue import BROKER_SETTINGS
from anabranch.core.settings.listener_tokens import token_settings
from anabranch.core.settings.listeners import Listener
from anabranch.core.settings.setting import ConfigFault, Value, parse
from anabranch.core.settings.validation import JAAS, is_reloaded

MECHANISMS = (PLAIN, *SCRAM, OAUTHBEARER)
TLS_NAMES = (
    "ssl.keystore.location", "ssl.keystore.password", "ssl.keystore.key",
    "ssl.keystore.certificate.chain", "ssl.key.password", "ssl.truststore.location",
    "ssl.truststore.password", "ssl.truststore.certificates",
    "ssl.enabled.protocols", "ssl.endpoint.identification.algorithm",
)  # fmt: skip
INTER_BROKER_MECHANISM = "sasl.mechanism.inter.broker.protocol"
CONTROLLER_MECHANISM = "sasl.mechanism.controller.protocol"
MODULES = {PLAIN: "PlainLoginModule", OAUTHBEARER: BEARER_MODULE}
KEYS = ("ssl.keystore.location", "ssl.keystore.key")
TRUST = ("ssl.truststore.location", "ssl.truststore.certificates")


class ListenerSettings:
    """The settings of one listener: the node's own, and what was changed of keys, trust and logins
    while it runs."""

    def __init__(self, config: BrokerConfig, listener: Listener) -> None:
        self.listener = listener
        self._config = config
        self.reloaded = {
            name: text for name, text in config.dynamic_broker.items()
            if is_reloaded(name) and name.startswith(f"listener.name.{listener.name.lower()}.")
        }  # fmt: skip
        """What was changed, by its whole name."""
        self._texts = {**config.static, **self.reloaded}

    def under(self, config: BrokerConfig) -> ListenerSettings:
        """The same listener's settings under another configuration of its node."""
        return ListenerSettings(config, self.listener)

    @property
    def uses_tls(self) -> bool:
        """Whether connections are encrypted."""
        return self.listener.encrypted

    @property
    def uses_sasl(self) -> bool:
        """Whether clients log in."""
        return self.listener.security_protocol.startswith("SASL")

    def place(self, name: str, mechanism: str = "") -> str:
        """Under which name a setting is set; the listener's own where it is not set."""
        prefix = f"listener.name.{self.listener.name.lower()}."
        texts, kind = self._texts, f"{mechanism.lower()}." if mechanism else ""
        places = (f"{prefix}{kind}{name}", f"{kind}{name}", f"{prefix}{name}")
        return next((each for each in places if each in texts), places[0])

    def text(self, name: str, mechanism: str = "") -> str:
        """A setting's text, "" where it is not set."""
        return self._texts.get(self.place(name, mechanism), "")

    def value(self, name: str, mechanism: str = "") -> Value:
        """A setting's value: the listener's own, or that of all. Raises ConfigFault."""
        place = self.place(name, mechanism)
        if place != name and place in self._texts:
            return parse(BROKER_SETTINGS[name], self._texts[place])
        return self._config[name]

    def tls(self) -> dict[str, str]:
        """Texts about keys and trust that are set."""
        found = {name: self.text(name) or self._texts.get(name, "") for name in TLS_NAMES}
        set_ = {name for name in TLS_NAMES if self._is_set(name)}
        return {name: text for name, text in found.items() if name in set_}

    def _is_set(self, name: str) -> bool:
        return self.place(name) in self._texts or name in self._texts

    @property
    def client_auth(self) -> str:
        """Whether clients show a certificate: required, requested or none."""
        return str(self.value("ssl.client.auth"))

    @property
    def mechanisms(self) -> tuple[str, ...]:
        """Those that are offered."""
        found = self.value("sasl.enabled.mechanisms")
        assert isinstance(found, tuple)
        return found

    @property
    def authenticates(self) -> bool:
        """Whether every client shows who it is."""
        return self.uses_sasl or (self.uses_tls and self.client_auth == "required")

    def login_options(self, mechanism: str) -> dict[str, str]:
        """What the login module of a mechanism says; nothing where there is none. Raises
        ConfigFault."""
        text = self.text(JAAS, mechanism)
        if not text:
            return {}
        try:
            module, options = parse_jaas(text)
        except JaasFault as fault:
            raise self.fault(str(fault), JAAS, mechanism) from None
        expected = MODULES.get(mechanism, "ScramLoginModule")
        if module != expected:
            raise self.fault(f"must name {expected}", JAAS, mechanism)
        return options

    @property
    def token_secret(self) -> str:
        """What delegation tokens are signed with, "" where they are switched off."""
        return self._config.delegation_token_secret_key or ""

    def mapping_rules(self) -> MappingRules:
        """From subjects of certificates to names. Raises ConfigFault."""
        try:
            return MappingRules(str(self.value("ssl.principal.mapping.rules")))
        except RuleFault as fault:
            raise self.fault(str(fault), "ssl.principal.mapping.rules") from None

    def check(self) -> None:
        """Raise ConfigFault for what cannot work."""
        if self.uses_tls:
            self._check_tls()
        if self.uses_sasl:
            self._check_sasl()

    def _check_tls(self) -> None:
        tls = self.tls()
        if not any(tls.get(name) for name in KEYS):
            raise self.fault(
                f"listener {self.listener.name} encrypts and needs a key and its certificate: give "
                "a PEM or PKCS12 file",
                KEYS[0],
            )
        if self.client_auth != "none" and not any(tls.get(name) for name in TRUST):
            raise self.fault(
                "clients show certificates: give the certificates of the authorities that sign "
                "them",
                TRUST[0],
            )
        if self.value("ssl.cipher.suites"):
            raise self.fault(
                "is not supported: the library chooses the cipher suites; leave it out",
                "ssl.cipher.suites",
            )
        self.mapping_rules()

    def _check_sasl(self) -> None:
        if not self.mechanisms:
            raise self.fault(
                f"listener {self.listener.name} needs a mechanism", "sasl.enabled.mechanisms"
            )
        for mechanism in self.mechanisms:
            if mechanism not in MECHANISMS:
                raise self.fault(
                    f"{mechanism} is not supported; write some of {', '.join(MECHANISMS)}",
                    "sasl.enabled.mechanisms",
                )
            options = self.login_options(mechanism)
            if mechanism == PLAIN and not plain_users(options):
                raise self.fault(
                    'has no users; write PlainLoginModule required user_NAME="PASSWORD" …;',
                    JAAS, mechanism,
                )  # fmt: skip
            if mechanism == OAUTHBEARER:
                token_settings(self)
            self.lifetime_ms(mechanism)

    def lifetime_ms(self, mechanism: str) -> int:
        """For how long a login is good; 0: for good."""
        found = self.value("connections.max.reauth.ms", mechanism)
        assert isinstance(found, int)
        return found

    @property
    def failure_delay_ms(self) -> int:
        """How long a refusal waits."""
        found = self.value("connection.failed.authentication.delay.ms")
        assert isinstance(found, int)
        return found

    def fault(self, sentence: str, name: str, mechanism: str = "") -> ConfigFault:
        """What is wrong with a setting, under the name that it is set with."""
        return ConfigFault(sentence, name=self.place(name, mechanism))
