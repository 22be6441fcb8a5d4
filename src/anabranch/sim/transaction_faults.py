"""Faults aimed at coordinators of transactions, and at what brokers ask of each other.

What: the leader of a partition of `__transaction_state` crashes, stands still, or is cut off from
the other brokers while clients still reach it; everything between brokers is lost, doubled and
late; a follower goes away with the beginning of a transaction. Rule kept: a fault draws nothing
itself. Not here: faults of clients (`clients/transactional_workload.py`), beginning and ending
faults (`faults.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from anabranch.core.coordination.transactions.topic import TRANSACTION_TOPIC
from anabranch.sim.network import LinkFault
from anabranch.sim.processes import State

if TYPE_CHECKING:
    from anabranch.sim.cluster import Cluster
    from anabranch.sim.node import SimNode
    from anabranch.sim.plan_parts import Fault

Undo = Callable[[], None]
MOST_LATE_US = 4_000_000
LOOK_US, MOST_LOOKS = 20_000, 100
"""How often, and for how long, a transaction is looked for that is under way."""
CUT = LinkFault(cut=True)


class TransactionFaults:
    """See the module."""

    def __init__(self, cluster: Cluster, compacted: frozenset[str] = frozenset()) -> None:
        self.cluster = cluster
        self._compacted = sorted(compacted)
        self.world = cluster.world

    def table(self) -> dict[str, Callable[[Fault], Undo | None]]:
        """Kind -> what begins it."""
        return {
            "state-leader-crash": self._crash,
            "state-leader-pause": self._pause,
            "state-leader-cut": self._cut,
            "peers-flaky": self._flaky,
            "follower-away": self._away,
        }

    def _leader(self, fault: Fault) -> SimNode | None:
        """Who coordinates some of the ids, if it runs."""
        topic = self.cluster.image.topic(TRANSACTION_TOPIC)
        if topic is None:
            return None
        parts = sorted(topic.partitions)
        found = topic.partitions[parts[fault.aim % len(parts)]]
        node = self.cluster.nodes.get(found.leader)
        if node is None or node.state is not State.RUNNING:
            return None
        self.world.note("fault", node.name, fault.kind)
        return node

    def _crash(self, fault: Fault) -> Undo | None:
        node = self._leader(fault)
        if node is None:
            return None
        node.crash(power=fault.strength < 0.2)

        return node.start

    def _pause(self, fault: Fault) -> Undo | None:
        node = self._leader(fault)
        if node is None:
            return None
        node.pause()
        return node.resume

    def _cut(self, fault: Fault) -> Undo | None:
        """From all brokers, or only what it asks of them."""
        node = self._leader(fault)
        if node is None:
            return None
        links = [(node.node_id, each) for each in sorted(self.cluster.nodes)]
        if fault.other % 2:
            links += [(other, one) for one, other in links]
        return self._spoil([each for each in links if each[0] != each[1]], CUT)

    def _away(self, fault: Fault) -> Undo:
        """A follower ends, or stands still, when it has copied a part of a transaction."""
        self.world.note("fault", "world", fault.kind)
        found: list[SimNode] = []

        def look(looks_left: int) -> None:
            node = self._copying(fault)
            if node is not None:
                found.append(node)
                self.world.note("fault", node.name, fault.kind)
                node.pause() if fault.other % 3 == 0 else node.crash(power=False)
            elif looks_left:
                self.world.after(LOOK_US, look, looks_left - 1)

        def undo() -> None:
            for node in found:
                node.resume() if fault.other % 3 == 0 else node.start()

        look(MOST_LOOKS)
        return undo

    def _copying(self, fault: Fault) -> SimNode | None:
        """A follower whose log ends within a transaction."""
        for name in self._compacted:
            topic = self.cluster.image.topic(name)
            for index, state in sorted(topic.partitions.items()) if topic is not None else ():
                followers = [each for each in state.isr if each != state.leader]
                for node_id in followers[fault.aim % 2 :]:
                    node = self.cluster.nodes[node_id]
                    replica = node.broker.partitions.get(name, index) if node.is_serving else None
                    is_running = node.state is State.RUNNING
                    if is_running and replica and replica.log.producers.open_transactions:
                        return node
        return None

    def _flaky(self, fault: Fault) -> Undo:
        """Requests between brokers, and their answers, get lost, come twice, and late."""
        self.world.note("fault", "network", fault.kind)
        nodes = sorted(self.cluster.nodes)
        link = LinkFault(
            loss=0.3 * fault.strength,
            duplicate=0.3,
            delay_us=int(MOST_LATE_US * fault.strength) if fault.other % 2 else 30_000,
            reorder=True,
        )
        return self._spoil([(one, other) for one in nodes for other in nodes if one != other], link)

    def _spoil(self, links: list[tuple[int, int]], link: LinkFault) -> Undo:
        for source, target in links:
            self.cluster.spoil(source, target, link, plane="data")

        def undo() -> None:
            for source, target in links:
                self.cluster.spoil(source, target, None, plane="data")

        return undo
