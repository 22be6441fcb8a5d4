"""What a schedule does with transactions, drawn from its seed beside the rest of the plan.

What: for some seeds topics of their own, producers with transactional ids, members of a group that
read, write and commit offsets in one transaction, readers of both isolations, and faults of
producers and of coordinators. Rule kept: the draws are of a stream of their own, so that the rest
of the plan is what it was. Not here: carrying it out (`clients/transactional_workload.py`,
`transaction_faults.py`).
"""

from __future__ import annotations

from dataclasses import replace
from random import Random

from anabranch.core.types import EARLIEST, LATEST, TopicPartition
from anabranch.sim.clients.client import Patience
from anabranch.sim.clients.fetcher import ReadOptions
from anabranch.sim.clients.member import Membership
from anabranch.sim.clients.transactions import ProducerOptions
from anabranch.sim.plan import FAULTS, Plan, draw_fault
from anabranch.sim.plan_parts import (
    PASSING,
    RESULTS,
    SAFETY_US,
    SECOND_US,
    SETTLED_US,
    TRANSFERS,
    Fault,
    IdPlan,
    LoopPlan,
    Operation,
    PlannedTransaction,
    ReaderPlan,
    TopicPlan,
    TransactionPlan,
)

FIRST_SEED, EVERY, OF_EACH = 100, 8, 3
"""From the first on, of each eight seeds the one whose schedule has transactions."""
STATE_TOPIC = "__transaction_state"
OWN_FAULTS = (
    "id-dies", "id-dies", "id-twin", "id-twin", "id-stalls", "id-stalls",
    "state-leader-crash", "state-leader-crash", "state-leader-pause", "state-leader-cut",
    "peers-flaky", "peers-flaky",
)  # fmt: skip
"""Kinds of faults; one that stands twice is drawn twice as often."""
CLOCKS = tuple(kind for kind in FAULTS["lease"] if kind in ("suspend", "clock-jump", "clock-drift"))
COMMIT, ABORT, HANG = "commit", "abort", "hang"
TRANSACTION_VERSION = "transaction.version"
EXPIRES_MS, NEVER_MS = 15_000, 604_800_000


def with_transactions(plan: Plan) -> Plan:
    """The plan, with transactions where its seed is one of those that have some."""
    seed = plan.seed
    if seed < FIRST_SEED or seed % EVERY != OF_EACH:
        return plan
    random = Random(f"{seed}/transactions")
    version = random.choice((2, 2, 2, 1, 0))
    topics, deleted_us = _topics(random)
    drawn = TransactionPlan(
        topics=topics,
        ids=tuple(_id(random, number, version) for number in range(random.choice((1, 2, 3)))),
        loops=_loops(random, version),
        readers=tuple(_reader(random, number) for number in range(random.choice((2, 3)))),
        deals=(),
        version=version,
        deleted_us=deleted_us,
    )
    drawn = replace(drawn, deals=_deals(random, drawn))
    faults = sorted((*plan.faults, *_faults(random)), key=lambda fault: fault.at_us)
    operations = (*plan.operations, *_operations(random, drawn))
    config = {**dict(plan.config), **_config(random)}
    return replace(
        plan,
        transactions=drawn,
        faults=tuple(faults),
        operations=tuple(sorted(operations, key=lambda each: each.at_us)),
        config=tuple(sorted(config.items())),
    )


def _config(random: Random) -> dict[str, str]:
    return {
        "transaction.state.log.num.partitions": str(random.choice((1, 1, 2))),
        "transaction.state.log.replication.factor": "3",
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": str(
            random.choice((500, 2_000))
        ),
        "transaction.remove.expired.transaction.cleanup.interval.ms": "2000",
        "transactional.id.expiration.ms": str(random.choice((NEVER_MS, NEVER_MS, EXPIRES_MS))),
    }


def _topics(random: Random) -> tuple[tuple[TopicPlan, ...], int]:
    shapes = [(TRANSFERS, random.choice((1, 2, 3))), (RESULTS, random.choice((1, 2)))]
    deleted_us = 0
    if random.random() < 0.3:
        shapes.append((PASSING, 1))
        deleted_us = random.randrange(SETTLED_US + 5 * SECOND_US, SAFETY_US - 10 * SECOND_US)
    topics = tuple(
        TopicPlan(
            name=name,
            partitions=partitions,
            replication_factor=3,
            configs=tuple(sorted(_topic_configs(random).items())),
        )
        for name, partitions in shapes
    )
    return topics, deleted_us


def _topic_configs(random: Random) -> dict[str, str]:
    configs = {"min.insync.replicas": random.choice(("1", "2", "2", "2"))}
    if random.random() < 0.4:
        configs["internal.segment.bytes"] = random.choice(("500", "2000"))
        configs["segment.ms"] = random.choice(("1500", "60000"))
    return configs


def _manner(random: Random, version: int) -> ProducerOptions:
    return ProducerOptions(
        is_new_flow=version == 2 and random.random() < 0.7,
        timeout_ms=random.choice((3_000, 6_000, 12_000)),
        pipelines=random.random() < 0.6,
    )


def _patience(random: Random) -> Patience:
    return Patience(
        request_timeout_ms=random.choice((300, 1_000, 2_500)),
        retry_backoff_ms=random.choice((20, 50, 100)),
        most_backoff_ms=random.choice((200, 500, 1_000)),
        delivery_timeout_ms=random.choice((2_000, 5_000, 15_000)),
    )


def _id(random: Random, number: int, version: int) -> IdPlan:
    begins_us = SETTLED_US + random.choice((0, 0, 3)) * SECOND_US
    return IdPlan(f"id-{number}", _patience(random), _manner(random, version), begins_us)


def _loops(random: Random, version: int) -> tuple[LoopPlan, ...]:
    if random.random() < 0.3:
        return ()
    return tuple(_loop(random, number, version) for number in range(random.choice((1, 2, 2))))


def _loop(random: Random, number: int, version: int) -> LoopPlan:
    membership = Membership(
        group="loop",
        session_timeout_ms=random.choice((6_000, 10_000)),
        rebalance_timeout_ms=random.choice((3_000, 6_000)),
        heartbeat_ms=random.choice((1_000, 2_000)),
        commit_ms=random.choice((500, 1_500, 3_000)),
    )
    reading = ReadOptions(isolation=1, pause_ms=random.choice((100, 500)), max_wait_ms=1_000)
    begins_us = SETTLED_US + random.randrange(6) * SECOND_US
    manner = _manner(random, version)
    return LoopPlan(f"loop-{number}", _patience(random), manner, membership, reading, begins_us)


def _reader(random: Random, number: int) -> ReaderPlan:
    reading = ReadOptions(
        isolation=0 if number == 2 else 1,
        max_wait_ms=random.choice((200, 500, 2_000)),
        max_bytes=1 << 20 if number == 0 else random.choice((200, 1_000, 1 << 20)),
        pause_ms=random.choice((50, 200, 500)),
        any_replica=number == 1,
        sessions=random.random() < 0.4,
        start=EARLIEST if number == 0 else random.choice((EARLIEST, LATEST)),
    )
    begins_us = SETTLED_US + random.choice((0, 0, 20)) * SECOND_US
    return ReaderPlan(f"committed-{number}", _patience(random), reading, begins_us)


def _deals(random: Random, plan: TransactionPlan) -> tuple[PlannedTransaction, ...]:
    places = [place for place in plan.all_places if place.topic != RESULTS]
    if not plan.loops:
        places = plan.all_places
    deals = []
    for _ in range(random.randrange(60, 100)):
        chosen = random.sample(places, random.randint(1, len(places)))
        writes = tuple((place, random.choice((1, 1, 2, 3))) for place in chosen)
        deals.append(
            PlannedTransaction(
                at_us=random.randrange(SETTLED_US, SAFETY_US),
                id_name=random.choice(plan.ids).name,
                writes=writes,
                ending=random.choice((*(COMMIT,) * 9, *(ABORT,) * 4, HANG)),
                pause_ms=random.choice((0, 0, 0, 0, 50, 50, 500, 500, 2_500)),
            )
        )
    return tuple(sorted(deals, key=lambda deal: deal.at_us))


def _operations(random: Random, plan: TransactionPlan) -> list[Operation]:
    """What the operator does to these topics, and to the one of the coordinators."""
    state = TopicPartition(STATE_TOPIC, 0)
    places = [state, state, *plan.places]
    operations = []
    for _ in range(random.choice((0, 0, 2, 5))):
        at_us, place = random.randrange(SETTLED_US, SAFETY_US), random.choice(places)
        kind = random.choice(("move", "move", "elect-preferred"))
        operations.append(Operation(at_us, kind, "operator", place, random.randrange(1 << 16)))
    if random.random() < 0.5:
        at_us = SETTLED_US + random.randrange(3, 10) * SECOND_US
        operations.append(Operation(at_us, "shrink-segments", "operator", state))
    return operations


def _faults(random: Random) -> list[Fault]:
    kinds = [kind for kind in OWN_FAULTS if random.random() < 0.6] or list(OWN_FAULTS)
    if random.random() < 0.3:
        kinds += CLOCKS
    return [draw_fault(random, kinds) for _ in range(random.choice((0, 4, 7, 10)))]
