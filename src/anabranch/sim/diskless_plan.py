"""What a schedule does with diskless topics, drawn from its seed beside the rest of the plan.

What: for some seeds one or two diskless topics, producers and readers of them, an operator, and
faults of the object store, of the coordinator and of writers. Rule kept: the draws are of a stream
of their own, so that the rest of the plan is what it was. Not here: carrying it out
(`clients/diskless_workload.py`, `diskless_faults.py`).
"""

from __future__ import annotations

from dataclasses import replace
from random import Random

from anabranch.core.types import EARLIEST, LATEST, TopicPartition
from anabranch.sim.clients.client import Patience
from anabranch.sim.clients.fetcher import ReadOptions
from anabranch.sim.clients.producer import Manner
from anabranch.sim.plan import BY_NAME, Plan
from anabranch.sim.plan_parts import (
    SAFETY_US,
    SECOND_US,
    SETTLED_US,
    ClientPlan,
    DisklessPlan,
    Fault,
    Operation,
    TopicPlan,
)

FIRST_SEED, EVERY, OF_EACH = 100, 8, 4
"""From the first on, of each eight seeds the one whose schedule has diskless topics."""
FAULTS = (
    "objects-away", "objects-slow", "objects-flaky", "objects-flaky", "objects-cut",
    "coordinator-away", "coordinator-slow", "coordinator-flaky", "coordinator-flaky",
    "coordinator-cut", "coordinator-clock", "watch-breaks", "writer-lingers", "writer-lingers",
    "crash-after-put", "crash-after-put",
)  # fmt: skip
"""Kinds of faults; one that stands twice is drawn twice as often."""
SLEEP = "sleep-after-put"
OUTAGES = ("objects-away-for-minutes", "coordinator-away-for-minutes")
MORE_FAULTS = (SLEEP, *OUTAGES)
"""Of seeds from MORE_SINCE on."""
MORE_SINCE = 200
"""From this seed on, what came later: outages of minutes, brokers that sleep beyond a lease, topics
that are made again twice."""
MINUTES_US = (70 * SECOND_US, 150 * SECOND_US)
"""How long the store, or the coordinator, is away where that takes minutes."""
HANGS = "puts-hang"
HANGS_SINCE = 1_000
"""From this seed on, puts hang in some."""
TIERED_SINCE = 2_000
"""From this seed on, some have jobs that tier their topics."""
TIERING_FAULTS = (
    "tiering-driver-dies", "tiering-driver-dies", "tiering-task-dies", "tiering-task-dies",
    "tiering-claim-lapses", "tiering-claim-lapses", "coordinator-clock",
)  # fmt: skip
COMPACTED_SINCE = 3_000
"""From this seed on, some of these have topics that are compacted."""
COMPACTION_FAULTS = (
    "compaction-driver-dies", "compaction-driver-dies", "compaction-task-dies",
    "compaction-task-dies", "compaction-claim-lapses", "compaction-claim-lapses",
)  # fmt: skip
IDLE_SINCE = 800
"""From this seed on, some have producers that are idle until the coordinator forgets them."""
ONLY_LATE = 3
"""Of a fault of flaky calls: none gets lost, and none is done in time and not answered."""
MADE_AGAIN = 0.35
LOOK, REST = "look", "rest"
THRESHOLD = "diskless.managed.rf.rack.unavailable.threshold.ms"


def with_diskless(plan: Plan) -> Plan:
    """The plan, with diskless topics where its seed is one of those that have some."""
    seed = plan.seed
    if seed < FIRST_SEED or seed % EVERY != OF_EACH:
        return plan
    random = Random(f"{seed}/diskless")
    topics = tuple(_topic(random, number) for number in range(random.choice((1, 1, 2))))
    clients = _clients(random)
    diskless = DisklessPlan(
        topics=topics,
        clients=clients,
        operations=(),
        interval_ms=random.choice((0, 0, 50, 250)),
        coordinator_skew_ms=random.choice((0, -3_600_000, 45_000, 7_200_000)),
        objects_skew_ms=random.choice((0, -9_000, 9_000)),
    )
    diskless = replace(diskless, operations=_operations(random, diskless))
    faults = (*plan.faults, *_faults(random))
    config = {**dict(plan.config), **_config(random)}
    plan = replace(plan, diskless=diskless, faults=faults, config=tuple(sorted(config.items())))
    if seed >= MORE_SINCE:
        plan = _with_more(plan, diskless, Random(f"{seed}/more-diskless"))
    if seed >= IDLE_SINCE:
        plan = _with_idle_producers(plan, Random(f"{seed}/idle-producers"))
    if seed >= HANGS_SINCE:
        plan = _with_hanging_puts(plan, Random(f"{seed}/hanging-puts"))
    if seed >= TIERED_SINCE:
        plan = _with_tiering(plan, Random(f"{seed}/tiering"))
    if seed >= COMPACTED_SINCE:
        plan = _with_compaction(plan, Random(f"{seed}/diskless-compaction"))
    kept = _that_keep_ids_apart(plan)
    return replace(plan, faults=tuple(sorted(kept, key=lambda fault: fault.at_us)))


def _that_keep_ids_apart(plan: Plan) -> list[Fault]:
    """Its faults; where a diskless topic is made again, none has clients name topics by name: a
    record that was meant for the topic before would stand in the new one, as in Kafka."""
    assert plan.diskless is not None
    is_made_again = any(topic.is_made_again for topic in plan.diskless.topics)
    return [each for each in plan.faults if not (is_made_again and each.kind == BY_NAME)]


def _with_more(plan: Plan, diskless: DisklessPlan, random: Random) -> Plan:
    """Kinds that were added later, each for some seeds."""
    faults: list[Fault] = []
    if random.random() < 0.3:
        faults.append(_fault(random, SLEEP, random.choice((3, 8, 20)) * SECOND_US))
    if random.random() < 0.3:
        diskless, late = _made_again_twice(diskless, random)
        faults += late
    if random.random() < 0.12:
        diskless, outage = _with_outage(diskless, random)
        faults.append(outage)
        plan = replace(plan, safety_us=outage.at_us + outage.lasts_us + 10 * SECOND_US)
    return replace(plan, diskless=diskless, faults=(*plan.faults, *faults))


def _fault(random: Random, kind: str, lasts_us: int) -> Fault:
    return Fault(
        at_us=random.randrange(SETTLED_US, SAFETY_US - SECOND_US),
        kind=kind,
        lasts_us=lasts_us,
        aim=random.randrange(1 << 16),
        other=random.randrange(1 << 16),
        strength=random.random(),
    )


def _made_again_twice(
    diskless: DisklessPlan, random: Random
) -> tuple[DisklessPlan, tuple[Fault, ...]]:
    """A topic is deleted soon after it was made again, while calls of the coordinator come late."""
    again = [each for each in diskless.operations if each.kind == "make-again"]
    if not again:
        return diskless, ()
    once = again[0]
    soon = replace(once, at_us=once.at_us + random.choice((2, 4, 8)) * SECOND_US)
    late = replace(
        _fault(random, "coordinator-flaky", soon.at_us - once.at_us),
        at_us=once.at_us,
        aim=random.choice((1 << 14, 1 << 15)),
        other=ONLY_LATE,
        strength=1.0,
    )
    operations = sorted((*diskless.operations, soon), key=lambda operation: operation.at_us)
    return replace(diskless, operations=tuple(operations)), (late,)


def _with_outage(diskless: DisklessPlan, random: Random) -> tuple[DisklessPlan, Fault]:
    """The store or the coordinator is away for minutes, and clients go on asking."""
    kind = random.choice(OUTAGES)
    outage = _fault(random, kind, random.randrange(*MINUTES_US))
    sends = [each for each in diskless.operations if each.kind == "send"]
    ends_us = outage.at_us + outage.lasts_us
    more = [
        replace(random.choice(sends), at_us=random.randrange(outage.at_us, ends_us))
        for _ in range(60)
    ]
    operations = sorted((*diskless.operations, *more), key=lambda operation: operation.at_us)
    return replace(diskless, operations=tuple(operations)), outage


def _with_idle_producers(plan: Plan, random: Random) -> Plan:
    """Producers rest in partitions, and may write again soon after that."""
    diskless = plan.diskless
    assert diskless is not None
    if random.random() < 0.5:
        return plan
    producers = [each.name for each in diskless.clients if each.manner and each.manner.idempotent]
    rests = [
        Operation(
            random.randrange(SETTLED_US + 2 * SECOND_US, SAFETY_US),
            REST, random.choice(producers), random.choice(diskless.places), 0,
        )
        for _ in range(random.choice((10, 20, 40)))
    ]  # fmt: skip
    operations = sorted((*diskless.operations, *rests), key=lambda operation: operation.at_us)
    return replace(plan, diskless=replace(diskless, operations=tuple(operations)))


def _with_hanging_puts(plan: Plan, random: Random) -> Plan:
    """Brokers have connections to the store that are dead."""
    if random.random() < 0.6:
        return plan
    lasts_us = (5 * SECOND_US, 20 * SECOND_US)
    faults = [_fault(random, HANGS, random.randrange(*lasts_us)) for _ in range(3)]
    return replace(plan, faults=(*plan.faults, *faults))


def _with_tiering(plan: Plan, random: Random) -> Plan:
    """Jobs tier all diskless topics, in small segments, while drivers, tasks and claims end."""
    diskless = plan.diskless
    assert diskless is not None
    if random.random() < 0.5:
        return plan
    topics = tuple(replace(each, configs=_tiered(each, random)) for each in diskless.topics)
    faults = [
        _fault(random, random.choice(TIERING_FAULTS), random.choice((1, 4)) * SECOND_US)
        for _ in range(random.choice((2, 5, 9)))
    ]
    jobs = random.choice((1, 2, 2))
    return replace(
        plan,
        diskless=replace(diskless, topics=topics, tiering_jobs=jobs),
        faults=(*plan.faults, *faults),
    )


def _tiered(topic: TopicPlan, random: Random) -> tuple[tuple[str, str], ...]:
    configs = {
        "diskless.tiering.age.ms": random.choice(("0", "500", "3000")),
        "diskless.tiering.min.segment.bytes": random.choice(("1", "1", "300")),
        "internal.segment.bytes": random.choice(("200", "500", "2000")),
    }
    return tuple(sorted({**dict(topic.configs), **configs}.items()))


def _with_compaction(plan: Plan, random: Random) -> Plan:
    """Jobs compact all diskless topics that are tiered, while drivers, tasks and claims end."""
    diskless = plan.diskless
    assert diskless is not None
    if not diskless.tiering_jobs or random.random() < 0.4:
        return plan
    topics = tuple(replace(each, configs=_compacted(each, random)) for each in diskless.topics)
    faults = [
        _fault(random, random.choice(COMPACTION_FAULTS), random.choice((1, 4)) * SECOND_US)
        for _ in range(random.choice((2, 5, 9)))
    ]
    jobs = random.choice((1, 2, 2))
    return replace(
        plan,
        diskless=replace(diskless, topics=topics, compaction_jobs=jobs),
        faults=(*plan.faults, *faults),
    )


def _compacted(topic: TopicPlan, random: Random) -> tuple[tuple[str, str], ...]:
    configs = dict(topic.configs)
    expires = any(name.startswith("retention") for name in configs)
    configs |= {
        "cleanup.policy": "compact,delete" if expires else "compact",
        "min.cleanable.dirty.ratio": random.choice(("0.01", "0.01", "0.3")),
        "delete.retention.ms": random.choice(("0", "2000", "86400000")),
    }
    return tuple(sorted(configs.items()))


def _config(random: Random) -> dict[str, str]:
    return {
        "diskless.storage.system.enable": "true",
        "diskless.produce.buffer.max.bytes": str(random.choice((1_024, 4_096, 8_388_608))),
        THRESHOLD: str(random.choice((3_000, 15_000, 300_000))),
    }


def _topic(random: Random, number: int) -> TopicPlan:
    configs = {"diskless.enable": "true"}
    kind = random.random()
    if kind < 0.15:
        configs["retention.ms"] = str(random.choice((4_000, 10_000)))
    elif kind < 0.3:
        configs["retention.bytes"] = str(random.choice((300, 1_500)))
    return TopicPlan(
        name=f"diskless-{number}",
        partitions=random.choice((1, 2, 3)),
        replication_factor=random.choice((-1, 1)),
        configs=tuple(sorted(configs.items())),
        is_made_again=random.random() < MADE_AGAIN,
    )


def _clients(random: Random) -> tuple[ClientPlan, ...]:
    clients = []
    for number in range(random.choice((2, 3))):
        is_plain = number == 2
        manner = Manner(
            idempotent=not is_plain,
            in_flight=random.choice((1, 5, 5, 5)),
            server_timeout_ms=random.choice((1_500, 5_000, 20_000)),
            renews_id=random.random() < 0.5,
        )
        clients.append(ClientPlan(f"diskless-producer-{number}", _patience(random), manner=manner))
    for number in range(2):
        reading = ReadOptions(
            max_wait_ms=random.choice((500, 2_000)),
            max_bytes=1 << 20 if number == 0 else random.choice((200, 1 << 20)),
            pause_ms=random.choice((200, 1_000, 3_000)) if number == 0 else 100,
            sessions=random.random() < 0.4,
            start=EARLIEST if number == 0 else random.choice((EARLIEST, LATEST)),
        )
        begins_us = SETTLED_US + random.choice((0, 0, 20, 40)) * SECOND_US
        clients.append(
            ClientPlan(
                f"diskless-reader-{number}", _patience(random), reading=reading,
                begins_us=begins_us,
            )
        )  # fmt: skip
    return tuple(clients)


def _patience(random: Random) -> Patience:
    return Patience(
        request_timeout_ms=random.choice((1_000, 3_000, 10_000)),
        retry_backoff_ms=random.choice((30, 100)),
        most_backoff_ms=random.choice((300, 1_000)),
        delivery_timeout_ms=random.choice((8_000, 20_000, 60_000)),
    )


def _operations(random: Random, plan: DisklessPlan) -> tuple[Operation, ...]:
    producers = [client.name for client in plan.clients if client.manner is not None]
    operations = []
    for _ in range(random.randrange(100, 160)):
        at_us = random.randrange(SETTLED_US, SAFETY_US)
        if random.random() < 0.6:
            at_us = max(at_us - at_us % (2 * SECOND_US), SETTLED_US)
        producer, place = random.choice(producers), random.choice(plan.places)
        operations.append(Operation(at_us, "send", producer, place, random.choice((1, 1, 2, 3))))
    for _ in range(random.randrange(4, 12)):
        at_us, place = random.randrange(SETTLED_US, SAFETY_US), random.choice(plan.places)
        kind = random.choice((LOOK, LOOK, LOOK, "delete"))
        operations.append(Operation(at_us, kind, "operator", place, random.randrange(100)))
    for topic in plan.topics:
        if topic.is_made_again:
            at_us = random.randrange(SETTLED_US + 5 * SECOND_US, SAFETY_US - 10 * SECOND_US)
            place, delay_ms = TopicPartition(topic.name, 0), random.choice((0, 200, 3_000))
            operations.append(Operation(at_us, "make-again", "operator", place, delay_ms))
    return tuple(sorted(operations, key=lambda operation: operation.at_us))


def _faults(random: Random) -> tuple[Fault, ...]:
    kinds = [kind for kind in FAULTS if random.random() < 0.6] or list(FAULTS)
    return tuple(
        Fault(
            at_us=random.randrange(SETTLED_US, SAFETY_US - SECOND_US),
            kind=random.choice(kinds),
            lasts_us=int(SECOND_US * random.choice((1, 3, 8, 20, 50)) * (0.5 + random.random())),
            aim=random.randrange(1 << 16),
            other=random.randrange(1 << 16),
            strength=random.random(),
        )
        for _ in range(random.choice((0, 3, 5, 7, 9)))
    )
