"""What one node is configured to be: typed, checked, complete.

A node starts with nothing configured: one broker and controller with id 1, clients on
127.0.0.1:9092, the controller on any free loopback port, data in `anabranch-data`. A Kafka-style
`server.properties` and `--set key=value` go over that, the command line last.

The rule it keeps: a configuration that cannot work is refused before anything is opened, in one
line that says where it stands and what to write. Source: Kafka 4.1's KafkaConfig (which listener is
whose, required combinations). What it is not: it opens no file but the one named, and no socket.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

import msgspec

from anabranch.client.security import PLAINTEXT, Security, security_of
from anabranch.core.access.bearer import OAUTHBEARER
from anabranch.core.access.standard_authorizer import STANDARD_AUTHORIZER, super_users_of
from anabranch.core.errors import ClientFault
from anabranch.core.replication.selection import RACK_AWARE_SELECTOR, SELECTORS
from anabranch.core.settings.broker import BrokerConfig
from anabranch.core.settings.http_listener import http_listener
from anabranch.core.settings.listener_security import (
    CONTROLLER_MECHANISM,
    INTER_BROKER_MECHANISM,
    MECHANISMS,
    ListenerSettings,
)
from anabranch.core.settings.listener_tokens import node_properties
from anabranch.core.settings.listeners import (
    WILDCARDS,
    Listener,
    listener_names,
    parse_listeners,
    parse_protocol_map,
    refuse_duplicate_ports,
    refuse_unmeant_plaintext,
    refuse_unmeant_strangers,
)
from anabranch.core.settings.setting import ConfigFault
from anabranch.core.settings.urls import names_no_file
from anabranch.core.settings.validation import (
    LEAST,
    MOST,
    PER_ADDRESS,
    RETENTIONS,
    refuse_disorder,
    refuse_unusable,
    unmet_requirement,
)
from anabranch.core.wire.compression import Codec
from anabranch.core.wire.metadata_records import UserScramCredentialRecord
from anabranch.server.properties import (
    ConfigError,
    Entry,
    read_overrides,
    read_properties,
    told,
    without_aliases,
)

__all__ = ["ConfigError", "Listener", "NodeConfig", "load_config"]

BROKER, CONTROLLER = "broker", "controller"
DEFAULT_LOG_DIR = "anabranch-data"
DEFAULT_NODE_ID = "1"
CLIENT_LISTENER = "PLAINTEXT://127.0.0.1:9092"
CONTROLLER_LISTENER = "CONTROLLER://127.0.0.1:0"
STORE_FILE = "metadata-store.db"
COORDINATOR_FILE = "diskless.db"
OFF = -1
"""The HTTP port of a node that serves no HTTP."""
CODECS = ("offsets.topic.compression.codec", "share.coordinator.state.topic.compression.codec")


class NodeConfig(msgspec.Struct, frozen=True, kw_only=True):
    """A checked configuration. `broker` has every setting; the rest is what the shell opens.

    `controllers` are addresses of controllers; a node that is one itself may do without.
    `metadata_store_url` is empty for a node that is no controller.
    """

    node_id: int
    process_roles: tuple[str, ...]
    listeners: tuple[Listener, ...]
    advertised_listeners: tuple[Listener, ...]
    advertised_controllers: tuple[Listener, ...]
    controller_listener_names: tuple[str, ...]
    inter_broker_listener_name: str
    controllers: tuple[tuple[str, int], ...]
    log_dirs: tuple[str, ...]
    metadata_log_dir: str
    metadata_store_url: str
    rack: str | None
    http_host: str
    http_port: int
    broker: BrokerConfig
    between_brokers: Security = PLAINTEXT
    """How this broker speaks to others."""
    to_controllers: Security = PLAINTEXT
    """How this node speaks to controllers."""
    first_users: tuple[UserScramCredentialRecord, ...] = ()
    """Users that a new cluster begins with."""
    warnings: tuple[str, ...] = ()

    @property
    def is_broker(self) -> bool:
        """Whether clients are served."""
        return BROKER in self.process_roles

    @property
    def is_controller(self) -> bool:
        """Whether this node may decide for the cluster."""
        return CONTROLLER in self.process_roles

    @property
    def diskless_coordinator_url(self) -> str:
        """Where the coordinator is: a file in the first log folder of a node that is broker and
        controller and names none; "" for any other node that names none."""
        named = self.broker.diskless_coordinator_url
        if named or not (self.is_broker and self.is_controller):
            return named
        return os.path.join(self.log_dirs[0], COORDINATOR_FILE)

    @property
    def broker_listeners(self) -> tuple[Listener, ...]:
        """Listeners for clients and other brokers."""
        names = self.controller_listener_names
        return tuple(each for each in self.listeners if each.name not in names)

    @property
    def node_listener_names(self) -> frozenset[str]:
        """Listeners that only nodes are meant to reach: those of controllers, and that between
        brokers if clients have others."""
        names = set(self.controller_listener_names)
        if len(self.broker_listeners) > 1:
            names.add(self.inter_broker_listener_name)
        return frozenset(names)

    @property
    def secure_listeners(self) -> dict[str, ListenerSettings]:
        """Those with TLS or SASL, by name."""
        return {
            each.name: ListenerSettings(self.broker, each)
            for each in self.listeners
            if each.security_protocol != "PLAINTEXT"
        }

    def between_brokers_under(self, broker: BrokerConfig) -> Security:
        """How it speaks to other brokers under another configuration. Raises ConfigFault."""
        name = self.inter_broker_listener_name
        return _between_brokers(broker, self.process_roles, self.listeners, name)

    def to_controllers_under(self, broker: BrokerConfig) -> Security:
        """How it speaks to controllers under another configuration. Raises ConfigFault."""
        return _to_controllers(broker, self.controller_listener_names)

    @property
    def http_settings(self) -> ListenerSettings | None:
        """Those of the listener for metrics and health; None where it is off."""
        broker = self.broker
        return http_listener(broker, broker.http_listener, broker.http_security_protocol)

    @property
    def trusted_listener_names(self) -> frozenset[str]:
        """Those of nodes whose clients do not show who they are: a node there has no name."""
        secure = self.secure_listeners
        return frozenset(
            name
            for name in self.node_listener_names
            if name not in secure or not secure[name].authenticates
        )

    @property
    def controller_listeners(self) -> tuple[Listener, ...]:
        """Listeners for the controller's own requests."""
        names = self.controller_listener_names
        return tuple(each for each in self.listeners if each.name in names)


def load_config(properties_file: str | None = None, overrides: Sequence[str] = ()) -> NodeConfig:
    """The configuration of a node from a file, if any, and `key=value` texts.

    Raises ConfigError, whose text is one line for people.
    """
    entries: dict[str, Entry] = {}
    warnings: list[str] = []
    if properties_file is not None:
        entries, warnings = read_properties(properties_file)
    entries.update(read_overrides(overrides))
    known, more = without_aliases(entries)
    try:
        return _node_config(known, [*warnings, *more])
    except ConfigFault as fault:
        raise told(fault, known) from None


def _node_config(entries: Mapping[str, Entry], warnings: Sequence[str]) -> NodeConfig:
    texts = _with_defaults({name: entry.text.strip() for name, entry in entries.items()})
    broker = BrokerConfig.of(texts)
    _refuse_contradictions(broker)
    roles = _roles(broker)
    controller_names = listener_names(broker.controller_listener_names)
    listeners, advertised, controllers = _listeners(broker, roles, controller_names)
    log_dirs = _log_dirs(broker)
    metadata_log_dir = os.path.abspath(broker.metadata_log_dir or log_dirs[0])
    http_host, http_port = _http(broker)
    inter_broker_name = _inter_broker_name(broker, roles, advertised)
    return NodeConfig(
        node_id=int(texts["node.id"]),
        process_roles=roles,
        listeners=listeners,
        advertised_listeners=advertised,
        advertised_controllers=controllers,
        controller_listener_names=controller_names,
        inter_broker_listener_name=inter_broker_name,
        controllers=_controllers(broker, roles),
        log_dirs=log_dirs,
        metadata_log_dir=metadata_log_dir,
        metadata_store_url=_store_url(broker, roles, log_dirs),
        rack=broker.broker_rack or None,
        http_host=http_host,
        http_port=http_port,
        broker=broker,
        between_brokers=_between_brokers(broker, roles, listeners, inter_broker_name),
        to_controllers=_to_controllers(broker, controller_names),
        warnings=(*warnings, *_unauthenticated(broker, listeners)),
    )


def _between_brokers(
    broker: BrokerConfig, roles: Sequence[str], listeners: Sequence[Listener], name: str
) -> Security:
    """How a broker speaks to others: as its own listener for them is spoken to."""
    for each in listeners:
        if BROKER in roles and each.name == name:
            return _security_to(broker, each, INTER_BROKER_MECHANISM)
    return PLAINTEXT


def _to_controllers(broker: BrokerConfig, names: Sequence[str]) -> Security:
    """How a node speaks to controllers: as their first listener is spoken to."""
    name = names[0]
    listener = Listener(name, "", 0, _protocols(broker, names).get(name, "PLAINTEXT"))
    return _security_to(broker, listener, CONTROLLER_MECHANISM)


def _security_to(broker: BrokerConfig, listener: Listener, setting: str) -> Security:
    """How a listener is spoken to; `setting` names the mechanism."""
    settings = ListenerSettings(broker, listener)
    properties = {"security.protocol": listener.security_protocol, **settings.tls()}
    if settings.uses_sasl:
        mechanism = str(settings.value(setting))
        if mechanism not in MECHANISMS:
            raise ConfigFault(
                f"listener {listener.name} asks nodes for a login: write one of "
                f"{', '.join(MECHANISMS)}",
                name=setting,
            )
        properties["sasl.mechanism"] = mechanism
        properties["sasl.jaas.config"] = settings.text("sasl.jaas.config", mechanism)
        if mechanism == OAUTHBEARER:
            properties |= node_properties(settings)
        elif not properties["sasl.jaas.config"]:
            raise ConfigFault(
                f"other nodes ask this one for a login: give username and password of a user for "
                f"{mechanism}",
                name=settings.place("sasl.jaas.config", mechanism),
            )
    try:
        return security_of(properties)
    except ClientFault as fault:
        raise ConfigFault(fault.message, name="listeners") from None


def _unauthenticated(broker: BrokerConfig, listeners: Sequence[Listener]) -> tuple[str, ...]:
    """What an operator must know who believes that ACLs hold."""
    settings = [ListenerSettings(broker, each) for each in listeners]
    open_ = [each.listener.name for each in settings if not each.authenticates]
    if not broker.authorizer_class_name or not open_:
        return ()
    return (
        f"authorizer.class.name: clients of {', '.join(open_)} do not show who they are, so each "
        "is User:ANONYMOUS, and ACLs tell them apart by their address only. Such listeners of "
        "controllers, and inter.broker.listener.name if clients have others, allow everything: "
        "let only nodes and administrators reach them",
    )


def _with_defaults(texts: dict[str, str]) -> dict[str, str]:
    """What a node without configuration has, put in so that DescribeConfigs tells the truth."""
    node_id = texts.get("node.id") or texts.get("broker.id") or DEFAULT_NODE_ID
    if texts.get("broker.id", node_id) not in (node_id, "-1"):
        raise ConfigFault(
            "You must set `node.id` to the same value as `broker.id`.", name="broker.id"
        )
    texts["node.id"] = texts["broker.id"] = node_id
    texts.setdefault("process.roles", f"{BROKER},{CONTROLLER}")
    roles = texts["process.roles"]
    listeners = [texts["listeners"]] if texts.get("listeners") else []
    if not listeners and BROKER in roles:
        listeners.append(CLIENT_LISTENER)
    if CONTROLLER in roles and "controller.listener.names" not in texts:
        if not any("CONTROLLER://" in each.upper() for each in listeners):
            listeners.append(CONTROLLER_LISTENER)
    texts.setdefault("controller.listener.names", "CONTROLLER")
    texts["listeners"] = ",".join(listeners)
    if "log.dirs" not in texts and "log.dir" not in texts:
        texts["log.dirs"] = DEFAULT_LOG_DIR
    return texts


def _roles(broker: BrokerConfig) -> tuple[str, ...]:
    roles = broker.process_roles or ()
    if not roles or len(set(roles)) < len(roles):
        raise ConfigFault(
            "write broker, controller, or broker,controller, each once", name="process.roles"
        )
    return roles


def _protocols(broker: BrokerConfig, controller_names: Sequence[str]) -> dict[str, str]:
    """Listener name -> protocol; an unmapped controller listener is plaintext, as in KRaft."""
    protocols = parse_protocol_map(broker.listener_security_protocol_map)
    if "listener.security.protocol.map" not in broker.static:
        for name in controller_names:
            protocols.setdefault(name, "PLAINTEXT")
    return protocols


def _listeners(
    broker: BrokerConfig, roles: Sequence[str], controller_names: Sequence[str]
) -> tuple[tuple[Listener, ...], tuple[Listener, ...], tuple[Listener, ...]]:
    """What is bound; what clients are told to use, and what other nodes for the controller."""
    protocols = _protocols(broker, controller_names)
    bound = parse_listeners("listeners", broker.listeners, protocols)
    refuse_duplicate_ports("listeners", bound)
    allow = broker.listener_plaintext_beyond_loopback_allow
    refuse_unmeant_plaintext("listeners", bound, allow)
    for listener in bound:
        if listener.security_protocol != "PLAINTEXT":
            settings = ListenerSettings(broker, listener)
            settings.check()
            allow_anyone = allow or broker.listener_unauthenticated_beyond_loopback_allow
            refuse_unmeant_strangers("listeners", listener, settings.authenticates or allow_anyone)
    client_side = tuple(each for each in bound if each.name not in controller_names)
    if CONTROLLER in roles and len(client_side) == len(bound):
        raise ConfigFault(
            "a controller needs a listener; set one of `listeners` here",
            name="controller.listener.names",
        )
    if BROKER in roles and not client_side:
        raise ConfigFault(
            "a broker needs a listener that is not in controller.listener.names", name="listeners"
        )
    if BROKER not in roles and client_side:
        raise ConfigFault(
            f"{client_side[0].name} is not in controller.listener.names, but a controller-only "
            "node has no clients; remove that listener",
            name="listeners",
        )
    if CONTROLLER not in roles and len(client_side) < len(bound):
        there = next(each.name for each in bound if each not in client_side)
        raise ConfigFault(
            f"{there} is in controller.listener.names, but a broker-only node is not a "
            "controller; remove that listener",
            name="listeners",
        )
    given = _advertised(broker, protocols, bound)
    advertised = tuple(each for each in given if each.name not in controller_names)
    told = {each.name: each for each in given}
    controller_side = tuple(told.get(each.name, each) for each in bound if each not in client_side)
    return bound, advertised or client_side, controller_side


def _advertised(
    broker: BrokerConfig, protocols: Mapping[str, str], bound: Sequence[Listener]
) -> tuple[Listener, ...]:
    """What `advertised.listeners` says; nothing when it is not set."""
    setting = "advertised.listeners"
    if not broker.advertised_listeners:
        return ()
    given = parse_listeners(setting, broker.advertised_listeners, protocols)
    names = {each.name for each in bound}
    for listener in given:
        if listener.name not in names:
            raise ConfigFault(
                f"listener {listener.name} is not in `listeners`; bind it there too", name=setting
            )
        if listener.host in WILDCARDS[1:]:
            raise ConfigFault(
                f"{setting} cannot use the nonroutable meta-address {listener.host}. "
                "Use a routable IP address.",
                name=setting,
            )
    return tuple(given)


def _inter_broker_name(
    broker: BrokerConfig, roles: Sequence[str], advertised: Sequence[Listener]
) -> str:
    names = [each.name for each in advertised]
    given = (broker.inter_broker_listener_name or "").upper()
    setting = "inter.broker.listener.name"
    if given and "security.inter.broker.protocol" in broker.static:
        raise ConfigFault(
            f"Only one of {setting} and security.inter.broker.protocol should be set.",
            name=setting,
        )
    if BROKER not in roles:
        return given
    if given and given not in names:
        raise ConfigFault(
            f"{given} is no advertised listener of this broker; it has {', '.join(names)}",
            name=setting,
        )
    if given or "security.inter.broker.protocol" not in broker.static:
        return given or names[0]
    protocol = broker.security_inter_broker_protocol
    fitting = [each.name for each in advertised if each.security_protocol == protocol]
    if not fitting:
        raise ConfigFault(
            f"no advertised listener of this broker has protocol {protocol}",
            name="security.inter.broker.protocol",
        )
    return protocol if protocol in fitting else fitting[0]


def _controllers(broker: BrokerConfig, roles: Sequence[str]) -> tuple[tuple[str, int], ...]:
    servers = broker.controller_quorum_bootstrap_servers or tuple(
        voter.partition("@")[2] for voter in broker.controller_quorum_voters
    )
    if not servers and CONTROLLER not in roles:
        raise ConfigFault(
            "a broker-only node needs the addresses of controllers; write host:port,…",
            name="controller.quorum.bootstrap.servers",
        )
    return tuple(_host_and_port(server) for server in servers)


def _host_and_port(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition("://")[2].rpartition(":")
    return host.strip("[]"), int(port)


def _log_dirs(broker: BrokerConfig) -> tuple[str, ...]:
    text = broker.log_dir if broker.log_dirs is None else broker.log_dirs
    folders = tuple(os.path.abspath(each.strip()) for each in text.split(",") if each.strip())
    if not folders:
        raise ConfigFault(
            "At least one log directory must be defined via log.dirs or log.dir.", name="log.dirs"
        )
    if len(set(folders)) < len(folders):
        raise ConfigFault("a folder appears twice", name="log.dirs")
    return folders


def _store_url(broker: BrokerConfig, roles: Sequence[str], log_dirs: Sequence[str]) -> str:
    if CONTROLLER not in roles:
        return ""
    controllers = broker.controller_quorum_bootstrap_servers or broker.controller_quorum_voters
    if not broker.metadata_store_url and len(controllers or ()) > 1:
        raise ConfigFault(
            f"{len(controllers)} controllers are listed, and without this setting each would form "
            "its own cluster; set the same value for all, sqlite:///path/metadata.db "
            "on one machine or postgresql://user@host:5432/database on several",
            name="metadata.store.url",
        )
    if names_no_file(broker.metadata_store_url):
        raise ConfigFault(
            "write sqlite:///path/to/metadata.db, with the whole path", name="metadata.store.url"
        )
    return broker.metadata_store_url or f"sqlite://{log_dirs[0]}/{STORE_FILE}"


def _http(broker: BrokerConfig) -> tuple[str, int]:
    settings = http_listener(broker, broker.http_listener, broker.http_security_protocol)
    return ("", OFF) if settings is None else (settings.listener.host, settings.listener.port)


def _refuse_unknown_authorizer(broker: BrokerConfig) -> None:
    if broker.authorizer_class_name not in ("", STANDARD_AUTHORIZER):
        raise ConfigFault(
            f"{broker.authorizer_class_name} is a Java class that cannot be loaded; write "
            f"{STANDARD_AUTHORIZER}, or remove it, so that everybody may do everything",
            name="authorizer.class.name",
        )
    try:
        super_users_of(broker.super_users)
    except ValueError as fault:
        raise ConfigFault(str(fault), name="super.users") from None


def _refuse_contradictions(broker: BrokerConfig) -> None:
    """Settings that are fine alone and not together (Kafka's validateValues)."""
    for name in (*RETENTIONS, *LEAST, *MOST, PER_ADDRESS):
        unmet = unmet_requirement(name, broker[name])
        if unmet is not None:
            raise ConfigFault(unmet, name=name)
    if broker.cordoned_log_dirs:
        raise ConfigFault(
            "is stored in the metadata; remove it here and run `anabranch cluster cordon --broker "
            "ID`",
            name="cordoned.log.dirs",
        )
    if broker.broker_heartbeat_interval_ms * 2 > broker.broker_session_timeout_ms:
        raise ConfigFault(
            "must be at most half of broker.session.timeout.ms, or one late heartbeat fences the "
            "broker",
            name="broker.heartbeat.interval.ms",
        )
    if (broker.replica_selector_class or SELECTORS[0]) not in SELECTORS:
        raise ConfigFault(
            f"{broker.replica_selector_class} is a Java class that cannot be loaded; write "
            f"{RACK_AWARE_SELECTOR}, or remove it, so that leaders serve all consumers",
            name="replica.selector.class",
        )
    _refuse_unknown_authorizer(broker)
    for name in CODECS:
        if broker[name] not in list(Codec):
            raise ConfigFault(
                "must be 0 (none), 1 (gzip), 2 (snappy), 3 (lz4) or 4 (zstd)", name=name
            )
    refuse_disorder(broker)
    refuse_unusable(broker)
