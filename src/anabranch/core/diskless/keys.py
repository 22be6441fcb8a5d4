"""Names of objects: `{cluster id}/wal/{prefix}/{object id}-{mark}`.

What: the cluster comes first, so one bucket may serve several; the prefix is two hexadecimal digits
of a checksum of the object's id, so that neighbours lie apart, as stores that split by name want;
the id has 19 digits; the mark names the coordinator's database. Why a mark: a database that is made
anew counts from 1 again, and no object may get the name of an older one. Rule kept: a name follows
from cluster, mark and id alone.
"""

from __future__ import annotations

from zlib import crc32

ROOM = "wal"


def object_key(cluster_id: str, mark: str, object_id: int) -> str:
    """The name of an object."""
    prefix = crc32(object_id.to_bytes(8, "big")) & 0xFF
    return f"{cluster_id}/{ROOM}/{prefix:02x}/{object_id:019d}-{mark}"


def object_prefix(cluster_id: str) -> str:
    """What the names of all objects of a cluster begin with: to list them."""
    return f"{cluster_id}/{ROOM}/"


def object_id(key: str) -> int:
    """The id in a name; -1 when it is no name of an object."""
    number = key.rpartition("/")[2].partition("-")[0]
    return int(number) if len(number) == 19 and number.isascii() and number.isdigit() else -1


def mark_of(key: str) -> str:
    """The mark of the database that gave a name."""
    return key.rpartition("/")[2].partition("-")[2]
