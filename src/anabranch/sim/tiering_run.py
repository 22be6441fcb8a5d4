"""The part of a schedule that tiers diskless topics: its jobs, their faults and checks, its end.

What: jobs begin once the cluster is settled. Faults: a driver dies and begins again later; a task
dies at some call; a claim lapses while its job is at work, as after a clock that jumped. When
clients are at rest and no fault is left, jobs make segments until no row is left, and then the
clocks that wait for the end of puts go ahead, until nothing is left of tries. Not here: what must
hold (`checks/tiering.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from anabranch.core.remote.unfinished import PUTS_END_MS
from anabranch.sim.checks.tiering import TieringChecks
from anabranch.sim.checks.violation import Violation
from anabranch.sim.plan_parts import SECOND_US, SETTLED_US
from anabranch.sim.tiering import TieringJob

if TYPE_CHECKING:
    from anabranch.sim.checks.diskless import DisklessChecks
    from anabranch.sim.cluster import Cluster
    from anabranch.sim.history import History
    from anabranch.sim.plan_parts import DisklessPlan, Fault

TIERED_US, COLLECTED_US = 120 * SECOND_US, 120 * SECOND_US
LOOK_US = 3 * SECOND_US
MOST_CALLS = 14
"""About those of a wave of one segment: plan, objects, start, six files, the sidecar, finish."""
LAPSED = "UPDATE tiering_claims SET expires_ms = 0"
MIN_BYTES = "diskless.tiering.min.segment.bytes"

Undo = Callable[[], None]


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
        self._takes_all = all(dict(topic.configs).get(MIN_BYTES) == "1" for topic in plan.topics)
        self.checks = TieringChecks(cluster, truth) if self.jobs else None
        for number, job in enumerate(self.jobs):
            self.world.at(SETTLED_US + number * 700_000, job.start)

    def table(self) -> dict[str, Callable[[Fault], Undo | None]]:
        """Faults by kind."""
        return {
            "tiering-driver-dies": self._driver_dies,
            "tiering-task-dies": self._task_dies,
            "tiering-claim-lapses": self._lapse,
        }

    def _aimed(self, fault: Fault) -> TieringJob:
        self.world.note("fault", "tiering", fault.kind)
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
            if self.remotes.coordinator.tables.rows("SELECT 1 FROM tiering_claims"):
                self.remotes.met.add("tiering-claim-lapsed")
            self.remotes.coordinator.tables.do(LAPSED)
        return None

    def heal(self) -> None:
        """No fault is left."""
        for job in self.jobs:
            job.dies_after = 0

    def collect(self) -> None:
        """Waves go on until nothing is left to be tiered, and nothing of tries."""
        if self.checks is None:
            return
        self._wait(TIERED_US, self._untiered, "Rows are left that could be tiered.", 0)
        self._wait(COLLECTED_US, self.checks.left_over, "Something is left of tries.", PUTS_END_MS)
        self.checks.end()

    def _untiered(self) -> list[str]:
        assert self.checks is not None
        return self.checks.untiered() if self._takes_all else []

    def _wait(
        self, longest_us: int, left: Callable[[], list[str]], sentence: str, ahead_ms: int
    ) -> None:
        until_us = self.world.now_us + longest_us
        while found := left():
            if self.world.now_us >= until_us:
                raise Violation("TR5", sentence, {"left": found[:5]})
            self.world.run(self.world.now_us + LOOK_US)
            self.remotes.ahead_ms += ahead_ms
