"""What the store says of its coordinator: the last commits that it must know, the names it gave.

What: the last committed object of each broker, noted as the name of a small object, so that one
listing tells; and the objects themselves, whose names rise. Why: a coordinator that is put back
from a backup has the same mark, and would give the offsets of all later commits a second time.
Rules kept: an object is noted only after the coordinator has answered that it is committed, so that
a sound coordinator knows every note; commits of one broker come one at a time, so that its last one
stands for all before it. Notes are as old as manifests: what a broker that was killed committed in
its last ten seconds may not be noted. But no object has a name that its coordinator has not given
yet: one that has shows an older copy at once, whether it was committed or not. Those are looked for
by name, since ids follow on one another. What escapes both are commits of the last ten seconds
whose ids were given before the copy was made: of each broker at most its stock. A node that runs
knows more (`KnownCommits`): its own last commit, and the last one that it heard of. Commits have
one order, which a copy has up to a point, so that these two stand for all that this node knows. Not
here: putting and listing (`server/diskless/manifests.py`, `store_check.py`).
"""

from __future__ import annotations

from collections.abc import Iterable

from anabranch.core.diskless.coordinator import OlderCopy
from anabranch.core.diskless.keys import mark_of, object_id, object_key
from anabranch.core.diskless.objects import ObjectTaken
from anabranch.core.diskless.rows import Change

ROOM = "last-commits"
NAMES_LOOKED_FOR = 128
"""After the last one that the coordinator has given: four times what a broker gets at once, since
the next ones may belong to brokers that had no use for them. A request each, side by side."""
OLDER = (
    "it was replaced by an older copy, which would assign offsets a second time; put the newest "
    "copy back, or set a new database in diskless.coordinator.url and rebuild it with `anabranch "
    "diskless restore`"
)


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
    """Raises OlderCopy when the coordinator does not know what it has committed."""
    lacking = list(uncommitted)
    if lacking:
        raise OlderCopy(
            f"{where}: object {lacking[-1]} was committed, and this coordinator does not know it: "
            f"{OLDER}"
        )


def names_after(cluster_id: str, mark: str, last_id: int) -> dict[int, str]:
    """Id -> name of the objects that a coordinator would name next."""
    ids = range(last_id + 1, last_id + 1 + NAMES_LOOKED_FOR)
    return {each: object_key(cluster_id, mark, each) for each in ids}


def check_given(present: Iterable[int], last_id: int, where: str) -> None:
    """Raises OlderCopy when there are objects whose ids the coordinator has not given; `last_id`
    was asked for after they had been found."""
    later = [each for each in present if each > last_id]
    if later:
        raise OlderCopy(
            f"{where}: there is an object {later[-1]}, and this coordinator has assigned no id "
            f"beyond {last_id}: {OLDER}"
        )


def name_taken(fault: ObjectTaken) -> OlderCopy:
    """What it shows that an object's name was taken, with other bytes: no coordinator gives a name
    twice."""
    return OlderCopy(f"the coordinator: {fault}, with other bytes: {OLDER}")


class KnownCommits:
    """What a node that runs knows of its coordinator: the database's mark, the last object that it
    committed itself, and the last one that it heard of. Threads write it, each value at once."""

    __slots__ = ("_heard", "_mark", "_own")

    def __init__(self) -> None:
        self._mark = ""
        self._own = self._heard = -1

    @property
    def ids(self) -> list[int]:
        """Objects that the coordinator must know as committed."""
        return [each for each in (self._own, self._heard) if each >= 0]

    def committed(self, object_id: int) -> None:
        """An object of this node is committed."""
        self._own = object_id

    def heard(self, changes: Iterable[Change]) -> None:
        """The watch told these, in the order of commits."""
        for change in changes:
            if change.runs:
                self._heard = change.runs[-1].object_id

    def check_mark(self, mark: str, where: str) -> None:
        """Whether a database is the one of before ("": it is empty). Raises OlderCopy."""
        if self._mark and mark != self._mark:
            there = f"database {mark}" if mark else "an empty database"
            raise OlderCopy(f"{where}: {there} is in the place of {self._mark}: {OLDER}")

    def check(self, mark: str, uncommitted: Iterable[int], where: str) -> None:
        """Whether a database is the one of before and knows what was committed; of `ids` these are
        `uncommitted` in it. Raises OlderCopy."""
        self.check_mark(mark, where)
        self._mark = mark
        check_committed(uncommitted, where)
