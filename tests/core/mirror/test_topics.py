"""Topics of the target: created, grown, configured; what is left alone."""

from __future__ import annotations

from anabranch.core.mirror.filters import CONFIGS_EXCLUDED, NameFilter
from anabranch.core.mirror.topics import (
    ALL,
    ALLOW,
    DENY,
    READ,
    WRITE,
    Acl,
    ConfigSource,
    SourceConfig,
    TopicShape,
    config_changes,
    mirrored_acl,
    topic_work,
)

ID = bytes(16)


def test_topics_are_created_and_grown_and_never_cut():
    wanted = {f"a.{name}": TopicShape(name, count, ID) for name, count in
              (("new", 3), ("more", 4), ("same", 2), ("less", 2))}  # fmt: skip
    there = {f"a.{name}": TopicShape(f"a.{name}", count, ID) for name, count in
             (("more", 2), ("same", 2), ("less", 5))}  # fmt: skip
    work = topic_work(wanted, there)
    assert work.create == {"a.new": 3} and work.grow == {"a.more": 4}
    assert len(work.notes) == 1 and "partitions from 2 on get nothing" in work.notes[0]


CONFIGS = [
    SourceConfig("retention.ms", "5", ConfigSource.TOPIC),
    SourceConfig("cleanup.policy", "delete", ConfigSource.DEFAULT),
    SourceConfig("min.insync.replicas", "2", ConfigSource.TOPIC),
    SourceConfig("segment.ms", "9", ConfigSource.STATIC_BROKER),
    SourceConfig("diskless.enable", "true", ConfigSource.TOPIC),
    SourceConfig("replica.placer.class.name", "spread", ConfigSource.TOPIC),
    SourceConfig("secret", None, ConfigSource.TOPIC, is_sensitive=True),
]
NAMES = NameFilter(excluded=CONFIGS_EXCLUDED)


def test_settings_follow_those_of_the_source_but_excluded_ones():
    changes = list(config_changes(CONFIGS, {"retention.ms": "4"}, NAMES, from_source=False))
    assert changes == [("retention.ms", "5")]
    there = {"retention.ms": "5", "cleanup.policy": "compact"}
    changes = list(config_changes(CONFIGS, there, NAMES, from_source=False))
    assert changes == [("cleanup.policy", None)], "a default of the source is the target's default"
    changes = list(config_changes(CONFIGS, there, NAMES, from_source=True))
    assert changes == [("cleanup.policy", "delete")]
    there |= {"diskless.enable": "false", "ignore.rack.assignment": "true"}
    assert list(config_changes(CONFIGS, there, NAMES, from_source=True)) == changes


def test_acls_let_clients_read_only():
    acl = Acl("t", "User:x", "*", READ, ALLOW)
    assert mirrored_acl(acl, "a.t") == acl._replace(topic="a.t")
    assert mirrored_acl(acl._replace(operation=WRITE), "a.t") is None
    assert mirrored_acl(acl._replace(operation=ALL), "a.t") == acl._replace(topic="a.t")
    denied = acl._replace(operation=WRITE, permission=DENY)
    assert mirrored_acl(denied, "a.t") == denied._replace(topic="a.t")
