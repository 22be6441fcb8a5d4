"""Faults of diskless topics: of the object store, of the coordinator, and of their writers.

What: either of the two is away, slow, cut off from a broker, or loses, swallows and delays calls;
the coordinator's clock jumps, so that leases are over; watches break; a broker dies between put and
commit, or sleeps there until its object's lease is over; a process whose node has crashed writes on
under its id. Rule kept: a fault draws nothing itself.
Not here: what a fault does inside a call (`remote.py`), beginning and ending faults (`faults.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from anabranch.sim.hanging_puts import HangingPuts
from anabranch.sim.processes import State
from anabranch.sim.remote import Remote, RemoteFaults

if TYPE_CHECKING:
    from anabranch.sim.cluster import Cluster
    from anabranch.sim.diskless import DisklessPerformer
    from anabranch.sim.node import SimNode
    from anabranch.sim.plan_parts import Fault
    from anabranch.sim.remotes import Remotes

Undo = Callable[[], None]
MOST_SLOW_US = 3_000_000
MOST_LATE_US = 30_000_000
MOST_JUMP_MS = 900_000
"""Longer than any lease."""
MOST_HANGING = 10
SLEEP_MS = 700_000
"""Of a broker that sleeps beyond its lease: the coordinator's clock goes on by so much."""


class DisklessFaults:
    """See the module."""

    def __init__(self, cluster: Cluster, remotes: Remotes) -> None:
        self.cluster = cluster
        self.world = cluster.world
        self.remotes = remotes
        self._lingering: list[DisklessPerformer] = []

    def table(self) -> dict[str, Callable[[Fault], Undo | None]]:
        """Kind -> what begins it."""
        table: dict[str, Callable[[Fault], Undo | None]] = {
            "watch-breaks": self._break_watches,
            "coordinator-clock": self._jump,
            "writer-lingers": self._linger,
            "crash-after-put": self._crash_after_put,
            "sleep-after-put": self._sleep_after_put,
            "puts-hang": self._hang,
        }
        for remote in (self.remotes.objects, self.remotes.coordinator):
            table |= self._of(remote)
        return table

    def _of(self, remote: Remote) -> dict[str, Callable[[Fault], Undo | None]]:
        name = remote.name
        return {
            f"{name}-away": lambda fault: self._away(fault, remote),
            f"{name}-slow": lambda fault: self._slow(fault, remote),
            f"{name}-flaky": lambda fault: self._flaky(fault, remote),
            f"{name}-cut": lambda fault: self._cut(fault, remote),
            f"{name}-away-for-minutes": lambda fault: self._away(fault, remote),
        }

    def heal(self) -> None:
        """Both answer, and nobody writes under the id of another."""
        for remote in (self.remotes.objects, self.remotes.coordinator):
            remote.faults = RemoteFaults()
        for performer in self._lingering:
            performer.end()
        self._lingering.clear()
        self.remotes.after_put.clear()
        self.remotes.objects.hangs.clear()

    def _note(self, fault: Fault, who: str, text: str = "") -> None:
        self.world.note("fault", who, f"{fault.kind} {text}".rstrip())

    def _aimed(self, fault: Fault) -> SimNode | None:
        nodes = self.cluster.nodes
        running = [nodes[n] for n in sorted(nodes) if nodes[n].state is State.RUNNING]
        return running[fault.aim % len(running)] if running else None

    # Of one of the two.

    def _away(self, fault: Fault, remote: Remote) -> Undo:
        self._note(fault, remote.name)
        remote.faults.away = True
        if remote is self.remotes.coordinator:
            self.remotes.coordinator.break_watches()

        def undo() -> None:
            if remote.faults.away and fault.kind.endswith("-for-minutes"):
                self.remotes.met.add(fault.kind)
            remote.faults.away = False

        return undo

    def _slow(self, fault: Fault, remote: Remote) -> Undo:
        self._note(fault, remote.name)
        remote.faults.slow_us = 1 + int(MOST_SLOW_US * fault.strength**2)

        def undo() -> None:
            remote.faults.slow_us = 0

        return undo

    def _flaky(self, fault: Fault, remote: Remote) -> Undo:
        """Some calls get lost, some are done and not answered, some are done late."""
        kinds, share = 1 + fault.other % 7, 0.05 + 0.25 * fault.strength
        faults = remote.faults
        faults.lost = share if kinds & 1 else 0.0
        faults.unanswered = share if kinds & 2 else 0.0
        faults.late = share if kinds & 4 else 0.0
        faults.late_us = 1 + fault.aim * MOST_LATE_US >> 16
        self._note(fault, remote.name, f"{kinds} {share:.2f}")

        def undo() -> None:
            faults.lost = faults.unanswered = faults.late = 0.0

        return undo

    def _cut(self, fault: Fault, remote: Remote) -> Undo | None:
        node = self._aimed(fault)
        if node is None:
            return None
        self._note(fault, node.name, remote.name)
        remote.faults.cut_off.add(node.name)
        if remote is self.remotes.coordinator:
            self.remotes.coordinator.break_watches()
        return lambda: remote.faults.cut_off.discard(node.name)

    # Of the coordinator.

    def _break_watches(self, fault: Fault) -> Undo:
        self._note(fault, "coordinator")
        self.remotes.coordinator.break_watches()
        return _nothing

    def _jump(self, fault: Fault) -> Undo:
        """Ahead by up to a quarter of an hour, or a little back."""
        ahead_ms = int(MOST_JUMP_MS * fault.strength) if fault.other % 4 else -fault.other % 5_000
        self._note(fault, "coordinator", str(ahead_ms))
        self.remotes.coordinator.skew_ms += ahead_ms
        return _nothing

    # Of writers.

    def _hang(self, fault: Fault) -> Undo | None:
        """The first put of each of the next objects hangs; some are done in the end."""
        node = self._aimed(fault)
        if node is None:
            return None
        count = 1 + fault.other % MOST_HANGING
        self._note(fault, node.name, str(count))
        objects = self.remotes.objects
        hanging = HangingPuts(objects, node, count, is_done=fault.strength < 0.5)
        return hanging.end

    def _linger(self, fault: Fault) -> Undo | None:
        """The node crashes, and its process writes on; the next one starts."""
        node = self._aimed(fault)
        if node is None or node.diskless is None:
            return None
        self._note(fault, node.name)
        performer = node.diskless
        node.crash()
        performer.linger()
        self._lingering.append(performer)
        if fault.other % 2:
            node.start()
        return node.start

    def _crash_after_put(self, fault: Fault) -> Undo | None:
        """The process dies when its next object is in the store: it may not know yet."""
        node = self._aimed(fault)
        if node is None:
            return None
        self._note(fault, node.name)

        def die() -> None:
            self.remotes.met.add("died-after-put")
            node.crash()

        self.remotes.after_put[node.name] = die

        def undo() -> None:
            self.remotes.after_put.pop(node.name, None)
            node.start()

        return undo

    def _sleep_after_put(self, fault: Fault) -> Undo | None:
        """The process stands still when its next object is in the store, for longer than the
        object's lease."""
        node = self._aimed(fault)
        if node is None:
            return None
        self._note(fault, node.name)

        def sleep() -> None:
            self.remotes.met.add("slept-after-put")
            node.pause()
            self.remotes.coordinator.skew_ms += SLEEP_MS

        self.remotes.after_put[node.name] = sleep

        def undo() -> None:
            self.remotes.after_put.pop(node.name, None)
            node.resume()

        return undo


def _nothing() -> None:
    return None
