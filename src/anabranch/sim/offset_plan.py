"""What a schedule has of committed offsets that expire, drawn from its seed beside the rest.

What: for some seeds a few names to commit under, each without members and with a retention of
seconds that its commits ask for (versions 2 to 4), when they commit, and how often brokers look for
what has expired. Rule kept: the draws are of a stream of their own, so that the rest of the plan is
what it was. Only plans without consumer groups have some: an empty group without offsets is
forgotten too, and its generations begin anew, which the checks of groups would take for a fault.
Not here: carrying it out (`offset_run.py`).
"""

from __future__ import annotations

from dataclasses import replace
from random import Random

from anabranch.core.types import TopicPartition
from anabranch.sim.plan import Plan
from anabranch.sim.plan_parts import SAFETY_US, SECOND_US, SETTLED_US, NamePlan, OffsetPlan

FIRST_SEED, EVERY, OF_EACH = 100, 8, 0
"""From the first on, of each eight seeds the one whose offsets expire."""
LOOK_EVERY_US = 1_500_000
CHECK_INTERVAL = "offsets.retention.check.interval.ms"


def with_offsets(plan: Plan) -> Plan:
    """The plan, with offsets that expire where its seed is one of those that have some."""
    seed = plan.seed
    if seed < FIRST_SEED or seed % EVERY != OF_EACH:
        return plan
    places = [
        TopicPartition(topic.name, index)
        for topic in plan.topics
        if not topic.is_made_again  # with a topic go the offsets that were committed of it
        for index in range(topic.partitions)
    ]
    if not places or any(client.membership is not None for client in plan.clients):
        return plan
    random = Random(f"{seed}/offsets")
    names = tuple(_name(random, number, places) for number in range(random.choice((1, 2, 3))))
    first_us = SETTLED_US + random.randrange(LOOK_EVERY_US)
    looks = tuple(range(first_us, SAFETY_US, LOOK_EVERY_US))
    config = {**dict(plan.config), CHECK_INTERVAL: str(random.choice((500, 1_000, 3_000)))}
    return replace(plan, offsets=OffsetPlan(names, looks), config=tuple(sorted(config.items())))


def _name(random: Random, number: int, places: list[TopicPartition]) -> NamePlan:
    commits = []
    for _ in range(random.randrange(4, 14)):
        at_us = random.randrange(SETTLED_US, SAFETY_US - 5 * SECOND_US)
        chosen = random.sample(places, random.randint(1, len(places)))
        commits.append((at_us, tuple(sorted(chosen))))
    return NamePlan(
        name=f"name-{number}",
        retention_ms=random.choice((0, 1_000, 4_000, 9_000)),
        version=random.choice((2, 3, 4)),
        commits=tuple(sorted(commits)),
    )
