"""Settings of consumer groups, and of subscriptions to clients' metrics (KIP-714, KIP-848).

Names, types, defaults, limits and the words of refusals are those of Kafka 4.1's GroupConfig and
ClientMetricsConfigs, measured on a running broker. A group's defaults and bounds are settings of
the broker. The rule it keeps: a change is refused as the set that it would leave, never in parts.
What it is not: in force. Groups of KIP-848 and a receiver of metrics do not exist here, so that
what is set is kept, described and listed, and does nothing.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

from anabranch.core.errors import ClientFault, ErrorCode
from anabranch.core.settings.broker import BrokerConfig
from anabranch.core.settings.catalogue import BROKER_SETTINGS
from anabranch.core.settings.notation import INT, LIST, MEDIUM, STRING, row
from anabranch.core.settings.setting import ConfigFault, Setting, parse, to_text
from anabranch.core.settings.validators import at_least, one_of
from anabranch.core.wire.messages.describe_configs import (
    DescribeConfigsResourceResult,
    DescribeConfigsSynonym,
)

# fmt: off
CLIENT_METRICS = (
    row("interval.ms", "How often clients push the metrics of this subscription.",
        INT, "300000", MEDIUM),
    row("match", "Patterns of clients that the subscription means; empty is every client.",
        LIST, "", MEDIUM),
    row("metrics", "Beginnings of names of the metrics that clients push; * is every metric.",
        LIST, "", MEDIUM),
)
GROUP = (
    row("consumer.heartbeat.interval.ms", "Heartbeat interval given to the group's members.",
        INT, None, MEDIUM, at_least(1)),
    row("consumer.session.timeout.ms", "Silence after which the group drops a member.",
        INT, None, MEDIUM, at_least(1)),
    row("share.auto.offset.reset", "Where a share group begins: latest, earliest, by_duration:….",
        STRING, "latest", MEDIUM),
    row("share.heartbeat.interval.ms", "Heartbeat interval given to members of a share group.",
        INT, None, MEDIUM, at_least(1)),
    row("share.isolation.level", "What a share group sees of transactions.",
        STRING, "read_uncommitted", MEDIUM, one_of("read_committed", "read_uncommitted")),
    row("share.record.lock.duration.ms", "How long a member of a share group has for a record.",
        INT, None, MEDIUM, at_least(1000)),
    row("share.session.timeout.ms", "Silence after which a share group drops a member.",
        INT, None, MEDIUM, at_least(1)),
    row("streams.heartbeat.interval.ms", "Heartbeat interval given to members of a streams group.",
        INT, None, MEDIUM, at_least(1)),
    row("streams.num.standby.replicas", "Standby copies of each task of a streams group.",
        INT, None, MEDIUM, at_least(0)),
    row("streams.session.timeout.ms", "Silence after which a streams group drops a member.",
        INT, None, MEDIUM, at_least(1)),
)
# fmt: on

CLIENT_METRICS_SETTINGS: Mapping[str, Setting] = {each.name: each for each in CLIENT_METRICS}
GROUP_SETTINGS: Mapping[str, Setting] = {each.name: each for each in GROUP}

LEAST_INTERVAL_MS, MOST_INTERVAL_MS = 100, 3_600_000
MATCHABLE = frozenset(
    {
        "client_instance_id",
        "client_id",
        "client_software_name",
        "client_software_version",
        "client_source_address",
        "client_source_port",
    }
)
SOURCE_CLIENT_METRICS, SOURCE_GROUP, SOURCE_DEFAULT = 7, 8, 5
"""Where a value comes from, numbered as DescribeConfigs sends it."""


def validate_client_metrics_configs(values: Mapping[str, str]) -> None:
    """Refuse the settings that a subscription would have. Raises ClientFault."""
    for name in values:
        if name not in CLIENT_METRICS_SETTINGS:
            raise ClientFault(
                ErrorCode.INVALID_REQUEST, f"Unknown client metrics configuration: {name}"
            )
    parsed = {name: parse(CLIENT_METRICS_SETTINGS[name], text) for name, text in values.items()}
    interval_ms = parsed.get("interval.ms")
    if isinstance(interval_ms, int) and not LEAST_INTERVAL_MS <= interval_ms <= MOST_INTERVAL_MS:
        raise ClientFault(
            ErrorCode.INVALID_REQUEST,
            f"Invalid value {interval_ms} for interval.ms, interval must be between "
            f"{LEAST_INTERVAL_MS} and {MOST_INTERVAL_MS} (1 hour)",
        )
    patterns = parsed.get("match")
    for pattern in patterns if isinstance(patterns, tuple) else ():
        _check_pattern(pattern)


def _check_pattern(pattern: str) -> None:
    name, equals, expression = (each.strip() for each in pattern.partition("="))
    try:
        re.compile(expression)
        legal = bool(equals) and name in MATCHABLE
    except re.error:
        legal = False
    if not legal:
        raise ConfigFault(f"Illegal client matching pattern: {pattern}", name="match")


def validate_group_configs(values: Mapping[str, str], broker: BrokerConfig) -> None:
    """Refuse the settings that a group would have on such a broker. Raises ConfigFault."""
    for name in values:
        if name not in GROUP_SETTINGS:
            raise ConfigFault(f"Unknown group config name: {name}", name=name)
    parsed = {name: parse(GROUP_SETTINGS[name], text) for name, text in values.items()}
    for name, value in parsed.items():
        if isinstance(value, int):
            _check_bounds(name, value, broker)
    for kind in ("consumer", "share", "streams"):
        session, heartbeat = f"{kind}.session.timeout.ms", f"{kind}.heartbeat.interval.ms"
        if _number(session, parsed, broker) <= _number(heartbeat, parsed, broker):
            raise ConfigFault(f"{session} must be greater than {heartbeat}", name=session)


def _check_bounds(name: str, value: int, broker: BrokerConfig) -> None:
    kind, _, rest = name.partition(".")
    least, most = f"group.{kind}.min.{rest}", f"group.{kind}.max.{rest}"
    if name == "streams.num.standby.replicas":
        most = "group.streams.max.standby.replicas"
    if least in BROKER_SETTINGS and value < int(str(broker[least])):
        raise ConfigFault(f"{name} must be greater than or equal to {least}", name=name)
    if most in BROKER_SETTINGS and value > int(str(broker[most])):
        raise ConfigFault(f"{name} must be less than or equal to {most}", name=name)


def _number(name: str, parsed: Mapping[str, object], broker: BrokerConfig) -> int:
    return int(str(parsed[name] if name in parsed else broker[f"group.{name}"]))


def describe_client_metrics(
    overrides: Mapping[str, str], keys: Collection[str] | None
) -> list[DescribeConfigsResourceResult]:
    """What is set for a subscription, and the defaults of the rest."""
    defaults = {each.name: each.default for each in CLIENT_METRICS}
    results = _described(CLIENT_METRICS, overrides, defaults, SOURCE_CLIENT_METRICS, keys)
    for result in results:
        if result.config_source == SOURCE_DEFAULT:
            result.synonyms = []
    return results


def describe_group(
    overrides: Mapping[str, str], broker: BrokerConfig, keys: Collection[str] | None
) -> list[DescribeConfigsResourceResult]:
    """What is set for a group, and what the broker says about the rest."""
    defaults = {
        each.name: to_text(broker[f"group.{each.name}"]) if each.default is None else each.default
        for each in GROUP
    }
    return _described(GROUP, overrides, defaults, SOURCE_GROUP, keys)


def _described(
    settings: tuple[Setting, ...],
    overrides: Mapping[str, str],
    defaults: Mapping[str, str | None],
    own: int,
    keys: Collection[str] | None,
) -> list[DescribeConfigsResourceResult]:
    results = []
    for setting in settings:
        name = setting.name
        if keys and name not in keys:
            continue
        source = own if name in overrides else SOURCE_DEFAULT
        value = overrides.get(name, defaults[name])
        results.append(
            DescribeConfigsResourceResult(
                name=name,
                value=value,
                config_source=source,
                config_type=setting.type,
                synonyms=[DescribeConfigsSynonym(name=name, value=value, source=source)],
                documentation=setting.sentence,
            )
        )
    return results
