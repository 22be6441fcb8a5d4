"""All checks of one run: who is told what, when, and what is counted.

What: `Suite` watches a cluster, hands each event to the checks that it concerns, takes clients'
records as they are written down, and at the end has the whole history judged. `marks` counts what
was seen, `losses` the committed records that a rule allowed to be lost, by rule. Rule kept: a suite
changes nothing in what it watches and draws no random numbers, so that a run with it and a run
without it are the same. Not here: the checks.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from anabranch.core.types import TopicPartition
from anabranch.sim.checks.anomalies import Anomalies
from anabranch.sim.checks.followed import CopyChecks
from anabranch.sim.checks.groups import GroupChecks
from anabranch.sim.checks.hosting import HostingChecks
from anabranch.sim.checks.leases import LeaseChecks
from anabranch.sim.checks.liveness import unrest
from anabranch.sim.checks.logs import LogChecks
from anabranch.sim.checks.marks import Marks
from anabranch.sim.checks.metadata import MetadataChecks
from anabranch.sim.checks.model import Key
from anabranch.sim.checks.readers import check_thrown
from anabranch.sim.checks.registrations import RegistrationChecks
from anabranch.sim.checks.rights import RightsChecks
from anabranch.sim.checks.settings import SettingsChecks
from anabranch.sim.checks.tokens import TokenChecks
from anabranch.sim.cluster import Watcher
from anabranch.sim.history import OK, OPEN, Assigned, Commit, Poll, Thrown
from anabranch.sim.processes import State

if TYPE_CHECKING:
    from anabranch.sim.cluster import Cluster
    from anabranch.sim.history import History
    from anabranch.sim.node import SimNode
    from anabranch.sim.plan import Plan
    from anabranch.sim.store import Lease, Snapshot

NEAR_US = 10_000_000
"""So long after a crash something still counts as met together with it."""
_NEAR_A_CRASH = {
    "compacted": "compacted",
    "PARTITIONS_ADDED": "partitions-added",
    "REASSIGNMENT_DONE": "replicas-moved",
    "REASSIGNMENT_CANCELLED": "move-cancelled",
    "MISSING_REPLICA_FILLED": "missing-replica-filled",
    "TOPIC_DELETED": "topic-deleted",
}
"""Kinds of lines of the trace, or codes of decisions, and their marks."""
CRASHES = frozenset({
    "crash", "power", "slow-restart", "crash-all", "power-all", "controller-crash", "leader-crash",
})  # fmt: skip
SEEN_WITH_CRASHES = (
    "records-expired", "producers-forgotten", "folder-failed-alone", "topic-made-again",
    "replication-factor-changed", "copied-above-segment-bytes", "copied-above-message-bytes",
    "compacted-after-deleting",
)  # fmt: skip
"""Marks that are counted once more when a process crashed in the same run."""
WITH_CRASHES = frozenset({"suspend", "clock-jump", "clock-drift", "store-back", "store-late"})
"""Faults that count when a process crashed in the same run."""


class Suite(Watcher):
    """See the module. It registers itself with the cluster."""

    def __init__(self, cluster: Cluster, history: History) -> None:
        self.cluster = cluster
        self.history = history
        self.marks = Marks()
        self.metadata = MetadataChecks(self.marks, self._unclean_was_asked)
        self.model = self.metadata.model
        for node in cluster.nodes.values():
            self.model.static = dict(node.config.static)
        self.leases = LeaseChecks(cluster.store, self.marks)
        self.logs = LogChecks(self.model, self.marks)
        self.logs.deletes_asked = history.deletes_asked
        self.logs.counts_passes = True
        self.settings: SettingsChecks | None = None
        """Where settings are altered."""
        self.rights: RightsChecks | None = None
        """Where access rules, credentials and quotas change."""
        self.tokens: TokenChecks | None = None
        """Where there are delegation tokens."""
        self.hosting = HostingChecks(self.marks)
        self.groups = GroupChecks(self.logs, self.marks)
        self.copies = CopyChecks(self.marks)
        self.registrations = RegistrationChecks(cluster, self.model, self.marks)
        self.metadata.copied = self.registrations.copied
        self.metadata.elected.append(self.logs.elected)
        self.metadata.joined.append(self.logs.joined)
        self.metadata.left.append(self.logs.left)
        self.metadata.configured.append(self.logs.configured)
        self._allowed: Counter[str] = Counter()
        self._crashed_us = -NEAR_US - 1
        self._faults: set[str] = set()
        self._look_at_logs = self.logs.look
        self._look_at_metadata = self.metadata.look
        self._look_at_hosting = self.hosting.look
        cluster.checks.append(self)
        cluster.world.listeners.append(self._hear_note)

    def _unclean_was_asked(self, key: Key) -> bool:
        place = self.model.place(key)
        return any(asked.place == place for asked in self.history.unclean_asked)

    def watch_settings(self, plan: Plan) -> SettingsChecks:
        """Settings of these topics are altered."""
        self.logs.altered = frozenset(each.name for each in plan.topics if each.becomes_compacted)
        self.settings = SettingsChecks(self.metadata, self.marks, plan, self._is_near_a_crash)
        return self.settings

    def watch_rights(self, plan: Plan) -> RightsChecks:
        """Access rules, credentials and quotas change."""
        self.rights = RightsChecks(self.metadata, self.marks, plan, self._is_near_a_crash)
        return self.rights

    def watch_tokens(self, plan: Plan) -> TokenChecks:
        """There are delegation tokens."""
        world = self.cluster.world
        self.tokens = TokenChecks(self.metadata, self.marks, plan, world, self._is_near_a_crash)
        return self.tokens

    def _is_near_a_crash(self) -> bool:
        return self.cluster.world.now_us - self._crashed_us <= NEAR_US

    # What the cluster tells.

    def event_ended(self, node: SimNode | None) -> None:
        if node is not None:
            if node.state is State.RUNNING or node.state is State.PAUSED:
                self._look_at_metadata(node)
                self._look_at_logs(node)
                self._look_at_hosting(node)
                if node.broker.partitions.offline_folders:
                    self.registrations.look(node)
                if self.settings is not None:
                    self.settings.look(node)
                if self.rights is not None:
                    self.rights.look(node)
                if self.tokens is not None:
                    self.tokens.look(node)
        elif self.history.fresh or self.history.open:
            self._hear_clients()

    def committed(
        self, records: tuple[Any, ...], first_offset: int, end_offset: int, epoch: int
    ) -> None:
        self.leases.committed(epoch)
        self.registrations.is_committing(records)
        self.metadata.committed(records, first_offset, end_offset, epoch)
        self.registrations.committed(records)
        if self.settings is not None:
            self.settings.committed(records)
        if self.rights is not None:
            self.rights.committed(records, end_offset)
        if self.tokens is not None:
            self.tokens.committed(records, end_offset)

    def lease_confirmed(self, node: SimNode, lease: Lease) -> None:
        self.leases.confirmed(node, lease)

    def controller_acts(self, node: SimNode) -> None:
        self.leases.acts(node)

    def answered(self, node: SimNode, end_offset: int) -> None:
        self.leases.answered(node, end_offset)

    def snapshot_stored(self, snapshot: Snapshot) -> None:
        self.leases.snapshot_stored(snapshot)

    def truncated(self, node: SimNode, place: TopicPartition, before: int, after: int) -> None:
        self.logs.truncated(node, place, after)

    def compacted(self, node: SimNode, place: TopicPartition, upto: int) -> None:
        self.logs.compacted(node, place, upto)

    def compacts(self, node: SimNode, place: TopicPartition, upto: int | None) -> None:
        self.logs.compacts(node, place, upto)

    def node_changed(self, node: SimNode, what: str) -> None:
        if what in ("crash", "power"):
            self._mark_crash(node)
        self.logs.node_changed(node, what)
        self.hosting.node_changed(node, what)
        self.copies.node_changed(node, what)
        self.registrations.node_changed(node, what)
        if what in ("crash", "power", "stop", "start", "wipe"):
            self.metadata.forget(node)

    def copy_changed(self, node: SimNode, what: str) -> None:
        self.copies.copy_changed(node, what)
        if self.rights is not None:
            self.rights.copy_changed(node, what)
        if self.tokens is not None:
            self.tokens.copy_changed(node, what)

    def _mark_crash(self, node: SimNode) -> None:
        """In the middle of what a process ended."""
        if node.hosting.machine.cleaner.is_busy:
            self.marks.hit("crash-while-compacting")
        last = [each.log.segments[-1] for each in node.broker.partitions if each.log.segments[1:]]
        if last:
            self.marks.hit("crash-with-rolled-segments")
        if not all(segment.size for segment in last):
            self.marks.hit("crash-after-idle-roll")
        if any(each.adding or each.removing for each in self.model.partitions.values()):
            self.marks.hit("crash-while-moving")

    def _hear_note(
        self, now_us: int, kind: str, who: str, text: str, details: dict[str, Any]
    ) -> None:
        """The trace tells what leaves no other trace."""
        self.registrations.noted(kind, who, text)
        if kind == "must stop":
            self.leases.must_stop(who, text)
        elif kind == "fault":
            self._faults.add(text.partition(" ")[0])
        if kind == "resigned" and "Unknown" in text:
            self.marks.hit("unknown-append")
        elif kind == "forgotten":
            self.marks.hit("producers-forgotten")
        elif kind in ("crash", "power"):
            self._crashed_us = now_us
        elif self._is_near_a_crash():
            mark = _NEAR_A_CRASH.get(str(details.get("code", kind)))
            if mark is not None:
                self.marks.hit(mark)

    # What clients tell.

    def _hear_clients(self) -> None:
        history = self.history
        fresh = history.fresh
        if fresh:
            for event in fresh:
                if type(event) is Poll:
                    if event.records:
                        last, _ = event.records[-1]
                        self.logs.shown(event.place, last, event.client, event.topic_id)
                    if event.in_group:
                        self.groups.polled(event)
                elif type(event) is Commit:
                    self.groups.committed(event)
                elif type(event) is Assigned:
                    self.groups.assigned(event)
                elif type(event) is Thrown:
                    check_thrown(event, self.logs.places.get(event.place))
            fresh.clear()
        for send in history.open:
            if send.outcome is not OPEN:
                self._hear_outcomes()
                return

    def _hear_outcomes(self) -> None:
        history = self.history
        for send in history.open:
            if send.outcome == OK:
                self.logs.acknowledged(send)
        history.open = [send for send in history.open if send.outcome is OPEN]

    # The end.

    def unrest(self) -> str:
        """Why the cluster is not at rest, "" when it is."""
        tokens = "" if self.tokens is None else self.tokens.unrest()
        return unrest(self.cluster, self.logs) or tokens

    def end(self) -> None:
        """Judge the whole history."""
        self._hear_clients()
        self.registrations.end()
        anomalies = Anomalies(self.history, self.logs)
        anomalies.check()
        for name, count in anomalies.allowed.items():
            self._allowed[name] += count
        for name, count in self.history.marks.items():
            for _ in range(count):
                self.marks.hit(name)
        self.history.marks.clear()
        if self.crashed:
            for fault in sorted(self._faults & WITH_CRASHES):
                self.marks.hit(f"{fault}-and-crash")
            for name in SEEN_WITH_CRASHES:
                if self.marks[name]:
                    self.marks.hit(f"{name}-and-crash")

    @property
    def crashed(self) -> bool:
        """Whether processes ended on purpose."""
        return bool(self._faults & CRASHES)

    @property
    def losses(self) -> dict[str, int]:
        """Records that were lost and a rule allows it, by rule."""
        losses = Counter(self._allowed)
        for truth in self.logs.truths.values():
            for loss in truth.losses:
                losses[loss.rule] += loss.records
        return dict(losses)
