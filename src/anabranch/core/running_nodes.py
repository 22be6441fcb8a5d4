"""What shows that nodes of a cluster run, and what is said to who would restore beside them.

What: the addresses that metadata tells, the writer that a name in the object store tells, and the
sentence. Why: while nodes run with the old coordinator or metadata store, another one beside it
gives the same offsets a second time; text that says "stop all nodes first" stops nobody. Rule kept:
what is no sign of a node of this cluster refuses nothing. Not here: looking
(`server/running_nodes.py`). What nobody can see: an idle node whose address is not known here, or
that cannot be reached from here, and one that starts later.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import NamedTuple

from anabranch.core.diskless.keys import object_prefix
from anabranch.core.diskless.last_commits import last_commits_prefix
from anabranch.core.diskless.manifests import INTERVAL_MS, RESTORED, manifest_name
from anabranch.core.errors import StorageFault
from anabranch.core.metadata.image import MetadataImage
from anabranch.core.settings.listeners import host_text

WATCH_MS = INTERVAL_MS + 2_000
"""How long writes are watched for: a broker that has committed stores a manifest in that time."""
MOST_NAMED = 3
"""Nodes in one sentence; the others are like them."""
TWO_COORDINATORS = (
    "nodes that run may commit with the old coordinator, and two coordinators assign the same "
    "offsets twice"
)
TWO_STORES = (
    "nodes that run may change the metadata in the old store, and two stores assign the same "
    "offsets of the metadata log twice"
)


class NodeAddress(NamedTuple):
    """Where a node may listen, and which; None: it is not known."""

    node_id: int | None
    host: str
    port: int

    @property
    def text(self) -> str:
        """host:port."""
        return f"{host_text(self.host)}:{self.port}"

    @property
    def who(self) -> str:
        """For sentences."""
        return "a node" if self.node_id is None else f"node {self.node_id}"


class Changed(NamedTuple):
    """An object that came, or went (`modified_ms` None), while the store was watched."""

    key: str
    modified_ms: int | None


def addresses_of(image: MetadataImage) -> list[NodeAddress]:
    """Every address at which brokers and controllers have registered."""
    nodes = [*image.brokers.items(), *image.controllers.items()]
    return [
        NodeAddress(node_id, point.host, point.port)
        for node_id, node in nodes
        for _, point in sorted(node.endpoints.items())
    ]


def changed(before: Mapping[str, int], after: Mapping[str, int]) -> list[Changed]:
    """What came and went between two listings (name -> time), what names its writer first."""
    came = [Changed(key, after[key]) for key in after.keys() - before.keys()]
    gone = [Changed(key, None) for key in before.keys() - after.keys()]
    return sorted(came, key=lambda each: (each.modified_ms or 0, each.key)) + sorted(gone)


def writer_of(key: str, cluster_id: str) -> int | None:
    """The broker that a name tells; None when it tells none."""
    name = manifest_name(key, cluster_id)
    if name is not None:
        return None if name.broker_id == RESTORED else name.broker_id
    notes = last_commits_prefix(cluster_id)
    number = key.removeprefix(notes).partition("/")[0]
    return int(number) if key.startswith(notes) and number.isdecimal() else None


def is_object(key: str, cluster_id: str) -> bool:
    """Whether it is an object with records, whose header tells its writer."""
    return key.startswith(object_prefix(cluster_id))


def refuse(seen: Sequence[str], why: str) -> None:
    """Raises StorageFault when anything was seen."""
    if not seen:
        return
    more = f" (and {len(seen) - MOST_NAMED} more signs)" if len(seen) > MOST_NAMED else ""
    raise StorageFault(
        f"{_listed(seen)}{more}: {why}; stop all nodes of the cluster, or use --force if they are "
        "surely stopped. Nothing was changed."
    )


def _listed(seen: Iterable[str]) -> str:
    return "; ".join(islice(seen, MOST_NAMED))
