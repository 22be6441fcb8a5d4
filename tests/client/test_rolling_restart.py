"""The plan of a rolling restart: its order, and when it may not begin."""

from __future__ import annotations

from anabranch.client.partitions import Partition, Topic
from anabranch.client.rolling_restart import NAMED, Node, Registered, plan_roll

ALL = (1, 2, 3)


def brokers(*fenced):
    return [
        Registered(
            Node(each, "h", 9092), f"broker {each} does not serve" if each in fenced else None
        )
        for each in ALL
    ]


def controllers(*ids, why_away=None):
    return [Registered(Node(each, "h", 9093, is_broker=False), why_away) for each in ids]


def topic(*partitions, minimum=2):
    return Topic("t", bytes(16), False, minimum, partitions)


def partition(index=0, *, leader=1, replicas=ALL, isr=ALL):
    return Partition(index, leader, 0, replicas, isr)


def order(plan):
    return [each.node_id for each in plan.order]


def test_the_active_controller_goes_last():
    plan = plan_roll(brokers(), [topic(partition())], 1)
    assert (order(plan), plan.obstacles, plan.risks) == ([2, 3, 1], (), ())


def test_nodes_that_are_controllers_only_go_after_the_brokers_and_the_active_one_last():
    nodes = [*controllers(101, 102, 103), *brokers()]
    assert order(plan_roll(nodes, [topic(partition())], 102)) == [1, 2, 3, 101, 103, 102]
    assert order(plan_roll(nodes, [topic(partition())], 2)) == [1, 3, 101, 102, 103, 2]
    assert order(plan_roll(nodes, [topic(partition())], 102, (102, 3))) == [3, 102]


def test_nothing_begins_while_a_controller_is_away():
    nodes = [
        *brokers(),
        *controllers(101, why_away="controller 101 does not answer: h:9093 is shut"),
    ]
    assert plan_roll(nodes, [], 1).obstacles == (
        "controller 101 does not answer: h:9093 is shut; start it, or remove it with `anabranch "
        "cluster unregister 101`",
    )


def test_only_those_who_are_chosen():
    plan = plan_roll(brokers(), [topic(partition())], 1, (3, 1))
    assert order(plan) == [3, 1]
    unknown = plan_roll(brokers(), [], 1, (4,))
    assert unknown.obstacles == ("node 4 is not registered; known: 1, 2, 3",)


def test_nothing_begins_while_somebody_is_away():
    (said,) = plan_roll(brokers(2), [], 1).obstacles
    assert said.startswith("broker 2 does not serve")
    ill = topic(partition(isr=(1, 2)), partition(1, isr=(3,), leader=3), partition(2, leader=-1))
    assert plan_roll(brokers(), [ill], 1).obstacles == (
        "broker 3 is not in the ISR of t-0",
        "brokers 1 and 2 are not in the ISR of t-1",
        "t-2 has no leader",
    )


def test_many_obstacles_are_counted():
    ill = topic(*(partition(each, isr=(1, 2)) for each in range(NAMED + 3)))
    plan = plan_roll(brokers(), [ill], 1)
    assert len(plan.obstacles) == NAMED + 1
    assert plan.obstacles[-1] == "3 more partitions have replicas out of sync"


def test_what_cannot_spare_a_broker_is_a_risk():
    alone = topic(partition(replicas=(2,), isr=(2,), leader=2), minimum=1)
    assert plan_roll(brokers(), [alone], 1).risks == (
        "broker 2 alone has t-0; give it more replicas",
    )
    strict = topic(partition(), minimum=3)
    (said,) = plan_roll(brokers(), [strict], 1).risks
    assert said.startswith("t-0 has 3 replicas and min.insync.replicas=3, so acks=all fails")


def test_a_partition_that_no_chosen_broker_has_is_no_risk():
    alone = topic(partition(replicas=(2,), isr=(2,), leader=2), minimum=1)
    assert plan_roll(brokers(), [alone], 1, (1, 3)).risks == ()
