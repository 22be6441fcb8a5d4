"""Whether the content of a metadata store may be replaced by a node's copy.

Rule kept: a store of another cluster, or one that has records which the copy lacks, stays as it is.
Not here: the comparison of the two histories (`core/metadata/store_check.py`).
"""

from __future__ import annotations

from typing import NamedTuple

from anabranch.core.errors import StorageFault
from anabranch.core.metadata.store import Snapshot, StoredBatch, StoreEnd
from anabranch.core.metadata.store_check import restore_fault


class Content(NamedTuple):
    """What a store has: its cluster, where its log ends, and the log's last batch."""

    cluster_id: str | None
    end: StoreEnd
    last: StoredBatch | None


def check_restore(
    store: str,
    kind: str,
    content: Content,
    cluster_id: str,
    snapshot: Snapshot | None,
    batches: list[StoredBatch],
) -> None:
    """Raises StorageFault where the copy must not replace the content. `store` names the store, and
    `kind` says what it is: a file or a database."""
    if content.cluster_id not in (None, cluster_id):
        raise StorageFault(
            f"metadata store {store} belongs to cluster {content.cluster_id}, the copy to cluster "
            f"{cluster_id}; restore into the store of that cluster or into a new {kind}"
        )
    fault = restore_fault(content.end, content.last, snapshot, batches)
    if fault is not None:
        raise StorageFault(f"metadata store {store} {fault}")
