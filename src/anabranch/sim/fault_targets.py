"""What faults of every kind act on: the nodes that they aim at, the trace, and what happens later.

Rule kept: nothing is drawn here. Not here: the kinds of faults (`faults.py` and its neighbours),
their beginning and end (`faults.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from anabranch.sim.processes import State

if TYPE_CHECKING:
    from anabranch.sim.cluster import Cluster
    from anabranch.sim.node import SimNode
    from anabranch.sim.plan_parts import Fault

Undo = Callable[[], None]


class FaultTargets:
    """The cluster that faults happen in, and its nodes."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.world = cluster.world
        self.are_over = False
        """Whether the time of faults has ended."""

    def note(self, fault: Fault, who: str, text: str = "") -> None:
        """One line of the trace: a fault begins."""
        self.world.note("fault", who, f"{fault.kind} {text}".rstrip())

    def nodes(self) -> list[SimNode]:
        """Every node, in order."""
        nodes = self.cluster.nodes
        return [nodes[node_id] for node_id in sorted(nodes)]

    def running(self) -> list[SimNode]:
        """The nodes whose processes run, in order."""
        return [node for node in self.nodes() if node.state is State.RUNNING]

    def aimed(self, fault: Fault) -> SimNode | None:
        """The running node that a fault hits, if any runs."""
        running = self.running()
        return running[fault.aim % len(running)] if running else None

    def later(self, delay_us: int, action: Undo) -> None:
        """Do something after a while, unless faults are over by then."""

        def act() -> None:
            if not self.are_over:
                action()

        self.world.after(delay_us, act)

    def restart_mended(self, node: SimNode) -> None:
        """A folder that failed stays offline until its process starts again."""
        mend(node)
        if node.state is State.RUNNING:
            node.crash(power=False)
        node.start()


def mend(node: SimNode) -> None:
    """Let a disk be fast, whole and roomy again; what it has lost stays lost."""
    node.disk_delay_us = 0
    node.disk.mend()
    node.disk.broken.clear()
    node.disk.rooms.clear()
    node.metadata_disk.mend()
    node.advertised_host = node.name
