"""Faults of a schedule: begun at their times, ended at theirs.

What: `Faults` carries out the faults of a plan in a cluster: links that lose, delay, reorder,
double or cut; swizzle-clog (clog brokers one after another, unclog them in another order); disks
that fail, fill, rot or are lost; processes that crash, lose power, pause, stop in order or roll;
a metadata store that is slow, away, stale, says nothing certain or gives the lease away; clients
that die, storm, come and go. Whom a fault hits is chosen when it happens, from what the plan drew.

Rule kept: a fault draws nothing itself, so that leaving one out changes no other. Source:
TigerBeetle's VOPR, FoundationDB's swizzle-clog. Not here: what a fault does inside a disk, a link
or a store (disk.py, network.py, store.py), healing (repair.py).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from anabranch.core.errors import ProtocolError
from anabranch.core.types import TopicPartition
from anabranch.core.wire.batch import MAGIC_AT, walk
from anabranch.sim.fault_targets import FaultTargets, Undo, mend
from anabranch.sim.lease_faults import LeaseFaults
from anabranch.sim.metadata_faults import metadata_faults
from anabranch.sim.network import HEALTHY, LinkFault
from anabranch.sim.plan import Plan
from anabranch.sim.plan_parts import SECOND_US, Fault
from anabranch.sim.processes import State
from anabranch.sim.registration_faults import RegistrationFaults

if TYPE_CHECKING:
    from anabranch.sim.cluster import Cluster
    from anabranch.sim.node import SimNode

CUT, CLOG = LinkFault(cut=True), LinkFault(clogged=True)
OLDER = {0: 11, 1: 14, 3: 12, 56: 2}
"""API key -> the newest version that an older broker speaks."""
PLANES = ("all", "all", "all", "data", "control")


class Faults(FaultTargets):
    """See the module. `happened` counts faults that found something to do, by kind."""

    def __init__(
        self,
        cluster: Cluster,
        plan: Plan,
        client_faults: dict[str, Callable[[Fault], Undo | None]],
    ) -> None:
        super().__init__(cluster)
        self.network = cluster.network
        self.plan = plan
        self.happened: dict[str, int] = {}
        self._undone: dict[Fault, Undo] = {}
        """Of the faults of clients, which are ended before the world heals."""
        self.rotten: list[tuple[SimNode, str]] = []
        """Folders of partitions in which a bit was flipped."""
        self._kinds = self._table() | LeaseFaults(self).table() | client_faults
        self._kinds |= metadata_faults(cluster, self.aimed) | RegistrationFaults(self).table()
        self._of_clients = client_faults

    def start(self) -> None:
        """Plan all faults."""
        for fault in self.plan.faults:
            self.world.at(fault.at_us, self._begin, fault)

    def strike(self, fault: Fault) -> None:
        """Begin a fault now that is not in the plan."""
        self._begin(fault)

    @property
    def count(self) -> int:
        """How many faults have happened."""
        return sum(self.happened.values())

    def end(self) -> None:
        """No fault begins any more, and those of clients are over."""
        self.are_over = True
        for undo in list(self._undone.values()):
            undo()

    def _begin(self, fault: Fault) -> None:
        if self.are_over:
            return
        undo = self._kinds[fault.kind](fault)
        if undo is None:
            return
        self.happened[fault.kind] = self.happened.get(fault.kind, 0) + 1
        if fault.kind in self._of_clients:
            self._undone[fault] = undo
        self.world.after(fault.lasts_us, self._end, fault, undo)

    def _end(self, fault: Fault, undo: Undo) -> None:
        if not self.are_over:
            self.world.note("fault-ends", "world", fault.kind)
            self._undone.pop(fault, None)
            undo()

    # Whom it hits.

    def _leader(self, fault: Fault) -> SimNode | None:
        """Who leads the partition that the fault aims at, if it runs."""
        place = self._place(fault)
        found = self.cluster.image.partition(*place)
        node = self.cluster.nodes.get(found.leader) if found is not None else None
        return node if node is not None and node.state is State.RUNNING else None

    def _place(self, fault: Fault) -> TopicPartition:
        places = self.plan.places
        return places[fault.aim % len(places)]

    def _other(self, fault: Fault, node: SimNode) -> SimNode:
        others = [each for each in self.nodes() if each is not node]
        return others[fault.other % len(others)]

    # What it does. Each returns what undoes it, or None when there was nothing to do.

    def _table(self) -> dict[str, Callable[[Fault], Undo | None]]:
        return {
            "loss": lambda f: self._everywhere(f, LinkFault(loss=0.02 + 0.3 * f.strength)),
            "delay": lambda f: self._everywhere(f, LinkFault(delay_us=_delay_us(f))),
            "reorder": lambda f: self._everywhere(
                f, LinkFault(delay_us=_delay_us(f) // 4, reorder=True)
            ),
            "duplicate": lambda f: self._everywhere(
                f, LinkFault(duplicate=0.05 + 0.4 * f.strength, delay_us=20_000, reorder=True)
            ),
            "cut": self._cut,
            "isolate": self._isolate,
            "split": self._split,
            "swizzle": self._swizzle,
            "client-cut": self._client_cut,
            "store-cut": self._store_cut,
            "disk-slow": self._disk_slow,
            "disk-fail": self._disk_fail,
            "disk-full": self._disk_full,
            "folder-full": self._folder_full,
            "folder-fails": self._folder_fails,
            "bit-flip": self._bit_flip,
            "wipe": self._wipe,
            "crash": lambda f: self._down(f, self.aimed(f), power=False),
            "power": lambda f: self._down(f, self.aimed(f), power=True),
            "leader-crash": lambda f: self._down(f, self._leader(f), power=f.strength < 0.3),
            "controller-crash": lambda f: self._down(
                f, self.cluster.active_controller(), power=False
            ),
            "slow-restart": lambda f: self._down(f, self.aimed(f), power=False, slow=True),
            "other-version": self._other_version,
            "pause": lambda f: self._pause(f, self.aimed(f)),
            "leader-pause": lambda f: self._pause(f, self._leader(f)),
            "shutdown": self._shut_down,
            "roll": self._roll,
            "crash-all": lambda f: self._all_down(f, power=False),
            "power-all": lambda f: self._all_down(f, power=True),
            "lease-lost": self._lose_lease,
            "store-slow": lambda f: self._store(f, "slow_us", int(2_000_000 * f.strength)),
            "store-unknown": lambda f: self._store(f, "unknown", 1 + f.other % 3),
            "store-away": lambda f: self._store(f, "away", True),
            "store-stale": lambda f: self._store(f, "stale", 1 + f.other % 5),
        }

    # Network.

    def _everywhere(self, fault: Fault, link: LinkFault) -> Undo:
        self.note(fault, "network")
        self.network.everywhere = link

        def undo() -> None:
            if self.network.everywhere is link:
                self.network.everywhere = HEALTHY

        return undo

    def _links(self, fault: Fault, links: list[tuple[SimNode, SimNode]]) -> Undo:
        """Cut ways between nodes: for records, for the controller's requests, or for both."""
        plane = PLANES[fault.other % len(PLANES)]
        for source, target in links:
            self.cluster.spoil(source.node_id, target.node_id, CUT, plane=plane)

        def undo() -> None:
            for source, target in links:
                self.cluster.spoil(source.node_id, target.node_id, None, plane=plane)

        return undo

    def _cut(self, fault: Fault) -> Undo | None:
        """One way only: requests arrive and answers do not, or the other way round."""
        nodes = self.nodes()
        one = nodes[fault.aim % len(nodes)]
        other = self._other(fault, one)
        self.note(fault, one.name, f"to {other.name}")
        return self._links(fault, [(one, other)])

    def _isolate(self, fault: Fault) -> Undo | None:
        """From all other brokers; clients still reach it."""
        nodes = self.nodes()
        one = nodes[fault.aim % len(nodes)]
        self.note(fault, one.name)
        links = []
        for other in nodes:
            if other is not one:
                links += [(one, other), (other, one)]
        return self._links(fault, links)

    def _split(self, fault: Fault) -> Undo | None:
        nodes = self.nodes()
        size = 1 + fault.other % (len(nodes) - 1)
        turned = [nodes[(fault.aim + n) % len(nodes)] for n in range(len(nodes))]
        one, other = turned[:size], turned[size:]
        self.note(fault, "network", ",".join(sorted(node.name for node in one)))
        links = []
        for left in one:
            for right in other:
                links += [(left, right), (right, left)]
        return self._links(fault, links)

    def _swizzle(self, fault: Fault) -> Undo | None:
        """Clog some brokers one after another; unclog them in another order."""
        nodes = self.nodes()
        chosen = [nodes[(fault.aim + n) % len(nodes)] for n in range(1 + fault.other % len(nodes))]
        order = sorted(chosen, key=lambda node: (node.node_id * 7919 + fault.other) % 104_729)
        step_us = fault.lasts_us // (2 * len(chosen) + 1)
        self.note(fault, "network", " ".join(node.name for node in chosen))
        for number, node in enumerate(chosen):
            self.world.after(number * step_us, self._clog, node, True)
        for number, node in enumerate(order):
            self.world.after(fault.lasts_us - number * step_us, self._clog, node, False)
        return _nothing

    def _clog(self, node: SimNode, clogged: bool) -> None:
        if self.are_over:
            return
        self.world.note("clog" if clogged else "unclog", node.name)
        for other in self.nodes():
            if other is not node:
                link = CLOG if clogged else None
                self.cluster.spoil(node.node_id, other.node_id, link)
                self.cluster.spoil(other.node_id, node.node_id, link)

    def _client_cut(self, fault: Fault) -> Undo | None:
        clients = self.plan.clients
        client = clients[fault.other % len(clients)].name
        node = self._leader(fault) or self.aimed(fault)
        if node is None:
            return None
        self.note(fault, node.name, f"to {client}")
        self.network.cut(node.name, client)  # the answers alone are lost
        return lambda: self.network.set(node.name, client, None)

    def _store_cut(self, fault: Fault) -> Undo | None:
        node = self.aimed(fault)
        if node is None:
            return None
        self.note(fault, node.name)
        cut_off = self.cluster.store.faults.cut_off
        cut_off.add(node.name)
        return lambda: cut_off.discard(node.name)

    # Disks.

    def _disk_slow(self, fault: Fault) -> Undo | None:
        node = self.aimed(fault)
        if node is None:
            return None
        self.note(fault, node.name)
        node.disk_delay_us = int(500_000 * fault.strength)
        return lambda: mend(node)

    def _disk_fail(self, fault: Fault) -> Undo | None:
        node = self.aimed(fault)
        if node is None:
            return None
        self.note(fault, node.name)
        node.disk.fail_in = 1 + fault.other % 20
        return lambda: self.restart_mended(node)

    def _disk_full(self, fault: Fault) -> Undo | None:
        node = self.aimed(fault)
        if node is None:
            return None
        self.note(fault, node.name)
        node.disk.free = fault.other % 2_000
        return lambda: self.restart_mended(node)

    def _folder_full(self, fault: Fault) -> Undo | None:
        """One folder's disk fills up, and gets room again while the process runs."""
        node = self.aimed(fault)
        if node is None:
            return None
        path = node.folders[fault.other % len(node.folders)]
        self.note(fault, node.name, path)
        node.disk.rooms[path] = max(0, fault.other % 2_000 - 1_000)
        self._maybe_restart(fault, node)

        def undo() -> None:
            node.disk.rooms.pop(path, None)

        return undo

    def _folder_fails(self, fault: Fault) -> Undo | None:
        """One folder's disk fails, as long as others work, and comes back with what it had."""
        node = self.aimed(fault)
        if node is None or len(node.folders) < 2 or node.disk.broken:
            return None
        path = node.folders[1 + fault.other % (len(node.folders) - 1)]
        self.note(fault, node.name, path)
        node.disk.broken.add(path)
        self._maybe_restart(fault, node)
        return lambda: self.restart_mended(node)

    def _maybe_restart(self, fault: Fault, node: SimNode) -> None:
        """Half of the time a process starts on such disks, too, after a crash or a power cut."""

        def restart() -> None:
            if node.state is State.RUNNING:
                node.crash(power=fault.strength < 0.15)
                node.start()

        if fault.strength < 0.5:
            self.later(fault.lasts_us // 2, restart)

    def _bit_flip(self, fault: Fault) -> Undo | None:
        """A bit of a segment rots while the node is down, so that recovery meets it."""
        node = self.aimed(fault)
        if node is None:
            return None
        folder = f"/{self._place(fault)}/"
        node.crash()
        segments = [
            path
            for path in sorted(node.disk.names)
            if folder in path
            and path.endswith(".log")
            and node.disk.size(path) > 0
            and not node.disk.is_broken(path)
        ]
        if segments:
            path = segments[fault.other % len(segments)]
            self.note(fault, node.name, path)
            node.changed("rot")
            self.rotten.append((node, path.rpartition("/")[0]))
            at = rotten_byte(node.disk.read(path), fault.strength)
            node.disk.flip_bit(path, at, fault.other % 8)
        return node.start

    def _wipe(self, fault: Fault) -> Undo | None:
        """The disk is lost with the machine; an empty one comes back under the same id. Not while
        the store is an older one: an empty node could not know that."""
        node = self.aimed(fault)
        if node is None or self.cluster.store.put_aside is not None:
            return None
        self.note(fault, node.name)
        node.crash(power=True)
        if fault.strength < 0.5:
            node.wipe()
        else:
            node.lose_folder(node.folders[fault.other % len(node.folders)])
        return node.start

    # Processes.

    def _down(
        self, fault: Fault, node: SimNode | None, *, power: bool, slow: bool = False
    ) -> Undo | None:
        if node is None or node.state is not State.RUNNING:
            return None
        self.note(fault, node.name)
        node.crash(power=power)
        return lambda: node.start(slow=slow)

    def _other_version(self, fault: Fault) -> Undo | None:
        """A broker stops in order and comes back as an older release, then as the newest one."""
        node = self.aimed(fault)
        if node is None:
            return None
        self.note(fault, node.name)

        def come_back(newest: dict[int, int]) -> None:
            node.newest = newest
            node.start()

        def restart(newest: dict[int, int]) -> None:
            node.shut_down(lambda: self.later(SECOND_US // 2, partial(come_back, newest)))

        restart(OLDER)
        return lambda: restart({})

    def _pause(self, fault: Fault, node: SimNode | None) -> Undo | None:
        if node is None or node.state is not State.RUNNING:
            return None
        self.note(fault, node.name)
        node.pause()
        return node.resume

    def _shut_down(self, fault: Fault) -> Undo | None:
        node = self.aimed(fault)
        if node is None:
            return None
        self.note(fault, node.name)
        node.shut_down(lambda: self.later(fault.lasts_us, node.start))
        return _nothing

    def _roll(self, fault: Fault) -> Undo | None:
        """All brokers one after another, in order, each given time to stop and to come back."""
        self.note(fault, "world")
        step_us = 2 * SECOND_US + fault.lasts_us // 2

        def restart(node: SimNode) -> None:
            node.shut_down(lambda: self.later(step_us // 4, node.start))

        for number, node in enumerate(self.nodes()):
            self.later(number * step_us, partial(restart, node))
        return _nothing

    def _all_down(self, fault: Fault, *, power: bool) -> Undo | None:
        up = [node for node in self.nodes() if node.is_up]
        if not up:
            return None
        self.note(fault, "world")
        for node in up:
            node.crash(power=power)

        def undo() -> None:
            for number, node in enumerate(self.nodes()):
                delay_us = (fault.other * (number + 1) * 7919) % (3 * SECOND_US)
                self.later(delay_us, node.start)

        return undo

    # Metadata store.

    def _store(self, fault: Fault, name: str, value: int) -> Undo | None:
        self.note(fault, "store")
        setattr(self.cluster.store.faults, name, value)
        return lambda: setattr(self.cluster.store.faults, name, type(value)(0))

    def _lose_lease(self, fault: Fault) -> Undo | None:
        self.note(fault, "store")
        self.cluster.store.steal_lease()
        return _nothing


def rotten_byte(log: bytes, strength: float) -> int:
    """A byte of a segment that a checksum covers: the format protects neither the base offset nor
    the leader epoch of a batch, so no node could notice."""
    try:
        batches = list(walk(log))
    except ProtocolError:  # what a power cut left of it is unreadable already
        batches = []
    if not batches:
        return len(log) - 1
    position, header = batches[int(len(batches) * strength)]
    return position + MAGIC_AT + int((header.size_bytes - MAGIC_AT) * strength)


def _delay_us(fault: Fault) -> int:
    return int(2_000 + 800_000 * fault.strength**3)


def _nothing() -> None:
    return None
