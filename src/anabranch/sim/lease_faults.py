"""Faults of what the active controller's term rests on: clocks, suspended machines, the store.

What: `LeaseFaults` has a machine stand still with its clock or behind it, a clock jump or drift,
the controller stand still, the store's answers come late, and the store be replaced by an older
copy of itself until an operator puts the right one back and starts who has stopped. The older copy
ends before every node's copy of the log, which is synced first: no node may go on. Rule kept: a
fault draws nothing itself. Not here: beginning and ending faults (`faults.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from anabranch.sim.processes import State

if TYPE_CHECKING:
    from anabranch.sim.fault_targets import FaultTargets
    from anabranch.sim.node import SimNode
    from anabranch.sim.plan_parts import Fault

Undo = Callable[[], None]
LONGEST_LATE_US = 5_000_000
LONGEST_JUMP_MS = 20_000
MOST_DRIFT = 0.2
"""Far more than any quartz: what is found at a fifth is there at a thousandth."""


class LeaseFaults:
    """See the module."""

    def __init__(self, faults: FaultTargets) -> None:
        self.faults = faults
        self.cluster = faults.cluster

    def table(self) -> dict[str, Callable[[Fault], Undo | None]]:
        """Kind -> what begins it."""
        return {
            "suspend": self._suspend,
            "clock-jump": self._jump,
            "clock-drift": self._drift,
            "controller-pause": self._pause,
            "store-late": self._late,
            "store-back": self._back,
        }

    def _node(self, fault: Fault) -> SimNode | None:
        """The active controller, mostly; else whoever is aimed at."""
        active = self.cluster.active_controller()
        return active if active is not None and fault.aim % 4 else self.faults.aimed(fault)

    def _suspend(self, fault: Fault) -> Undo | None:
        """The machine stands still, and its steady clock with it; it goes on with all it had."""
        node = self._node(fault)
        if node is None or node.state is not State.RUNNING:
            return None
        self.faults.note(fault, node.name)
        node.clock.stand()
        node.pause()

        def undo() -> None:
            node.clock.go_on()
            node.resume()

        return undo

    def _pause(self, fault: Fault) -> Undo | None:
        """Its steady clock goes on: to the process, a jump."""
        node = self._node(fault)
        if node is None or node.state is not State.RUNNING:
            return None
        self.faults.note(fault, node.name)
        node.pause()
        return node.resume

    def _jump(self, fault: Fault) -> Undo | None:
        node = self._node(fault)
        if node is None:
            return None
        self.faults.note(fault, node.name)
        node.clock.jump(int(LONGEST_JUMP_MS * fault.strength))
        node.controller_shell.clock_changed()
        return _nothing

    def _drift(self, fault: Fault) -> Undo | None:
        node = self._node(fault)
        if node is None:
            return None
        self.faults.note(fault, node.name)
        self._run_at(node, 1 - MOST_DRIFT + 2 * MOST_DRIFT * fault.strength)
        return lambda: self._run_at(node, 1.0)

    def _run_at(self, node: SimNode, rate: float) -> None:
        node.clock.run_at(rate)
        node.controller_shell.clock_changed()

    def _late(self, fault: Fault) -> Undo | None:
        self.faults.note(fault, "store")
        self.cluster.store.faults.late_us = int(LONGEST_LATE_US * fault.strength**3)

        def undo() -> None:
            self.cluster.store.faults.late_us = 0

        return undo

    def _back(self, fault: Fault) -> Undo | None:
        cluster = self.cluster
        shortest = min(_safe_end(node) for node in cluster.nodes.values())
        backup = [each.end_offset for each in cluster.store.batches if each.end_offset < shortest]
        if not backup or not cluster.store.restore_backup(backup[-1 - fault.other % len(backup)]):
            return None
        self.faults.note(fault, "store", f"to offset {cluster.store.end_offset}")
        return self._put_right

    def _put_right(self) -> None:
        """The operator puts the right store in place, and starts whoever has stopped."""
        self.cluster.store.come_back()
        for node in self.cluster.nodes.values():
            if node.stopped_because and not node.is_up:
                node.start()


def _safe_end(node: SimNode) -> int:
    """Where a node's copy of the log ends, whatever happens to its machine from now on."""
    if node.copy is None:
        return 0
    node.metadata_disk.sync_all()
    return node.copy.end_offset


def _nothing() -> None:
    return None
