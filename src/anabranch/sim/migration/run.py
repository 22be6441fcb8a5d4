"""One schedule of a migration: a cluster, clients, an operator who changes a topic's kind, faults.

What: `run_migration` lets a plan's time go by with checks on, heals, and waits until the topic is
what the operator wanted last; then every producer must get records acknowledged once more, and
everything is read from the beginning. Rule kept: seed and code give the same run to the byte;
`digest` is over the whole trace. Not here: what is drawn (`plan.py`), what must hold (`checks.py`).
"""

from __future__ import annotations

import gc
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from anabranch.core.diskless.migration import phase_in
from anabranch.core.diskless.rows import LogKey
from anabranch.core.diskless.topics import DISKLESS as SETTING
from anabranch.core.diskless.topics import is_diskless
from anabranch.core.metadata.image import RESOURCE_TOPIC
from anabranch.core.types import TopicPartition
from anabranch.sim.checks.violation import Violation
from anabranch.sim.clients.workload import AUDITOR, Workload
from anabranch.sim.cluster import Cluster
from anabranch.sim.faults import Faults
from anabranch.sim.history import OK, History
from anabranch.sim.migration.checks import MigrationChecks
from anabranch.sim.migration.plan import (
    CANCEL,
    DELETE,
    DISKLESS,
    GROW,
    MIGRATE,
    TOPIC,
    MigrationPlan,
    Strike,
    draw_migration,
)
from anabranch.sim.plan_parts import SECOND_US, SETTLED_US, Alteration, Fault, Operation
from anabranch.sim.remote_faults import RemoteFaults
from anabranch.sim.repair import Repair
from anabranch.sim.schedule import BUG, LONGEST_START_US, sentence_of
from anabranch.sim.trace import Trace
from anabranch.sim.world import World

if TYPE_CHECKING:
    from anabranch.sim.clients.producer import Producer

LOOK_US = 20_000
"""Between two looks at the phase."""
ASK_AGAIN_MS = 1_000
LONGEST_REST_US = 150 * SECOND_US
AUDIT_US = 40 * SECOND_US
LAST_RECORDS = 2
CLASSIC, GONE = "classic", "gone"


@dataclass(frozen=True, slots=True)
class MigrationOutcome:
    """What became of a schedule. `kind` is what the topic is in the end."""

    seed: int
    violation: str
    sentence: str
    kind: str
    counts: dict[str, int]
    digest: str
    lines: tuple[str, ...]

    @property
    def ok(self) -> bool:
        """Whether nothing was violated."""
        return not self.violation


def run_migration(seed: int, *, keeps_trace: bool = False) -> MigrationOutcome:
    """Run the schedule of a seed."""
    collects = gc.isenabled()
    gc.disable()
    run = Run(draw_migration(seed), Trace(keeps=keeps_trace))
    try:
        return run.go()
    finally:
        run.world.listeners.clear()
        if collects:
            gc.enable()


class Run:
    """One plan being carried out."""

    def __init__(self, drawn: MigrationPlan, trace: Trace) -> None:
        self.drawn, self.trace = drawn, trace
        self.plan = plan = drawn.plan
        self.world = World(plan.seed)
        self.world.listeners.append(trace)
        racks = {n: f"rack-{n % plan.racks}" for n in range(1, plan.brokers + 1) if plan.racks}
        self.cluster = Cluster(
            self.world, plan.brokers, dict(plan.config), racks,
            is_diskless=True, has_remote_logs=True, has_tiering=True,
        )  # fmt: skip
        assert self.cluster.remotes is not None
        self.history = History()
        self.workload = Workload(self.cluster, plan, self.history)
        self.remote_faults = RemoteFaults(self.cluster, self.cluster.remotes)
        kinds = self.workload.faults() | self.remote_faults.table()
        self.faults = Faults(self.cluster, plan, kinds)
        self.healing = Repair(self.cluster, self.faults, self.workload)
        self.checks = MigrationChecks(
            self.cluster, self.history, AUDITOR, plan.topics[0].partitions
        )
        self.checks.renewing = frozenset(
            each.name for each in plan.clients if each.manner is not None and each.manner.renews_id
        )
        self.counts: Counter[str] = Counter()
        self._wanted = CLASSIC
        """The kind that the operator wanted last."""
        self._phase = CLASSIC
        self._strikes = list(drawn.strikes)

    def go(self) -> MigrationOutcome:
        """Run it all."""
        violation = sentence = ""
        try:
            self._settle()
            self._begin()
            self.world.run(self.plan.safety_us)
            self._rest()
            self._write_once_more()
            self._audit()
        except Violation as found:
            violation, sentence = found.id, str(found)
        except Exception as fault:
            violation, sentence = BUG, sentence_of(fault)
        if violation:
            self.world.note("violation", violation, sentence)
        self.counts.update(self.faults.happened)
        return MigrationOutcome(
            self.plan.seed, violation, sentence, self.kind, dict(self.counts), self.trace.digest,
            tuple(self.trace.lines),
        )  # fmt: skip

    def _settle(self) -> None:
        self.cluster.start()
        self.workload.topics.make()
        while self.world.now_us < SETTLED_US or not self.workload.topics.are_made:
            self.world.run(self.world.now_us + LOOK_US)
            if self.world.now_us > LONGEST_START_US:
                raise Violation("no-start", "A healthy cluster did not make its topic.", {})

    def _begin(self) -> None:
        self.workload.start()
        for send in self.drawn.sends:
            self.world.at(send.at_us, self._send, send)
        for action in self.drawn.actions:
            self.world.at(action.at_us, self._want, action.kind)
        self.faults.start()
        self._look()

    def _send(self, send: Operation) -> None:
        producer = self.workload.producers.get(send.client)
        if producer is not None and self.kind != GONE:
            producer.send(send.place, send.number)

    # The topic.

    @property
    def kind(self) -> str:
        """What the topic is by the committed metadata: a phase, or one of four words."""
        image = self.cluster.image
        if image.topic(TOPIC) is None:
            return GONE
        if is_diskless(image, TOPIC):
            return DISKLESS
        phase = phase_in(image.config(RESOURCE_TOPIC, TOPIC))
        return CLASSIC if phase is None else phase.step.value

    def _look(self) -> None:
        """Follow the phase, and strike where that was planned."""
        self.checks.look()
        kind = self.kind
        if kind != self._phase:
            self._phase = kind
            self.counts[kind] += 1
            self.world.note("phase", TOPIC, kind)
            due = [each for each in self._strikes if each.phase == kind]
            self._strikes = [each for each in self._strikes if each.phase != kind]
            for each in due:
                self.world.after(each.delay_us, self._strike, each)
        self.world.after(LOOK_US, self._look)

    def _strike(self, strike: Strike) -> None:
        if self.faults.are_over:
            return
        self.counts[f"{strike.phase}: {_name_of(strike)}"] += 1
        if isinstance(strike.what, Fault):
            self.faults.strike(strike.what)
        elif strike.what == GROW:
            self.workload.operator.add_partitions(TOPIC, self.plan.topics[0].partitions + 1)
        else:
            self._want(strike.what)

    def _want(self, kind: str) -> None:
        """The operator wants something, and asks until it is so, or wanted otherwise."""
        if self._wanted == GONE:
            return
        self._wanted = {MIGRATE: DISKLESS, CANCEL: CLASSIC, DELETE: GONE}[kind]
        self.world.note("operate", "operator", kind)
        self._ask(kind)

    def _ask(self, kind: str) -> None:
        wanted = {MIGRATE: DISKLESS, CANCEL: CLASSIC, DELETE: GONE}[kind]
        if self._wanted != wanted or self.kind in (wanted, GONE):
            return
        operator = self.workload.operator
        is_begun = self.kind not in (CLASSIC, DISKLESS)
        if kind == DELETE:
            topic = self.cluster.image.topic(TOPIC)
            if topic is not None:
                operator.delete_topic(topic.topic_id)
        elif not (kind == MIGRATE and is_begun) and not (kind == CANCEL and self.kind == DISKLESS):
            value = "true" if kind == MIGRATE else "false"
            operator.change(Alteration(0, TOPIC, SETTING, 0, value), _nothing)
        operator.later(ASK_AGAIN_MS, self._ask, kind)

    # The end.

    def _rest(self) -> None:
        """Heal, and wait until the topic is what was wanted last."""
        self.healing.begin()
        self.remote_faults.heal()
        deadline_us = self.world.now_us + LONGEST_REST_US
        while unrest := self._unrest():
            if self.world.now_us >= deadline_us:
                raise Violation("MG6", f"Healed, and not at rest: {unrest}", {"is": self.kind})
            self.world.run(self.world.now_us + SECOND_US // 2)
            self.healing.care()

    def _unrest(self) -> str:
        kind = self.kind
        if kind != self._wanted and not (self._wanted == CLASSIC and kind == DISKLESS):
            waits = {
                each.waits_for
                for node in self.cluster.nodes.values()
                for each in node.broker.partitions
                if each.is_leader and each.waits_for
            }
            return f"the topic is {kind}, not {self._wanted}; {sorted(waits)}"
        if kind != GONE and not self.workload.is_idle:
            return "a producer waits for an answer"
        return self.checks.left_over()

    def _write_once_more(self) -> None:
        """Every producer goes on where it was."""
        if self.kind == GONE:
            return
        begun = len(self.history.sends)
        for producer in self.workload.producers.values():
            for place in self.plan.places:
                producer.send(place, LAST_RECORDS)
        self._wait_for(self.workload.producers.values())
        lost = [each.id for each in self.history.sends[begun:] if each.outcome != OK]
        if lost:
            raise Violation("MG6", "A producer cannot write in the end.", {"records": lost[:3]})

    def _wait_for(self, producers: Any) -> None:
        deadline_us = self.world.now_us + LONGEST_REST_US
        waiting: list[Producer] = list(producers)
        while not all(each.is_idle for each in waiting) and self.world.now_us < deadline_us:
            self.world.run(self.world.now_us + SECOND_US // 10)

    def _audit(self) -> None:
        if self.kind == GONE:
            return
        self.workload.audit()
        deadline_us = self.world.now_us + AUDIT_US
        while behind := self._behind():
            if self.world.now_us >= deadline_us:
                raise Violation("MG1", f"Healed, and not everything can be read: {behind}", {})
            self.world.run(self.world.now_us + SECOND_US // 10)
        configs = dict(self.plan.topics[0].configs)
        self.checks.end(shortened=configs["retention.bytes"] != "-1")

    def _behind(self) -> str:
        for place in self.plan.places:
            read, end = self.workload.audited(place), self._end_of(place)
            if read < end:
                return f"{place} is read up to {read} of {end}"
        return ""

    def _end_of(self, place: TopicPartition) -> int:
        partition = self.cluster.image.partition(*place)
        topic = self.cluster.image.topic(place.topic)
        assert partition is not None and topic is not None and self.cluster.remotes is not None
        if self.kind == DISKLESS:
            key = LogKey(topic.topic_id, place.partition)
            (state,) = self.cluster.remotes.coordinator.tables.states([key])
            return 1 << 62 if state is None else state.high_watermark
        replica = self.cluster.nodes[partition.leader].broker.partitions.get(*place)
        return 1 << 62 if replica is None else replica.high_watermark


def _name_of(strike: Strike) -> str:
    return strike.what.kind if isinstance(strike.what, Fault) else strike.what


def _nothing(_answer: Any) -> None:
    return None
