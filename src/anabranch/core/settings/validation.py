"""Whether a change of settings may be made: what CreateTopics and the two AlterConfigs ask.

The rule it keeps: code and text are Kafka 4.1's, measured on a running broker: a topic's settings
are refused with INVALID_CONFIG, a broker's with INVALID_REQUEST, since Kafka's brokers check theirs
before the controller sees them. Unknown names are refused for topics and kept for brokers, where a
plug-in may know them. What it is not: it plans no records (`core/controller`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import IntEnum
from functools import lru_cache

from anabranch.core.errors import ClientFault, ErrorCode
from anabranch.core.settings.broker import BrokerConfig
from anabranch.core.settings.catalogue import BROKER_SETTINGS, TOPIC_SETTINGS
from anabranch.core.settings.resources import CLIENT_METRICS_SETTINGS, GROUP_SETTINGS
from anabranch.core.settings.setting import ConfigFault, Scope, Setting, Type, Value, invalid, parse
from anabranch.core.settings.topic import broker_default

CHECKED = 64
"""Sets of settings that are known to be right: each may have values of 32 KB."""
MAX_VALUE_SIZE_BYTES = 32_767
"""Longest text of one setting, the longest string of the metadata record (Kafka's limit)."""

LISTENER_PREFIX = "listener.name."
MECHANISMS = ("plain", "scram-sha-256", "scram-sha-512", "oauthbearer", "gssapi")
"""As names of settings have them, behind a listener's name (KIP-103)."""

UNLIMITED_RETENTION, AS_WHOLE_LOG = -1, -2
"""What `retention.*` and `local.retention.*` may be beside a limit."""

RETENTIONS = ("log.retention.ms", "log.retention.minutes", "log.retention.hours")
"""0 would delete every record of every topic that sets nothing itself."""
PER_ADDRESS = "max.connections.per.ip.overrides"
OF_LISTENERS = ("ssl.", "sasl.")
JAAS = "sasl.jaas.config"
WAS_CLASSIC = "diskless.start.offsets"
"""Set by the controller alone, in the topics that have become diskless."""
BOUND_AT_START = frozenset({"listeners", "listener.security.protocol.map"})
"""Kafka changes them while a broker runs; here a change would say done and do nothing."""
LEAST = {
    "log.cleaner.dedupe.buffer.size": (1 << 20) + 1,
    "log.cleaner.threads": 1,
    "log.roll.jitter.ms": 0,
    "log.roll.ms": 1,
    "max.connection.creation.rate": 1,
    "max.connections": 1,
    "num.replica.fetchers": 1,
    "offsets.topic.segment.bytes": 1 << 20,
    "transaction.state.log.segment.bytes": 1 << 20,
}
"""Numbers that Kafka's brokers refuse later than by a setting's definition: in a file, or when they
change while it runs. Smaller segments of internal topics it refuses only when the topic is to be
created: it starts, and no group or transaction ever gets a coordinator."""
MOST = {"share.coordinator.snapshot.update.records.per.snapshot": 500}
ORDERED = (
    ("group.share.max.size", "group.share.max.share.sessions"),
    ("group.share.min.record.lock.duration.ms", "group.share.record.lock.duration.ms"),
    ("group.share.record.lock.duration.ms", "group.share.max.record.lock.duration.ms"),
    ("group.streams.num.standby.replicas", "group.streams.max.standby.replicas"),
    ("replica.fetch.wait.max.ms", "replica.lag.time.max.ms"),
    ("replica.fetch.wait.max.ms", "replica.socket.timeout.ms"),
    ("socket.request.max.bytes", "queued.max.request.bytes"),
    *(
        pair
        for kind in ("group.consumer", "group.share", "group.streams")
        for time in ("heartbeat.interval.ms", "session.timeout.ms")
        for pair in (
            (f"{kind}.min.{time}", f"{kind}.max.{time}"),
            (f"{kind}.min.{time}", f"{kind}.{time}"),
            (f"{kind}.{time}", f"{kind}.max.{time}"),
        )
    ),
)
"""The first must not be more than the second (Kafka's `validateValues`, and the checks of its group
coordinators)."""
UNLIMITED = {"queued.max.request.bytes": 0}
"""At or below this it bounds nothing."""


class Resource(IntEnum):
    """ConfigResource types as the wire and ConfigRecord number them."""

    UNKNOWN = 0
    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class Operation(IntEnum):
    """What IncrementalAlterConfigs does to one setting (KIP-339)."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


def base_name(name: str) -> str:
    """The setting behind `listener.name.<listener>.<mechanism>.<setting>`; any other name is
    itself."""
    rest = name
    if name.startswith(LISTENER_PREFIX):
        rest = name[len(LISTENER_PREFIX) :].partition(".")[2] or name
    mechanism, _, setting = rest.partition(".")
    return setting if mechanism in MECHANISMS else rest


def is_reloaded(name: str) -> bool:
    """Whether a running node goes over to it: keys, trust and logins of one listener, without
    those of tokens."""
    is_of_one = name.startswith(LISTENER_PREFIX) and ".oauthbearer." not in name
    return is_of_one and (base_name(name) in LISTENER_ONLY or base_name(name) == JAAS)


def _is_bound_at_start(name: str) -> bool:
    base = base_name(name)
    setting = BROKER_SETTINGS.get(base)
    is_of_listener = setting is not None and setting.in_force and base.startswith(OF_LISTENERS)
    return base in BOUND_AT_START or (is_of_listener and not is_reloaded(name))


def setting_of(resource_type: int, name: str) -> Setting | None:
    """The setting of this kind of resource with this name, or None."""
    if resource_type == Resource.TOPIC:
        return TOPIC_SETTINGS.get(name)
    if resource_type == Resource.BROKER:
        return BROKER_SETTINGS.get(name) or BROKER_SETTINGS.get(base_name(name))
    if resource_type == Resource.CLIENT_METRICS:
        return CLIENT_METRICS_SETTINGS.get(name)
    if resource_type == Resource.GROUP:
        return GROUP_SETTINGS.get(name)
    return None


def is_sensitive(resource_type: int, name: str) -> bool:
    """Whether the value must not be shown; an unknown name might hold a secret."""
    setting = setting_of(resource_type, name)
    return setting is None or setting.sensitive


def validate_topic_configs(
    values: Mapping[str, str | None], broker: BrokerConfig | None = None
) -> None:
    """Refuse the settings a topic would have: `values` is the whole set, not the change alone.

    Raises ConfigFault (INVALID_CONFIG) for an unknown name, a null, a bad value or a contradiction.
    """
    nulls = sorted(name for name, text in values.items() if text is None)
    if nulls:
        raise ConfigFault(f"Null value not supported for topic configs: {','.join(nulls)}")
    texts = tuple((name, text) for name, text in values.items() if text is not None)
    for name, _ in texts:
        if name not in TOPIC_SETTINGS:
            raise ConfigFault(f"Unknown topic config name: {name}", name=name)
    _validate(texts, broker or BrokerConfig.of())


@lru_cache(maxsize=CHECKED)
def _validate(texts: tuple[tuple[str, str], ...], broker: BrokerConfig) -> None:
    """Settings that are given to thousands of topics at once are checked once."""
    parsed = {name: parse(TOPIC_SETTINGS[name], text) for name, text in sorted(texts)}
    _refuse_contradictions(parsed, broker)


def _refuse_contradictions(parsed: Mapping[str, object], broker: BrokerConfig) -> None:
    def value(name: str) -> object:
        return parsed[name] if name in parsed else broker_default(name, broker)

    least, most = value("min.compaction.lag.ms"), value("max.compaction.lag.ms")
    if isinstance(least, int) and isinstance(most, int) and least > most:
        raise ConfigFault(
            f"conflict topic config setting min.compaction.lag.ms ({least}) > "
            f"max.compaction.lag.ms ({most})"
        )
    if parsed.get("remote.storage.enable"):
        _refuse_remote_storage(parsed, broker)


def _refuse_remote_storage(parsed: Mapping[str, object], broker: BrokerConfig) -> None:
    if not broker.remote_log_storage_system_enable:
        raise ConfigFault(
            "Tiered Storage functionality is disabled in the broker. "
            "Topic cannot be configured with remote log storage."
        )
    if not parsed.get(WAS_CLASSIC):  # brokers keep and copy nothing of a topic that is diskless
        refuse_remote_contradictions(parsed, broker)


def refuse_remote_contradictions(parsed: Mapping[str, object], broker: BrokerConfig) -> None:
    """Raise ConfigFault for settings of a topic that has remote storage and cannot have it so, in
    Kafka's order and words (`LogConfig.validateTopicLogConfigValues`)."""

    def value(name: str) -> object:
        return parsed[name] if name in parsed else broker_default(name, broker)

    policies = value("cleanup.policy")
    assert isinstance(policies, tuple)
    if set(policies) != {"delete"}:
        raise ConfigFault("Remote log storage only supports topics with cleanup.policy=delete")
    for unit in ("bytes", "ms"):
        name, whole_name = f"local.retention.{unit}", f"retention.{unit}"
        local, whole = value(name), value(whole_name)
        assert isinstance(local, int)
        assert isinstance(whole, int)
        if whole > UNLIMITED_RETENTION and local != AS_WHOLE_LOG:
            if local == UNLIMITED_RETENTION:
                why = f"Value must not be -1 as {whole_name} value is set as {whole}."
                raise invalid(name, str(local), why)
            if local > whole:
                why = f"Value must not be more than {whole_name} property value: {whole}"
                raise invalid(name, str(local), why)
    if value("remote.log.copy.disable"):
        _refuse_shorter_local(value)


def _refuse_shorter_local(value: Callable[[str], object]) -> None:
    for unit in ("bytes", "ms"):
        local, whole = value(f"local.retention.{unit}"), value(f"retention.{unit}")
        if local not in (AS_WHOLE_LOG, whole):
            raise ConfigFault(
                f"When `remote.log.copy.disable` is set to true, the `local.retention.{unit}` and "
                f"`retention.{unit}` must be set to the identical value because there will be no "
                "more logs copied to the remote storage."
            )


def validate_broker_configs(values: Mapping[str, str], *, per_broker: bool) -> None:
    """Refuse dynamic settings of one broker (`per_broker`) or of all (resource name "").

    `values` is the whole set that would be in effect there. Raises ClientFault (INVALID_REQUEST).
    """
    fixed = [name for name in values if _scope(name) is Scope.READ_ONLY]
    if fixed:
        raise _refusal("Cannot update these configs dynamically", fixed)
    unprefixed = [name for name in values if name in LISTENER_ONLY]
    if unprefixed:
        raise _refusal(
            "These security configs can be dynamically updated only per-listener "
            "using the listener prefix",
            unprefixed,
        )
    single = [name for name in values if _scope(name) is Scope.PER_BROKER]
    if single and not per_broker:
        raise _refusal(
            "Cannot update these configs at default cluster level, broker id must be specified",
            single,
        )
    bound = sorted(filter(_is_bound_at_start, values))
    if bound:
        raise _refusal(
            "Cannot update these configs dynamically; change the node's file and restart it",
            bound,
        )
    for name, text in values.items():
        setting = setting_of(Resource.BROKER, name)
        if setting is not None:
            _check_dynamic(setting, text)


def _check_dynamic(setting: Setting, text: str) -> None:
    try:
        unmet = unmet_requirement(setting.name, parse(setting, text))
    except ConfigFault as fault:
        raise ClientFault(ErrorCode.INVALID_REQUEST, fault.message) from fault
    if unmet is not None:
        sentence = f"requirement failed: {setting.name} {unmet}"
        raise ClientFault(ErrorCode.INVALID_REQUEST, sentence)


def unmet_requirement(name: str, value: Value) -> str | None:
    """What a broker's setting must be and is not, beyond its definition's limits, in a file as well
    as later (Kafka's `KafkaConfig.validateValues`)."""
    if name in RETENTIONS and value == 0:
        return "must be unlimited (-1) or, greater than or equal to 1"
    least = LEAST.get(name)
    if least is not None and isinstance(value, int) and value < least:
        return f"must be greater than or equal to {least}"
    most = MOST.get(name)
    if most is not None and isinstance(value, int) and value > most:
        return f"must be less than or equal to {most}"
    if name == PER_ADDRESS and limits_by_address(str(value)) is None:
        return "must be addresses with the number of their connections, as in 10.0.0.1:5,10.0.0.2:9"
    return None


def limits_by_address(text: str) -> Mapping[str, int] | None:
    """What `max.connections.per.ip.overrides` says: how many connections an address or a host may
    have. None for a text that says something else."""
    found = {}
    for entry in text.split(","):
        address, _, count = map(str.strip, entry.rpartition(":"))
        if address and count.isdecimal():
            found[address] = int(count)
        elif entry.strip():
            return None
    return found


def refuse_unusable(config: BrokerConfig) -> None:
    """Raise ConfigFault for settings that are fine alone and not together, in a file as well as
    later (Kafka's `validateValues`)."""
    buffer_bytes, threads = config.log_cleaner_dedupe_buffer_size, config.log_cleaner_threads
    if buffer_bytes // threads < LEAST["log.cleaner.dedupe.buffer.size"]:
        raise ConfigFault(
            "must be more than 1 MiB for each of log.cleaner.threads",
            name="log.cleaner.dedupe.buffer.size",
        )
    if not config.max_connections_per_ip and not config.max_connections_per_ip_overrides:
        raise ConfigFault(
            "can be 0 only if max.connections.per.ip.overrides names who may connect",
            name="max.connections.per.ip",
        )


def refuse_change(now: BrokerConfig, wanted: BrokerConfig) -> None:
    """Refuse what a broker cannot go over to while it runs, in the words of Kafka's log cleaner.

    Raises ClientFault (INVALID_REQUEST)."""
    try:
        refuse_unusable(wanted)
    except ConfigFault as fault:
        sentence = f"requirement failed: {fault.name} {fault.message}"
        raise ClientFault(ErrorCode.INVALID_REQUEST, sentence) from fault
    threads, why = now.log_cleaner_threads, ""
    if wanted.log_cleaner_threads < threads // 2:
        why = "reduced to less than half"
    elif wanted.log_cleaner_threads > threads * 2:
        why = "increased to more than double"
    if why:
        sentence = f"Log cleaner threads cannot be {why} the current value {threads}"
        raise ClientFault(ErrorCode.INVALID_REQUEST, sentence)


def refuse_disorder(config: BrokerConfig) -> None:
    """Raise ConfigFault for a setting that is more than one that bounds it; it names the one of the
    two that was set."""
    for lesser, greater in ORDERED:
        least, most = config[lesser], config[greater]
        assert isinstance(least, int)
        assert isinstance(most, int)
        if least <= most or most <= UNLIMITED.get(greater, most - 1):
            continue
        if greater in config.static:
            raise ConfigFault(f"must be at least {lesser} ({least})", name=greater)
        raise ConfigFault(f"must be at most {greater} ({most})", name=lesser)


def _scope(name: str) -> Scope | None:
    setting = setting_of(Resource.BROKER, name)
    if setting is None:
        return None
    return Scope.PER_BROKER if name != setting.name else setting.scope


def _refusal(why: str, names: list[str]) -> ClientFault:
    return ClientFault(ErrorCode.INVALID_REQUEST, f"{why}: Set({', '.join(sorted(names))})")


LISTENER_ONLY = frozenset(
    {
        "ssl.key.password",
        "ssl.keystore.certificate.chain",
        "ssl.keystore.key",
        "ssl.keystore.location",
        "ssl.keystore.password",
        "ssl.keystore.type",
        "ssl.truststore.certificates",
        "ssl.truststore.location",
        "ssl.truststore.password",
        "ssl.truststore.type",
    }
)
"""Settings that change while a broker runs only with `listener.name.<listener>.` in front."""


def apply_operation(
    resource_type: int,
    overrides: Mapping[str, str],
    name: str,
    operation: int,
    value: str | None,
    broker: BrokerConfig | None = None,
) -> dict[str, str]:
    """The settings after one operation of IncrementalAlterConfigs; `overrides` is left alone.

    APPEND and SUBTRACT begin from what is in effect. They raise ConfigFault (INVALID_CONFIG) for a
    setting that is no list. The result is not validated: that is done once for the whole change.
    """
    changed = dict(overrides)
    if operation == Operation.DELETE:
        changed.pop(name, None)
    elif operation == Operation.SET:
        changed[name] = value or ""
    else:
        changed[name] = _edited_list(
            _current_list(resource_type, overrides, name, Operation(operation), broker),
            Operation(operation),
            [each.strip() for each in (value or "").split(",")],
        )
    too_long = len(changed.get(name, "").encode()) > MAX_VALUE_SIZE_BYTES
    if too_long and operation in (Operation.SET, Operation.APPEND):
        raise ConfigFault(
            "The configuration value cannot be added because it exceeds the maximum value size "
            f"of {MAX_VALUE_SIZE_BYTES} bytes.",
            name=name,
        )
    return changed


def _current_list(
    resource_type: int,
    overrides: Mapping[str, str],
    name: str,
    operation: Operation,
    broker: BrokerConfig | None,
) -> list[str]:
    setting = setting_of(resource_type, name)
    if setting is None or setting.type is not Type.LIST:
        raise ConfigFault(
            f"Can't {operation.name} to key {name} because its type is not LIST.", name=name
        )
    if name in overrides:
        return _entries(overrides[name])
    if resource_type not in (Resource.TOPIC, Resource.BROKER):
        return _entries(setting.default or "")
    config = broker or BrokerConfig.of()
    in_effect = (
        broker_default(name, config) if resource_type == Resource.TOPIC else config[setting.name]
    )
    return list(in_effect) if isinstance(in_effect, tuple) else []


def _entries(text: str) -> list[str]:
    """Without the blanks around them, as `parse` reads them: else none could be taken away."""
    return [each.strip() for each in text.split(",") if each.strip()]


def _edited_list(elements: list[str], operation: Operation, given: list[str]) -> str:
    for element in given:
        if operation is Operation.SUBTRACT:
            if element in elements:
                elements.remove(element)
        elif element not in elements:
            elements.append(element)
    return ",".join(elements)
