"""What DescribeConfigs answers about the settings of a topic, a broker or the cluster's default.

The rule it keeps: values, sources and synonyms are those of Kafka 4.1's ConfigHelper, measured on a
running broker. A synonym list begins with the entry that decides; entries of stronger names that
do not bear on the described one are left out (describing `log.roll.ms` does not show the hours).
Values of passwords, and of names that are no settings, are never shown.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from enum import IntEnum

from anabranch.core.settings.broker import BrokerConfig
from anabranch.core.settings.catalogue import BROKER_SETTINGS, TOPIC_SETTINGS, TOPIC_TO_BROKER
from anabranch.core.settings.setting import Scope, Setting, to_text
from anabranch.core.settings.topic import TopicConfig, topic_defaults
from anabranch.core.settings.validation import Resource, is_reloaded, setting_of
from anabranch.core.wire.messages.describe_configs import (
    DescribeConfigsResourceResult,
    DescribeConfigsSynonym,
)


class Source(IntEnum):
    """Where a value comes from, numbered as DescribeConfigs sends it."""

    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5


def describe_topic(
    overrides: Mapping[str, str], broker: BrokerConfig, keys: Collection[str] | None
) -> list[DescribeConfigsResourceResult]:
    """Every topic setting, or those in `keys`, for a topic with these texts of its own."""
    effective = TopicConfig.of(overrides, broker) if overrides else topic_defaults(broker)
    results = []
    for setting in _wanted(TOPIC_SETTINGS.values(), keys):
        if setting.ours and setting.name not in overrides and not keys:
            continue  # Kafka's tools list every setting: those that Kafka has
        value = to_text(getattr(effective, setting.attribute))
        synonyms = []
        if setting.name in TOPIC_TO_BROKER:
            synonyms = broker_synonyms(TOPIC_TO_BROKER[setting.name], setting, broker)
        if setting.name in overrides:
            synonyms.insert(0, _synonym(setting, setting.name, value, Source.TOPIC))
        results.append(_result(setting, value, synonyms, read_only=False))
    return results


def describe_broker(
    broker: BrokerConfig, keys: Collection[str] | None
) -> list[DescribeConfigsResourceResult]:
    """Every broker setting, or those in `keys`, as they are in effect on this broker."""
    results = []
    for setting in _wanted(BROKER_SETTINGS.values(), keys):
        synonyms = broker_synonyms(setting.name, setting, broker)
        read_only = setting.scope is Scope.READ_ONLY
        results.append(_result(setting, to_text(broker[setting.name]), synonyms, read_only))
    origins = (
        (Source.DYNAMIC_BROKER, broker.dynamic_broker),
        (Source.DYNAMIC_DEFAULT_BROKER, broker.dynamic_default),
        (Source.STATIC_BROKER, broker.static),
    )
    changed = _of_listeners(broker.dynamic_broker, keys)
    known = {each.name for each in changed}
    unknown = [each for each in _unknown(origins, keys) if each.name not in known]
    return results + changed + unknown


def describe_cluster_default(
    broker: BrokerConfig, keys: Collection[str] | None
) -> list[DescribeConfigsResourceResult]:
    """The dynamic settings that all brokers have: what resource BROKER with an empty name means."""
    named = sorted(name for name in broker.dynamic_default if name in BROKER_SETTINGS)
    results = []
    for setting in _wanted((BROKER_SETTINGS[name] for name in named), keys):
        text = broker.dynamic_default[setting.name]
        synonym = _synonym(setting, setting.name, text, Source.DYNAMIC_DEFAULT_BROKER)
        results.append(_result(setting, text, [synonym], setting.scope is Scope.READ_ONLY))
    return results + _unknown(((Source.DYNAMIC_DEFAULT_BROKER, broker.dynamic_default),), keys)


def broker_synonyms(
    name: str, described: Setting, broker: BrokerConfig
) -> list[DescribeConfigsSynonym]:
    """What gives the broker setting `name` its value, the strongest first."""
    family = [BROKER_SETTINGS[each] for each in BROKER_SETTINGS[name].synonyms]
    origins: tuple[tuple[Source, Callable[[Setting], str | None]], ...] = (
        (Source.DYNAMIC_BROKER, lambda setting: broker.dynamic_broker.get(setting.name)),
        (Source.DYNAMIC_DEFAULT_BROKER, lambda setting: broker.dynamic_default.get(setting.name)),
        (Source.STATIC_BROKER, lambda setting: broker.static.get(setting.name)),
        (Source.DEFAULT, lambda setting: setting.default),
    )
    found = [
        _synonym(described, setting.name, text, source)
        for source, text_of in origins
        for setting in family
        if (text := text_of(setting)) is not None
    ]
    first = next((i for i, synonym in enumerate(found) if synonym.name == name), len(found))
    return found[first:]


def _wanted(settings: Iterable[Setting], keys: Collection[str] | None) -> Iterable[Setting]:
    """Without keys everything but what is internal; an empty list is no list (as Kafka does)."""
    return (
        setting
        for setting in settings
        if not setting.internal and (not keys or setting.name in keys)
    )


def _synonym(
    described: Setting, name: str, value: str | None, source: Source
) -> DescribeConfigsSynonym:
    shown = None if described.sensitive else value
    return DescribeConfigsSynonym(name=name, value=shown, source=source)


def _result(
    setting: Setting,
    value: str | None,
    synonyms: list[DescribeConfigsSynonym],
    read_only: bool,
) -> DescribeConfigsResourceResult:
    return DescribeConfigsResourceResult(
        name=setting.name,
        value=None if setting.sensitive else value,
        read_only=read_only,
        config_source=synonyms[0].source if synonyms else Source.DEFAULT,
        is_sensitive=setting.sensitive,
        synonyms=synonyms,
        config_type=setting.type,
        documentation=setting.sentence,
    )


def _of_listeners(
    texts: Mapping[str, str], keys: Collection[str] | None
) -> list[DescribeConfigsResourceResult]:
    """What was changed of listeners while the broker runs, by their whole names."""
    results = []
    for name, text in sorted(texts.items()):
        setting = setting_of(Resource.BROKER, name)
        if setting is not None and is_reloaded(name) and (not keys or name in keys):
            synonym = _synonym(setting, name, text, Source.DYNAMIC_BROKER)
            result = _result(setting, text, [synonym], read_only=False)
            result.name = name
            results.append(result)
    return results


def _unknown(
    origins: Sequence[tuple[Source, Mapping[str, str]]], keys: Collection[str] | None
) -> list[DescribeConfigsResourceResult]:
    """Names that are no settings of ours: shown without a value, which might be a secret, and with
    where they are set, the strongest first."""
    names = {
        name
        for _, texts in origins
        for name in texts
        if name not in BROKER_SETTINGS and (not keys or name in keys)
    }
    return [
        _unknown_result(name, [source for source, texts in origins if name in texts])
        for name in sorted(names)
    ]


def _unknown_result(name: str, sources: Sequence[Source]) -> DescribeConfigsResourceResult:
    behind = setting_of(Resource.BROKER, name)
    return DescribeConfigsResourceResult(
        name=name,
        value=None,
        read_only=behind is None,
        config_source=sources[0],
        is_sensitive=True,
        synonyms=[DescribeConfigsSynonym(name=name, value=None, source=each) for each in sources],
        config_type=0 if behind is None else behind.type,
        documentation=None if behind is None else behind.sentence,
    )
