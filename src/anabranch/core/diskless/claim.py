"""Which cluster a store belongs to: one small object that the first broker puts.

What: the object's key and bytes. Why: two clusters with one prefix would each collect the other's
objects as garbage. Rule kept: the object is put create-only and never removed, so that of two
clusters that come at once, one is refused. Not here: putting and reading it
(`server/objects/checking.py`).
"""

from __future__ import annotations

import msgspec

from anabranch.core.errors import StorageFault
from anabranch.core.types import Buffer

CLAIM_KEY = "anabranch-cluster.json"
CLAIM_MOST = 4096
"""Bytes; a larger object of that name is not ours."""


class _Claim(msgspec.Struct):
    cluster_id: str


def claim(cluster_id: str) -> bytes:
    """What the object holds for a cluster."""
    return msgspec.json.encode(_Claim(cluster_id)) + b"\n"


def claimed_by(held: Buffer, url: str) -> str:
    """The cluster that the object names; raises StorageFault."""
    try:
        return msgspec.json.decode(held, type=_Claim).cluster_id
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise StorageFault(
            f"{url}: the object {CLAIM_KEY} names no cluster; choose another folder or prefix in "
            "diskless.storage.url"
        ) from None


def check_claim(held: Buffer, cluster_id: str, url: str) -> None:
    """Whether the store at `url` belongs to this cluster; raises StorageFault."""
    owner = claimed_by(held, url)
    if owner != cluster_id:
        raise StorageFault(
            f"{url}: the object {CLAIM_KEY} belongs to cluster {owner!r}, and this is cluster "
            f"{cluster_id!r}; choose a folder or prefix of its own in diskless.storage.url"
        )
