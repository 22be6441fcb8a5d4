"""Faults of the metadata log: its snapshots come early, and the disks of its copies fail.

Not here: when they come (`metadata_plan.py`), the metadata store's faults (`faults.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from anabranch.core.metadata.batches import encode_snapshot
from anabranch.core.metadata.committed_log import SnapshotView
from anabranch.core.metadata.levels import level_of
from anabranch.core.metadata.snapshot import snapshot_records
from anabranch.sim.processes import State

if TYPE_CHECKING:
    from anabranch.sim.cluster import Cluster
    from anabranch.sim.node import SimNode
    from anabranch.sim.plan_parts import Fault

Undo = Callable[[], None]
Begin = Callable[["Fault"], Undo | None]
CALLS = 40
"""A failing disk fails at one of so many calls."""
FREE_BYTES = 4_000
"""A full disk has room for so much at most."""


def metadata_faults(cluster: Cluster, aimed: Callable[[Fault], SimNode | None]) -> dict[str, Begin]:
    """What begins each of them, by kind; None when there was nothing to do."""
    faults = _Faults(cluster, aimed)
    return {
        "metadata-snapshot": faults.snapshot,
        "metadata-disk-fail": faults.disk_fails,
        "metadata-disk-full": faults.disk_is_full,
    }


class _Faults:
    """See the module."""

    def __init__(self, cluster: Cluster, aimed: Callable[[Fault], SimNode | None]) -> None:
        self.cluster = cluster
        self.aimed = aimed

    def snapshot(self, fault: Fault) -> Undo | None:
        """The active controller takes a snapshot now and one at the end, if it still is: its log
        then begins at the first, and who is behind that has to load the second."""
        node = self.cluster.active_controller()
        if node is None:
            return None
        self._note(fault, node)
        log = node.controller.log
        _take_snapshot(node)

        def again() -> None:
            if node.state is State.RUNNING and node.controller.log is log:
                _take_snapshot(node)

        return again

    def disk_fails(self, fault: Fault) -> Undo | None:
        """A call to the disk of a copy fails, and its node has to stop."""
        node = self.aimed(fault)
        if node is None:
            return None
        self._note(fault, node)
        node.metadata_disk.fail_in = 1 + fault.other % CALLS
        return lambda: _start_again(node)

    def disk_is_full(self, fault: Fault) -> Undo | None:
        """The disk of a copy fills up, and its node has to stop."""
        node = self.aimed(fault)
        if node is None:
            return None
        self._note(fault, node)
        node.metadata_disk.free = fault.other % FREE_BYTES
        return lambda: _start_again(node)

    def _note(self, fault: Fault, node: SimNode) -> None:
        self.cluster.world.note("fault", node.name, fault.kind)


def _start_again(node: SimNode) -> None:
    node.metadata_disk.mend()
    node.start()


def _take_snapshot(node: SimNode) -> None:
    """Of what the active controller's node has followed: that is committed."""
    log, image = node.controller.log, node.followed
    newest = 0 if log.snapshot is None else log.snapshot.end_offset
    if newest < image.next_offset <= log.end_offset:
        now_ms = node.world.now_ms
        payload = encode_snapshot(
            snapshot_records(image), epoch=image.epoch, last_contained_ms=now_ms, now_ms=now_ms,
            level=level_of(image),
        )  # fmt: skip
        log.take_snapshot(SnapshotView(int(image.next_offset), image.epoch, payload))
