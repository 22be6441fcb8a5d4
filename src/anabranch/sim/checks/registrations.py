"""What must hold of brokers' registrations, by the committed metadata and by what processes know.

What: B1, a broker is unfenced only when its process acts on metadata with its own registration and
has opened its logs; B2, a broker that stops with the controller's permission was fenced before and
leads nothing; B3, a folder that failed is told: after some confirmed heartbeats the metadata do not
count it any more; B4, no process takes the place of one whose heartbeats were confirmed lately by
the newest controller; one that is fenced has no session there until that hears from it. Rule kept:
the checker reads the committed records itself, and asks a process only what it did, never what it
decided. Here too: the marks of the faults of registrations, counted where a crash happened in the
same run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from anabranch.core.wire.metadata_records import (
    BrokerRegistrationChangeRecord,
    RegisterBrokerRecord,
)
from anabranch.sim.checks.violation import Violation
from anabranch.sim.processes import State

if TYPE_CHECKING:
    from anabranch.sim.checks.marks import Marks
    from anabranch.sim.checks.model import Model
    from anabranch.sim.cluster import Cluster
    from anabranch.sim.node import SimNode
    from anabranch.sim.twins import Twin

UNFENCED, FENCED = -1, 1
ENOUGH_HEARTBEATS = 3
"""A heartbeat that changes the broker's state leaves its folders to the next one."""


class Failure(NamedTuple):
    """A folder that failed in a life of a broker, and which confirmed heartbeats came since."""

    broker_epoch: int
    heartbeats_ms: tuple[int, ...] = ()


class RegistrationChecks:
    """See the module."""

    def __init__(self, cluster: Cluster, model: Model, marks: Marks) -> None:
        self.cluster = cluster
        self.model = model
        self.marks = marks
        self.copied: set[int] = set()
        """Brokers that came back on an older copy, or whose place a process on a copy took."""
        self._seen: set[str] = set()
        self._crashes = 0
        self._fenced_since_stopping: set[int] = set()
        self._failures: dict[tuple[int, bytes], Failure] = {}
        self._term = 0, 0
        """The newest controller's epoch, and when its first records came."""
        self._resigned_us = 0
        """When a controller last ended its term."""
        self._ended: set[bytes] = set()
        """The incarnations of processes that have ended."""
        self._were_fenced: set[int] = set()
        """Brokers whose last registration but one was fenced when the last one came."""

    # What is seen.

    def is_committing(self, records: tuple[Any, ...]) -> None:
        """The store committed these records; nobody has looked at what they say."""
        for record in records:
            if type(record) is RegisterBrokerRecord:
                before = self.model.brokers.get(record.broker_id)
                is_fenced = before is not None and before.fenced
                (self._were_fenced.add if is_fenced else self._were_fenced.discard)(
                    record.broker_id
                )
            if type(record) is RegisterBrokerRecord and self._is_late(record):
                self.copied.add(record.broker_id)
        copies = {each.incarnation_id for each in self.cluster.twins}
        for record in records if copies else ():
            if type(record) is RegisterBrokerRecord and record.incarnation_id in copies:
                self._seen.add("twin-took-over")  # it may have ended before it was answered
                self.copied.add(record.broker_id)

    def _is_late(self, record: RegisterBrokerRecord) -> bool:
        """Whether it is of a process that has ended, and whose broker was another one since: its
        folders are older ones by then. It lay in the network."""
        session = self.cluster.nodes[record.broker_id].session
        known = self.model.brokers.get(record.broker_id)
        is_past = record.incarnation_id in self._ended - {session.incarnation_id}
        return is_past and known is not None and known.epoch == session.broker_epoch

    def committed(self, records: tuple[Any, ...]) -> None:
        """The same, and the model has them already."""
        if self.model.epoch != self._term[0]:
            self._term = self.model.epoch, self.cluster.world.now_us
        for record in records:
            if type(record) is RegisterBrokerRecord:
                self._registered(record)
            if type(record) is not BrokerRegistrationChangeRecord:
                continue
            node = self.cluster.nodes[record.broker_id]
            if record.fenced == UNFENCED:
                self._unfenced(record)
            elif record.fenced == FENCED:
                self._fenced_since_stopping.add(record.broker_id)
                if node.is_serving and node.advertised_host != node.name:
                    self._seen.add("unreachable-address")
            if record.log_dirs and record.log_dirs != list(node.directory_ids.values()):
                self._seen.add("folder-told")

    def look(self, node: SimNode) -> None:
        """An event of a running node is over that has folders offline."""
        machine = node.session.machine
        for path in node.broker.partitions.offline_folders:
            self._failed(node, node.directory_ids[path], machine.confirmed_ms)

    def node_changed(self, node: SimNode, what: str) -> None:
        """A process started, ended, or something in between."""
        if what in ("crash", "power"):
            self._crashes += 1
            if node.session.is_leaving:
                self._seen.add("shutdown-interrupted")
        if what in ("crash", "power", "stop"):
            self._ended.add(node.session.incarnation_id)
        if what in ("crash", "power", "stop", "start"):
            for key in [each for each in self._failures if each[0] == node.node_id]:
                del self._failures[key]
        if what == "older":
            self._seen.add("older-copy")
            self.copied.add(node.node_id)
        if what == "stopping":
            self._fenced_since_stopping.discard(node.node_id)

    def noted(self, kind: str, who: str, text: str) -> None:
        """The trace says something of a process."""
        if kind == "left" and not text:
            self._left(who)
            return
        if kind == "resigned":
            self._resigned_us = self.cluster.world.now_us
        is_refused = kind == "says" and "another live broker" in text
        if is_refused and any(each.name == who for each in self.cluster.twins):
            self._seen.add("twin-refused")

    def end(self) -> None:
        """The run is over."""
        for name in sorted(self._seen) if self._crashes else ():
            self.marks.hit(name)

    # What must hold.

    def _unfenced(self, record: BrokerRegistrationChangeRecord) -> None:
        machines: list[SimNode | Twin] = [*self.cluster.nodes.values(), *self.cluster.twins]
        for each in machines:
            session = each.session
            if session.broker_epoch != record.broker_epoch or not each.is_up:
                continue
            if each.view.image.offset < record.broker_epoch or not session.logs_are_open:
                raise Violation(
                    "B1", "A broker was unfenced before it could serve.",
                    {"node": each.name, "epoch": record.broker_epoch,
                     "acts_on": each.view.image.offset, "logs_open": session.logs_are_open},
                )  # fmt: skip

    def _registered(self, record: RegisterBrokerRecord) -> None:
        node = self.cluster.nodes[record.broker_id]
        session = node.session
        if record.incarnation_id == session.incarnation_id or session.broker_epoch < 0:
            return
        if node.state is not State.RUNNING or node.advertised_host != node.name:
            return
        if self._clocks_changed(2_000 * node.config.broker_session_timeout_ms):
            return
        if record.broker_id in self._were_fenced and session.is_leaving:
            return  # the controller has let it go, and the store is slow to let it say so
        silent_ms = node.steady_ms - session.machine.confirmed_ms
        term_ms = (self.cluster.world.now_us - self._term[1]) // 1_000
        is_in_its_place = any(each.host == node.advertised_host for each in record.end_points)
        if term_ms <= silent_ms and (record.broker_id in self._were_fenced or is_in_its_place):
            return  # a new controller gives no session to who is fenced, and lets one that it has
            # not heard from be replaced by a process at the same address, late ones included
        ended_ms = (self.cluster.world.now_us - self._resigned_us) // 1_000
        if ended_ms < term_ms and ended_ms <= silent_ms:
            return  # one that was replaced, and did not know it, may have confirmed the heartbeat
        if silent_ms <= node.config.broker_session_timeout_ms // 2:
            raise Violation(
                "B4", "Another process took the place of a broker whose heartbeats were confirmed.",
                {"node": node.name, "epoch": session.broker_epoch, "silent_ms": silent_ms},
            )  # fmt: skip

    def _clocks_changed(self, within_us: int) -> bool:
        """Whether a clock jumped or stood still lately: then sessions are of any length."""
        since_us = self.cluster.world.now_us - within_us
        return any(each.clock.changed_us > max(0, since_us) for each in self.cluster.nodes.values())

    def _left(self, name: str) -> None:
        node = next(each for each in self.cluster.nodes.values() if each.name == name)
        broker = self.model.brokers.get(node.node_id)
        epoch = node.session.broker_epoch
        if epoch < 0 or broker is None or broker.epoch != epoch:
            return
        leads = [
            self.model.place(key)
            for key, partition in self.model.partitions.items()
            if partition.leader == node.node_id
        ]
        if leads or not (broker.fenced or node.node_id in self._fenced_since_stopping):
            raise Violation(
                "B2", "A broker stopped with permission, and the metadata still count on it.",
                {"node": name, "epoch": epoch, "leads": leads, "fenced": broker.fenced},
            )  # fmt: skip

    def _failed(self, node: SimNode, directory: bytes, confirmed_ms: int) -> None:
        key, epoch = (node.node_id, directory), node.session.broker_epoch
        failure = self._failures.get(key)
        if failure is None or failure.broker_epoch != epoch:
            self._failures[key] = Failure(epoch, (confirmed_ms,))
            return
        if failure.heartbeats_ms[-1] == confirmed_ms:
            return
        heartbeats = (*failure.heartbeats_ms, confirmed_ms)
        self._failures[key] = Failure(epoch, heartbeats)
        broker = self.model.brokers.get(node.node_id)
        if broker is None or broker.epoch != epoch or len(heartbeats) <= ENOUGH_HEARTBEATS + 1:
            return
        if directory in broker.folders:
            raise Violation(
                "B3", "A folder failed, heartbeats were confirmed, and the metadata count on it.",
                {"node": node.name, "epoch": epoch, "heartbeats": len(heartbeats)},
            )  # fmt: skip
