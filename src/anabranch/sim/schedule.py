"""One schedule: a cluster, clients and faults from a seed; safety first, then liveness.

What: `run_schedule` builds the cluster of a plan, makes its topics, starts clients and faults, and
lets sixty virtual seconds go by with all checks on (safety). Then everything is healed, no new
faults begin, and the cluster has to come to rest: every produce answered, every replica in sync,
every group stable (liveness). At the end the history of all clients is judged.

Rule kept: seed and code give the same run to the byte; `Outcome.digest` is over the whole trace. A
schedule counts only with three brokers, 200 client operations and 5 faults. Source: TigerBeetle's
VOPR. Not here: what is checked (checks/), what is drawn (plan.py).
"""

from __future__ import annotations

import gc
import traceback
from dataclasses import dataclass, field

from anabranch.sim.checks.suite import Suite
from anabranch.sim.checks.violation import Violation
from anabranch.sim.clients.rights_workload import RightsWorkload
from anabranch.sim.clients.token_workload import TokenWorkload
from anabranch.sim.clients.workload import Workload
from anabranch.sim.cluster import Cluster
from anabranch.sim.diskless_run import DisklessRun
from anabranch.sim.faults import Faults
from anabranch.sim.history import History
from anabranch.sim.life import draw_plan
from anabranch.sim.offset_run import OffsetRun
from anabranch.sim.plan import Plan
from anabranch.sim.plan_parts import SECOND_US, SETTLED_US
from anabranch.sim.remote_run import RemoteRun
from anabranch.sim.repair import Repair
from anabranch.sim.trace import Trace
from anabranch.sim.transaction_run import TransactionRun
from anabranch.sim.world import World

LONGEST_START_US = 60 * SECOND_US
LONGEST_REST_US = 120 * SECOND_US
"""A healed cluster that is not at rest by then never will be."""
LOOK_US = SECOND_US // 2
AUDIT_US = 40 * SECOND_US
"""A broker's question that the network lost is asked again after `request.timeout.ms`, 30 s."""
ELR_FEATURE = "eligible.leader.replicas.version"
TRANSACTION_FEATURE = "transaction.version"
BUG = "exception"
"""The id of a violation that is an exception out of core or of the world."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a schedule. `violation` and `sentence` are "" when it was clean."""

    seed: int
    violation: str
    sentence: str
    counts: bool
    """Whether it was long and hard enough to count."""
    operations: int
    faults: int
    virtual_us: int
    events: int
    digest: str
    marks: dict[str, int] = field(default_factory=dict)
    losses: dict[str, int] = field(default_factory=dict)
    """Records lost by rules that allow it, by rule."""
    lines: tuple[str, ...] = ()
    """The trace, when it was asked for."""

    @property
    def ok(self) -> bool:
        """Whether nothing was violated."""
        return not self.violation


def run_schedule(seed: int, *, keeps_trace: bool = False) -> Outcome:
    """Run the schedule of a seed."""
    return run_plan(draw_plan(seed), keeps_trace=keeps_trace)


def run_plan(plan: Plan, *, keeps_trace: bool = False) -> Outcome:
    """Run a plan, as it was drawn or with parts left out."""
    collects = gc.isenabled()
    gc.disable()  # the world is one knot: it is let go whole, at the end
    run = Run(plan, Trace(keeps=keeps_trace))
    try:
        violation, sentence = run.go()
        return run.outcome(violation, sentence)
    finally:
        run.let_go()
        if collects:
            gc.enable()


class Run:
    """One plan being carried out."""

    def __init__(self, plan: Plan, trace: Trace) -> None:
        self.plan = plan
        self.trace = trace
        self.world = World(plan.seed, wire=plan.wire)
        self.world.listeners.append(trace)
        racks = {n: f"rack-{n % plan.racks}" for n in range(1, plan.brokers + 1) if plan.racks}
        self.cluster = Cluster(
            self.world,
            plan.brokers,
            dict(plan.config),
            racks,
            plan.folders,
            levels=_levels(plan),
            is_diskless=plan.diskless is not None,
            has_remote_logs=plan.remote is not None,
            has_tiering=plan.diskless is not None and plan.diskless.tiering_jobs > 0,
        )
        self.history = History()
        self.world.listeners.append(self._hear)
        self.suite = Suite(self.cluster, self.history)
        self.workload = Workload(self.cluster, plan, self.history)
        if plan.alterations:
            self.workload.settings = self.suite.watch_settings(plan)
        self.rights: RightsWorkload | None = None
        if plan.rights:
            checks = self.suite.watch_rights(plan)
            self.rights = RightsWorkload(self.cluster, plan, self.history, checks)
        self.tokens: TokenWorkload | None = None
        for node, skew_ms in zip(self.cluster.nodes.values(), plan.wall_skews, strict=False):
            node.wall_skew_ms = skew_ms
        if plan.tokens:
            token_checks = self.suite.watch_tokens(plan)
            self.tokens = TokenWorkload(self.cluster, plan, self.history, token_checks)
        self.diskless: DisklessRun | None = None
        kinds = self.workload.faults()
        if plan.diskless is not None:
            managed = self.suite.metadata.managed
            self.diskless = DisklessRun(self.cluster, plan, self.suite.marks, managed)
            kinds |= self.diskless.kinds
        self.remote: RemoteRun | None = None
        if plan.remote is not None:
            self.remote = RemoteRun(self.cluster, plan, self.suite)
            kinds |= self.remote.kinds
        self.offsets = OffsetRun(self.cluster, plan, self.suite) if plan.offsets else None
        self.transactions: TransactionRun | None = None
        if plan.transactions is not None:
            self.transactions = TransactionRun(self.cluster, plan, self.suite)
            kinds |= self.transactions.kinds
        self.faults = Faults(self.cluster, plan, kinds)
        self.healing = Repair(self.cluster, self.faults, self.workload)

    def _hear(self, _at: int, kind: str, _who: str, text: str, _details: object) -> None:
        """A mark that only the controller's own words show."""
        if kind == "resigned" and ("Deposed" in text or "another controller" in text):
            self.history.mark("controller-deposed")

    def go(self) -> tuple[str, str]:
        """Run it all; the id and sentence of what was violated, two empty texts for nothing."""
        try:
            self._settle()
            self.workload.start()
            if self.rights is not None:
                self.rights.start()
            if self.tokens is not None:
                self.tokens.start()
            if self.diskless is not None:
                self.diskless.workload.start()
            if self.offsets is not None:
                self.offsets.start()
            if self.transactions is not None:
                self.transactions.start()
            self.faults.start()
            self.world.run(self.plan.safety_us)
            self._rest()
            if self.diskless is not None:
                self.diskless.collect()
            if self.remote is not None:
                self.remote.collect()
            if self.offsets is not None:
                self.offsets.checks.end(crashed=self.suite.crashed)
            if self.transactions is not None:
                self.transactions.finish()
            self.suite.end()
        except Violation as violation:
            _, _, sentence = str(violation).partition(": ")
            self.world.note("violation", violation.id, sentence)
            return violation.id, sentence
        except Exception as fault:
            sentence = sentence_of(fault)
            self.world.note("violation", BUG, sentence)
            return f"{BUG} {type(fault).__name__}", sentence
        return "", ""

    def _settle(self) -> None:
        """Everybody is up and the topics are made before anything goes wrong."""
        self.cluster.start()
        runs = (self.diskless, self.transactions)
        workloads = [self.workload, *(each.workload for each in runs if each is not None)]
        for each in workloads:
            each.topics.make()
        while self.world.now_us < SETTLED_US or not all(each.topics.are_made for each in workloads):
            self.world.run(self.world.now_us + LOOK_US)
            if self.world.now_us > LONGEST_START_US:
                raise Violation("no-start", "A healthy cluster did not make its topics.", {})

    def _rest(self) -> None:
        """Heal, and wait until the cluster is at rest and everything was read once more."""
        self.healing.begin()
        if self.diskless is not None:
            self.diskless.heal()
        if self.remote is not None:
            self.remote.heal()
        if self.offsets is not None:
            self.offsets.heal()
        if self.transactions is not None:
            self.transactions.heal()
        deadline_us = self.world.now_us + LONGEST_REST_US
        while unrest := self._unrest():
            if self.world.now_us >= deadline_us:
                raise Violation("liveness", f"Healed, and not at rest: {unrest}", {})
            self.world.run(self.world.now_us + LOOK_US)
            self.healing.care()
        self.workload.audit()
        if self.diskless is not None:
            self.diskless.workload.audit()
        if self.transactions is not None:
            self.transactions.audit()
        deadline_us = self.world.now_us + AUDIT_US
        while self.world.now_us < deadline_us and (not self._audited() or self._unrest()):
            self.world.run(self.world.now_us + LOOK_US // 10)
            self.healing.care()
        if not self._audited():
            behind = "" if self.diskless is None else self.diskless.behind()
            if self.transactions is not None:
                behind = behind or self.transactions.behind()
            raise Violation("liveness", f"Healed, and not everything can be read. {behind}", {})

    def _unrest(self) -> str:
        if not self.workload.is_idle:
            return "a producer waits for an answer"
        if not self.workload.is_stable:
            return "a member is in no generation"
        if not self.workload.topics.are_made:
            return "a topic that was deleted is not made again"
        diskless = "" if self.diskless is None else self.diskless.unrest()
        offsets = "" if self.offsets is None else self.offsets.unrest()
        transactions = "" if self.transactions is None else self.transactions.unrest()
        return diskless or offsets or transactions or self.suite.unrest()

    def _audited(self) -> bool:
        image = self.cluster.image
        for place in self.plan.places:
            found = image.partition(*place)
            if found is None and image.topic(place.topic) is not None:
                continue  # it was to be added, and the request got lost
            if found is not None and found.leader < 0:
                continue  # at rest, so all who could lead have lost their disks
            node = self.cluster.nodes.get(found.leader) if found is not None else None
            if node is not None and place in node.broker.partitions.offline:
                continue  # its log or folder is damaged: an operator has to decide
            replica = node.broker.partitions.get(*place) if node is not None else None
            if replica is None or self.workload.audited(place) < replica.high_watermark:
                return False
        if self.transactions is not None and self.transactions.behind():
            return False
        return self.diskless is None or not self.diskless.behind()

    def outcome(self, violation: str, sentence: str) -> Outcome:
        """What became of it."""
        operations = self.workload.done
        return Outcome(
            seed=self.plan.seed,
            violation=violation,
            sentence=sentence,
            counts=self.plan.counts(operations, self.faults.count),
            operations=operations,
            faults=self.faults.count,
            virtual_us=self.world.now_us,
            events=self.world.events,
            digest=self.trace.digest,
            marks=dict(self.suite.marks),
            losses=dict(self.suite.losses),
            lines=tuple(self.trace.lines),
        )

    def let_go(self) -> None:
        """Break the knot of references that every world is."""
        self.world.listeners.clear()


def _levels(plan: Plan) -> dict[str, int]:
    """The feature levels of a new cluster where they are not the newest."""
    levels = {} if plan.elr else {ELR_FEATURE: 0}
    if plan.transactions is not None:
        levels[TRANSACTION_FEATURE] = plan.transactions.version
    return levels


def sentence_of(fault: Exception) -> str:
    """The exception and where it was raised, without paths of a machine."""
    frames = traceback.extract_tb(fault.__traceback__)
    where = " < ".join(
        f"{frame.filename.rpartition('/')[2]}:{frame.lineno}" for frame in reversed(frames[-4:])
    )
    return f"{type(fault).__name__}: {fault} ({where})"
