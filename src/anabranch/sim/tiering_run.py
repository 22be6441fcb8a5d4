"""The part of a schedule that tiers and compacts diskless topics: jobs, their faults, checks, its
end.

What: jobs begin once the cluster is settled. Faults: a driver dies and begins again later; a task
dies at some call; a claim lapses while its job is at work, as after a clock that jumped. When
clients are at rest and no fault is left, jobs make segments until no row is left, and compact until
nothing is worth it; then the clocks that wait for the end of puts go ahead, until nothing is left
of tries. Not here: what must hold (`checks/tiering.py`, `checks/compaction.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from anabranch.core.remote.unfinished import PUTS_END_MS
from anabranch.sim.checks.compaction import FOR_EVER_MS, CompactionChecks
from anabranch.sim.checks.tiering import TieringChecks
from anabranch.sim.checks.violation import Violation
from anabranch.sim.compaction import CompactionJob
from anabranch.sim.plan_parts import SECOND_US, SETTLED_US
from anabranch.sim.tiering import TieringJob

if TYPE_CHECKING:
    from anabranch.sim.checks.diskless import DisklessChecks
    from anabranch.sim.cluster import Cluster
    from anabranch.sim.history import History
    from anabranch.sim.job import Job
    from anabranch.sim.plan_parts import DisklessPlan, Fault

TIERED_US, COLLECTED_US = 120 * SECOND_US, 120 * SECOND_US
LOOK_US = 3 * SECOND_US
MOST_CALLS = 14
"""About those of a wave of one segment: plan, objects, start, six files, the sidecar, finish."""
MIN_BYTES, TOMBSTONES = "diskless.tiering.min.segment.bytes", "delete.retention.ms"

Undo = Callable[[], None]


class JobFaults:
    """What goes wrong with the jobs of one family, which share a claim."""

    def __init__(self, cluster: Cluster, family: str, jobs: Sequence[Job]) -> None:
        assert cluster.remotes is not None
        self.world, self.remotes = cluster.world, cluster.remotes
        self.family, self.jobs = family, jobs

    def table(self) -> dict[str, Callable[[Fault], Undo | None]]:
        """Faults by kind."""
        return {
            f"{self.family}-driver-dies": self._driver_dies,
            f"{self.family}-task-dies": self._task_dies,
            f"{self.family}-claim-lapses": self._lapse,
        }

    def _aimed(self, fault: Fault) -> Job:
        self.world.note("fault", self.family, fault.kind)
        return self.jobs[fault.aim % len(self.jobs)]

    def _driver_dies(self, fault: Fault) -> Undo | None:
        if not self.jobs:
            return None  # a plan that was made smaller
        job = self._aimed(fault)
        job.die()
        return job.start

    def _task_dies(self, fault: Fault) -> Undo | None:
        if self.jobs:
            self._aimed(fault).dies_after = 1 + fault.other % MOST_CALLS
        return None

    def _lapse(self, fault: Fault) -> Undo | None:
        if self.jobs:
            self._aimed(fault)
            tables, claims = self.remotes.coordinator.tables, f"{self.family}_claims"
            if tables.rows(f"SELECT 1 FROM {claims}"):
                self.remotes.met.add(f"{self.family}-claim-lapsed")
            tables.do(f"UPDATE {claims} SET expires_ms = 0")
        return None

    def heal(self) -> None:
        """No fault is left."""
        for job in self.jobs:
            job.dies_after = 0


class TieringRun:
    """See the module."""

    def __init__(
        self, cluster: Cluster, plan: DisklessPlan, history: History, truth: DisklessChecks
    ) -> None:
        assert cluster.remotes is not None
        self.cluster, self.world, self.remotes = cluster, cluster.world, cluster.remotes
        names = tuple(topic.name for topic in plan.topics)
        self.jobs = [
            TieringJob(cluster, f"tiering-{number}", history, names)
            for number in range(plan.tiering_jobs)
        ]
        self.compactions = [
            CompactionJob(cluster, f"compaction-{number}", history, names)
            for number in range(plan.compaction_jobs)
        ]
        self._faults = [
            JobFaults(cluster, TieringJob.family, self.jobs),
            JobFaults(cluster, CompactionJob.family, self.compactions),
        ]
        self._takes_all = all(dict(topic.configs).get(MIN_BYTES) == "1" for topic in plan.topics)
        self.checks = TieringChecks(cluster, truth) if self.jobs else None
        self.compaction: CompactionChecks | None = None
        if self.checks is not None and self.compactions:
            self.compaction = CompactionChecks(cluster, truth, self.checks, _that_keep(plan))
        for number, job in enumerate((*self.jobs, *self.compactions)):
            self.world.at(SETTLED_US + number * 700_000, job.start)

    def table(self) -> dict[str, Callable[[Fault], Undo | None]]:
        """Faults by kind."""
        return self._faults[0].table() | self._faults[1].table()

    def heal(self) -> None:
        """No fault is left."""
        for each in self._faults:
            each.heal()

    def collect(self) -> None:
        """Waves go on until nothing is left to be tiered or compacted, and nothing of tries."""
        if self.checks is None:
            return
        self._wait(TIERED_US, self._untiered, "TR5", "Rows are left that could be tiered.", 0)
        for job in self.compactions:
            job.is_idle = False
        self._wait(TIERED_US, self._uncompacted, "CP4", "Segments are left that are dirty.", 0)
        sentence = "Something is left of tries."
        self._wait(COLLECTED_US, self.checks.left_over, "TR5", sentence, PUTS_END_MS)
        self.checks.end()

    def _uncompacted(self) -> list[str]:
        is_over = not self.compactions or any(job.is_idle for job in self.compactions)
        return [] if is_over else [job.name for job in self.compactions]

    def _untiered(self) -> list[str]:
        assert self.checks is not None
        return self.checks.untiered() if self._takes_all else []

    def _wait(
        self,
        longest_us: int,
        left: Callable[[], list[str]],
        check: str,
        sentence: str,
        ahead_ms: int,
    ) -> None:
        until_us = self.world.now_us + longest_us
        while found := left():
            if self.world.now_us >= until_us:
                raise Violation(check, sentence, {"left": found[:5]})
            self.world.run(self.world.now_us + LOOK_US)
            self.remotes.ahead_ms += ahead_ms


def _that_keep(plan: DisklessPlan) -> frozenset[str]:
    """Topics whose tombstones stay for longer than a schedule lasts."""
    return frozenset(
        topic.name
        for topic in plan.topics
        if dict(topic.configs).get(TOMBSTONES) == str(FOR_EVER_MS)
    )
