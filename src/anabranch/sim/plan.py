"""What a schedule will do, drawn from its seed before anything happens.

What: a `Plan` says how large the cluster is, how it is set, which topics and clients there are,
which operations clients are given when, and which faults happen when. Options are drawn seed by
seed (swarm): many plans leave whole families of faults out, so that the others are not hidden.

Rule kept: everything is drawn up front, so that a plan with a fault or an operation left out is the
same plan for the rest; that is what makes shrinking work. Source: TigerBeetle's VOPR, swarm testing
(Groce and others, 2012). Not here: carrying it out (schedule.py, faults.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random

from anabranch.core.partition.protocol import ACKS_ALL
from anabranch.core.types import EARLIEST, LATEST, TopicPartition
from anabranch.sim.clients.client import Patience
from anabranch.sim.clients.fetcher import ReadOptions
from anabranch.sim.clients.member import Membership
from anabranch.sim.clients.producer import Manner
from anabranch.sim.plan_parts import (
    SAFETY_US,
    SECOND_US,
    SETTLED_US,
    Alteration,
    ClientPlan,
    DisklessPlan,
    Fault,
    OffsetPlan,
    Operation,
    RemotePlan,
    RightsChange,
    TokenChange,
    TopicPlan,
    TransactionPlan,
)

LONG_COMMIT_MS = 30_000
"""Within it a frozen broker is let go on: real clients wait for an answer as long, or longer."""
EVERY, OF_EACH = 8, 3
"""Of each eight seeds, the one whose brokers have several folders, which fill up and fail."""
LEAST_OPERATIONS = 200
LEAST_FAULTS = 5
BY_NAME = "other-version"
"""The fault after which a broker speaks versions that name a topic by its name alone."""
SEEDS_OF_PLANS = 10**9
"""Seeds that differ by a multiple of it have the same plan, with other chance in the rest."""

FAULTS: dict[str, tuple[str, ...]] = {
    "network": (
        "loss", "delay", "reorder", "duplicate", "cut", "isolate", "split", "swizzle",
        "client-cut", "store-cut",
    ),
    "disks": ("disk-slow", "disk-fail", "disk-full", "bit-flip", "wipe"),
    "processes": (
        "crash", "crash", "power", "pause", "slow-restart", "shutdown", "roll", "crash-all",
        "power-all", "controller-crash", "leader-crash", "leader-pause",
        "other-version",
    ),
    "folders": ("folder-full", "folder-full", "folder-fails"),
    "store": ("lease-lost", "store-slow", "store-unknown", "store-away", "store-stale"),
    "lease": (
        "suspend", "suspend", "clock-jump", "clock-drift", "controller-pause", "store-late",
        "store-late", "store-back",
    ),
    "metadata": (
        "metadata-snapshot", "metadata-snapshot", "metadata-disk-fail", "metadata-disk-full",
    ),
    "clients": ("client-dies", "member-leaves", "member-joins", "storm", "client-pause"),
    "registration": ("twin", "older-copy", "unreachable", "folders-fail", "shutdown-interrupted"),
}  # fmt: skip
"""Family -> the kinds of faults in it; a kind that stands twice is drawn twice as often."""
LEASE = "lease"
"""The family that is drawn by itself, for some seeds: it needs faults that overlap."""
APART = frozenset({"folders", "metadata", "registration", LEASE})
"""Families with draws of their own, beside those of the others."""
LEASE_SEEDS = 7
"""Faults of the lease are drawn for seeds with this remainder by eight; folders have another."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything a schedule will do."""

    seed: int
    brokers: int
    racks: int
    folders: int
    elr: bool
    """Whether eligible leader replicas are kept (KIP-966)."""
    wire: bool
    config: tuple[tuple[str, str], ...]
    topics: tuple[TopicPlan, ...]
    clients: tuple[ClientPlan, ...]
    operations: tuple[Operation, ...]
    faults: tuple[Fault, ...]
    safety_us: int = SAFETY_US
    diskless: DisklessPlan | None = None
    """What it has of diskless topics."""
    offsets: OffsetPlan | None = None
    """What it has of committed offsets that expire."""
    transactions: TransactionPlan | None = None
    """What it does with transactions."""
    alterations: tuple[Alteration, ...] = ()
    """Settings that are altered."""
    rights: tuple[RightsChange, ...] = ()
    """What changes of access rules, credentials and quotas."""
    tokens: tuple[TokenChange, ...] = ()
    """What is asked about delegation tokens."""
    wall_skews: tuple[int, ...] = ()
    """By how many ms the clocks of the day of the nodes are ahead, where some are wrong."""
    remote: RemotePlan | None = None
    """What it has of remote logs."""

    @property
    def places(self) -> list[TopicPartition]:
        """Every partition that clients use, in order, those that are added later too."""
        return [
            TopicPartition(topic.name, index)
            for topic in self.topics
            for index in range(topic.partitions + topic.added)
        ]

    @property
    def compacted(self) -> frozenset[str]:
        """The topics whose records need keys."""
        return frozenset(topic.name for topic in self.topics if topic.is_compacted)

    def counts(self, operations: int, faults: int) -> bool:
        """Whether a schedule that did so much counts as one."""
        return (
            self.brokers >= 3
            and operations >= LEAST_OPERATIONS
            and faults >= LEAST_FAULTS
            and self.safety_us >= SAFETY_US
        )


def plain_plan(seed: int) -> Plan:
    """The plan of a seed without what `life.py` adds: always the same one."""
    random = Random(f"{seed}/plan")
    brokers = random.choice((3, 3, 3, 3, 3, 3, 4, 5))
    topics = _topics(random, brokers)
    places = [TopicPartition(topic.name, n) for topic in topics for n in range(topic.partitions)]
    clients = _with_patience(_clients(random), Random(f"{seed}/commits"))
    folders = Random(f"{seed}/folders")
    has_several = seed % EVERY == OF_EACH
    return Plan(
        seed=seed,
        brokers=brokers,
        racks=random.choice((0, 0, 2, 3)),
        folders=_folders(random, folders, has_several=has_several),
        elr=random.random() < 0.75,
        wire=random.random() < 0.05,
        config=tuple(sorted(_config(random).items())),
        topics=topics,
        clients=clients,
        operations=_operations(random, clients, places),
        faults=_with_lease_faults(
            _with_folders(_faults(random), folders if has_several else None), seed
        ),
    )


def _config(random: Random) -> dict[str, str]:
    heartbeat_ms = random.choice((1_000, 2_000, 2_000))
    session_ms = random.choice((3_000, 6_000, 9_000))
    fetch_wait_ms = random.choice((500, 1_000, 2_000, 2_000, 2_000))
    config = {
        "broker.heartbeat.interval.ms": heartbeat_ms,
        "broker.session.timeout.ms": session_ms,
        "replica.lag.time.max.ms": fetch_wait_ms + random.choice((1_000, 2_000, 4_000, 8_000)),
        "replica.fetch.wait.max.ms": fetch_wait_ms,
        "replica.fetch.backoff.ms": random.choice((100, 300, 1_000)),
        "replica.fetch.max.bytes": random.choice((300, 1_000, 1_048_576, 1_048_576)),
        "replica.socket.timeout.ms": random.choice((2_000, 5_000)),
        "replica.high.watermark.checkpoint.interval.ms": random.choice((1_000, 5_000)),
        "num.replica.fetchers": random.choice((1, 1, 1, 2)),
        "leader.imbalance.check.interval.seconds": random.choice((5, 30, 300)),
        "auto.leader.rebalance.enable": random.choice(("true", "true", "false")),
        "controlled.shutdown.enable": "true",
        "offsets.topic.num.partitions": random.choice((1, 2)),
        "offsets.topic.replication.factor": 3,
        "group.initial.rebalance.delay.ms": random.choice((0, 500)),
    }
    return {name: str(value) for name, value in config.items()}


def _topics(random: Random, brokers: int) -> tuple[TopicPlan, ...]:
    topics = []
    for number in range(random.choice((1, 1, 2))):
        factor = random.choice((3, 3, 3, min(4, brokers), 2))
        configs = {
            "min.insync.replicas": str(random.choice((1, 2, 2, 2))),
            "unclean.leader.election.enable": random.choice(("false", "false", "true")),
        }
        if random.random() < 0.25:
            configs["flush.messages"] = "1"
        topics.append(
            TopicPlan(
                name=f"topic-{number}",
                partitions=random.choice((1, 2, 3)),
                replication_factor=factor,
                configs=tuple(sorted(configs.items())),
            )
        )
    return tuple(topics)


def _patience(random: Random) -> Patience:
    return Patience(
        request_timeout_ms=random.choice((300, 1_000, 2_000)),
        retry_backoff_ms=random.choice((30, 100, 300)),
        most_backoff_ms=random.choice((500, 1_000)),
        delivery_timeout_ms=random.choice((3_000, 8_000, 20_000, 40_000)),
    )


def _clients(random: Random) -> tuple[ClientPlan, ...]:
    clients = [_producer(random, number) for number in range(random.choice((2, 2, 3)))]
    clients += [_reader(random, number) for number in range(random.choice((1, 1, 2)))]
    if random.random() < 0.6:
        clients += [_member(random, number) for number in range(random.choice((1, 2, 2, 3)))]
    return tuple(clients)


def _producer(random: Random, number: int) -> ClientPlan:
    if number == 0 or random.random() < 0.5:
        manner = Manner(
            in_flight=random.choice((1, 5, 5)),
            server_timeout_ms=random.choice((300, 1_500, 5_000)),
            renews_id=random.random() < 0.5,
        )
    else:
        manner = Manner(
            acks=random.choice((0, 1, 1, ACKS_ALL)),
            idempotent=False,
            in_flight=random.choice((1, 5)),
            retries=random.random() < 0.7,
            server_timeout_ms=random.choice((300, 1_500)),
        )
    versions = ((0, random.choice((9, 12, 13))),)
    return ClientPlan(f"producer-{number}", _patience(random), manner=manner, versions=versions)


def _reading(random: Random) -> ReadOptions:
    lags = random.random() < 0.3
    return ReadOptions(
        isolation=random.choice((0, 1)),
        max_wait_ms=random.choice((500, 2_000, 4_000)),
        max_bytes=random.choice((200, 1_000)) if lags else 1 << 20,
        pause_ms=random.choice((1_500, 4_000)) if lags else random.choice((300, 1_000, 2_000)),
        any_replica=random.random() < 0.4,
        sessions=random.random() < 0.4,
        start=random.choice((EARLIEST, EARLIEST, LATEST)),
    )


def _reader(random: Random, number: int) -> ClientPlan:
    versions = ((1, random.choice((11, 12, 16, 17))),)
    begins_us = SETTLED_US + random.choice((0, 0, 20, 40)) * SECOND_US
    return ClientPlan(
        f"reader-{number}",
        _patience(random),
        reading=_reading(random),
        versions=versions,
        begins_us=begins_us,
    )


def _member(random: Random, number: int) -> ClientPlan:
    membership = Membership(
        group="group",
        instance_id=f"static-{number}" if random.random() < 0.2 else None,
        session_timeout_ms=random.choice((6_000, 10_000)),
        rebalance_timeout_ms=random.choice((3_000, 8_000)),
        heartbeat_ms=random.choice((1_000, 2_000)),
        commit_ms=random.choice((2_000, 4_000, 6_000)),
    )
    reading = ReadOptions(pause_ms=random.choice((300, 1_000, 2_000)), max_wait_ms=1_500)
    begins_us = SETTLED_US + random.randrange(8) * SECOND_US
    return ClientPlan(
        f"member-{number}",
        _patience(random),
        reading=reading,
        membership=membership,
        begins_us=begins_us,
    )


def _with_patience(clients: tuple[ClientPlan, ...], random: Random) -> tuple[ClientPlan, ...]:
    """Some members hear of a commit also when their coordinator was frozen for long."""
    return tuple(
        plan
        if plan.membership is None
        else replace(
            plan,
            membership=replace(
                plan.membership, commit_timeout_ms=random.choice((0, LONG_COMMIT_MS))
            ),
        )
        for plan in clients
    )


_ADMIN = (
    "elect-preferred", "elect-unclean", "min-isr", "unclean", "delete", "describe", "create",
    "observe", "observe",
)  # fmt: skip


def _operations(
    random: Random, clients: tuple[ClientPlan, ...], places: list[TopicPartition]
) -> tuple[Operation, ...]:
    producers = [client.name for client in clients if client.manner is not None]
    operations = []
    for _ in range(random.randrange(195, 210)):
        at_us = random.randrange(SETTLED_US, SAFETY_US)
        if random.random() < 0.6:  # bursts: some seconds are popular
            at_us -= at_us % (3 * SECOND_US)
            at_us = max(at_us, SETTLED_US)
        producer, place = random.choice(producers), random.choice(places)
        count = random.choice((1, 1, 1, 2, 3))
        operations.append(Operation(at_us, "send", producer, place, count))
    for _ in range(random.randrange(12)):
        at_us = random.randrange(SETTLED_US, SAFETY_US)
        kind, place = random.choice(_ADMIN), random.choice(places)
        operations.append(Operation(at_us, kind, "operator", place, random.randrange(100)))
    return tuple(sorted(operations, key=lambda operation: operation.at_us))


def _faults(random: Random) -> tuple[Fault, ...]:
    kinds = [
        kind
        for name, family in FAULTS.items()
        if name not in APART and random.random() < 0.6
        for kind in family
        if random.random() < 0.8
    ]
    if not kinds:
        kinds = [*FAULTS["processes"], *FAULTS["network"]]
    faults = []
    for _ in range(random.randrange(LEAST_FAULTS + 1, 16)):
        faults.append(draw_fault(random, kinds))
    return tuple(sorted(faults, key=lambda fault: fault.at_us))


def draw_fault(random: Random, kinds: Sequence[str]) -> Fault:
    """One fault of these kinds, at any time of the safety phase."""
    return Fault(
        at_us=random.randrange(SETTLED_US, SAFETY_US - SECOND_US),
        kind=random.choice(kinds),
        lasts_us=int(SECOND_US * random.choice((0.3, 1, 3, 8, 15)) * (0.5 + random.random())),
        aim=random.randrange(1 << 16),
        other=random.randrange(1 << 16),
        strength=random.random(),
    )


def _folders(random: Random, folders: Random, *, has_several: bool) -> int:
    """How many log folders each broker has."""
    drawn: int = random.choice((1, 1, 1, 2))
    return folders.choice((2, 2, 3)) if has_several else drawn


def _with_folders(faults: tuple[Fault, ...], folders: Random | None) -> tuple[Fault, ...]:
    """Where brokers have several folders on purpose, single ones fill up and fail."""
    if folders is None:
        return faults
    more = [draw_fault(folders, FAULTS["folders"]) for _ in range(folders.randrange(2, 6))]
    return tuple(sorted((*faults, *more), key=lambda fault: fault.at_us))


def _with_lease_faults(faults: tuple[Fault, ...], seed: int) -> tuple[Fault, ...]:
    """For some seeds a few faults more, of the lease, that overlap each other."""
    if seed % 8 != LEASE_SEEDS:
        return faults
    random = Random(f"{seed}/lease")
    more = []
    for _ in range(random.randrange(1, 4)):
        begin_us = random.randrange(SETTLED_US, SAFETY_US - 10 * SECOND_US)
        for _ in range(random.choice((1, 2, 3))):
            more.append(
                Fault(
                    at_us=begin_us + random.randrange(2 * SECOND_US),
                    kind=random.choice(FAULTS[LEASE]),
                    lasts_us=int(
                        SECOND_US * random.choice((1, 3, 7, 12)) * (0.7 + random.random())
                    ),
                    aim=random.randrange(1 << 16),
                    other=random.randrange(1 << 16),
                    strength=random.random(),
                )
            )
    return tuple(sorted((*faults, *more), key=lambda fault: fault.at_us))
