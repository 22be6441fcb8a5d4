"""What is seen of a cluster while it runs: who leads, what is missing, who has what.

What: a watcher that looks at every partition when the metadata or a process changed, and writes
down spans of conditions, changes of leaders, and how far a replica had fallen behind when it came
back. Why not from the metadata alone: between a leader's death and the controller's notice a client
is not served, and that time counts.

Rule kept: it reads and draws nothing, so that looking changes no run. Not here: what it means
(`answers.py`, `losses.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from anabranch.core.diskless.topics import is_diskless
from anabranch.core.metadata.image import RECOVERING, MetadataImage, PartitionImage
from anabranch.core.replication.replica import Replica
from anabranch.core.types import NO_LEADER, TopicPartition
from anabranch.sim.cluster import Cluster, Watcher
from anabranch.sim.node import SimNode
from anabranch.sim.processes import State
from anabranch.sim.rehearsal.answers import (
    LAST_KNOWN,
    SHORTEST_US,
    UNCLEANLY,
    Condition,
    Move,
    Place,
    Span,
)


class Copies:
    """How many records each replica had to copy after it was out of sync."""

    def __init__(self) -> None:
        self.behind: dict[tuple[int, Place], int] = {}
        """(broker, partition) -> the offset from which it lacks records."""
        self.ranges: list[tuple[int, int, Place, int, int]] = []
        """(receiver, sender, partition, first offset, end offset) of what was copied."""

    def fell_out(self, broker: int, place: Place, end_offset: int) -> None:
        """A replica left the ISR with so much in its log."""
        self.behind.setdefault((broker, place), end_offset)

    def has_less(self, broker: int, place: Place, end_offset: int) -> None:
        """Its log was cut, or came back shorter."""
        if (broker, place) in self.behind:
            self.behind[broker, place] = min(self.behind[broker, place], end_offset)

    def is_back(self, broker: int, place: Place, leader: int, end_offset: int) -> None:
        """It is in sync again."""
        first = self.behind.pop((broker, place), None)
        if first is not None and end_offset > first:
            self.ranges.append((broker, leader, place, first, end_offset))


class Probe(Watcher):
    """See the module. `on_change` is told of each change of a partition's metadata."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.world = cluster.world
        self.image = MetadataImage.empty()
        self.states: dict[Place, PartitionImage] = {}
        self.spans: list[Span] = []
        self.moves: list[Move] = []
        self.copies = Copies()
        self.committed_ends: dict[Place, int] = {}
        """The highest high watermark that any leader had, since the last unclean election."""
        self.lineage: dict[Place, list[tuple[int, int]]] = {}
        """For each new leader: the moment, and what was committed then."""
        self.led_by: dict[Place, int] = {}
        """The last broker that led each partition."""
        self.harm: list[tuple[int, str, int]] = []
        """(moment, `power` or `wipe`, broker)."""
        self.on_change: Callable[[Place, PartitionImage | None, PartitionImage], None] | None = None
        self.on_node: Callable[[SimNode, str], None] | None = None
        self.on_truncated: Callable[[int, Place, int, int], None] | None = None
        self.diskless: set[str] = set()
        """Topics whose records lie in object storage."""
        self.stored: Callable[[Place], dict[int, bytes]] = _nothing_stored
        """Offset -> value of what is committed to a diskless partition."""
        self._open: dict[tuple[Condition, Place], int] = {}
        self._known: dict[int, MetadataImage] = {}
        self._recording = False

    def begin(self) -> None:
        """Record from now on."""
        self._recording = True
        self._look()

    def end(self) -> None:
        """Close the books: what lasts has no end."""
        self._look()
        self._recording = False
        for (condition, place), since in sorted(self._open.items(), key=_by_place):
            self.spans.append(Span(condition, place, since))
        self.spans.sort(key=lambda span: (span.from_us, span.place))

    def relative_spans(self, begins_us: int) -> list[Span]:
        """The spans, with times counted from a moment."""
        return [
            replace(
                span,
                from_us=span.from_us - begins_us,
                to_us=None if span.to_us is None else span.to_us - begins_us,
            )
            for span in self.spans
        ]

    def relative_moves(self, begins_us: int) -> list[Move]:
        """The moves, with times counted from a moment."""
        return [replace(move, at_us=move.at_us - begins_us) for move in self.moves]

    # What the cluster tells.

    def event_ended(self, node: SimNode | None) -> None:
        """Look again when a node has followed the metadata."""
        if node is not None and self._known.get(node.node_id) is not node.image:
            image = self._known[node.node_id] = node.image
            self.note_high_watermarks(node)
            if image.offset > self.image.offset:
                self._follow(image)
            self._look()

    def node_changed(self, node: SimNode, what: str) -> None:
        """A process started, ended or stands still: look again."""
        self.note_high_watermarks(node)
        if what in ("power", "wipe"):
            self.harm.append((self.world.now_us, what, node.node_id))
        if what == "serving":  # its logs are open and recovered
            for replica in node.broker.partitions:
                place = _place(replica)
                self.copies.has_less(node.node_id, place, replica.log.end_offset)
        if what == "wipe":
            for broker, place in list(self.copies.behind):
                if broker == node.node_id:
                    self.copies.behind[broker, place] = 0
        if self.on_node is not None:
            self.on_node(node, what)
        self._look()

    def truncated(self, node: SimNode, place: TopicPartition, before: int, after: int) -> None:
        """A log gets shorter."""
        known = (place.topic, place.partition)
        self.copies.has_less(node.node_id, known, after)
        if self.on_truncated is not None:
            self.on_truncated(node.node_id, known, before, after)

    # What it sees.

    def replica(self, broker: int, place: Place) -> Replica | None:
        """One broker's replica, None when it has none; of a dead one as it was when it died."""
        return self.cluster.nodes[broker].broker.partitions.get(*place)

    def topics(self) -> dict[str, int]:
        """Every topic that there was, and how many partitions it has."""
        found: dict[str, int] = {}
        for name, _ in sorted(self.states):
            found[name] = found.get(name, 0) + 1
        return found

    def leaders(self) -> dict[int, int]:
        """How many partitions each broker leads."""
        found = dict.fromkeys(sorted(self.cluster.nodes), 0)
        for state in self.states.values():
            if state.leader >= 0:
                found[state.leader] += 1
        return found

    def serving_leader(self, place: Place) -> Replica | None:
        """The replica that serves a partition now, None when none does."""
        leader = self.states[place].leader
        node = self.cluster.nodes.get(leader)
        if node is None or node.state is not State.RUNNING or not node.is_serving:
            return None
        replica = node.broker.partitions.get(*place)
        return replica if replica is not None and replica.is_leader else None

    def was_committed(self, place: Place, offset: int, told_us: int) -> bool:
        """Whether a record was committed before the leader that had it at a moment was gone."""
        for at_us, committed in self.lineage.get(place, ()):
            if at_us >= told_us:
                return offset < committed
        return offset < self.committed_ends.get(place, 0)

    def service(self, place: Place) -> Condition | None:
        """What clients of a partition lack now: all of it, or to write; None for nothing."""
        if place[0] in self.diskless:
            return self._service_from_storage(place)
        leader = self.serving_leader(place)
        if leader is None:
            return Condition.OFFLINE
        return None if leader.enough_in_sync else Condition.READ_ONLY

    def _service_from_storage(self, place: Place) -> Condition | None:
        """Of a diskless partition: its leader serves what is stored, and writes where the store and
        the coordinator answer; without them, what brokers have in memory can be read."""
        node, remotes = self.cluster.nodes.get(self.states[place].leader), self.cluster.remotes
        assert remotes is not None
        if node is None or node.state is not State.RUNNING or not node.is_serving:
            return Condition.OFFLINE
        away = remotes.objects.faults.away or remotes.coordinator.faults.away
        return Condition.READ_ONLY if away else None

    def conditions(self, place: Place) -> Iterator[Condition]:
        """What is wrong with a partition now."""
        state, lacks = self.states[place], self.service(place)
        if lacks is not None:
            yield lacks
        nodes = self.cluster.nodes
        live = sum(nodes[each].state is State.RUNNING for each in state.isr)
        if live < len(state.replicas):
            yield Condition.UNDER_REPLICATED

    def _follow(self, image: MetadataImage) -> None:
        self.image = image
        for topic in image.topics_by_id.values():
            if is_diskless(image, topic.name):
                self.diskless.add(topic.name)
            for index, state in sorted(topic.partitions.items()):
                place = (topic.name, index)
                before = self.states.get(place)
                if before != state:
                    self._changed(place, before, state)

    def _changed(self, place: Place, before: PartitionImage | None, state: PartitionImage) -> None:
        self.states[place] = state
        if before is not None and self._recording:
            self._note_move(place, before, state)
            for broker in before.isr:
                if broker not in state.isr:
                    replica = self.replica(broker, place)
                    end = 0 if replica is None else replica.log.end_offset
                    self.copies.fell_out(broker, place, end)
            for broker in state.isr:
                if broker not in before.isr:
                    replica = self.replica(broker, place)
                    end = 0 if replica is None else replica.log.end_offset
                    self.copies.is_back(broker, place, state.leader, end)
        if state.leader >= 0:
            self.led_by[place] = state.leader
        if self.on_change is not None:
            self.on_change(place, before, state)

    def _note_move(self, place: Place, before: PartitionImage, state: PartitionImage) -> None:
        if state.leader == before.leader:
            return
        committed = self.committed_ends.get(place, 0)
        self.lineage.setdefault(place, []).append((self.world.now_us, committed))
        how = manner(before, state)
        if how:
            leader = self.replica(state.leader, place)
            end = 0 if leader is None else leader.log.end_offset
            self.committed_ends[place] = min(committed, end)
        was = self.led_by.get(place, NO_LEADER)
        if state.leader != was or how:
            self.moves.append(Move(self.world.now_us, place, was, state.leader, how))

    def note_high_watermarks(self, node: SimNode) -> None:
        """Remember what the leaders on a node have committed."""
        for replica in node.broker.partitions:
            if replica.is_leader:
                place = _place(replica)
                known = self.committed_ends.get(place, 0)
                self.committed_ends[place] = max(known, replica.high_watermark)

    def look(self) -> None:
        """Something changed that no node tells of."""
        self._look()

    def _look(self) -> None:
        if self._recording:
            for place in self.states:
                self._write_down(place)

    def _write_down(self, place: Place) -> None:
        now_us, seen = self.world.now_us, set(self.conditions(place))
        for condition in Condition:
            key = (condition, place)
            since = self._open.get(key)
            if condition in seen:
                if since is None:
                    self._open[key] = now_us
            elif since is not None:
                del self._open[key]
                if now_us - since >= SHORTEST_US:
                    self.spans.append(Span(condition, place, since, now_us))


def _nothing_stored(_place: Place) -> dict[int, bytes]:
    return {}


def manner(before: PartitionImage, state: PartitionImage) -> str:
    """How a new leader came to lead that was not in sync; empty for one that was."""
    if state.leader < 0 or state.recovery_state != RECOVERING:
        return ""
    return LAST_KNOWN if state.leader in before.last_known_elr else UNCLEANLY


def _place(replica: Replica) -> Place:
    return replica.topic_partition.topic, replica.topic_partition.partition


def _by_place(item: tuple[tuple[Condition, Place], int]) -> tuple[int, Place, str]:
    (condition, place), since = item
    return since, place, condition.value
