"""R15: cooperative and sticky assignors: a rebalance moves only what has to move."""

from __future__ import annotations

import pytest
from tests.clients.adapters import Sent
from tests.clients.member_clients import ConfluentMember, PythonMember
from tests.clients.members import of, share

COOPERATIVE = ("cooperative-sticky",)
WITH_COOPERATIVE = (ConfluentMember, PythonMember)


@pytest.mark.parametrize("kind", WITH_COOPERATIVE, ids=lambda each: each.name)
def test_a_cooperative_join_takes_only_what_moves(join, new_topic, produce, kind):
    topic = new_topic(6)
    first = join(kind, topic, strategy=COOPERATIVE)
    first.owns(6)
    produce(topic, [Sent(None, b"%d" % number) for number in range(20)], partition=0)
    second = join(kind, topic, strategy=COOPERATIVE)
    share([first, second], of(topic, 6))
    revoked = [each.partitions for each in first.events if each.kind == "revoked"]
    assert sum(map(len, revoked)) == 3
    third = join(kind, topic, strategy=COOPERATIVE)
    share([first, second, third], of(topic, 6))
    second.leave()
    share([first, third], of(topic, 6))
    assert all(each.kind != "lost" for each in first.events)


def test_two_libraries_cooperate(join, new_topic):
    topic = new_topic(6)
    members = [join(ConfluentMember, topic, strategy=COOPERATIVE)]
    members[0].owns(6)
    for kind in (PythonMember, ConfluentMember):
        members.append(join(kind, topic, strategy=COOPERATIVE))
        share(members, of(topic, 6))
    members.pop(0).leave()
    share(members, of(topic, 6))


@pytest.mark.parametrize("kind", WITH_COOPERATIVE, ids=lambda each: each.name)
def test_a_cooperative_member_that_dies_leaves_the_others_alone(join, new_topic, kind):
    topic = new_topic(6)
    stays = [join(kind, topic, strategy=COOPERATIVE) for _ in range(2)]
    goes = join(kind, topic, strategy=COOPERATIVE, session_ms=400)
    share([*stays, goes], of(topic, 6))
    had = [each.owned for each in stays]
    goes.crash()
    share(stays, of(topic, 6))
    assert all(before <= each.owned for before, each in zip(had, stays))


def test_a_sticky_assignment_keeps_what_it_can(join, new_topic):
    topic = new_topic(6)
    members = [join(PythonMember, topic, strategy=("sticky",)) for _ in range(3)]
    share(members, of(topic, 6))
    had = [each.owned for each in members[:2]]
    members[2].leave()
    share(members[:2], of(topic, 6))
    assert all(before <= each.owned for before, each in zip(had, members))


def test_a_group_goes_from_one_strategy_to_another_member_by_member(
    kind, node, join, group, new_topic
):
    """Every member with both, then every member with the new one."""
    topic = new_topic(4)
    members = [join(kind, topic, strategy=("range",)) for _ in range(2)]
    share(members, of(topic, 4))
    for strategies in (("roundrobin", "range"), ("roundrobin",)):
        for _ in range(2):
            members.pop(0).leave()
            members.append(join(kind, topic, strategy=strategies))
            share(members, of(topic, 4))
    assert node.describe(group).partition_assignor == "roundrobin"
