"""Clients of both clusters: producers with and without transactions, and groups that read.

What: each call is one small thing that a client does. Rule kept: values are numbered in the order
in which they are written, so that a value tells what it is and where it belongs.
"""

from __future__ import annotations

from random import Random

from anabranch.core.wire.records import Record, build_batch
from anabranch.sim.mirror.checks import Checks
from anabranch.sim.mirror.cluster import Cluster, Session

GROUPS = ("readers", "writers")
MOST_RECORDS = 4
KEYS = 5


class Clients:
    """Everything that is not a mirror, on one cluster."""

    def __init__(self, cluster: Cluster, topics: list[str], random: Random, checks: Checks) -> None:
        self.cluster = cluster
        self.topics = topics
        self._random = random
        self._checks = checks
        self._written = 0
        self._open: dict[str, tuple[Session, list[bytes]]] = {}

    def produce(self) -> None:
        """A batch into some partition, perhaps as a part of a transaction."""
        random = self._random
        topic = random.choice(self.topics)
        place = topic, random.randrange(len(self.cluster.topics[topic].logs))
        values = [self._value() for _ in range(random.randrange(1, MOST_RECORDS + 1))]
        pairs = enumerate(values)
        keys = [b"k%d" % random.randrange(KEYS) for _ in values]
        batch = build_batch([Record(at, 1_000, keys[at], value) for at, value in pairs])
        if random.random() < 0.6:
            self.cluster.produce(None, place, batch)
            return
        name = f"app-{random.randrange(2)}"
        if name not in self._open:
            self._open[name] = self.cluster.init(name), []
        session, written = self._open[name]
        self.cluster.produce(session, place, batch)
        written += values

    def _value(self) -> bytes:
        self._written += 1
        return b"%s-%06d" % (self.cluster.alias.encode(), self._written)

    def end_one(self, *, commits: bool) -> None:
        """End a transaction, if there is one."""
        if self._open:
            name = self._random.choice(sorted(self._open))
            session, values = self._open.pop(name)
            self.cluster.end(session, commits=commits)
            if not commits:
                self._checks.aborted |= set(values)

    def end_all(self) -> None:
        """Commit what is open."""
        while self._open:
            self.end_one(commits=True)

    def commit_offset(self) -> None:
        """A group has read on, or goes back."""
        random, cluster = self._random, self.cluster
        group, topic = random.choice(GROUPS), random.choice(sorted(self.cluster.topics))
        place = topic, random.randrange(len(cluster.topics[topic].logs))
        log = cluster.log(place)
        known = cluster.groups.setdefault(group, {})
        before = known.get(place, 0)
        goes_back = random.random() < 0.15
        low, high = (log.start, before) if goes_back else (max(before, log.start), log.stable_end)
        if low <= high:
            known[place] = random.randrange(low, high + 1)
            if known[place] < before:
                self._checks.rewound.add((cluster.alias, group, place))

    def join_or_leave(self) -> None:
        """A group has members here, or no longer."""
        self.cluster.active ^= {self._random.choice(GROUPS)}
