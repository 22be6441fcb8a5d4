"""Which cluster and which coordinator a store belongs to, and the store to a coordinator.

What: the keys and bytes of small objects that tell. Why: two clusters with one prefix would each
collect the other's objects as garbage; a coordinator that was lost and made anew would give offsets
a second time; a broker with another prefix, or a volume that is not mounted, would store where no
other broker reads. So a claim has an id of its own, which the coordinator keeps. Rule kept: each
object is put create-only and never removed, so that of two clusters that come at once, one is
refused. Coordinators are numbered: a restore records the next one. Not here: putting and reading
them (`stores/objects/store_check.py`).
"""

from __future__ import annotations

import msgspec

from anabranch.core.errors import StorageFault
from anabranch.core.types import Buffer

CLAIM_KEY = "anabranch-cluster.json"
CLAIM_MOST = 4096
"""Bytes; a larger object of that name is not ours."""
SETTING = "diskless.storage.url"
"""What names the store, unless remote logs alone have one."""
CORRECT = (
    "correct {}, which is the same on every node, or mount the volume that has "
    "them; a store that was copied needs that object too, and one that begins empty needs a new "
    "database in diskless.coordinator.url"
)


class _Recorded(msgspec.Struct):
    mark: str


class Claim(msgspec.Struct):
    """What the object tells."""

    cluster_id: str
    store_id: str = ""
    """Of this store alone; "" in claims that are older than such ids."""


def claim(cluster_id: str, store_id: str) -> bytes:
    """What the object holds for a cluster."""
    return msgspec.json.encode(Claim(cluster_id, store_id)) + b"\n"


def claimed_by(held: Buffer, url: str, setting: str = SETTING) -> Claim:
    """What the object tells; raises StorageFault."""
    try:
        return msgspec.json.decode(held, type=Claim)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise StorageFault(
            f"{url}: the object {CLAIM_KEY} contains no cluster id; choose another folder or "
            f"prefix in {setting}"
        ) from None


def check_claim(held: Buffer, cluster_id: str, url: str, setting: str = SETTING) -> str:
    """Whether the store at `url` belongs to this cluster; its id. Raises StorageFault."""
    told = claimed_by(held, url, setting)
    if told.cluster_id != cluster_id:
        raise StorageFault(
            f"{url}: the object {CLAIM_KEY} belongs to cluster {told.cluster_id!r}, and this is "
            f"cluster {cluster_id!r}; choose a folder or prefix of its own in {setting}"
        )
    return told.store_id


def check_unused(store_id: str, last_id: int, url: str, setting: str = SETTING) -> None:
    """Whether the coordinator may begin with a store that nobody has claimed: `store_id` is the one
    that it has, and `last_id` counts the objects that it has named. Raises StorageFault."""
    if store_id or last_id:
        raise StorageFault(
            f"{url}: there is no object {CLAIM_KEY}: no cluster has used this place, and the "
            f"coordinator's objects lie in another store; {CORRECT.format(setting)}"
        )


def check_place(store_id: str, coordinators_id: str, url: str, setting: str = SETTING) -> None:
    """Whether a store is the one that the coordinator has. Raises StorageFault."""
    if store_id != coordinators_id:
        raise StorageFault(
            f"{url}: this is store {store_id or 'without an id'}, and the coordinator's objects "
            f"lie in another store, {coordinators_id}; {CORRECT.format(setting)}"
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
            f"{place} names coordinator {known}, and this is {mark}: another database, which "
            "would assign offsets a second time; set the one that is named in "
            "diskless.coordinator.url, or, if it is lost, rebuild it with `anabranch diskless "
            "restore`; if it was restored by mistake while nodes used this one, stop all nodes and "
            f"delete {place}"
        )
