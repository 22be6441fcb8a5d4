"""R15: static members (group.instance.id) restart without a rebalance, and are fenced."""

from __future__ import annotations

import kafka
from confluent_kafka import KafkaError
from kafka.admin import KafkaAdminClient, MemberToRemove
from tests.clients.member_clients import ConfluentMember
from tests.clients.members import of, share, until


def test_a_restart_within_the_session_moves_nothing(kind, node, join, group, new_topic):
    topic = new_topic(4)
    stays = join(kind, topic, instance="a")
    goes = join(kind, topic, instance="b")
    share([stays, goes], of(topic, 4))
    had, events = goes.owned, len(stays.events)
    goes.leave()
    back = join(kind, topic, instance="b")
    assert back.owns(2) == had
    assert node.state(group) == ("STABLE", 2)
    assert len(stays.events) == events


def test_a_restart_after_a_crash_moves_nothing(kind, node, join, group, new_topic):
    topic = new_topic(4)
    stays = join(kind, topic, instance="a")
    goes = join(kind, topic, instance="b")
    share([stays, goes], of(topic, 4))
    had, events = goes.owned, len(stays.events)
    goes.crash()
    assert join(kind, topic, instance="b").owns(2) == had
    assert len(stays.events) == events


def test_one_that_stays_away_is_missed_after_its_session(kind, join, new_topic):
    topic = new_topic(2)
    stays = join(kind, topic, instance="a", session_ms=400)
    goes = join(kind, topic, instance="b", session_ms=400)
    share([stays, goes], of(topic, 2))
    goes.leave()
    stays.owns(2)


def test_a_second_one_with_the_same_name_fences_the_first(node, join, group, new_topic):
    """The two other libraries do not tell the application; the fence is theirs all the same."""
    topic = new_topic(2)
    first = join(ConfluentMember, topic, instance="a")
    first.owns(2)
    second = join(ConfluentMember, topic, instance="a")
    second.owns(2)
    until(lambda: first.faults, "the first one told")
    assert {each.code for each in first.faults} == {KafkaError._FATAL}
    assert "same group.instance.id" in str(first.faults[0])
    assert node.state(group) == ("STABLE", 1)
    first.leave()
    first.faults.clear()


def test_an_administrator_removes_one(node, join, group, new_topic):
    topic = new_topic(2)
    stays = join(ConfluentMember, topic, instance="a")
    goes = join(ConfluentMember, topic, instance="b")
    share([stays, goes], of(topic, 2))
    goes.leave()
    admin = KafkaAdminClient(bootstrap_servers=node.bootstrap)
    removed = admin.remove_group_members(group, [MemberToRemove(group_instance_id="b")])
    admin.close()
    assert list(removed.values()) == [kafka.errors.NoError]
    stays.owns(2)
