"""Checks of the active controller's term: when it acts, what it answers, what it stores.

T1: who acts as the active controller held the lease within the lease's time, by its own clock, as
the store saw it. T2: a decision is answered when the store has committed everything that it stands
on. T3: a snapshot of the metadata holds nothing that is not committed. T4: nothing is committed on
a store that is older than every node's copy. T5: a node stops for a store that went back only if
it did. Rule kept: the oracle is the store, not what the controller believes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from anabranch.sim.checks.marks import Marks
from anabranch.sim.checks.violation import Violation

if TYPE_CHECKING:
    from anabranch.sim.node import SimNode
    from anabranch.sim.store import Lease, SimStore, Snapshot

LEASE_MS = 6_000
WENT_BACK = ("went back", "so it was lost", "metadata log diverges")


class LeaseChecks:
    """See the module."""

    def __init__(self, store: SimStore, marks: Marks) -> None:
        self.store = store
        self.marks = marks
        self._confirmed_ms: dict[tuple[int, int, int], int] = {}
        """Node, its life, epoch -> its own clock when the store last did something for that."""

    def confirmed(self, node: SimNode, lease: Lease) -> None:
        """See Watcher."""
        self._confirmed_ms[node.node_id, node.life, lease.epoch] = node.steady_ms

    def acts(self, node: SimNode) -> None:
        """See Watcher."""
        epoch, now_ms = node.controller.epoch, node.steady_ms
        confirmed_ms = self._confirmed_ms.get((node.node_id, node.life, epoch))
        if confirmed_ms is None or now_ms - confirmed_ms > LEASE_MS:
            raise Violation(
                "T1", "A controller answers without a lease that was confirmed in time.",
                {"node": node.name, "epoch": epoch, "confirmed_ms": confirmed_ms, "now_ms": now_ms},
            )  # fmt: skip

    def answered(self, node: SimNode, end_offset: int) -> None:
        """See Watcher."""
        if self.store.put_aside is None and end_offset > self.store.end_offset:
            raise Violation(
                "T2", "A decision was answered before it was committed.",
                {"node": node.name, "needs": end_offset, "committed": self.store.end_offset},
            )  # fmt: skip

    def snapshot_stored(self, snapshot: Snapshot) -> None:
        """See Watcher."""
        if self.store.put_aside is None and snapshot.end_offset > self.store.end_offset:
            raise Violation(
                "T3", "A snapshot of the metadata holds what is not committed.",
                {"ends": snapshot.end_offset, "committed": self.store.end_offset},
            )  # fmt: skip

    def committed(self, epoch: int) -> None:
        """A batch was committed."""
        if self.store.put_aside is not None:
            raise Violation(
                "T4", "Something was committed on a store that is older than every copy.",
                {"epoch": epoch},
            )  # fmt: skip

    def must_stop(self, name: str, sentence: str) -> None:
        """A node said that it must stop."""
        if not any(each in sentence for each in WENT_BACK):
            return
        if self.store.times_back == 0:
            raise Violation(
                "T5", "A node stopped for a store that went back, and it did not.",
                {"node": name, "said": sentence},
            )  # fmt: skip
        self.marks.hit("store-went-back")
