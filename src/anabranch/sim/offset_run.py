"""The part of a schedule that is about committed offsets which expire.

What: clients commit under names without members, and ask now and then what is committed. When the
world heals they go on asking, until all that was committed has expired: it does so by itself.
Rule kept: the clients have no part in the other clients' history. Not here: what must hold
(`checks/offset_expiry.py`), what was drawn (`offset_plan.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from anabranch.sim.checks.offset_expiry import OffsetExpiryChecks
from anabranch.sim.clients.committer import Committer
from anabranch.sim.offset_plan import LOOK_EVERY_US

if TYPE_CHECKING:
    from anabranch.sim.checks.suite import Suite
    from anabranch.sim.cluster import Cluster
    from anabranch.sim.plan import Plan

DOUBLES = "duplicate"
"""The fault after which a request may be carried out twice."""


class OffsetRun:
    """See the module."""

    def __init__(self, cluster: Cluster, plan: Plan, suite: Suite) -> None:
        assert plan.offsets is not None
        self.world = cluster.world
        self.plan = plan.offsets
        self.checks = OffsetExpiryChecks(
            suite.marks,
            doubles=any(fault.kind == DOUBLES for fault in plan.faults),
            is_void=lambda: suite.groups.is_void,
            now_us=lambda: cluster.world.now_us,
        )
        self.committers = [Committer(cluster, each, self.checks) for each in self.plan.names]

    def start(self) -> None:
        """Plan all commits and looks."""
        for committer in self.committers:
            for at_us, places in committer.plan.commits:
                self.world.at(at_us, committer.commit, places)
            for at_us in self.plan.looks_us:
                self.world.at(at_us, self._look, committer)

    def heal(self) -> None:
        """No fault is left: look until nothing is committed any more."""
        self.checks.heal()
        for committer in self.committers:
            self._look_on(committer)

    def unrest(self) -> str:
        """An offset that is still told, "" when all have expired."""
        left = self.checks.left
        if not left:
            return ""
        name, place, offset = left[0]
        return f"offset {offset} of {place}, committed under {name}, has not expired"

    def _look(self, committer: Committer) -> None:
        places = {place for _, places in committer.plan.commits for place in places}
        committer.look(sorted(places))

    def _look_on(self, committer: Committer) -> None:
        self._look(committer)
        committer.later(LOOK_EVERY_US // 1000, self._look_on, committer)
