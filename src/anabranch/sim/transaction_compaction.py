"""What a schedule with transactions has of compaction, drawn from its seed beside the rest.

What: for half of these seeds topics are compacted. Their segments are small, passes come soon and
often, markers and tombstones go after seconds, and brokers are away for longer than that. Why: a
marker that compaction removed while a replica was away, or that a restart needs, is met nowhere
else. Rule kept: the draws are of a stream of their own, so that other plans are what they were. Not
here: what else the schedule does with transactions (`transaction_plan.py`).
"""

from __future__ import annotations

from dataclasses import replace
from random import Random

from anabranch.sim.plan import Plan
from anabranch.sim.plan_parts import RESULTS, SAFETY_US, SECOND_US, SETTLED_US, Fault, TopicPlan

AWAY = ("crash", "crash", "slow-restart", "power", "pause", "isolate", "isolate")
"""How a broker gets away; one that stands twice is drawn twice as often."""
FOLLOWER_AWAY = "follower-away"
"""The same in the middle of a transaction that the broker copies."""


def with_compaction(plan: Plan) -> Plan:
    """The plan, with compacted topics where it has transactions and its seed is one of those."""
    random = Random(f"{plan.seed}/compacted")
    drawn = plan.transactions
    if drawn is None or random.random() >= 0.5:
        return plan
    topics = tuple(
        _compacted(topic, random) if number == 0 or random.random() < 0.7 else topic
        for number, topic in enumerate(drawn.topics)
    )
    away = [_away(random, AWAY) for _ in range(random.randrange(3))]
    away += [_away(random, (FOLLOWER_AWAY,)) for _ in range(random.randrange(2, 6))]
    return replace(
        plan,
        transactions=replace(drawn, topics=topics, keys=random.choice((2, 3, 5))),
        faults=tuple(sorted((*plan.faults, *away), key=lambda fault: fault.at_us)),
        config=tuple(sorted({**_config(random), **dict(plan.config)}.items())),
    )


def _config(random: Random) -> dict[str, str]:
    return {
        "log.cleaner.backoff.ms": random.choice(("300", "1000")),
        "log.retention.check.interval.ms": random.choice(("1000", "3000")),
        "log.flush.offset.checkpoint.interval.ms": random.choice(("2000", "60000", "60000")),
    }


def _compacted(topic: TopicPlan, random: Random) -> TopicPlan:
    """The topic, compacted. Only what nobody reads for a group also expires."""
    expires = random.random() < 0.3
    configs = {
        **dict(topic.configs),
        "cleanup.policy": "compact,delete" if expires else "compact",
        "internal.segment.bytes": random.choice(("300", "500", "1000")),
        "segment.ms": random.choice(("1500", "5000", "60000")),
        "file.delete.delay.ms": random.choice(("0", "3000")),
        "min.cleanable.dirty.ratio": random.choice(("0.0", "0.0", "0.3")),
        "delete.retention.ms": random.choice(("0", "300", "1000", "4000")),
    }
    if expires and topic.name == RESULTS:
        configs["retention.ms"] = random.choice(("8000", "20000"))
    return replace(topic, configs=tuple(sorted(configs.items())))


def _away(random: Random, kinds: tuple[str, ...]) -> Fault:
    """A broker is away for several seconds."""
    return Fault(
        at_us=random.randrange(SETTLED_US + 2 * SECOND_US, SAFETY_US - 12 * SECOND_US),
        kind=random.choice(kinds),
        lasts_us=random.randrange(3 * SECOND_US, 16 * SECOND_US),
        aim=random.randrange(1 << 16),
        other=random.randrange(1 << 16),
        strength=random.random(),
    )
