"""The last committed object of each broker, noted in the store: what its coordinator must know.

What: the names of small objects that say it all, so that one listing tells. Why: a coordinator that
is put back from a backup has the same mark, and would give the offsets of all later commits a
second time. Rules kept: an object is noted only after the coordinator has answered that it is
committed, so that a sound coordinator knows every note; commits of one broker come one at a time,
so that its last one stands for all before it. Notes are as old as manifests: what a broker that was
killed committed in its last ten seconds may not be noted. Not here: putting and listing
(`server/objects/manifests.py`, `checking.py`).
"""

from __future__ import annotations

from collections.abc import Iterable

from anabranch.core.diskless.keys import mark_of, object_id
from anabranch.core.errors import StorageFault

ROOM = "last-commits"


def last_commits_prefix(cluster_id: str) -> str:
    """What the names of all notes of a cluster begin with."""
    return f"{cluster_id}/{ROOM}/"


def notes_prefix(cluster_id: str, broker_id: int) -> str:
    """What those of one broker begin with."""
    return f"{last_commits_prefix(cluster_id)}{broker_id}/"


def note_key(cluster_id: str, broker_id: int, object_key: str) -> str:
    """The note that a broker has committed an object, after all that it committed before."""
    return f"{notes_prefix(cluster_id, broker_id)}{object_key.rpartition('/')[2]}"


def noted_ids(note_keys: Iterable[str], mark: str) -> list[int]:
    """The objects that the coordinator with this mark has committed, by the names of notes."""
    return sorted({object_id(each) for each in note_keys if mark_of(each) == mark} - {-1})


def check_committed(uncommitted: Iterable[int], where: str) -> None:
    """Raises StorageFault when the coordinator does not know what it has committed."""
    lacking = list(uncommitted)
    if lacking:
        raise StorageFault(
            f"{where}: object {lacking[-1]} was committed, and this coordinator does not know it: "
            "an older copy of it was put back, which would give offsets a second time; put the "
            "newest copy back, or name a new database in diskless.coordinator.url and rebuild it "
            "with `anabranch diskless restore`"
        )
