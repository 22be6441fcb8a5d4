"""K5: topics that accept shared racks are in no list of rack violations, and are counted."""

from __future__ import annotations

import pytest

from anabranch.client.partitions import Partition, Topic, in_racks
from anabranch.client.plans import View
from anabranch.core.placement.constraints import read_constraints
from anabranch.core.placement.layout import BrokerSite
from anabranch.core.placement.move_plans import mend_racks
from anabranch.core.types import TopicPartition

RACKS = {1: "a", 2: "a", 3: "b"}
CONSTRAINTS = '{"version": 1, "replicas": [{"count": 2, "constraints": {"rack": "b"}}]}'


def topic(name="t", **more) -> Topic:
    rows = ((1, 2), (1, 3), (2, 1))
    partitions = tuple(Partition(at, row[0], 0, row, row) for at, row in enumerate(rows))
    return Topic(name, bytes(16), False, 1, partitions, **more)


@pytest.mark.parametrize(
    ("accepts", "constraints", "violations", "accepted"),
    [(False, None, 2, 0), (True, None, 0, 2), (True, CONSTRAINTS, 3, 0)],
)
def test_a_topic_that_accepts_shared_racks_violates_none(
    accepts, constraints, violations, accepted
):
    read = None if constraints is None else read_constraints(constraints)
    judged = in_racks(topic(accepts_shared_racks=accepts, constraints=read), RACKS, {})
    assert sum(each.violates_racks for each in judged.partitions) == violations
    assert judged.shared_racks == accepted


def test_a_plan_leaves_topics_that_accept_shared_racks_where_they_are():
    topics = (topic(), topic("u", accepts_shared_racks=True))
    rows = {
        TopicPartition(each.name, part.partition): part.replicas
        for each in topics
        for part in each.partitions
    }
    sites = tuple(BrokerSite(broker_id, rack) for broker_id, rack in RACKS.items())
    plan = mend_racks(View("", sites, rows, {}, {}, topics).layout)
    assert {move.place.topic for move in plan.moves} == {"t"}
