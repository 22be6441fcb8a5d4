"""M6: a node's copy of the metadata log loses no more than its disk does.

What: `CopyChecks` hears when a copy is opened, gets a snapshot, or lets go of its log, and when a
process ends. Rule kept by the node: a crash takes nothing from a copy, a power cut nothing that a
snapshot holds, and what is opened is the state that was committed at that offset. Source: KIP-630;
decision 0021. Not here: what an image says (`metadata.py`, M1 and M5).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from anabranch.sim.checks.violation import Violation

if TYPE_CHECKING:
    from anabranch.core.metadata.image import MetadataImage
    from anabranch.sim.checks.marks import Marks
    from anabranch.sim.node import SimNode

ENDS = ("crash", "power", "stop")


class CopyChecks:
    """See the module; one for all nodes of a cluster."""

    def __init__(self, marks: Marks) -> None:
        self.marks = marks
        self._ended: dict[int, int] = {}
        """Where a node's copy ended when its last process did."""
        self._safe: dict[int, int] = {}
        """Where the newest snapshot of a node's copy ends."""
        self._dark: set[int] = set()
        """Nodes that have lost power since their copy was opened."""
        self._images: dict[int, MetadataImage] = {}

    def node_changed(self, node: SimNode, what: str) -> None:
        """See Watcher."""
        if what in ENDS and node.copy is not None:
            self._ended[node.node_id] = node.copy.end_offset
            self._images[node.copy.end_offset] = node.copy.image
            if what == "power":
                self._dark.add(node.node_id)
            if what != "stop" and node.follower.is_cut_short:
                self.marks.hit("metadata-snapshot-cut-short")
        elif what in ("wipe", "older"):
            for known in (self._ended, self._safe):
                known.pop(node.node_id, None)

    def copy_changed(self, node: SimNode, what: str) -> None:
        """See Watcher."""
        if what == "opened":
            self._opened(node)
        elif what == "trimmed":
            self.marks.hit("metadata-log-trimmed")
        elif what in ("loaded", "snapshot"):
            self._snapshot(node, what)

    def _snapshot(self, node: SimNode, what: str) -> None:
        assert node.copy is not None
        safe = node.copy.end_offset if what == "loaded" else node.follower.written_to
        self._safe[node.node_id] = max(safe, self._safe.get(node.node_id, 0))
        if what == "loaded":
            self.marks.hit("metadata-snapshot-loaded")

    def _opened(self, node: SimNode) -> None:
        copy, node_id = node.copy, node.node_id
        assert copy is not None
        end, before = copy.end_offset, self._ended.get(node_id, 0)
        is_dark = node_id in self._dark
        self._dark.discard(node_id)
        least = self._safe.get(node_id, 0) if is_dark else before
        if end < least:
            raise Violation(
                "M6", "A node's copy of the metadata lost more than it may.",
                {"node": node.name, "end": end, "before": before, "safe": least,
                 "power": is_dark},
            )  # fmt: skip
        if end < before:
            self.marks.hit("metadata-copy-lost-its-end")
        known = self._images.get(end)
        if known is not None and known != copy.image:
            raise Violation(
                "M6", "A node's copy is opened as another state than it was.",
                {"node": node.name, "end": end},
            )  # fmt: skip
