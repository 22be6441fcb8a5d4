"""What a run will do, drawn from its seed: settings, and rounds of faults.

What: a round is some seconds of faults that overlap as they like; after it everything is healed and
the cluster has to become whole, so that a run also shows that it always does. Rule kept: a round is
drawn from seed, part and number alone, so that the same seed gives the same faults at the same
times. What they meet is real processes, hence no two runs are equal: repeating a seed repeats the
attempt. Why kinds are drawn by family first: many rounds have no fault of a family at all, which
lets others be seen alone. Not here: carrying them out (`faults`).
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from random import Random

FAMILIES: dict[str, tuple[str, ...]] = {
    "kills": (
        "kill", "kill-leader", "kill-leader", "kill-controller", "kill-two", "kill-all", "flap",
    ),
    "pauses": ("pause", "pause-leader", "pause-leader", "pause-controller", "pause-all"),
    "stops": ("stop", "stop-leader", "stop-controller", "roll"),
    "links": (
        "cut", "cut-leader", "cut-leader", "cut-controller", "cut-pair", "cut-one-way", "delay",
    ),
    "wires": (
        "part", "part-leader", "part-leader", "part-controller", "part-pair", "part-one-way",
        "part-store", "part-clients",
    ),
    "disks": ("slow-disk", "slow-disk", "full-disk", "no-room", "no-room"),
    "store": ("steal-lease", "hold-store", "end-store", "crash-store"),
    "diskless": (
        "objects-away", "objects-slow", "objects-cut", "objects-full", "part-objects",
        "hold-coordinator", "kill-between", "outlive-lease",
    ),
    "transactions": ("kill-transactions", "flap-transactions", "pause-transactions"),
    "streams": ("kill-streams", "kill-streams", "pause-streams"),
    "moves": ("move",),
    "topics": ("recreate",),
    "settings": ("alter",),
    "rest": ("elect-preferred", "clock-jump", "kill-client", "pause-client"),
}  # fmt: skip
"""Family -> its kinds; a kind that stands twice is drawn twice as often."""

APART = "settings"
"""The family that is drawn by itself, beside those of a round."""
SHORT_S, LONG_S = 12.0, 25.0
"""How long the faults of a round may go on beginning."""
MOST_FAULTS = 7
LONGEST_S: dict[str, float] = {
    "pause": 14.0, "pause-leader": 14.0, "pause-controller": 10.0, "pause-all": 8.0,
    "cut": 14.0, "cut-leader": 14.0, "cut-controller": 10.0, "cut-pair": 14.0, "cut-one-way": 14.0,
    "slow-disk": 12.0, "full-disk": 8.0, "delay": 12.0,
    "part": 14.0, "part-leader": 14.0, "part-controller": 10.0, "part-pair": 14.0,
    "part-one-way": 14.0, "part-store": 10.0, "part-clients": 10.0, "no-room": 10.0,
    "flap-transactions": 14.0, "pause-transactions": 14.0, "pause-streams": 20.0,
    "kill-all": 2.0, "flap": 1.5, "end-store": 8.0, "crash-store": 4.0, "hold-store": 8.0,
    "objects-away": 10.0, "objects-slow": 14.0, "objects-cut": 14.0, "objects-full": 10.0,
    "part-objects": 14.0, "hold-coordinator": 8.0, "kill-between": 4.0,
    "move": 12.0, "recreate": 3.0, "alter": 14.0,
}  # fmt: skip
USUAL_S = 6.0


@dataclass(frozen=True, slots=True)
class Fault:
    """Something that goes wrong `at_s` after its round began. `aim` and `other` choose whom,
    `strength` how bad, each from 0 to 1."""

    at_s: float
    kind: str
    lasts_s: float
    aim: float
    other: float
    strength: float


def draw_config(seed: int, part: int) -> dict[str, object]:
    """Settings of all brokers in one part of a run, beside those that every run has."""
    random = Random(f"{seed}/{part}/config")
    session_ms = random.choice((9_000, 3_000, 3_000))
    return {
        "broker.session.timeout.ms": session_ms,
        "broker.heartbeat.interval.ms": min(2_000, session_ms // 6),
        "replica.lag.time.max.ms": random.choice((30_000, 5_000, 2_000)),
        "num.replica.fetchers": random.choice((1, 1, 2)),
        "leader.imbalance.check.interval.seconds": random.choice((300, 10)),
        "log.cleaner.backoff.ms": random.choice((200, 200, 15_000)),
        "diskless.fetch.cache.max.bytes": random.choice((128 << 20, 1 << 20)),
        "diskless.produce.buffer.max.bytes": random.choice((8 << 20, 8 << 20, 64 << 10)),
    }


def draw_round(seed: int, part: int, number: int, kinds: Collection[str]) -> list[Fault]:
    """The faults of a round, of these kinds, in the order in which they begin."""
    random = Random(f"{seed}/{part}/round/{number}")
    families = [name for name, each in FAMILIES.items() if name != APART and set(each) & set(kinds)]
    chosen = random.sample(families, random.randint(1, min(3, len(families))))
    possible = [kind for name in chosen for kind in FAMILIES[name] if kind in kinds]
    span_s = random.uniform(SHORT_S, LONG_S)
    faults = [_fault(random, random.choice(possible), span_s) for _ in range(_count(random))]
    faults += _altered(Random(f"{seed}/{part}/settings/{number}"), kinds, span_s)
    return sorted(faults, key=lambda fault: fault.at_s)


def _altered(random: Random, kinds: Collection[str], span_s: float) -> list[Fault]:
    """What is altered of settings in half of the rounds, from a stream of its own."""
    possible = [kind for kind in FAMILIES[APART] if kind in kinds]
    if not possible or random.random() < 0.5:
        return []
    return [_fault(random, random.choice(possible), span_s) for _ in range(random.randint(1, 3))]


def _count(random: Random) -> int:
    return random.randint(2, MOST_FAULTS)


def _fault(random: Random, kind: str, span_s: float) -> Fault:
    longest_s = LONGEST_S.get(kind, USUAL_S)
    short = random.random() < 0.5
    return Fault(
        at_s=random.uniform(0, span_s),
        kind=kind,
        lasts_s=random.uniform(0, longest_s / 6 if short else longest_s),
        aim=random.random(),
        other=random.random(),
        strength=random.random(),
    )
