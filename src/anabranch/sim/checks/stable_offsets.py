"""Whether each replica's last stable offset is before its first undecided transaction.

What: reads the batches of the topics of transactions on each simulated disk, notes where
transactions begin and which markers stand where, and compares after each event of a node. Undecided
is what has no marker, or one that lies at or above the replica's high watermark. Rule kept: nothing
of what the replica knows of its producers is used. A log in which a bit flipped is not read any
more. Not here: what clients are shown (`transactions.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from anabranch.core.errors import ProtocolError
from anabranch.core.types import TopicPartition
from anabranch.core.wire.batch import read_header
from anabranch.sim.checks.entries import BEGIN, Unreadable, read_entries
from anabranch.sim.checks.violation import Violation
from anabranch.sim.cluster import Watcher

if TYPE_CHECKING:
    from anabranch.core.replication.replica import Replica
    from anabranch.sim.node import SimNode

NOT_SEEN = -1


class Undecided:
    """The transactions of one replica's log, as its bytes have them."""

    def __init__(self, replica: Replica) -> None:
        self.replica = replica
        self.end = self.high = NOT_SEEN
        self.position = BEGIN
        self.open: dict[int, int] = {}
        """Producer -> where its transaction began."""
        self.ended: list[tuple[int, int]] = []
        """Where transactions began whose markers lie at or above the high watermark, and those."""

    def grow(self, node: SimNode) -> None:
        """Read what was appended."""
        for entry, position, batch in read_entries(node.disk, self.replica.log, self.position):
            self.position = position
            header = read_header(batch, 0)
            if header.is_control:
                if header.producer_id in self.open:
                    self.ended.append((self.open.pop(header.producer_id), entry.base))
            elif header.is_transactional:
                self.open.setdefault(header.producer_id, entry.base)

    def stable(self, high_watermark: int) -> int:
        """The last offset that may be told as stable."""
        self.ended = [each for each in self.ended if each[1] >= high_watermark]
        first = min([*self.open.values(), *(begun for begun, _ in self.ended), high_watermark])
        return min(max(first, self.replica.log.start_offset), high_watermark)


class StableOffsets(Watcher):
    """See the module; one of the cluster's checks."""

    def __init__(self, topics: tuple[str, ...]) -> None:
        self.topics = topics
        self._known: dict[int, dict[TopicPartition, Undecided]] = {}
        self._rotten: set[int] = set()

    def node_changed(self, node: SimNode, what: str) -> None:
        if what == "rot":
            self._rotten.add(node.node_id)
        if what in ("crash", "power", "stop", "start", "wipe", "older"):
            self._known.pop(node.node_id, None)

    def truncated(self, node: SimNode, place: TopicPartition, before: int, after: int) -> None:
        self._forget(node, place)

    def compacted(self, node: SimNode, place: TopicPartition, upto: int) -> None:
        self._forget(node, place)

    def _forget(self, node: SimNode, place: TopicPartition) -> None:
        """Its log is cut, or exchanged: it is read again from its begin."""
        self._known.get(node.node_id, {}).pop(place, None)

    def event_ended(self, node: SimNode | None) -> None:
        if node is None or not node.is_up or node.node_id in self._rotten:
            return
        by_name = node.broker.partitions.by_name
        of_node = self._known.setdefault(node.node_id, {})
        for topic in self.topics:
            if topic not in by_name:
                continue
            for replica in by_name[topic].values():
                known = of_node.get(replica.topic_partition)
                if (
                    known is None
                    or known.high != replica.high_watermark
                    or known.end != replica.log.end_offset
                    or known.replica is not replica
                ):
                    self._look(node, replica, of_node)

    def _look(
        self, node: SimNode, replica: Replica, of_node: dict[TopicPartition, Undecided]
    ) -> None:
        log = replica.log
        if log.fault is not None:
            return
        known = of_node.get(replica.topic_partition)
        if known is None or known.replica is not replica:
            known = of_node[replica.topic_partition] = Undecided(replica)
        try:
            known.grow(node)
        except (Unreadable, ProtocolError):
            self._rotten.add(node.node_id)
            return
        known.end, known.high = log.end_offset, replica.high_watermark
        stable = known.stable(replica.high_watermark)
        if replica.last_stable_offset > stable:
            raise Violation(
                "beyond-stable", "A replica tells a last stable offset behind what is undecided.",
                {"node": node.name, "partition": replica.topic_partition,
                 "told": replica.last_stable_offset, "stable": stable,
                 "high": replica.high_watermark},
            )  # fmt: skip
