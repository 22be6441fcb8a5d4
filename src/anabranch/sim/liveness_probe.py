"""Connections that close, and dialling anew: how simulated controllers find a process that is gone.

What: a process that ends closes its connections, and so does a broker that moves on to another
controller; whoever it was connected to hears that. A controller then dials the node: a machine
whose process is gone refuses, a new process says that it is another, a paused process or a dark
machine says nothing. Rule kept: everything goes over the network and may be late or lost. Not here:
what a finding means (`core/controller/brokers/hints.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from anabranch.core.controller.brokers.hints import Answer
from anabranch.sim.processes import State

if TYPE_CHECKING:
    from anabranch.core.controller.brokers.hints import Probe
    from anabranch.sim.registrant import Registrant


def close(process: Registrant, other: Registrant) -> None:
    """A process's connection to another node's controller listener closes."""
    network = process.cluster.network
    network.send(process.name, other.controller_name, other, _closed, other, process)


def _closed(at: Registrant, process: Registrant) -> None:
    if at.is_up:
        at.connection_closed(process)


def dial(node: Registrant, probe: Probe, found: Callable[[Answer], None]) -> None:
    """Dial the address at which a broker registered: whatever listens there by now answers."""
    target = node.cluster.at(probe.endpoint.host)
    timeout_us = (probe.until_ms - probe.asked_ms) * 1000
    Dial(node, target, probe.incarnation_id, found).start(timeout_us)


class Dial:
    """One attempt to reach a node; `found` is called once."""

    def __init__(
        self,
        node: Registrant,
        target: Registrant | None,
        incarnation_id: bytes | None,
        found: Callable[[Answer], None],
    ) -> None:
        self._node = node
        self._target = target
        self._incarnation_id = incarnation_id
        self._found = found
        self._life = node.life
        self._is_over = False

    def start(self, timeout_us: int) -> None:
        """Dial, and wait so long for an answer. Where no node is, the network refuses at once."""
        node, target = self._node, self._target
        if target is None:
            self._end(Answer.REFUSED)
            return
        node.world.after_in(node, timeout_us, self._end, Answer.SILENCE)
        node.cluster.network.send(node.name, target.name, target, self._arrive)

    def _arrive(self) -> None:
        target = self._target
        if target is None or target.state is State.POWERED_OFF:
            return
        answer = Answer.REFUSED
        if target.listens:
            same = self._incarnation_id in (None, target.incarnation_id)
            answer = Answer.SAME if same else Answer.ANOTHER
        node = self._node
        node.cluster.network.send(target.name, node.name, node, self._end, answer)

    def _end(self, answer: Answer) -> None:
        if not self._is_over and self._node.life == self._life:
            self._is_over = True
            self._found(answer)
