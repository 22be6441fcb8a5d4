"""Settings of listeners that change while a node runs: refused, or gone over to.

What: a node, broker or controller, has one `ChangedSettings`. It tells whether keys, trust and
logins can be used before they are stored, and goes over to them when the metadata have them: at its
listeners, and where it speaks to other nodes. Rule kept: what it cannot use, it leaves as it was,
says once, and counts until it is put right; it never stops over it. Source: KIP-226. Not here: one
listener (`listener_security.py`), one way to others (`outbound.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from anabranch.core.errors import ClientFault, ErrorCode
from anabranch.core.settings.listener_changes import REFUSED, refuse_change, unknown_listeners
from anabranch.core.settings.setting import ConfigFault
from anabranch.server.listener_security import NodeSecurity
from anabranch.server.logs import logger
from anabranch.server.outbound import REMEDY, Transport, context_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from anabranch.client.security import Security
    from anabranch.core.settings.broker import BrokerConfig
    from anabranch.core.settings.listener_security import ListenerSettings
    from anabranch.server.config import NodeConfig

LOG = logger("node")
LOGINS = "logins to other nodes"
UNKNOWN = "listeners that it does not have"


class ChangedSettings:
    """Those of one node, whose listeners with TLS or SASL are `secure`. Raises ConfigFault for keys
    of its file that cannot be used."""

    def __init__(self, config: NodeConfig, secure: dict[str, ListenerSettings]) -> None:
        self._config = config
        self._known = {each.name for each in config.listeners} | {*config.controller_listener_names}
        self._stored: Mapping[str, str] = {}
        self._kept_back: dict[str, str] = {}
        self.listeners = NodeSecurity(secure)
        self.to_brokers = Transport(config.between_brokers)
        self.to_controllers = Transport(config.to_controllers)

    def refuse(self, wanted: BrokerConfig) -> None:
        """Raise ClientFault for settings that the node cannot go over to, as a broker refuses them
        in Kafka. Reads the files that they name."""
        refuse_change(self._stored, wanted.dynamic_broker, self._known)
        self.listeners.refuse(wanted)
        try:
            for transport, security in self._ways(wanted):
                if security != transport.security:
                    context_of(security)
        except ClientFault as fault:
            raise ClientFault(ErrorCode.INVALID_REQUEST, f"{REFUSED}: {fault}") from None

    def take(self, wanted: BrokerConfig) -> None:
        """Go over to what is stored."""
        self._stored = wanted.dynamic_broker
        unknown = unknown_listeners(self._stored, self._known)
        self._tell(UNKNOWN, ", ".join(unknown))
        self.listeners.take(wanted)
        try:
            ways = list(self._ways(wanted))
        except ConfigFault as fault:
            self._tell(LOGINS, f"{fault.name}: {fault.message}")
            return
        self._tell(LOGINS, "")
        for transport, security in ways:
            transport.take(security)

    def _ways(self, wanted: BrokerConfig) -> Iterator[tuple[Transport, Security]]:
        """How it speaks to other nodes. Raises ConfigFault."""
        yield self.to_brokers, self._config.between_brokers_under(wanted)
        yield self.to_controllers, self._config.to_controllers_under(wanted)

    def _tell(self, what: str, why: str) -> None:
        if why and why != self._kept_back.get(what):
            LOG.warning("keeping the settings of before", what=what, why=why, remedy=REMEDY)
        self._kept_back[what] = why

    @property
    def kept_back(self) -> int:
        """Of how many listeners and ways to other nodes the stored settings cannot be used."""
        ways = (self.to_brokers.why, self.to_controllers.why)
        return sum(map(bool, (*self._kept_back.values(), *ways, *self.listeners.kept_back())))
