"""What a schedule of a migration does, drawn from its seed before anything happens.

What: a plan as all schedules have one, with one topic that has a remote log, idempotent producers
and readers; when an operator wants the topic diskless, or classic after all, or deletes it; faults
at any time, and strikes: what happens once, so long after the topic was seen in a phase. Why
strikes: a phase lasts for a moment, which faults at random times would miss. Rule kept: no fault
takes from a disk what was written, so that every acknowledged record must be there in the end. Not
here: carrying it out (`run.py`).
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import NamedTuple

from anabranch.core.types import EARLIEST, LATEST, TopicPartition
from anabranch.sim.clients.client import Patience
from anabranch.sim.clients.fetcher import ReadOptions
from anabranch.sim.clients.producer import Manner
from anabranch.sim.plan import Plan, plain_plan
from anabranch.sim.plan_parts import (
    SECOND_US,
    SETTLED_US,
    ClientPlan,
    Fault,
    Operation,
    TopicPlan,
)

TOPIC = "moved"
ENDS_US = 34 * SECOND_US
"""When faults and operations end."""
MIGRATE, CANCEL, DELETE, GROW = "migrate", "cancel", "delete", "add-partitions"
PREPARING, SEALING, DISKLESS = "preparing", "sealing", "diskless"
PHASES = (PREPARING, SEALING, SEALING, DISKLESS)
"""One that stands twice is struck twice as often."""
STRIKES = (
    "leader-crash", "leader-crash", "controller-crash", "controller-crash", "crash",
    "crash-in-round", "crash-in-round", "pause-in-round", "leader-pause", "controller-pause",
    "coordinator-away", "coordinator-slow", "coordinator-flaky", "coordinator-cut",
    "objects-away", "objects-flaky", "isolate", "lease-lost", "store-unknown", "crash-after-put",
)  # fmt: skip
FAULTS = (
    "loss", "delay", "reorder", "cut", "isolate", "split", "crash", "pause", "roll",
    "controller-crash", "leader-crash", "leader-pause", "lease-lost", "store-slow", "store-unknown",
    "store-away", "objects-away", "objects-slow", "objects-flaky", "objects-list-late",
    "coordinator-away", "coordinator-slow", "coordinator-flaky", "coordinator-cut",
    "coordinator-clock", "watch-breaks", "crash-in-round", "pause-in-round", "crash-after-put",
)  # fmt: skip
STRENGTHS = (0.35, 1.0)
"""Of all faults: weaker crashes take the power, and what was not flushed."""
CHANGES_OF_MIND, DELETED, GROWS = 0.3, 0.15, 0.1


class Action(NamedTuple):
    """What an operator wants at a time, from then on."""

    at_us: int
    kind: str


@dataclass(frozen=True, slots=True)
class Strike:
    """What happens once, after the topic was seen in a phase. `what` is a fault, or what the
    operator wants from then on."""

    phase: str
    delay_us: int
    what: Fault | str


@dataclass(frozen=True, slots=True)
class MigrationPlan:
    """See the module."""

    plan: Plan
    sends: tuple[Operation, ...]
    actions: tuple[Action, ...]
    strikes: tuple[Strike, ...]


def draw_migration(seed: int) -> MigrationPlan:
    """The plan of a seed: always the same one."""
    random = Random(f"{seed}/migration")
    base = plain_plan(seed)
    topic = _topic(random)
    clients = _clients(random)
    plan = Plan(
        seed=seed,
        brokers=random.choice((3, 3, 3, 4)),
        racks=random.choice((0, 3)),
        folders=1,
        elr=base.elr,
        wire=False,
        config=tuple(sorted({**dict(base.config), **_config(random)}.items())),
        topics=(topic,),
        clients=clients,
        operations=(),
        faults=tuple(_fault(random) for _ in range(random.choice((0, 0, 2, 4, 7)))),
        safety_us=ENDS_US,
    )
    return MigrationPlan(
        plan, _sends(random, clients, topic), _actions(random), tuple(_strikes(random))
    )


def _topic(random: Random) -> TopicPlan:
    configs = {
        "remote.storage.enable": "true",
        "min.insync.replicas": "2",
        "internal.segment.bytes": random.choice(("200", "500", "2000", "100000")),
        "segment.ms": random.choice(("1500", "60000")),
        "file.delete.delay.ms": random.choice(("0", "3000")),
        "retention.ms": "-1",
        "retention.bytes": random.choice(("-1", "-1", "-1", "2000")),
    }
    if random.random() < 0.6:
        configs["local.retention.ms"] = random.choice(("1", "4000"))
    return TopicPlan(TOPIC, random.choice((1, 2, 3)), 3, tuple(sorted(configs.items())))


def _config(random: Random) -> dict[str, str]:
    return {
        "remote.log.storage.system.enable": "true",
        "remote.log.manager.task.interval.ms": random.choice(("500", "1000", "3000")),
        "diskless.storage.system.enable": "true",
        "diskless.produce.buffer.max.bytes": random.choice(("1024", "8388608")),
        "auto.leader.rebalance.enable": random.choice(("true", "false")),
    }


def _clients(random: Random) -> tuple[ClientPlan, ...]:
    producers = tuple(
        ClientPlan(
            f"producer-{number}",
            _patience(random),
            manner=Manner(
                in_flight=random.choice((1, 5, 5)),
                server_timeout_ms=random.choice((1_500, 5_000)),
                renews_id=random.random() < 0.5,
            ),
        )
        for number in range(random.choice((2, 3)))
    )
    readers = tuple(
        ClientPlan(
            f"reader-{number}",
            _patience(random),
            reading=ReadOptions(
                max_wait_ms=random.choice((500, 1_500)),
                max_bytes=random.choice((300, 1 << 20)),
                pause_ms=random.choice((50, 300)),
                any_replica=random.random() < 0.2,
                sessions=random.random() < 0.5,
                start=EARLIEST if number == 0 else random.choice((EARLIEST, LATEST)),
            ),
        )
        for number in range(2)
    )
    return producers + readers


def _patience(random: Random) -> Patience:
    return Patience(
        request_timeout_ms=random.choice((1_000, 3_000)),
        retry_backoff_ms=random.choice((30, 100)),
        most_backoff_ms=random.choice((300, 1_000)),
        delivery_timeout_ms=random.choice((8_000, 60_000, 60_000)),
    )


def _sends(
    random: Random, clients: tuple[ClientPlan, ...], topic: TopicPlan
) -> tuple[Operation, ...]:
    producers = [each.name for each in clients if each.manner is not None]
    drawn = [
        Operation(
            random.randrange(SETTLED_US, ENDS_US), "send", random.choice(producers),
            TopicPartition(TOPIC, random.randrange(topic.partitions)), random.choice((1, 1, 2, 4)),
        )
        for _ in range(random.randrange(120, 260))
    ]  # fmt: skip
    return tuple(sorted(drawn, key=lambda each: each.at_us))


def _actions(random: Random) -> tuple[Action, ...]:
    """Mostly one migration; in some schedules the operator cancels it, and begins once more."""
    at_us = SETTLED_US + random.randrange(2 * SECOND_US, 12 * SECOND_US)
    actions = [Action(at_us, MIGRATE)]
    if random.random() < CHANGES_OF_MIND:
        at_us += random.randrange(50_000, 3 * SECOND_US)
        actions.append(Action(at_us, CANCEL))
        if random.random() < 0.7:
            at_us += random.randrange(50_000, 4 * SECOND_US)
            actions.append(Action(at_us, MIGRATE))
    return tuple(actions)


def _strikes(random: Random) -> list[Strike]:
    strikes = [
        Strike(random.choice(PHASES), _delay_us(random), _fault(random, STRIKES))
        for _ in range(random.choice((1, 1, 2, 3)))
    ]
    for kind, share in ((CANCEL, CHANGES_OF_MIND / 3), (DELETE, DELETED), (GROW, GROWS)):
        if random.random() < share:
            strikes.append(Strike(random.choice(PHASES), _delay_us(random), kind))
    return strikes


def _delay_us(random: Random) -> int:
    return random.choice((0, 0, random.randrange(50_000), random.randrange(SECOND_US)))


def _fault(random: Random, kinds: tuple[str, ...] = FAULTS) -> Fault:
    return Fault(
        at_us=random.randrange(SETTLED_US, ENDS_US - SECOND_US),
        kind=random.choice(kinds),
        lasts_us=int(SECOND_US * random.choice((1, 3, 8)) * (0.5 + random.random())),
        aim=random.randrange(1 << 16),
        other=random.randrange(1 << 16),
        strength=random.uniform(*STRENGTHS),
    )
