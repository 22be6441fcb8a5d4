"""One schedule of mirrors: clusters, flows and faults of a seed, and what the checks say of it.

What: `run_mirror` draws a shape (one flow, two clusters that mirror each other, three in a ring),
lets clients, mirrors and faults take turns, heals, waits until every flow has caught up, and
compares. Rule kept: the seed decides everything.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from anabranch.sim.checks.violation import Violation
from anabranch.sim.mirror.checks import Checks
from anabranch.sim.mirror.clients import Clients
from anabranch.sim.mirror.cluster import Cluster
from anabranch.sim.mirror.direction import SimFlow
from anabranch.sim.mirror.flow import Driver, behind
from anabranch.sim.mirror.process import Process
from anabranch.sim.mirror.task import Work, attempt

SHAPES = {
    "one way": (("A", "B"),),
    "both ways": (("A", "B"), ("B", "A")),
    "ring": (("A", "B"), ("B", "C"), ("C", "A")),
}
TURNS = 900
MOST_TURNS_OF_REST = 20_000
LOOK_TURNS = 200
LONGEST_SLEEP = 400
MIRROR = "-mm2-"
TOPICS = ("orders", "payments")
MOST_TOPICS = 20
"""Of a cluster of a ring of three, with what mirrors keep: more would be a topic in a circle."""


@dataclass(frozen=True)
class MirrorOutcome:
    """What became of a schedule."""

    seed: int
    shape: str
    is_exactly_once: bool
    violation: str
    sentence: str
    counts: dict[str, int]
    lines: tuple[str, ...]

    @property
    def ok(self) -> bool:
        """Nothing was violated."""
        return not self.violation


def run_mirror(seed: int) -> MirrorOutcome:
    """Run the schedule of a seed."""
    return Schedule(seed).go()


class Schedule:
    """The state of one schedule."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.random = random = Random(f"mirror/{seed}")
        self.shape = random.choice(sorted(SHAPES))
        self.is_exactly_once = random.random() < 0.7
        self.checks = Checks()
        self.lines: list[str] = []
        pairs = SHAPES[self.shape]
        self.clusters = {
            alias: Cluster(alias, random)
            for alias in sorted({alias for pair in pairs for alias in pair})
        }
        self.clients = []
        for cluster in self.clusters.values():
            for topic in TOPICS:
                cluster.create(topic, random.randrange(1, 4))
            self.clients.append(Clients(cluster, list(TOPICS), random, self.checks))
        self.flows = [
            SimFlow(
                self.clusters[source], self.clusters[target], random,
                is_exactly_once=self.is_exactly_once,
            )
            for source, target in pairs
        ]  # fmt: skip
        self.drivers: dict[str, tuple[Driver, Process]] = {}
        self.attempts: list[Process] = []
        self.heals = False
        self._open: set[tuple[str, str, int, int]] = set()
        """Transactions: (cluster, id, epoch, an offset)."""
        self._faults = self._drawn_faults()

    def go(self) -> MirrorOutcome:
        """Run it all."""
        violation = sentence = ""
        try:
            for flow in self.flows:
                self._drive(flow)
            for _ in range(TURNS):
                self._turn()
            self._rest()
            for flow in self.flows:
                self.checks.compare(flow)
            self._check_circles()
        except Violation as found:
            violation, sentence = found.id, str(found)
            self.lines.append(sentence)
        return MirrorOutcome(
            self.seed, self.shape, self.is_exactly_once, violation, sentence,
            dict(self.checks.counts), tuple(self.lines),
        )  # fmt: skip

    # Processes.

    def _drive(self, flow: SimFlow) -> None:
        driver = Driver(flow, self.checks, self._start)
        self.drivers[flow.name] = driver, Process(f"driver {flow.name}", driver.run())

    def _start(self, work: Work) -> Callable[[], bool]:
        first = self._attempt(work, "")
        if self.is_exactly_once and not self.heals and self.random.random() < 0.15:
            second = self._attempt(work, " again")
            second.asleep = self.random.randrange(LONGEST_SLEEP)
        return lambda: first.is_over

    def _attempt(self, work: Work, more: str) -> Process:
        process = Process(f"{work.flow.name} slot {work.slot}{more}", attempt(work))
        self.attempts.append(process)
        return process

    def _processes(self) -> list[Process]:
        self.attempts = [each for each in self.attempts if not each.is_over]
        return [*self.attempts, *(process for _, process in self.drivers.values())]

    # Turns.

    def _turn(self) -> None:
        kind = self.random.choices([*self._faults], [*self._faults.values()])[0]
        kind()

    def _drawn_faults(self) -> dict[Callable[[], None], float]:
        """What may happen, and how often; each kind of fault is in some schedules only."""
        random = self.random
        often: dict[Callable[[], None], float] = {
            self._step: 30.0, self._produce: 4.0, self._end_transaction: 1.5,
            self._commit_offset: 1.5,
        }  # fmt: skip
        faults: dict[Callable[[], None], float] = {
            self._crash: 1.0, self._trouble: 1.0, self._sleep: 0.6, self._crash_driver: 0.25,
            self._change_slots: 0.2, self._elect: 0.4, self._lose_end: 0.25, self._retain: 0.3,
            self._compact: 0.5, self._compact_source: 0.2, self._grow: 0.08, self._members: 0.4,
            self._expire: 0.3, self._make_again: 0.06, self._make_target_again: 0.05,
        }  # fmt: skip
        if self.shape == "ring":  # what is made again there is mirrored on, and is there twice
            del faults[self._make_target_again]
        return often | {each: rate for each, rate in faults.items() if random.random() < 0.6}

    def _note(self, line: str) -> None:
        self.lines.append(line)
        self.checks.counts[line.partition(" ")[0]] += 1

    def _step(self) -> None:
        self.random.choice(self._processes()).go_on()

    def _produce(self) -> None:
        self.random.choice(self.clients).produce()

    def _end_transaction(self) -> None:
        self.random.choice(self.clients).end_one(commits=self.random.random() < 0.6)

    def _commit_offset(self) -> None:
        self.random.choice(self.clients).commit_offset()

    def _members(self) -> None:
        self.random.choice(self.clients).join_or_leave()

    def _crash(self) -> None:
        if self.attempts:
            process = self.random.choice(self.attempts)
            self._note(f"crash of {process.name}")
            process.end()

    def _trouble(self) -> None:
        process = self.random.choice(self._processes())
        if not process.is_over and not process.asleep:
            self._note(f"trouble of {process.name}")
            process.fail()

    def _sleep(self) -> None:
        process = self.random.choice(self._processes())
        self._note(f"sleep of {process.name}")
        process.asleep = self.random.randrange(LONGEST_SLEEP // 20)

    def _crash_driver(self) -> None:
        """Its attempts may go on for a while; without transactions that would be told."""
        flow = self.random.choice(self.flows)
        self._note(f"driver-crash of {flow.name}")
        for each in self.attempts if not self.is_exactly_once else ():
            if each.name.startswith(flow.name):
                each.end()
        self.drivers[flow.name][1].end()
        self._drive(flow)

    def _change_slots(self) -> None:
        flow = self.random.choice(self.flows)
        flow.slots = self.random.randrange(1, 5)
        self._note(f"slots of {flow.name}: {flow.slots}")

    def _place(self) -> tuple[Cluster, tuple[str, int]]:
        cluster = self.random.choice([*self.clusters.values()])
        topic = self.random.choice(TOPICS)
        return cluster, (topic, self.random.randrange(len(cluster.topics[topic].logs)))

    def _elect(self) -> None:
        cluster, _ = self._place()
        topic = self.random.choice(sorted(cluster.topics))
        self._note(f"election of {topic} on {cluster.alias}")
        for log in cluster.topics[topic].logs:
            log.elect()

    def _lose_end(self) -> None:
        cluster, place = self._place()
        log = cluster.log(place)
        self._note(f"unclean-election of {place} on {cluster.alias}")
        log.lose_end(log.end - self.random.randrange(8))

    def _retain(self) -> None:
        cluster = self.random.choice([*self.clusters.values()])
        names = sorted(name for name, each in cluster.topics.items() if not each.is_compacted)
        topic = self.random.choice(names)
        log = self.random.choice(cluster.topics[topic].logs)
        log.delete_before(self.random.randrange(log.start, log.end + 1))
        self._note(f"retention of {topic} on {cluster.alias}")

    def _compact(self) -> None:
        cluster = self.random.choice([*self.clusters.values()])
        self._note(f"compaction on {cluster.alias}")
        cluster.compact(lambda: self.random.random() < 0.5)

    def _compact_source(self) -> None:
        cluster, place = self._place()
        self._note(f"compaction-of-source of {place} on {cluster.alias}")
        cluster.log(place).compact(lambda: True)

    def _expire(self) -> None:
        """Transactions that are open for long are ended by their coordinator."""
        flow = self.random.choice(self.flows)
        ids = [name for name, each in flow.target.producers.items() if each.logs and MIRROR in name]
        if ids:
            self._note(f"transaction-timeout on {flow.target.alias}")
            flow.target.expire(self.random.choice(ids))

    def _grow(self) -> None:
        cluster, (topic, _) = self._place()
        self._note(f"growth of {topic} on {cluster.alias}")
        cluster.create(topic, len(cluster.topics[topic].logs) + 1)

    def _make_again(self) -> None:
        cluster, (topic, _) = self._place()
        logs = cluster.topics[topic].logs
        if any(log.open or (log.end and not log.records()) for log in logs):
            return  # a position without an index does not tell of which topic it is
        self._note(f"made-again {topic} on {cluster.alias}")
        self._made_again(cluster, topic)

    def _make_target_again(self) -> None:
        flow = self.random.choice(self.flows)
        names = sorted(set(flow.wanted()) & set(flow.target.topics))
        if names:
            name = self.random.choice(names)
            self._note(f"target-made-again {name} on {flow.target.alias}")
            for each in self.attempts:  # a producer goes by the name, and would write on
                if each.name.startswith(flow.name):
                    each.end()
            self._made_again(flow.target, name)

    def _made_again(self, cluster: Cluster, topic: str) -> None:
        partitions = len(cluster.topics.pop(topic).logs)
        cluster.create(topic, partitions)
        for groups in cluster.groups.values():
            for place in [each for each in groups if each[0] == topic]:
                del groups[place]
        for flow in self.flows:
            remote = flow.policy.remote_topic(topic)
            if flow.source is cluster:
                self.checks.forget(flow, remote)
            if flow.target is cluster:
                self.checks.forget(flow, topic)

    # The end.

    def _rest(self) -> None:
        """No more faults: who sleeps goes on, and every flow catches up."""
        self.heals = True
        for clients in self.clients:
            clients.end_all()
        for process in self._processes():
            process.asleep = 0
        for turn in range(MOST_TURNS_OF_REST):
            processes = self._processes()
            if not turn % LOOK_TURNS:
                self._expire_all()
                if not self._behind():
                    return
            self.random.choice(processes).go_on()
        raise Violation("liveness", f"Healed, and {self._behind()}", {})

    def _expire_all(self) -> None:
        """End the transactions that were open at the last look already."""
        found = set()
        for cluster in self.clusters.values():
            for name, each in cluster.producers.items():
                if each.logs and MIRROR in name:
                    found.add(
                        (cluster.alias, name, each.epoch, each.logs[0].open[each.producer_id])
                    )
        for alias, name, _, _ in found & self._open:
            self.clusters[alias].expire(name)
        self._open = found

    def _behind(self) -> str:
        for flow in self.flows:
            if missing := behind(flow):
                return missing
        return ""

    def _check_circles(self) -> None:
        for cluster in self.clusters.values():
            for topic in cluster.topics:
                hops = Counter(topic.split(".")[:-1])
                internal = self.flows[0].policy.is_internal(topic)
                if not internal and (hops[cluster.alias] or any(n > 1 for n in hops.values())):
                    raise Violation("circle", f"{topic} is mirrored in a circle.", {})
            if len(cluster.topics) > MOST_TOPICS:
                raise Violation("circle", f"{cluster.alias} has too many topics.", {})
