"""Settings of listeners that change while a node runs: refused, or gone over to.

What: a node, broker or controller, has one `ChangedSettings`. It tells whether keys, trust and
logins can be used before they are stored, and goes over to them when the metadata have them: at its
listeners, and where it speaks to other nodes. Rule kept: what it cannot use, it leaves as it was,
says once, and counts until it is put right; it never stops over it, and one such listener holds
back no change of another. Source: KIP-226. Not here: one listener (`listener_security.py`), one way
to others (`outbound.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from anabranch.core.errors import ClientFault, ErrorCode
from anabranch.core.settings.listener_changes import (
    REFUSED,
    changed_listeners,
    refuse_change,
    unknown_listeners,
)
from anabranch.core.settings.setting import ConfigFault
from anabranch.server.listener_security import NodeSecurity
from anabranch.server.logs import logger
from anabranch.server.outbound import REMEDY, Transport, context_of
from anabranch.server.own_handshake import Side, why_apart

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from ssl import SSLContext

    from anabranch.client.security import Security
    from anabranch.core.settings.broker import BrokerConfig
    from anabranch.core.settings.listener_security import ListenerSettings
    from anabranch.server.config import NodeConfig

    Way: TypeAlias = tuple[str, Transport, Callable[[BrokerConfig], Security]]
    """To a listener of other nodes: how it is gone now, and would be under another config."""

LOG = logger("node")
UNKNOWN = "listeners that it does not have"


def _side_of(server: SSLContext, security: Security) -> Side | None:
    """Of a node as it is; None while it cannot speak to others."""
    try:
        client = context_of(security)
    except ClientFault:
        return None
    return None if client is None else Side(server, client)


class ChangedSettings:
    """Those of one node, whose listeners with TLS or SASL are `secure`. Raises ConfigFault for keys
    of its file that cannot be used."""

    def __init__(self, config: NodeConfig, secure: dict[str, ListenerSettings]) -> None:
        self._known = {each.name for each in config.listeners} | {*config.controller_listener_names}
        self._stored: Mapping[str, str] = {}
        self._kept_back: dict[str, str] = {}
        self.listeners = NodeSecurity(secure)
        self.to_brokers = Transport(config.between_brokers)
        self.to_controllers = Transport(config.to_controllers)
        brokers, controllers = config.inter_broker_listener_name, config.controller_listener_names
        self._ways: tuple[Way, ...] = (
            (brokers, self.to_brokers, config.between_brokers_under),
            (controllers[0], self.to_controllers, config.to_controllers_under),
        )

    def refuse(self, wanted: BrokerConfig) -> None:
        """Raise ClientFault for settings that the node cannot go over to, as a broker refuses them
        in Kafka. Reads the files that those of changed listeners name, and no others."""
        refuse_change(self._stored, wanted.dynamic_broker, self._known)
        names = changed_listeners(self._stored, wanted.dynamic_broker)
        try:
            self.listeners.check(wanted, names)
            for listener, transport, security_under in self._ways:
                if listener.lower() in names:
                    after = context_of(security_under(wanted))
                    self._check_reach(listener, transport, after, wanted)
        except ClientFault as fault:
            raise ClientFault(ErrorCode.INVALID_REQUEST, f"{REFUSED}: {fault}") from None

    def _check_reach(
        self, listener: str, transport: Transport, after: SSLContext | None, wanted: BrokerConfig
    ) -> None:
        """Raise ClientFault for keys or trust by which nodes could not reach each other."""
        own = self.listeners.of(listener)
        if own is None or after is None:
            return
        before = _side_of(own.context(), transport.security)
        why = why_apart(before, Side(own.context_under(own.settings.under(wanted)), after))
        if why:
            raise ClientFault(
                ErrorCode.INVALID_REQUEST,
                f"listener {listener}: with these keys nodes could not reach each other: {why}; "
                "first give every node a truststore that has the old and the new authority",
            )

    def take(self, wanted: BrokerConfig) -> None:
        """Go over to what is stored."""
        self._stored = wanted.dynamic_broker
        self._tell(UNKNOWN, ", ".join(unknown_listeners(self._stored, self._known)))
        self.listeners.take(wanted)
        for listener, transport, security_under in self._ways:
            why = ""
            try:
                transport.take(security_under(wanted))
            except ConfigFault as fault:
                why = f"{fault.name}: {fault.message}"
            self._tell(f"login to {listener} of other nodes", why)

    def _tell(self, what: str, why: str) -> None:
        if why and why != self._kept_back.get(what):
            LOG.warning("keeping the settings of before", what=what, why=why, remedy=REMEDY)
        self._kept_back[what] = why

    @property
    def kept_back(self) -> int:
        """Of how many listeners and ways to other nodes the stored settings cannot be used."""
        ways = (self.to_brokers.why, self.to_controllers.why)
        return sum(map(bool, (*self._kept_back.values(), *ways, *self.listeners.kept_back())))
