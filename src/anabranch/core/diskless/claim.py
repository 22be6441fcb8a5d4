"""Which cluster and which coordinator a store belongs to: small objects that tell.

What: the objects' keys and bytes. Why: two clusters with one prefix would each collect the other's
objects as garbage; a coordinator that was lost and made anew would give offsets a second time.
Rule kept: each object is put create-only and never removed, so that of two clusters that come at
once, one is refused. Coordinators are numbered: a restore records the next one. Not here: putting
and reading them (`server/objects/store_check.py`).
"""

from __future__ import annotations

import msgspec

from anabranch.core.errors import StorageFault
from anabranch.core.types import Buffer

CLAIM_KEY = "anabranch-cluster.json"
CLAIM_MOST = 4096
"""Bytes; a larger object of that name is not ours."""


class _Recorded(msgspec.Struct):
    mark: str


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


def coordinators_prefix(cluster_id: str) -> str:
    """What the names of all records of coordinators begin with."""
    return f"{cluster_id}/coordinators/"


def coordinator_key(cluster_id: str, number: int) -> str:
    """The name of the record of a cluster's first, second … coordinator."""
    return f"{coordinators_prefix(cluster_id)}{number:06d}"


def recorded(mark: str) -> bytes:
    """The record of a coordinator, by the mark of its database."""
    return msgspec.json.encode(_Recorded(mark)) + b"\n"


def check_recorded(held: Buffer, mark: str, place: str) -> None:
    """Whether the newest record is that of the coordinator with this mark; raises StorageFault."""
    try:
        known = msgspec.json.decode(held, type=_Recorded).mark
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise StorageFault(f"{place} names no coordinator; it was overwritten") from None
    if known != mark:
        raise StorageFault(
            f"{place} names coordinator {known}, and this is {mark}: another database, which would "
            "give offsets a second time; name the former one in diskless.coordinator.url, or, if "
            "it is lost, rebuild it with `anabranch diskless restore`"
        )
