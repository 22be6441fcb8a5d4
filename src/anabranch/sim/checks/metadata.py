"""M1 to M5: what must hold of the metadata log, and of everybody's copy of it.

    M1  broker epoch, controller epoch, a replica's leader and partition epoch never go back
    M2  at most one leader a partition and leader epoch, and only one who was elected
    M3  leader in ISR; ISR and ELR of replicas, apart, without fenced ones; ELR empty with enough
    M4  replicas distinct; holes -1 to -n at the end, never leading
    M5  everybody's image is what the committed log says up to its offset

What: `committed` applies each batch to the checker's own `Model` and looks at what it touched;
`look` compares a node's image with what the log said, once for each batch that the node followed.
Rule kept: the cost is that of what changed. Not here: logs of partitions (`logs.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from anabranch.core.wire.metadata_records import TopicRecord
from anabranch.sim.checks.managed import ManagedChecks
from anabranch.sim.checks.marks import Marks
from anabranch.sim.checks.model import (
    LOST_FOLDER,
    MIN_ISR,
    NOBODY,
    Broker,
    Changes,
    Key,
    Model,
    Partition,
)
from anabranch.sim.checks.violation import Violation

if TYPE_CHECKING:
    from anabranch.core.metadata.image import MetadataImage
    from anabranch.sim.node import SimNode

UNCLEAN, LAST_KNOWN, BY_OPERATOR = "unclean election", "last known leader", "operator's election"
"""Rules that allow a leader who may lack committed records."""

Asked = Callable[[Key], bool]
"""Whether an operator asked for an unclean election of a partition."""


class Elected:
    """A new leader by the committed log. `rule` allows it to lack records; "" when none does."""

    __slots__ = ("before", "key", "now", "rule")

    def __init__(self, key: Key, before: Partition | None, now: Partition, rule: str) -> None:
        self.key = key
        self.before = before
        self.now = now
        self.rule = rule


class MetadataChecks:
    """See the module. `elected` hears of each new leader, `joined` of each new ISR member."""

    def __init__(self, marks: Marks, asked: Asked) -> None:
        self.model = Model()
        self.managed = ManagedChecks(self.model)
        self.marks = marks
        self.elected: list[Callable[[Elected], None]] = []
        self.joined: list[Callable[[Key, tuple[int, ...]], None]] = []
        self.left: list[Callable[[Key, set[int]], None]] = []
        """Called with the brokers that have no replica of a partition any more."""
        self.configured: list[Callable[[Key], None]] = []
        """Called with each partition whose settings change, its topic's or their defaults."""
        self._asked = asked
        self._said: dict[int, tuple[dict[Key, Partition | None], dict[int, Broker | None]]] = {}
        """End offset of a batch -> what it made of what it touched (None: deleted)."""
        self._ends: list[int] = []
        self._equal: dict[int, MetadataImage] = {}
        """Offset -> an image that was found to be right."""
        self._followed: dict[int, MetadataImage] = {}
        self._decided: dict[int, int] = {}
        self._deposed: set[tuple[int, int]] = set()
        self.rewound = False
        self.copied: set[int] = set()
        """Brokers that came back on an older copy, or whose place a process on a copy took."""
        self._in_trouble: dict[tuple[int, Key], int] = {}
        """(broker, partition) -> the broker epoch in which its replica could not serve."""

    # Each committed batch.

    def committed(
        self, records: tuple[Any, ...], first_offset: int, end_offset: int, epoch: int
    ) -> None:
        """See Watcher."""
        model = self.model
        if first_offset < model.end_offset:
            self.rewound = True  # the store was put back: nodes have to stop by themselves
        if self.rewound:
            return
        if first_offset != model.end_offset or end_offset <= first_offset:
            raise Violation(
                "M5", "A batch does not begin where the metadata log ends.",
                {"first": first_offset, "end": end_offset, "log_end": model.end_offset},
            )  # fmt: skip
        if epoch < model.epoch:
            raise Violation(
                "M1", "The controller epoch went back.", {"epoch": epoch, "before": model.epoch}
            )
        if epoch > model.epoch > 0:
            self.marks.hit("controller-failover")
        if any(each.name in model.topics.values() for each in records if type(each) is TopicRecord):
            self.marks.hit("topic-made-again")
        changes = model.apply(records, end_offset, epoch)
        self._remember(changes, end_offset)
        self._check_brokers(changes)
        self.managed.brokers_changed()
        self.managed.begins(changes.partitions)
        touched = dict(changes.partitions)
        for broker_id in changes.brokers:
            for key in model.keys_of.get(broker_id, ()):
                touched.setdefault(key, model.partitions.get(key))
        if MIN_ISR in changes.settings:
            self.marks.hit("min-isr-changed")
        for resource_type, name in changes.configs:
            for key in model.partitions if resource_type == 4 else self._of_topic(name):
                touched.setdefault(key, model.partitions[key])
                for hear in self.configured:
                    hear(key)
        for key, before in touched.items():
            partition = model.partitions.get(key)
            if partition is not None:
                self._check_partition(key, partition)
                if model.is_diskless(key):
                    self.managed.look(key, before, partition)
                if before is not partition:
                    self._changed(key, before, partition)

    def _of_topic(self, name: str) -> list[Key]:
        topics = self.model.topics
        return [key for key in self.model.partitions if topics.get(key[0]) == name]

    def _remember(self, changes: Changes, end_offset: int) -> None:
        model = self.model
        partitions: dict[Key, Partition | None] = {
            key: model.partitions.get(key) for key in changes.partitions
        }
        partitions.update(dict.fromkeys(changes.deleted))
        brokers = {broker_id: model.brokers.get(broker_id) for broker_id in changes.brokers}
        self._said[end_offset] = (partitions, brokers)
        self._ends.append(end_offset)

    def _check_brokers(self, changes: Changes) -> None:
        for broker_id, before in changes.brokers.items():
            now = self.model.brokers.get(broker_id)
            if before is None or now is None:
                continue
            if now.epoch < before.epoch:
                raise Violation(
                    "M1", "A broker's epoch went back.",
                    {"broker": broker_id, "epoch": now.epoch, "before": before.epoch},
                )  # fmt: skip
            if now.epoch > before.epoch:
                self.marks.hit("broker-returned")
            elif now.fenced and not before.fenced:
                self.marks.hit("broker-fenced")
            if now.leaving and not before.leaving:
                self.marks.hit("controlled-shutdown")

    def _check_diskless(self, key: Key, partition: Partition) -> None:
        """All replicas are in sync, dead ones too, and whoever leads lives."""
        replicas, brokers = partition.replicas, self.model.brokers
        living = {each for each in replicas if (b := brokers.get(each)) is not None and b.active}
        wrong = ""
        if partition.isr != replicas or partition.elr:
            wrong = "A diskless partition has replicas that are not in sync."
        elif not replicas or len(set(replicas)) != len(replicas) or min(replicas) < 0:
            wrong = "The replicas of a diskless partition are no set of brokers."
        elif partition.adding or partition.removing or partition.recovering:
            wrong = "A diskless partition waits for bytes."
        elif partition.leader != NOBODY and partition.leader not in living:
            wrong = "A diskless partition is led by a broker that is not there."
        elif partition.leader == NOBODY and living:
            wrong = "A diskless partition has no leader, and a replica of it lives."
        if wrong:
            told = {"partition": self.model.place(key), "state": tuple(partition)}
            raise Violation("M3", wrong, told)

    def _check_partition(self, key: Key, partition: Partition) -> None:
        if self.model.is_diskless(key):
            self._check_diskless(key, partition)
            return
        replicas, isr, elr, leader = (
            partition.replicas, partition.isr, partition.elr, partition.leader,
        )  # fmt: skip
        told = {"partition": self.model.place(key), "state": tuple(partition)}
        wrong = ""
        if leader >= 0 and leader not in isr:
            wrong = "The leader is not in the ISR."
        elif len(set(isr)) != len(isr) or not set(isr) <= set(replicas):
            wrong = "The ISR is not a set of replicas."
        elif len(set(elr)) != len(elr) or not set(elr) <= set(replicas):
            wrong = "The ELR is not a set of replicas."
        elif set(elr) & set(isr):
            wrong = "A replica is in ISR and ELR at once."
        elif elr and len(isr) >= self.model.min_isr(key):
            wrong = "Enough are in sync, and the ELR is not empty."
        elif set(partition.observers) & {*isr, *elr, *replicas}:
            wrong = "An observer counts as a replica."
        elif not {*partition.adding, *partition.removing} <= set(replicas):
            wrong = "Who comes or goes with a move is no replica."
        elif not self._members_may_be(partition):
            wrong = "A broker is in the ISR that is fenced, leaving or not registered."
        if wrong:
            raise Violation("M3", wrong, told)
        real = [each for each in replicas if each >= 0]
        holes = sorted(each for each in replicas if each < 0)
        if len(set(real)) != len(real):
            wrong = "A broker stands twice among the replicas."
        elif holes != list(range(-len(holes), 0)):
            wrong = "Holes among the replicas are not -1 to -n."
        elif any(each < 0 for each in replicas[: len(real)]):
            wrong = "A hole stands before a broker among the replicas."
        if wrong:
            raise Violation("M4", wrong, told)

    def _members_may_be(self, partition: Partition) -> bool:
        brokers = self.model.brokers
        members = [brokers.get(each) for each in partition.isr]
        if all(member is not None and member.active for member in members):
            return True
        # Without ELR the ISR is never empty: its last member stays there while nobody leads.
        return partition.leader == NOBODY and not self.model.elr_enabled and len(members) == 1

    def _changed(self, key: Key, before: Partition | None, now: Partition) -> None:
        if before is not None:
            self._mark(before, now)
            if not self.model.is_diskless(key) and _factor(before) != _factor(now):
                self.marks.hit("replication-factor-changed")
            lost = _lost(now) - _lost(before) - self.copied
            if not all(self._is_in_trouble(each, key) for each in lost):
                raise Violation(
                    "L4", "A replica is told as lost that could serve, and whose folders are no "
                    "older ones.",
                    {"partition": self.model.place(key), "replicas": now.replicas,
                     "folders": now.folders},
                )  # fmt: skip
            not_in_sync = {*before.adding} - {*now.adding, *now.isr}
            if not_in_sync & set(now.replicas):
                raise Violation(
                    "M3", "A replica that a move was adding stays, and is not in sync.",
                    {"partition": self.model.place(key), "replicas": sorted(not_in_sync)},
                )  # fmt: skip
        if before is None or now.leader_epoch != before.leader_epoch:
            known = self.model.leaders.setdefault((key, now.leader_epoch), now.leader)
            if known != now.leader:
                raise Violation(
                    "M2", "Two leaders were elected in one leader epoch.",
                    {"partition": self.model.place(key), "epoch": now.leader_epoch,
                     "leaders": (known, now.leader)},
                )  # fmt: skip
            if now.leader >= 0:
                life = self.model.brokers.get(now.leader)
                self.model.lives[key, now.leader_epoch] = -1 if life is None else life.epoch
                is_free = before is None or self.model.is_diskless(key)
                rule = "" if before is None or is_free else self._rule(key, before, now)
                for hears in self.elected:
                    hears(Elected(key, before, now, rule))
        joined = tuple(each for each in now.isr if before is None or each not in before.isr)
        if joined and before is not None and not self.model.is_diskless(key):
            for tell in self.joined:
                tell(key, joined)
        if before is not None:
            left = {*before.replicas, *before.observers} - {*now.replicas, *now.observers}
            for say in self.left if left else ():
                say(key, left)

    def _is_in_trouble(self, broker_id: int, key: Key) -> bool:
        """Whether this life of a broker had a replica that could not serve."""
        broker = self.model.brokers.get(broker_id)
        return broker is not None and self._in_trouble.get((broker_id, key)) == broker.epoch

    def _rule(self, key: Key, before: Partition, now: Partition) -> str:
        """What allows this leader to lack records; raises L4 when that was not allowed."""
        model = self.model
        could = {each for each in (*before.isr, *before.elr) if model.may_lead(before, each)}
        if now.leader in before.isr and (now.leader in could or now.leader == before.leader):
            if now.leader != before.leader:
                gone = before.leader not in now.isr
                self.marks.hit("clean-failover" if gone else "preferred-election")
            return ""
        if model.hands_over(before, now):
            return ""  # whether it has everything is asked of each replica that joins
        told = {
            "partition": self.model.place(key), "leader": now.leader, "epoch": now.leader_epoch,
            "isr": before.isr, "elr": before.elr, "last_known": before.last_known,
        }  # fmt: skip
        eligible = now.leader in before.elr and now.leader in could
        better = could & set(before.isr) if eligible else could
        better -= set(before.adding) - set(now.replicas)  # a cancelled move takes them away
        if better:
            raise Violation(
                "L4", "A replica was elected that may lack records, though one could lead "
                "that does not.", {**told, "could_lead": sorted(better)},
            )  # fmt: skip
        if eligible:
            self.marks.hit("elr-election")
            return ""
        if not now.recovering:
            raise Violation("L4", "An unclean election was not recorded as one.", told)
        if before.last_known == (now.leader,) or (
            not before.last_known and now.leader == before.leader
        ):
            self.marks.hit("last-known-leader")
            return LAST_KNOWN
        self.marks.hit("unclean-election")
        if self.model.unclean_allowed(key):
            return UNCLEAN
        if self._asked(key):
            return BY_OPERATOR
        raise Violation("L4", "An unclean election that nothing allows.", told)

    def _mark(self, before: Partition, now: Partition) -> None:
        marks = self.marks
        if len(now.isr) < len(before.isr):
            marks.hit("isr-shrink")
            if len(now.isr) == 1:
                marks.hit("isr-shrink-to-1")
        elif len(now.isr) > len(before.isr):
            marks.hit("isr-expansion")
        if now.leader == NOBODY != before.leader:
            marks.hit("leaderless")
        if before.recovering and not now.recovering:
            marks.hit("recovered-leader")

    # Each node's copy.

    def look(self, node: SimNode) -> None:
        """After an event of a node: its image, and its controller's if that is active."""
        image = node.broker.image
        if self._followed.get(node.node_id) is not image:
            self._follow(node, image)
        for place, topic_id in node.broker.partitions.offline.items():
            key = (bytes(topic_id), place.partition)
            self._in_trouble[node.node_id, key] = node.broker.broker_epoch
        controller = node.controller
        if controller.active and controller.epoch < self.model.epoch:
            if (node.node_id, controller.epoch) not in self._deposed:
                self._deposed.add((node.node_id, controller.epoch))
                self.marks.hit("controller-deposed")
        elif controller.active and self._decided.get(node.node_id) != self.model.end_offset:
            planned = controller.image
            if planned.offset + 1 == self.model.end_offset:
                since = self._decided.get(node.node_id, 0)
                self._decided[node.node_id] = self.model.end_offset
                self._compare(node, planned, since)

    def forget(self, node: SimNode) -> None:
        """The node's process ended: the next one begins anew."""
        self._followed.pop(node.node_id, None)
        self._decided.pop(node.node_id, None)

    def _follow(self, node: SimNode, image: MetadataImage) -> None:
        before = self._followed.get(node.node_id)
        self._followed[node.node_id] = image
        if image.offset < 0 or self.rewound:
            return
        if before is not None and image.offset < before.offset:
            raise Violation(
                "M1", "A node's metadata went back.",
                {"node": node.name, "offset": image.offset, "before": before.offset},
            )  # fmt: skip
        equal = self._equal.get(image.offset)
        if equal is image:
            return
        if image.offset + 1 not in self._said:
            raise Violation(
                "M5", "A node's metadata log is no prefix of what was committed.",
                {"node": node.name, "end": image.offset + 1, "committed": self.model.end_offset},
            )  # fmt: skip
        self._compare(node, image, 0 if before is None else before.offset + 1)
        self._equal[image.offset] = image

    def _compare(self, node: SimNode, image: MetadataImage, since: int) -> None:
        """Compare an image with what the batches after `since` said of what they touched."""
        partitions: dict[Key, Partition | None] = {}
        brokers: dict[int, Broker | None] = {}
        for end_offset in self._ends_between(since, image.offset + 1):
            partitions.update(self._said[end_offset][0])
            brokers.update(self._said[end_offset][1])
        for key, said in partitions.items():
            shown = _partition_of(image, key)
            if shown != said:
                raise Violation(
                    "M5", "A partition's state is not what the metadata log says.",
                    {"node": node.name, "partition": self.model.place(key),
                     "offset": image.offset, "log": said, "node_has": shown},
                )  # fmt: skip
        for broker_id, state in brokers.items():
            known = image.brokers.get(broker_id)
            has = known and Broker(
                known.epoch, known.fenced, known.in_controlled_shutdown, known.log_dirs,
                known.full_log_dirs,
            )  # fmt: skip
            if has != state:
                raise Violation(
                    "M5", "A broker's state is not what the metadata log says.",
                    {"node": node.name, "broker": broker_id, "offset": image.offset,
                     "log": state, "node_has": has},
                )  # fmt: skip

    def _ends_between(self, since: int, upto: int) -> list[int]:
        ends = self._ends
        first = len(ends)
        while first and ends[first - 1] > since:
            first -= 1
        return [end for end in ends[first:] if end <= upto]


def _factor(partition: Partition) -> int:
    """How many replicas it has, but for those that a move adds."""
    return len(partition.replicas) - len(partition.adding)


def _lost(partition: Partition) -> set[int]:
    """The brokers whose replicas are told as lost."""
    told = zip(partition.replicas, partition.folders, strict=False)
    return {broker_id for broker_id, folder in told if folder == LOST_FOLDER}


def _partition_of(image: MetadataImage, key: Key) -> Partition | None:
    topic = image.topics_by_id.get(key[0])  # type: ignore[call-overload]
    state = None if topic is None else topic.partitions.get(key[1])
    if state is None:
        return None
    return Partition(
        replicas=state.replicas,
        isr=state.isr,
        elr=state.elr,
        last_known=state.last_known_elr,
        leader=state.leader,
        leader_epoch=state.leader_epoch,
        partition_epoch=state.partition_epoch,
        recovering=state.recovery_state == 1,
        observers=state.observers,
        folders=state.directories,
        adding=state.adding,
        removing=state.removing,
    )
