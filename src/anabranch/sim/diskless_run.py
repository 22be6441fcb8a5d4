"""The diskless part of a schedule: its remotes, clients, faults and checks, and its end.

What: `DisklessRun` is what `schedule.py` calls where a plan has diskless topics. After the faults
both remotes answer; when clients are at rest the clocks of store and coordinator go ahead, so that
every lease is over, and within some rounds no object may be left that nothing points to.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

from anabranch.sim.checks.diskless import DisklessChecks
from anabranch.sim.checks.diskless_clients import DisklessClientChecks
from anabranch.sim.checks.managed import ManagedChecks
from anabranch.sim.checks.violation import Violation
from anabranch.sim.clients.diskless_workload import DisklessWorkload
from anabranch.sim.diskless_faults import DisklessFaults
from anabranch.sim.diskless_plan import THRESHOLD
from anabranch.sim.diskless_upkeep import PACE
from anabranch.sim.remote import FATES
from anabranch.sim.settings_plan import BY_DEFAULT
from anabranch.sim.tiering_run import TieringRun

if TYPE_CHECKING:
    from anabranch.core.types import TopicId
    from anabranch.sim.checks.marks import Marks
    from anabranch.sim.cluster import Cluster
    from anabranch.sim.plan import Plan
    from anabranch.sim.plan_parts import Fault

AHEAD_MS = 1_200_000
"""Beyond every lease."""
COLLECTED_US = 60_000_000
LOOK_US = 500_000
CLOCK = "coordinator-clock"
GOES_AWAY = re.compile(r"broker (\d+) (goes from unfenced|sent no heartbeat|closed its connection)")


class DisklessRun:
    """See the module."""

    def __init__(self, cluster: Cluster, plan: Plan, marks: Marks, managed: ManagedChecks) -> None:
        assert cluster.remotes is not None and plan.diskless is not None
        self.cluster = cluster
        self.world = cluster.world
        self.plan = plan.diskless
        self.remotes = cluster.remotes
        self.remotes.interval_ms = self.plan.interval_ms
        self.remotes.coordinator.skew_ms = self.plan.coordinator_skew_ms
        self.remotes.objects.skew_ms = self.plan.objects_skew_ms
        self._shortened = {
            topic.name
            for topic in self.plan.topics
            if any(name.startswith("retention") for name, _ in topic.configs)
        } | {each.place.topic for each in self.plan.operations if each.kind == "delete"}
        altered = [each.topic for each in plan.alterations if "retention" in each.name]
        by_default = {topic.name for topic in self.plan.topics if BY_DEFAULT in altered}
        self._shortened |= by_default.union(altered)
        self.truth = DisklessChecks(self.remotes, marks, PACE.grace_ms, self._may_move)
        committed = managed.model.partitions  # nodes may have lost what they followed
        self.truth.living = lambda topic_id: (topic_id, 0) in committed
        doubles = any(fault.kind == "duplicate" for fault in plan.faults)
        self.clients = DisklessClientChecks(cluster, self.truth, doubles=doubles)
        self.clients.compacted_topics = self.plan.compacted
        self.managed = managed
        managed.racks = {node.node_id: node.rack or "" for node in cluster.nodes.values()}
        managed.now_ms = lambda: cluster.world.steady_ms
        managed.threshold_ms = int(dict(plan.config)[THRESHOLD])
        self.workload = DisklessWorkload(cluster, self.plan, self.clients)
        self._faults = DisklessFaults(cluster, self.remotes)
        self.tiering = TieringRun(cluster, self.plan, self.clients.history, self.truth)
        self._marks = marks
        self._noted: set[str] = set()
        self.world.listeners.append(self._hear)

    def _hear(self, _at_us: int, kind: str, _who: str, text: str, _details: object) -> None:
        """Which faults there were, for the marks; whether a process crashed; who goes away."""
        if kind == "fault":
            self._noted.add(text.partition(" ")[0])
        elif kind in ("crash", "power"):
            self._noted.add("crash")
        elif kind == "decided" and (gone := GOES_AWAY.match(text)):
            self.managed.goes_away(int(gone[1]))

    def _may_move(self, topic_id: TopicId) -> bool:
        topic = self.cluster.image.topic_by_id(topic_id)
        return topic is None or topic.name in self._shortened

    @property
    def kinds(self) -> dict[str, Callable[[Fault], Callable[[], None] | None]]:
        """Faults by kind."""
        return self._faults.table() | self.tiering.table()

    def heal(self) -> None:
        """No fault is left."""
        self._faults.heal()
        self.tiering.heal()

    def unrest(self) -> str:
        """Why its clients are not at rest, "" when they are."""
        if not self.workload.topics.are_made:
            return "a diskless topic is not made"
        if not self.workload.is_idle:
            return "a diskless producer waits for an answer"
        return self.managed.unplaced() or self._unheard()

    def _unheard(self) -> str:
        """A broker that watches and has not heard how far a partition goes, "" when there is none:
        what its watch missed while it was broken is asked for."""
        for node in self.cluster.nodes.values():
            machine = node.broker.diskless
            if not node.is_serving or not machine.is_watching:
                continue
            for key, partition in machine.by_key.items():
                log = self.truth.logs.get(key)
                known = partition.state
                if known is not None and log is not None and known.high_watermark < log.high:
                    place = partition.topic_partition
                    return f"{node.name} knows {place} up to {known.high_watermark} of {log.high}"
        return ""

    def behind(self) -> str:
        """A reader that has not read all there is, "" when there is none."""
        image = self.cluster.image
        for place in self.plan.places:
            topic = image.topic(place.topic)
            for key, log in self.truth.logs.items():
                if topic is not None and key == (topic.topic_id, place.partition):
                    behind = self.workload.behind(place, log.high)
                    if behind:
                        return behind
        return ""

    def collect(self) -> None:
        """Every lease is over: no object may be left that nothing points to."""
        self.remotes.coordinator.skew_ms += AHEAD_MS
        self.remotes.objects.skew_ms = 0
        deadline_us = self.world.now_us + COLLECTED_US
        while orphans := self.truth.orphans():
            if self.world.now_us >= deadline_us:
                sentence = "Objects are left that nothing points to."
                raise Violation("orphans", sentence, {"objects": orphans[:5]})
            self.world.run(self.world.now_us + LOOK_US)
        self.tiering.collect()
        self._check_notes()
        self.clients.end()
        self._mark()

    def _check_notes(self) -> None:
        """Each start that a broker knows is in its manifests: a restore must not go back."""
        for node in self.cluster.nodes.values():
            if node.diskless is not None and (unnoted := node.diskless.unnoted()):
                sentence = "A broker knows where partitions begin and has not noted it."
                raise Violation("unnoted", sentence, {"node": node.name, "keys": unnoted[:5]})

    def _mark(self) -> None:
        """What was met together with crashes."""
        if "crash" not in self._noted:
            return
        for call, remote in (("put", self.remotes.objects), ("commit", self.remotes.coordinator)):
            for fate in FATES:
                if remote.met[call, fate]:
                    self._marks.hit(f"diskless-{call}-{fate}")
        if CLOCK in self._noted:
            self._marks.hit("diskless-clock-jump")
        for what in sorted(self.remotes.met):
            self._marks.hit(f"diskless-{what}")
