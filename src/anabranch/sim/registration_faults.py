"""Faults around a broker's registration: copies of folders, addresses, folders, interrupted stops.

What: the kinds of the family `registration`. A process on a copy of a broker's folders, while that
lives, stands still or dies; a broker that comes back on an older copy of its folders; an address
that the controller does not reach; folders that fail one after another; a controlled shutdown in
the middle of which the process ends. Rule kept: as in `faults.py`, a fault draws nothing itself.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from anabranch.sim.machine import Backup
from anabranch.sim.processes import State

if TYPE_CHECKING:
    from anabranch.sim.fault_targets import FaultTargets
    from anabranch.sim.node import SimNode
    from anabranch.sim.plan_parts import Fault

Undo = Callable[[], None]
BACK_US = 300_000
"""How soon a process is started again where the fault is not that it is away."""
INTERRUPTED_US = 40_000
"""A controlled shutdown of an idle cluster takes about half of that."""
UNMOVED, STANDS_STILL = 0.3, 0.6
"""Below the first the broker beside a twin is left alone, below the second it stands still."""
ALL_FAIL = 0.7
"""Above it no folder is left."""


class RegistrationFaults:
    """Carries them out with the means of `FaultTargets`."""

    def __init__(self, faults: FaultTargets) -> None:
        self._faults = faults
        self._later = faults.later
        self._note = faults.note

    def table(self) -> dict[str, Callable[[Fault], Undo | None]]:
        """Kind -> what begins it; the result ends it."""
        return {
            "twin": self._twin,
            "older-copy": self._older_copy,
            "unreachable": self._unreachable,
            "folders-fail": self._folders_fail,
            "shutdown-interrupted": self._interrupt_shutdown,
        }

    def _registered(self, fault: Fault) -> SimNode | None:
        node = self._faults.aimed(fault)
        return node if node is not None and node.session.broker_epoch >= 0 else None

    def _twin(self, fault: Fault) -> Undo | None:
        node = self._registered(fault)
        if node is None:
            return None
        self._note(fault, node.name)
        twin = self._faults.cluster.start_twin(node)
        if fault.strength >= STANDS_STILL:
            self._later(fault.lasts_us // 4, node.crash)
        elif fault.strength >= UNMOVED:
            self._later(fault.lasts_us // 4, node.pause)

        def undo() -> None:
            twin.stop()
            node.resume()
            node.start()

        return undo

    def _older_copy(self, fault: Fault) -> Undo | None:
        """The copy is of an earlier life: one that goes back within a life is not noticed."""
        node = self._registered(fault)
        if node is None:
            return None
        self._note(fault, node.name)
        backup = Backup(node)
        node.crash()
        self._later(BACK_US, node.start)
        return partial(self._put_back, node, backup)

    def _put_back(self, node: SimNode, backup: Backup) -> None:
        registered = self._faults.cluster.image.brokers.get(node.node_id)
        is_later = registered is not None and registered.epoch > backup.broker_epoch
        if self._faults.cluster.store.put_aside is not None:
            is_later = False  # an older copy could not know that the store is older, too
        if is_later and backup.directory_ids == node.directory_ids:
            node.crash()
            node.restore(backup)
        node.start()

    def _unreachable(self, fault: Fault) -> Undo | None:
        node = self._registered(fault)
        if node is None:
            return None
        self._note(fault, node.name)

        def restart(host: str) -> None:
            def come_back() -> None:
                node.advertised_host = host
                node.start()

            node.shut_down(lambda: self._later(BACK_US, come_back))

        restart(f"{node.name}.nowhere")
        return lambda: restart(node.name)

    def _folders_fail(self, fault: Fault) -> Undo | None:
        node = self._faults.aimed(fault)
        if node is None:
            return None
        self._note(fault, node.name)
        first = fault.other % len(node.folders)
        folders = [*node.folders[first:], *node.folders[:first]]
        if fault.strength < ALL_FAIL and len(folders) > 1:
            folders.pop()
        for number, path in enumerate(folders):
            delay_us = number * fault.lasts_us // (len(folders) + 1)
            self._later(delay_us, partial(node.disk.broken.add, path))
        return lambda: self._faults.restart_mended(node)

    def _interrupt_shutdown(self, fault: Fault) -> Undo | None:
        node = self._registered(fault)
        if node is None or node.state is not State.RUNNING:
            return None
        self._note(fault, node.name)
        node.shut_down()
        power = fault.other % 3 == 0
        self._later(int(INTERRUPTED_US * fault.strength), partial(node.crash, power=power))
        return node.start
