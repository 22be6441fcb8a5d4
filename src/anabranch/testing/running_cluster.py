"""One run of a cluster: its nodes, their faults, its folder.

What: `RunningCluster` starts all nodes, each on a thread or as a process, and ends all of them; it
makes the faults that concern several nodes. Rules kept: whatever happens while it starts or runs,
`stop` leaves no process, thread, socket or temporary folder; what goes wrong is a `ClusterError`
with a sentence, and has the fault behind it only where that is a bug of ours. Not here: what users
of a cluster call (`local_cluster.py`), and one node's states (`nodes.py`).
"""

from __future__ import annotations

import contextlib
import tempfile
import time
import weakref
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

from anabranch.testing.faults import BOTH, CONTROLLER, REPLICATION
from anabranch.testing.nodes import (
    KILLED,
    PAUSED,
    RUNNING,
    STOP_SECONDS,
    STOPPED,
    ClusterError,
    ClusterNode,
    NodePlan,
)
from anabranch.testing.process_life import Processes
from anabranch.testing.thread_life import Threads

LINKS = {"all": BOTH, "replication": REPLICATION, "controller": CONTROLLER}
"""What a cut may be of, by the words that rehearsals use."""


class RunningCluster:
    """The nodes of a cluster; the plans are asked for with the folder to use."""

    def __init__(
        self, plans: Callable[[str], Sequence[NodePlan]], folder: str | None, *, processes: bool
    ) -> None:
        self._temporary = temporary_folder() if folder is None else None
        self.folder = self._temporary.name if self._temporary is not None else str(folder)
        try:
            found = plans(self.folder)
            self.mode = Processes(self.folder) if processes else Threads()
        except OSError as fault:
            self._remove_folder()
            raise ClusterError(f"The cluster did not start: {fault}") from None
        self.nodes = {
            plan.broker_id: ClusterNode(plan, self.mode.faults(plan.broker_id), self.mode.begin)
            for plan in found
        }
        self.last_log = ""
        """What was logged, once it has ended."""
        # A test run that forgets to stop a cluster still leaves no paused process behind.
        self._last_resort = weakref.finalize(self, _kill_all, list(self.nodes.values()))

    # All nodes.

    def start(
        self, timeout_seconds: float, first: int | None = None, later: Collection[int] = ()
    ) -> None:
        """Start all but the `later` ones, and wait until clients are served; one node may be
        `first`, to take the lease. Raises ClusterError; nothing is left then."""
        until = time.monotonic() + timeout_seconds
        try:
            if first is not None:
                self.nodes[first].launch()
                self._wait_first(self.nodes[first], until, timeout_seconds)
            now = {each: node for each, node in self.nodes.items() if each not in later}
            for broker_id, node in now.items():
                if broker_id != first:
                    node.launch()
            for node in now.values():
                self._wait_first(node, until, timeout_seconds)
        except BaseException:
            self.stop()
            raise

    def _wait_first(self, node: ClusterNode, until: float, timeout_seconds: float) -> None:
        try:
            node.wait_serving(until)
        except ClusterError as fault:
            if time.monotonic() >= until:
                raise ClusterError(
                    f"The cluster did not start within {timeout_seconds:g} seconds; where the "
                    "machine is slow, give it more with start_timeout_seconds."
                ) from None
            raise ClusterError(f"The cluster did not start: {fault}") from fault.__cause__

    def stop(self) -> None:
        """End all nodes and remove the temporary folder. Raises ClusterError if that fails."""
        self.heal()
        for node in self.nodes.values():
            node.faults.disk_ms, node.faults.disk_is_full = 0, False
        hanging = [node for node in reversed(self.nodes.values()) if not node.end()]
        self._last_resort.detach()
        self.last_log = self.mode.log
        self.mode.close()
        self._remove_folder()
        if hanging:
            names = ", ".join(node.name.lower() for node in hanging)
            raise ClusterError(f"The cluster did not stop within {STOP_SECONDS:g} seconds: {names}")

    def _remove_folder(self) -> None:
        if self._temporary is not None:
            self._temporary.cleanup()

    @property
    def serving(self) -> list[ClusterNode]:
        """The nodes that clients can talk to. Raises ClusterError when there are none."""
        found = [node for node in self.nodes.values() if node.state == RUNNING]
        if not found:
            raise ClusterError(self._why_none())
        return found

    def _why_none(self) -> str:
        states = {node.state for node in self.nodes.values()}
        if states & {STOPPED, KILLED, PAUSED} or len(self.nodes) > 1:
            return ". ".join(node.why() for node in self.nodes.values()) + "."
        return self.nodes[1].why().replace("Broker 1 has", "The cluster has")

    # One node, some nodes.

    def node(self, broker_id: int) -> ClusterNode:
        """A node by its id."""
        node = self.nodes.get(broker_id)
        if node is None:
            raise ClusterError(f"There is no broker {broker_id}: {self.ids}.")
        return node

    @property
    def ids(self) -> str:
        """Which brokers there are, and which run."""
        last = max(self.nodes)
        running = [str(each) for each, node in self.nodes.items() if node.state == RUNNING]
        are = f"the brokers are 1 to {last}" if last > 1 else "the only broker is 1"
        return f"{are}; running: {', '.join(running) or 'none'}"

    def some(self, broker_id: int | None) -> Iterable[ClusterNode]:
        """One node, or all of them for None."""
        return self.nodes.values() if broker_id is None else [self.node(broker_id)]

    # Links.

    def pairs(self, a: int, b: int | None) -> Iterator[tuple[ClusterNode, ClusterNode]]:
        """The links between two nodes, or between one and every other."""
        one = self.node(a)
        if b is not None:
            if a == b:
                raise ClusterError(f"Broker {a} has no link to itself: name two brokers.")
            yield one, self.node(b)
            return
        if len(self.nodes) == 1:
            raise ClusterError("There is no link between brokers: the cluster has only one.")
        for other in self.nodes.values():
            if other is not one:
                yield one, other

    def cut(self, a: int, b: int | None, *, one_way: bool, links: str = "all") -> None:
        """Let no byte pass from `a` to `b`, nor back unless `one_way`."""
        if links not in LINKS:
            raise ClusterError(f"There are no links {links!r}: name {', '.join(LINKS)}.")
        kind = LINKS[links]
        for one, other in list(self.pairs(a, b)):
            mine, theirs = one.plan.broker_id, other.plan.broker_id
            one.faults.cut(theirs, outgoing=True, incoming=not one_way, links=kind)
            other.faults.cut(mine, outgoing=not one_way, incoming=True, links=kind)

    def delay(self, a: int, b: int | None, ms: int) -> None:
        """Let every byte between them pass later, in both directions."""
        for one, other in list(self.pairs(a, b)):
            one.faults.delay(other.plan.broker_id, ms)
            other.faults.delay(one.plan.broker_id, ms)

    def heal(self, a: int | None = None, b: int | None = None) -> None:
        """End cuts and delays: of one link, of one node, of all."""
        if a is None:
            for node in self.nodes.values():
                node.faults.heal_links(self.nodes)
            return
        for one, other in list(self.pairs(a, b)):
            one.faults.heal_links([other.plan.broker_id])
            other.faults.heal_links([one.plan.broker_id])


def temporary_folder() -> tempfile.TemporaryDirectory[str]:
    """A folder that is gone with the process at the latest, whatever a test forgets."""
    return tempfile.TemporaryDirectory(prefix="anabranch-", ignore_cleanup_errors=True)


def _kill_all(nodes: list[ClusterNode]) -> None:
    for node in nodes:
        if node.pid:
            with contextlib.suppress(ClusterError):  # it has ended meanwhile
                node.strike().kill()
