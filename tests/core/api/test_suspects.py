"""A leader that does not answer any more: metadata waits for the verdict, and still names it."""

from __future__ import annotations

import pytest
from immutables import Map
from tests.core.api.in_memory_node import InMemoryNode, broker_image

from anabranch.core.api.context import METADATA
from anabranch.core.api.suspects import VERDICT_MS, Suspects
from anabranch.core.metadata.image import MetadataImage
from anabranch.core.outcome import Wait
from anabranch.core.wire.messages.metadata import MetadataRequest, MetadataRequestTopic

SESSION_MS = 9_000


@pytest.fixture
def node():
    """A broker whose fetches from broker 2, which leads `t`, have just failed."""
    node = InMemoryNode(brokers=(1, 2))
    node.topic(leader=2, replicas=(1, 2))
    node.broker.steady_ms = 50_000
    node.broker.suspects.no_answer(node.broker.image.brokers[2], 50_000)
    return node


def ask(node, name="t"):
    return node.send(MetadataRequest(topics=[MetadataRequestTopic(name=name)]), 12)


def fence(node):
    brokers = node.broker.image.brokers.set(2, broker_image(2, fenced=True))
    node.broker.image = MetadataImage(
        brokers=brokers,
        topics_by_id=node.broker.image.topics_by_id,
        topic_ids_by_name=node.broker.image.topic_ids_by_name,
    )


def listed(response):
    return [each.node_id for each in response.brokers]


def test_the_answer_waits_until_the_controller_has_decided(node):
    wait = ask(node)
    assert isinstance(wait, Wait)
    assert wait.keys == (METADATA,)
    assert node.poll(wait, after_ms=5) is None
    fence(node)
    assert listed(node.poll(wait, after_ms=5)) == [1, 2]


def test_the_answer_waits_no_longer_than_the_verdict_may_take(node):
    wait = ask(node)
    assert wait.deadline_ms - node.now_ms == VERDICT_MS
    assert node.expire(wait).topics[0].partitions[0].leader_id == 2
    node.broker.steady_ms += VERDICT_MS
    assert not isinstance(ask(node), Wait)


def test_later_failures_do_not_prolong_the_wait(node):
    node.broker.suspects.no_answer(node.broker.image.brokers[2], 50_000 + VERDICT_MS - 1)
    node.broker.steady_ms += VERDICT_MS
    assert not isinstance(ask(node), Wait)


def test_a_broker_that_went_long_ago_costs_no_look_at_every_leader(node, monkeypatch):
    """It may never be fetched from again; a request may be for a million partitions."""
    node.broker.steady_ms += VERDICT_MS
    monkeypatch.setattr(Suspects, "verdict_ms", lambda *_: pytest.fail("looked at a leader"))
    node.send(MetadataRequest(topics=None), 12)


def test_topics_of_others_do_not_wait(node):
    node.topic("mine")
    assert not isinstance(ask(node, "mine"), Wait)
    assert isinstance(node.send(MetadataRequest(topics=None), 12), Wait)


def test_nobody_waits_for_a_leader_that_answers_again(node):
    node.broker.suspects.answered(2)
    assert not node.broker.suspects
    assert not isinstance(ask(node), Wait)


def test_a_suspect_that_was_fenced_stays_listed_for_a_sessions_length(node):
    fence(node)
    assert listed(ask(node)) == [1, 2]
    node.broker.steady_ms += SESSION_MS - 1
    assert listed(ask(node)) == [1, 2]
    node.broker.steady_ms += 1
    assert listed(ask(node)) == [1]


def test_who_was_fenced_for_another_cause_is_not_listed():
    node = InMemoryNode(brokers=(1, 2))
    node.topic(leader=2, replicas=(1, 2))
    fence(node)
    node.broker.suspects.no_answer(node.broker.image.brokers[2], 0)
    assert listed(ask(node)) == [1]


def test_another_incarnation_is_no_suspect():
    suspects = Suspects()
    old = broker_image(2)
    suspects.no_answer(old, 100)
    new = MetadataImage(brokers=Map({2: type(old)(2, 8, bytes(16), old.endpoints, fenced=False)}))
    assert suspects.verdict_ms(new, 2, 100) == 0
    assert not suspects.stays_listed(new.brokers[2], 100, SESSION_MS)
    suspects.no_answer(new.brokers[2], 200)
    assert suspects.verdict_ms(new, 2, 200) == 200 + VERDICT_MS
    suspects.no_answer(None, 300)
