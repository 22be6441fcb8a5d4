"""Is the metadata store older than what this node has seen of it?

What: three questions: to the end of the store's log when the node starts, to the lease with each
look, to the end of the log that was read before anything is written. What was seen is the node's
copy at its start, what it has followed since, and the log of its own last term.
Rule kept: a store that is older than what this node has seen ends the node.
Not here: the comparison and its sentences (`core/metadata/store_check`).
"""

from __future__ import annotations

from anabranch.core.controller.controller import Controller
from anabranch.core.controller.tenure.effects import ReadEnd
from anabranch.core.controller.tenure.events import EndRead
from anabranch.core.metadata.store import Lease
from anabranch.core.metadata.store_check import CopyEnd, lease_fault, store_fault

STORE = "(metadata.store.url)"


class StoreAge:
    """See the module. `copy` is where the node's copy of the metadata ended at its start."""

    def __init__(self, controller: Controller, copy: CopyEnd, store_url: str) -> None:
        self._controller = controller
        self._copy = copy
        self._store_url = store_url

    def first_question(self) -> ReadEnd | None:
        """What to ask before anything else, None where the node has no copy to compare with."""
        return ReadEnd(self._copy.last_base_offset) if self._copy.end_offset else None

    def fault_of(self, end: EndRead) -> str | None:
        """What the answer to the first question says against the store."""
        return store_fault(self._copy, end.end_offset, end.batch, STORE, self._store_url)

    def fault_of_lease(self, newest_epoch: int, lease: Lease | None) -> str:
        """The sentence about a lease that is of an older epoch than one that was seen."""
        return lease_fault(self._copy, newest_epoch, lease, self._store_url)

    @property
    def seen_end(self) -> int:
        """Up to where this node has seen the metadata committed."""
        controller = self._controller
        followed, own = controller.followed.next_offset, controller.log.end_offset
        return max(self._copy.end_offset, followed, own)

    def fault_of_log(self, end_offset: int) -> str:
        """The sentence about a log that ends before what was seen."""
        seen = self._copy
        if seen.end_offset < self.seen_end:
            seen = CopyEnd(seen.folder, self.seen_end)
        fault = store_fault(seen, end_offset, None, STORE, self._store_url)
        return fault or f"the metadata store went back to offset {end_offset}"
