"""R15: subscriptions that change under a group: patterns, new topics, added partitions."""

from __future__ import annotations

import pytest
from confluent_kafka.admin import NewPartitions, NewTopic
from tests.clients.adapters import SECONDS, Sent
from tests.clients.member_clients import AioMember, ConfluentMember
from tests.clients.members import until

IN_TIME = pytest.mark.parametrize("kind", [ConfluentMember, AioMember], ids=lambda each: each.name)
"""kafka-python 3.0 loses the answer to SyncGroup now and then when metadata changes while it joins
again, beside Apache Kafka too (2 of 25 times)."""


def test_a_pattern_takes_what_matches(kind, admin, join, group, produce):
    names = [f"{group}.0", f"{group}.1", f"other.{group}"]
    for name in names:
        admin.create_topics([NewTopic(name, 2, 1)])[name].result(SECONDS)
        produce(name, [Sent(None, name.encode())])
    member = join(kind, pattern=rf"^{group}\.[0-9]$")
    until(lambda: {topic for topic, _ in member.owned} == set(names[:2]), "both topics")
    assert {each.decode() for each in member.values(2)} == set(names[:2])


@IN_TIME
def test_a_pattern_takes_new_topics_in(kind, admin, join, group, produce):
    names = [f"{group}.{number}" for number in range(3)]

    def create(name):
        admin.create_topics([NewTopic(name, 2, 1)])[name].result(SECONDS)
        produce(name, [Sent(None, name.encode())])

    create(names[0])
    create(f"other.{group}")
    member = join(kind, pattern=rf"^{group}\.[0-9]$")
    assert member.values(1) == [names[0].encode()]
    for name in names[1:]:
        create(name)
        until(lambda name=name: name.encode() in [each.value for each in member.records], name)
    assert {topic for topic, _ in member.owned} == set(names)


@IN_TIME
def test_added_partitions_are_taken_in(kind, node, group, admin, join, new_topic, produce):
    topic = new_topic(1)
    members = [join(kind, topic) for _ in range(2)]
    node.settled(group, 2)
    until(lambda: sum(len(each.owned) for each in members) == 1, "an owner")
    admin.create_partitions([NewPartitions(topic, 4)])[topic].result(SECONDS)
    until(lambda: [len(each.owned) for each in members] == [2, 2], "two partitions each")
    produce(topic, [Sent(None, b"in the new one")], partition=3)
    until(lambda: sum(len(each.records) for each in members) == 1, "the record")


def test_members_with_different_topics(kind, join, new_topic):
    first, second = new_topic(2), new_topic(2)
    one = join(kind, first)
    two = join(kind, second)
    both = join(kind, first, second)
    until(
        lambda: (
            sorted([*one.owned, *two.owned, *both.owned])
            == sorted((topic, number) for topic in (first, second) for number in range(2))
        ),
        "each partition once",
    )
    assert {topic for topic, _ in one.owned} <= {first}
    assert {topic for topic, _ in two.owned} <= {second}
