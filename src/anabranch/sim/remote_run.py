"""The part of a schedule that has remote logs: its remotes, faults and checks, and its end.

What: `RemoteRun` is what `schedule.py` calls where a plan has remote logs. When clients are at rest
the clocks that wait for the end of puts go ahead, and within some rounds no object and no fact may
be left that no log needs. Not here: what must hold (`checks/remote.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from anabranch.core.remote.unfinished import PUTS_END_MS
from anabranch.sim.checks.remote import RemoteChecks
from anabranch.sim.checks.violation import Violation
from anabranch.sim.diskless_faults import MOST_LATE_US
from anabranch.sim.plan_parts import SECOND_US
from anabranch.sim.remote_faults import RemoteFaults

if TYPE_CHECKING:
    from anabranch.sim.checks.suite import Suite
    from anabranch.sim.cluster import Cluster
    from anabranch.sim.plan import Plan
    from anabranch.sim.plan_parts import Fault

COLLECTED_US = 90 * SECOND_US
LOOK_US = 6 * SECOND_US
"""Between two leaps of the clocks: rounds have seen by then what is being removed."""


class RemoteRun:
    """See the module."""

    def __init__(self, cluster: Cluster, plan: Plan, suite: Suite) -> None:
        assert cluster.remotes is not None and plan.remote is not None
        self.world, self.remotes = cluster.world, cluster.remotes
        self.remotes.coordinator.skew_ms = plan.remote.coordinator_skew_ms
        self.suite = suite
        self.checks = RemoteChecks(cluster, self.remotes, suite)
        self._faults = RemoteFaults(cluster, self.remotes)

    @property
    def kinds(self) -> dict[str, Callable[[Fault], Callable[[], None] | None]]:
        """Faults by kind."""
        return self._faults.table()

    def heal(self) -> None:
        """No fault is left."""
        self._faults.heal()

    def collect(self) -> None:
        """All puts have ended: nothing may be left that no log needs."""
        if self.checks.garbage():
            self.world.run(self.world.now_us + MOST_LATE_US)  # puts that are late arrive first
        deadline_us = self.world.now_us + COLLECTED_US
        while garbage := self.checks.garbage():
            if self.world.now_us >= deadline_us:
                sentence = "Something is left of remote logs that none of them needs."
                raise Violation("remote-garbage", sentence, {"left": garbage[:5]})
            self.world.run(self.world.now_us + LOOK_US)
            self.remotes.ahead_ms += PUTS_END_MS
        self.checks.end()
        for what in sorted(self.remotes.met):
            self.suite.marks.hit(f"remote-{what}")
