"""What a schedule has of remote logs, drawn from its seed beside the rest of the plan.

What: for some seeds all topics of the plan, those of transactions too, have `remote.storage.enable`
with small segments and local limits that cut soon, some also limits of the whole log; more records
are deleted, and there are faults of the object store, of the coordinator and in the middle of
rounds; for some of these remote logs end, or copying does, and begin again. Rule kept: the draws
are of a stream of their own, so that other plans are what they were. Not here: carrying it out
(`remote_logs.py`, `remote_run.py`).
"""

from __future__ import annotations

from dataclasses import replace
from random import Random

from anabranch.sim.plan import Plan
from anabranch.sim.plan_parts import (
    SAFETY_US,
    SECOND_US,
    SETTLED_US,
    Alteration,
    Fault,
    Operation,
    RemotePlan,
    TopicPlan,
)

FIRST_SEED = 100
SIXTEENTH, OF_TRANSACTIONS = 9, frozenset({27, 35})
"""From the first on, of each 16 seeds the one whose topics have remote logs, and of each 64 two
whose transactions have some."""
FIRST_SWITCHED = 30_000
"""From this seed on, every other of them has remote logs that are switched off and on again."""
SET = 0
_ENDS = ("remote.storage.enable", "false", "true")
_COPIES_STOP = ("remote.log.copy.disable", "true", "false")
"""What is altered, to what, and back."""
FAULTS = (
    "objects-away", "objects-slow", "objects-flaky", "objects-flaky", "objects-cut",
    "objects-list-late", "coordinator-away", "coordinator-slow", "coordinator-flaky",
    "coordinator-flaky", "coordinator-cut", "coordinator-clock", "crash-in-round",
    "crash-in-round", "crash-in-round", "pause-in-round", "leader-crash", "leader-pause",
)  # fmt: skip
"""Kinds of faults; one that stands twice is drawn twice as often."""
OF_COMPACTION = ("cleanup.policy", "min.cleanable.dirty.ratio", "delete.retention.ms")
SKEWS_MS = (0, 0, 45_000, -2_000, -3_600_000)


def has_remote_logs(seed: int) -> bool:
    """Whether the schedule of a seed is one of those that have remote logs."""
    return seed >= FIRST_SEED and (seed % 16 == SIXTEENTH or seed % 64 in OF_TRANSACTIONS)


def with_remote_logs(plan: Plan) -> Plan:
    """The plan, with remote logs where its seed is one of those that have some."""
    if not has_remote_logs(plan.seed):
        return plan
    random = Random(f"{plan.seed}/remote")
    switched = Random(f"{plan.seed}/remote-switched")
    transactions = plan.transactions
    if transactions is not None:
        drawn = (_topic(random, each) for each in transactions.topics)
        transactions = replace(transactions, topics=tuple(map(_that_keeps_all, drawn)))
    topics = tuple(_topic(random, each) for each in plan.topics)
    alterations: tuple[Alteration, ...] = ()
    if has_switches(plan):
        topics = tuple(_that_may_end(switched, each) for each in topics)
        alterations = _switches(switched, topics)
    return replace(
        plan,
        topics=topics,
        transactions=transactions,
        alterations=alterations,
        operations=tuple(
            sorted((*plan.operations, *_operations(random, plan)), key=lambda each: each.at_us)
        ),
        faults=tuple(sorted((*plan.faults, *_faults(random)), key=lambda fault: fault.at_us)),
        config=tuple(sorted({**dict(plan.config), **_config(random)}.items())),
        remote=RemotePlan(coordinator_skew_ms=random.choice(SKEWS_MS)),
    )


def has_switches(plan: Plan) -> bool:
    """Whether remote logs of the plan are switched off and on again."""
    seed = plan.seed
    return seed >= FIRST_SWITCHED and seed % 32 == SIXTEENTH and plan.transactions is None


def _that_may_end(random: Random, topic: TopicPlan) -> TopicPlan:
    """Without local limits where copying may stop: they would have to be those of the whole log."""
    configs = {**dict(topic.configs), "remote.log.delete.on.disable": "true"}
    if random.random() < 0.4:
        configs = {name: each for name, each in configs.items() if not name.startswith("local.")}
    return replace(topic, configs=tuple(sorted(configs.items())))


def _switches(random: Random, topics: tuple[TopicPlan, ...]) -> tuple[Alteration, ...]:
    """Times at which a topic's remote log ends, or copying does, and begins again, but perhaps the
    last time."""
    drawn: list[Alteration] = []
    for _ in range(random.choice((1, 2, 4, 6))):
        topic = random.choice(topics)
        at_us = random.randrange(SETTLED_US + 3 * SECOND_US, SAFETY_US - 3 * SECOND_US)
        later_us = at_us + int(SECOND_US * random.choice((1, 3, 8)) * (0.5 + random.random()))
        has_local = any(name.startswith("local.") for name, _ in topic.configs)
        name, off, on = _ENDS if has_local or random.random() < 0.5 else _COPIES_STOP
        drawn += (
            Alteration(at_us, topic.name, name, SET, off),
            Alteration(later_us, topic.name, name, SET, on),
        )
    if random.random() < 0.5:
        name, off, _ = _ENDS
        at_us = SAFETY_US - 2 * SECOND_US
        drawn.append(Alteration(at_us, random.choice(topics).name, name, SET, off))
    return tuple(sorted(drawn, key=lambda each: each.at_us))


def _config(random: Random) -> dict[str, str]:
    return {
        "remote.log.storage.system.enable": "true",
        "remote.log.manager.task.interval.ms": random.choice(("500", "1000", "3000")),
        "log.retention.check.interval.ms": random.choice(("1000", "3000")),
        "log.flush.offset.checkpoint.interval.ms": random.choice(("1000", "2000", "8000")),
    }


def _topic(random: Random, topic: TopicPlan) -> TopicPlan:
    kept = {name: value for name, value in topic.configs if name not in OF_COMPACTION}
    configs = {**kept, **_storage(random)}
    return replace(topic, configs=tuple(sorted(configs.items())), becomes_compacted=False)


def _that_keeps_all(topic: TopicPlan) -> TopicPlan:
    """The topic without limits of the whole log: each transaction is looked for at the end."""
    configs = {**dict(topic.configs), "retention.ms": "-1", "retention.bytes": "-1"}
    return replace(topic, configs=tuple(sorted(configs.items())))


def _storage(random: Random) -> dict[str, str]:
    configs = {
        "remote.storage.enable": "true",
        "internal.segment.bytes": random.choice(("200", "300", "500", "1000")),
        "segment.ms": random.choice(("1500", "5000", "60000")),
        "file.delete.delay.ms": random.choice(("0", "0", "3000")),
        "retention.ms": random.choice(("-1", "-1", "-1", "20000", "40000")),
        "retention.bytes": random.choice(("-1", "-1", "-1", "1500", "4000")),
    }
    if random.random() < 0.6:
        configs["local.retention.ms"] = random.choice(("1", "1", "4000"))
    else:
        configs["local.retention.bytes"] = random.choice(("1", "300", "800"))
    return configs


def _operations(random: Random, plan: Plan) -> list[Operation]:
    places = list(plan.places)
    if plan.transactions is not None or random.random() < 0.4:
        return []
    return [
        Operation(
            random.randrange(SETTLED_US + 5 * SECOND_US, SAFETY_US), "delete", "operator",
            random.choice(places), random.randrange(100),
        )
        for _ in range(random.choice((1, 2, 4)))
    ]  # fmt: skip


def _faults(random: Random) -> list[Fault]:
    kinds = [kind for kind in FAULTS if random.random() < 0.6] or list(FAULTS)
    return [
        Fault(
            at_us=random.randrange(SETTLED_US + 2 * SECOND_US, SAFETY_US - SECOND_US),
            kind=random.choice(kinds),
            lasts_us=int(SECOND_US * random.choice((1, 3, 8, 20)) * (0.5 + random.random())),
            aim=random.randrange(1 << 16),
            other=random.randrange(1 << 16),
            strength=random.random(),
        )
        for _ in range(random.choice((0, 3, 5, 7, 9)))
    ]
