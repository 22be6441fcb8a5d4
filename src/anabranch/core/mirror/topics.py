"""Topics of the target: which to create, to grow and to configure as the source has them.

What: pure comparisons of what both clusters say. Rules kept: a topic of the target never loses
partitions or settings that the source has no say in; where the target has more partitions than the
source it is told, and left alone. Source: KIP-382, and MirrorMaker 2's `MirrorSourceConnector`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from enum import IntEnum
from typing import NamedTuple

from anabranch.core.mirror.filters import NameFilter
from anabranch.core.sentences import number_of
from anabranch.core.settings.tables import diskless, topic

TARGETS_OWN = frozenset(each.name for each in (*topic.TOPIC, *diskless.TOPIC) if each.ours)
"""Settings that only Anabranch has: on which brokers and in which store records lie, which each
cluster decides for itself."""
ALLOW, DENY = 3, 2
ALL, READ, WRITE = 2, 3, 4
"""Kafka's numbers of permission types and operations of ACLs."""


class ConfigSource(IntEnum):
    """Where a setting of a topic comes from, as DescribeConfigs says it."""

    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT = 3
    STATIC_BROKER = 4
    DEFAULT = 5


class TopicShape(NamedTuple):
    """A topic by its name on its own cluster."""

    name: str
    partitions: int
    topic_id: bytes


class TopicWork(NamedTuple):
    """What to do so that the target can take what the source has."""

    create: dict[str, int]
    """Name on the target -> partitions."""
    grow: dict[str, int]
    notes: list[str]


def topic_work(wanted: Mapping[str, TopicShape], there: Mapping[str, TopicShape]) -> TopicWork:
    """`wanted` are topics of the source by their names on the target, `there` the target's own."""
    work = TopicWork({}, {}, [])
    for name, source in sorted(wanted.items()):
        target = there.get(name)
        if target is None:
            work.create[name] = source.partitions
        elif target.partitions < source.partitions:
            work.grow[name] = source.partitions
        elif target.partitions > source.partitions:
            work.notes.append(
                f"{name} has {number_of(target.partitions, 'partition')} on the target and "
                f"{source.name} has {source.partitions} at the source: partitions from "
                f"{source.partitions} on get nothing, and keys lie elsewhere than a producer on "
                f"the target puts them. Create {number_of(source.partitions, 'partition')}, or "
                "mirror under another name."
            )
    return work


class SourceConfig(NamedTuple):
    """A setting of a topic at the source."""

    name: str
    value: str | None
    source: int
    is_read_only: bool = False
    is_sensitive: bool = False


def config_changes(
    configs: Iterable[SourceConfig], there: Mapping[str, str | None], names: NameFilter, *,
    from_source: bool,
) -> Iterator[tuple[str, str | None]]:  # fmt: skip
    """(name, value) of settings that differ on the target; None goes back to its default.

    `there` is what was set on the target's topic itself. With `from_source` defaults of the source
    are set there too.
    """
    for each in sorted(configs):
        if each.is_read_only or each.is_sensitive or each.source == ConfigSource.STATIC_BROKER:
            continue
        if each.name in TARGETS_OWN or not names.takes(each.name):
            continue
        is_default = each.source != ConfigSource.TOPIC
        wanted = None if is_default and not from_source else each.value
        if there.get(each.name) != wanted:
            yield each.name, wanted


class Acl(NamedTuple):
    """An ACL of a topic by its literal name."""

    topic: str
    principal: str
    host: str
    operation: int
    permission: int


def mirrored_acl(acl: Acl, remote: str) -> Acl | None:
    """What an ACL of the source becomes on the target, where clients only read: nothing for leave
    to write, leave to read for leave to do all."""
    if acl.permission == ALLOW and acl.operation == WRITE:
        return None
    if acl.permission == ALLOW and acl.operation == ALL:
        return acl._replace(topic=remote, operation=READ)
    return acl._replace(topic=remote)
