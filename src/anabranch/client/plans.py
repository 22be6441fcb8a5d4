"""Plans of moves made from a running cluster: what it looks like, and what a goal would change.

What: `look` asks who is there and who holds what; `plan` makes a plan of it and leaves out what a
plan must not touch: partitions that are being moved already, and partitions that wait for a replica
that no broker has yet, since a move would give that one up. Each of these is an obstacle of the
plan. Rule kept: nothing here changes the cluster.

Not here: goals (`core/placement/move_plans.py`), carrying plans out (`carried_plans.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from anabranch.client.admin import cordoned_in, describe_cluster
from anabranch.client.cluster import Cluster
from anabranch.client.partitions import Topic, describe_topics
from anabranch.client.reassignments import under_way
from anabranch.core.controller.moves.reassignment import Move
from anabranch.core.placement.layout import BrokerSite, Layout, Row
from anabranch.core.placement.move_plans import MoveCause, Obstacle, Plan
from anabranch.core.sentences import number_of
from anabranch.core.types import TopicPartition
from anabranch.core.wire.messages.describe_cluster import DescribeClusterResponse


class View(NamedTuple):
    """A cluster as plans see it."""

    cluster_id: str
    sites: tuple[BrokerSite, ...]
    rows: dict[TopicPartition, Row]
    """The replicas of each partition; of one that is moving, those that it will have."""
    moving: dict[TopicPartition, Move]
    short: dict[TopicPartition, int]
    """Partitions that wait for replicas that no broker has, and how many."""
    topics: tuple[Topic, ...]

    @property
    def layout(self) -> Layout:
        """A fresh layout to plan on."""
        rules = {
            topic.name: topic.constraints.replicas
            for topic in self.topics
            if topic.constraints is not None
        }
        for topic in self.topics:
            if topic.diskless is not None:
                rules[topic.name] = dict.fromkeys(topic.diskless.target_racks, 1)
        diskless = {topic.name for topic in self.topics if topic.diskless is not None}
        accepting = {topic.name for topic in self.topics if topic.accepts_shared_racks}
        return Layout(self.sites, self.rows, rules, diskless, accepting, self.short)


async def look(cluster: Cluster) -> View:
    """Ask for all of it. Raises ApiError."""

    async def who_is_there() -> DescribeClusterResponse:
        await cluster.metadata([])
        return await describe_cluster(cluster)

    found = await cluster.retrying(who_is_there)
    closed = cordoned_in(found)
    moving = await under_way(cluster)
    topics = await describe_topics(cluster, None)
    sites = tuple(
        BrokerSite(each.broker_id, each.rack or None, not each.is_fenced, each.broker_id in closed)
        for each in sorted(found.brokers, key=lambda each: each.broker_id)
    )
    rows: dict[TopicPartition, Row] = {}
    short: dict[TopicPartition, int] = {}
    for topic in topics:
        for each in topic.partitions:
            place = TopicPartition(topic.name, each.partition)
            known = tuple(broker_id for broker_id in each.replicas if broker_id >= 0)
            rows[place] = moving[place].target if place in moving else known
            if len(known) < len(each.replicas):
                short[place] = len(each.replicas) - len(known)
    return View(found.cluster_id, sites, rows, moving, short, tuple(topics))


def plan(view: View, goal: Callable[[Layout], Plan]) -> Plan:
    """What the goal asks for, without what must not be touched. Raises ApiError where it names
    what is not there."""
    made = goal(view.layout)
    moves, obstacles = [], list(made.obstacles)
    for each in made.moves:
        if each.place in view.moving:
            target = ", ".join(map(str, view.moving[each.place].target))
            obstacles.append(
                Obstacle(
                    f"the move of {each.place}",
                    f"it is moving already, to {target}",
                    "the end of that move; then plan again",
                )
            )
        elif each.place in view.short and each.why is not MoveCause.FACTOR_CHANGED:
            obstacles.append(
                Obstacle(
                    f"the move of {each.place}",
                    f"it waits for {number_of(view.short[each.place], 'missing replica')}, which "
                    "a move "
                    "would remove",
                    "an active broker that has none of it; then plan again",
                )
            )
        else:
            moves.append(each)
    return Plan(made.goal, tuple(moves), tuple(obstacles))
