"""What a schedule alters of the settings of topics and brokers, drawn beside its plan.

What: for some seeds an operator alters settings of the topics, and the brokers' defaults for all of
them, while brokers crash, leaders change and replicas move: how large and old segments and batches
may be, what expires and what is compacted, how many must be in sync, who may lead. A value that
keeps clients from writing is raised again after some seconds. Values are also spelled otherwise
than they are written as a rule, and taken back. Rule kept: all of it is drawn from a stream of its
own, so that the rest of a seed's plan is the same with it and without it; records get keys, for a
topic may be compacted at any time. Not here: carrying it out (`clients/workload.py`), what must
hold then (`checks/settings.py`).
"""

from __future__ import annotations

from dataclasses import replace
from operator import attrgetter
from random import Random

from anabranch.core.settings.catalogue import TOPIC_TO_BROKER
from anabranch.sim.plan import Plan, draw_fault
from anabranch.sim.plan_parts import (
    SAFETY_US,
    SECOND_US,
    SETTLED_US,
    Alteration,
    DisklessPlan,
    Fault,
    Operation,
    TopicPlan,
)

FIRST_SEED, EVERY, OF_EACH = 1_000, 16, frozenset({5, 12, 13})
"""From the first on, of each sixteen seeds those whose settings are altered. One of them has
diskless topics."""
SET, DELETE, APPEND, SUBTRACT = range(4)
BY_DEFAULT = ""
"""Stands for the topic where the brokers' default is altered."""
POLICY, DISKLESS = "cleanup.policy", "diskless.enable"
SEGMENT_BYTES, MESSAGE_BYTES = "internal.segment.bytes", "max.message.bytes"
KEEPS_CLIENTS_OUT = frozenset({SEGMENT_BYTES, MESSAGE_BYTES})
"""What is raised again a little later."""
TOPIC_VALUES: dict[str, tuple[str, ...]] = {
    SEGMENT_BYTES: ("40", "40", "100", "500", "4000"),
    MESSAGE_BYTES: ("60", "60", "100", " 130"),
    "segment.bytes": ("1048576",),
    "segment.ms": ("400", "1500", "60000"),
    "retention.ms": ("1000", "4000", "10000 ", "-1"),
    "retention.bytes": ("300", "1500", "-1"),
    POLICY: ("delete", "compact", "compact,delete", " delete , compact"),
    "min.insync.replicas": ("1", "2", " 2"),
    "unclean.leader.election.enable": (" TRUE", "True", "tRuE ", "False", "FALSE "),
    "delete.retention.ms": ("0", "300", "2000", "12000"),
    "min.compaction.lag.ms": ("0", "2000", "8000"),
}
"""Settings of topics, and what they are set to."""
DEFAULT_VALUES: dict[str, tuple[str, ...]] = {
    "log.segment.bytes": ("1048576", "2000000"),
    "message.max.bytes": ("4000", "100000"),
    "log.roll.ms": ("1500", "5000"),
    "log.retention.ms": ("4000", "10000", " -1"),
    "log.retention.bytes": ("1500", "-1"),
    "log.cleanup.policy": ("delete", "compact", "compact, delete"),
    "min.insync.replicas": ("1", "2 "),
    "unclean.leader.election.enable": ("TRUE", " False"),
    "log.cleaner.delete.retention.ms": ("300", "4000"),
    "log.cleaner.min.compaction.lag.ms": ("0", "4000"),
}
"""The brokers' defaults, and what they are set to. Messages may be as large as what a group
coordinator writes at once."""
STAYS = frozenset({"min.insync.replicas"})
"""Defaults that cannot be taken back while eligible leader replicas are kept (KIP-966)."""
DISKLESS_VALUES: dict[str, tuple[str, ...]] = {
    DISKLESS: ("TRUE", " True", "tRUE\t"),
    "retention.ms": ("4000", " 10000", "-1"),
    "retention.bytes": ("300", "1500"),
    MESSAGE_BYTES: ("60", "100"),
}
NOT_OF_DISKLESS = (
    (DISKLESS, SET, "FALSE"),
    (DISKLESS, DELETE, None),
    ("remote.storage.enable", SET, " TRUE "),
    ("confluent.placement.constraints", SET, "replicas=a:1"),
)
"""What is refused for a diskless topic."""
AROUND = (
    "crash", "crash", "power", "leader-crash", "leader-crash", "leader-pause", "slow-restart",
    "controller-crash", "wipe",
)  # fmt: skip
"""What goes wrong soon after a setting was altered."""
EMPTIES = ("wipe", "wipe", "crash", "slow-restart")
"""After it a replica has much to copy."""


def with_altered_settings(plan: Plan) -> Plan:
    """The plan, with settings that are altered where its seed is one of those that have some."""
    seed = plan.seed
    if seed < FIRST_SEED or seed % EVERY not in OF_EACH or plan.transactions is not None:
        return plan
    random = Random(f"{seed}/settings")
    topics = tuple(replace(each, becomes_compacted=True) for each in plan.topics)
    drawn = _episodes(random, topics)
    if plan.diskless is not None:
        drawn = [each for each in drawn if not _keeps_diskless_out(each)]
        drawn += _of_diskless(random, plan.diskless)
    around = [_soon(random, each, AROUND) for each in drawn if random.random() < 0.3]
    if random.random() < 0.4:
        last = _to_the_end(random, topics)
        around.append(_soon(random, last, EMPTIES))
        drawn.append(last)
    moves = [_move(random, plan) for _ in range(random.choice((0, 0, 2, 4)))]
    return replace(
        plan,
        topics=topics,
        alterations=tuple(sorted(drawn, key=attrgetter("at_us"))),
        faults=tuple(sorted((*plan.faults, *around), key=attrgetter("at_us"))),
        operations=tuple(sorted((*plan.operations, *moves), key=attrgetter("at_us"))),
        config=tuple(sorted({**_config(random), **dict(plan.config)}.items())),
    )


def _keeps_diskless_out(alteration: Alteration) -> bool:
    """Whether a diskless topic cannot be made again meanwhile: it would be a compacted one."""
    return (alteration.topic, alteration.name) == (BY_DEFAULT, "log.cleanup.policy")


def _config(random: Random) -> dict[str, str]:
    """Retention and compaction look often, where the plan does not say how often, and controllers
    for partitions that an unclean election may give a leader."""
    return {
        "log.retention.check.interval.ms": random.choice(("1000", "3000")),
        "log.cleaner.backoff.ms": random.choice(("300", "1000")),
        "log.flush.offset.checkpoint.interval.ms": random.choice(("2000", "60000")),
        "unclean.leader.election.interval.ms": random.choice(("1000", "300000")),
    }


def _episodes(random: Random, topics: tuple[TopicPlan, ...]) -> list[Alteration]:
    names = [name for name in TOPIC_VALUES if random.random() < 0.6] or [SEGMENT_BYTES]
    drawn: list[Alteration] = []
    for _ in range(random.randrange(6, 16)):
        topic, at_us = random.choice(topics).name, _any_time(random)
        drawn += _of_topic(random, topic, random.choice(names), TOPIC_VALUES, at_us)
    defaults = [name for name in DEFAULT_VALUES if random.random() < 0.4]
    for _ in range(random.randrange(5) if defaults else 0):
        drawn += _of_brokers(random, random.choice(defaults), topics)
    return drawn


def _of_topic(
    random: Random, topic: str, name: str, values: dict[str, tuple[str, ...]], at_us: int
) -> list[Alteration]:
    """One change of a topic, and perhaps another one that takes it back."""
    if name == POLICY and random.random() < 0.5:
        operation, value = random.choice((APPEND, SUBTRACT)), random.choice(("compact", "delete"))
        return [Alteration(at_us, topic, name, operation, value)]
    drawn = [Alteration(at_us, topic, name, SET, random.choice(values[name]))]
    if name != DISKLESS and (name in KEEPS_CLIENTS_OUT or random.random() < 0.4):
        soon_us = at_us + int(SECOND_US * random.choice((1, 3, 6)) * (0.5 + random.random()))
        drawn.append(Alteration(soon_us, topic, name, DELETE))
        if name == SEGMENT_BYTES:
            drawn[-1] = Alteration(soon_us, topic, name, SET, random.choice(("500", "1000")))
    return drawn


def _of_brokers(random: Random, name: str, topics: tuple[TopicPlan, ...]) -> list[Alteration]:
    """The default of all brokers; a topic has it when it has no value of its own."""
    at_us = _any_time(random)
    drawn = [Alteration(at_us, BY_DEFAULT, name, SET, random.choice(DEFAULT_VALUES[name]))]
    own = next((own for own, known in TOPIC_TO_BROKER.items() if known == name), "")
    if own in TOPIC_VALUES:
        topic = random.choice(topics).name
        drawn.append(Alteration(at_us + random.randrange(SECOND_US), topic, own, DELETE))
    if name not in STAYS and random.random() < 0.6:
        later_us = at_us + int(SECOND_US * random.choice((3, 8, 15)) * (0.5 + random.random()))
        drawn.append(Alteration(later_us, BY_DEFAULT, name, DELETE))
    return drawn


def _of_diskless(random: Random, diskless: DisklessPlan) -> list[Alteration]:
    """Of diskless topics: what they may have, and what must be refused."""
    drawn: list[Alteration] = []
    for _ in range(random.randrange(3, 9)):
        topic, at_us = random.choice(diskless.topics).name, _any_time(random)
        if random.random() < 0.25:
            name, operation, value = random.choice(NOT_OF_DISKLESS)
            drawn.append(Alteration(at_us, topic, name, operation, value, must_be_refused=True))
        else:
            name = random.choice((DISKLESS, DISKLESS, *DISKLESS_VALUES))
            drawn += _of_topic(random, topic, name, DISKLESS_VALUES, at_us)
    return drawn


def _any_time(random: Random) -> int:
    return random.randrange(SETTLED_US + SECOND_US, SAFETY_US - 10 * SECOND_US)


def _to_the_end(random: Random, topics: tuple[TopicPlan, ...]) -> Alteration:
    """A limit that is below what is written and stays so: all of that must still be copied."""
    at_us = SAFETY_US - random.randrange(3 * SECOND_US, 12 * SECOND_US)
    name, value = random.choice(((SEGMENT_BYTES, "40"), (MESSAGE_BYTES, "60")))
    return Alteration(at_us, random.choice(topics).name, name, SET, value)


def _soon(random: Random, altered: Alteration, kinds: tuple[str, ...]) -> Fault:
    """Something that goes wrong around a change."""
    at_us = max(SETTLED_US, altered.at_us + random.randrange(-SECOND_US, 3 * SECOND_US))
    return replace(draw_fault(random, kinds), at_us=at_us)


def _move(random: Random, plan: Plan) -> Operation:
    at_us, place = _any_time(random), random.choice(plan.places)
    return Operation(at_us, "move", "operator", place, random.randrange(1 << 16))
